"""Operators whose functions C has under other names, against onnxruntime, with numbers that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import parser

pytest.importorskip("tvm")

import softq
from softq.errors import RefusalError
from tests.handmade import needs_host

HEAD = '<ir_version: 10, opset_import: ["": 21]>'
ODD = np.array([[0.5, -0.0, np.nan, -np.inf, np.inf, 1e-40, -3.25, 0.75], np.linspace(-0.9, 0.9, 8)], np.float32)


@needs_host
@pytest.mark.parametrize(
    "body",
    [
        *(f"y = {name}(x)" for name in ("Abs", "Softplus", "Softsign", "Asin", "Acos", "Atan", "Sinh", "Cosh")),
        "y = Asinh(x)", "y = Atanh(x)", "a = Abs(x) b = Add(a, o) y = Acosh(b)", "y = Max(x, o)", "y = Min(x, o)",
        "a = IsNaN(x) y = Where(a, o, x)", "a = IsNaN(x) b = Where(a, o, x) y = ReduceMax<keepdims=1>(b)",
    ],
)  # fmt: skip
def test_operators_are_those_of_onnxruntime(body: str, tmp_path: Path) -> None:
    rows = "[1, 1]" if "Reduce" in body else "[2, 8]"
    model = parser.parse_model(HEAD + f"g (float[2, 8] x, float[2, 8] o) => (float{rows} y) {{ {body} }}")
    softq.build(model, tmp_path / "model", target="c")
    given = {"x": ODD, "o": np.full_like(ODD, 1.5)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = np.asarray(session.run(None, given)[0])
    with softq.load(tmp_path / "model") as built:
        found = np.asarray(built(given)["y"], np.float32)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_loops_that_end_by_a_condition_are_refused(tmp_path: Path) -> None:
    text = "g (float[4, 8] x) => (float[4, 3] y) { k = Constant<value_ints=[3]>() y, i = TopK<axis=1>(x, k) }"
    with pytest.raises(RefusalError, match=r"a loop of softq_.* that ends by a condition has no form in C"):
        softq.build(parser.parse_model(HEAD + text), tmp_path / "model", target="c")
    assert not (tmp_path / "model").exists()
