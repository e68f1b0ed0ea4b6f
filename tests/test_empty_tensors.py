"""Converted models take tensors without elements that the original takes: batches of none, and no queries.

onnxruntime is the reference: results are as empty as the original's. An attention without keys is not among the cases:
onnxruntime's reductions keep an empty axis.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import softq
from softq.methods import METHODS
from tests.built import Array

PLAIN = "g (float[a,b] x) => (float[a,b] y) { y = Softmax <axis = -1> (x) }"
FLAT = "g (float[a,b,c] x) => (float[a,b,c] y) { y = Softmax <axis = 1> (x) }"
MASKED = """g (float[a,b,c] q, float[a,c,d] k, float[a,d,e] v, bool[b,d] m) => (float[a,b,e] y) <float low = {-10000.0}>
    { s = MatMul (q, k) h = Where (m, s, low) p = Softmax <axis = -1> (h) y = MatMul (p, v) }"""
ATTENTION = """g (float[a,b,c] q, float[a,c,d] k, float[a,d,e] v) => (float[a,b,e] y)
    { s = MatMul (q, k) p = Softmax <axis = -1> (s) y = MatMul (p, v) }"""


def feeds(text: str, sizes: tuple[int, ...]) -> dict[str, Array]:
    if text in (PLAIN, FLAT):
        return {"x": np.zeros(sizes, np.float32)}
    batch, queries, keys = sizes
    shapes = {"q": (batch, queries, 8), "k": (batch, 8, keys), "v": (batch, keys, 6)}
    mask = {"m": np.ones((queries, keys), np.bool_)} if text == MASKED else {}
    return {**{name: np.ones(shape, np.float32) for name, shape in shapes.items()}, **mask}


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("method", METHODS.entries())
def test_results_are_as_empty_as_those_of_the_original(method: str) -> None:
    cases = {
        PLAIN: ((0, 4), (3, 0), (0, 0)),
        FLAT: ((0, 3, 4), (2, 3, 0), (2, 0, 4)),
        ATTENTION: ((0, 3, 4), (2, 0, 4)),
        MASKED: ((0, 3, 4), (2, 0, 4)),
    }
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for text, shapes in cases.items():
        model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {11 if text == FLAT else 18}]> {text}')
        result = softq.convert(model, method=method, all_sites=True, require=True, allow_substitute=True).model
        assert isinstance(result, onnx.ModelProto)
        original, converted = (
            onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
            for m in (model, result)
        )
        for sizes in shapes:
            given = feeds(text, sizes)
            want, got = (np.asarray(session.run(None, given)[0]) for session in (original, converted))
            assert (got.shape, got.dtype, want.size) == (want.shape, want.dtype, 0), (text, sizes)
