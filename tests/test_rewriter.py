"""Fresh names are the least that are free, however often a stem is asked for."""

from __future__ import annotations

import random

import onnx_ir as ir
from onnx import parser

from softq.graph.rewriter import Names


def test_names_have_the_least_number_that_is_free() -> None:
    text = "g (float[2] a, float[2] a_3) => (float[2] b_0) { a_0 = Neg (a) b = Neg (a_0) b_0 = Add (b, a_3) }"
    model = ir.from_proto(parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}'))
    names, taken, rng = Names(model), {"a", "a_3", "a_0", "b", "b_0"}, random.Random(1)
    for _ in range(60):
        stem, numbered = rng.choice("abc"), rng.random() < 0.5
        tried = [stem] * (not numbered) + [f"{stem}_{number}" for number in range(0 if numbered else 2, 99)]
        expected = next(name for name in tried if name not in taken)
        assert (names.numbered if numbered else names.fresh)(stem) == expected
        taken.add(expected)
