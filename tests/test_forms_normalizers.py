"""Exponentials over a sum that is no ReduceSum: recognised with the values of the softmax, or named with a reason."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import softq
from tests.forms import Array

HEAD = """<ir_version: 10, opset_import: ["": 18]>
g (float[2, 4, 8] s, float[2, 8, 4] v) => (float[2, 4, 4] y)
<int64[1] last = {2}, float[8, 1] ones = {1, 1, 1, 1, 1, 1, 1, 1}, float[8] row = {1, 1, 1, 1, 1, 1, 1, 1},
 float[8, 1] twos = {1, 1, 1, 1, 1, 1, 1, 2}, float minus = {-1}, float half = {-0.5}, float one = {1},
 int64[3] kept = {2, 4, 1}, int64[3] full = {2, 4, 8}, int64[2] halves = {4, 4}, float eight = {8},
 int64[1] middle = {1}, float zero = {0}, float[4, 4] mix = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
 bool[8] hidden = {0, 0, 1, 0, 0, 0, 1, 0}> {
    greatest = ReduceMax <keepdims = 1> (s, last)
    d = Sub (s, greatest)
    e = Exp (d)
"""
RECOGNISED = {
    "einsum": 'u = Einsum <equation = "bij -> bi"> (e) t = Unsqueeze (u, last) p = Div (e, t) y = MatMul (p, v)',
    "einsum of columns": """u = Einsum <equation = "bij->bj"> (e) t = Unsqueeze (u, middle) p = Div (e, t)
        y = MatMul (p, v)""",
    "product with a column": "t = MatMul (e, ones) p = Div (e, t) y = MatMul (p, v)",
    "product with a vector": "u = MatMul (e, row) t = Unsqueeze (u, last) p = Div (e, t) y = MatMul (p, v)",
    "logarithm of the sum": "t = ReduceLogSum <keepdims = 1> (e, last) l = Sub (d, t) p = Exp (l) y = MatMul (p, v)",
    "normalization": "p = LpNormalization <p = 1, axis = 2> (e) y = MatMul (p, v)",
    "power": "t = ReduceSum <keepdims = 1> (e, last) r = Pow (t, minus) p = Mul (e, r) y = MatMul (p, v)",
    "reshaped and repeated": """t0 = ReduceSum <keepdims = 0> (e, last) t1 = Reshape (t0, kept) t = Expand (t1, full)
        p = Div (e, t) y = MatMul (p, v)""",
}
DEFERRED = {
    "product first": "o = MatMul (e, v) t = ReduceSum <keepdims = 1> (e, last) y = Div (o, t)",
    "product first, reciprocal": """o = MatMul (e, v) t = ReduceSum <keepdims = 1> (e, last) r = Reciprocal (t)
        y = Mul (r, o)""",
    "product first, sum by a product": "o = MatMul (e, v) t = MatMul (e, ones) y = Div (o, t)",
    "product first, masked": """f = Where (hidden, zero, e) o = MatMul (f, v) t = ReduceSum <keepdims = 1> (f, last)
        y = Div (o, t)""",
    "product first, read twice": """o = MatMul (e, v) t = ReduceSum <keepdims = 1> (e, last) a = Div (o, t)
        z = MatMul (o, mix) b = Mul (z, zero) y = Add (a, b)""",
}
REFUSED = {
    "product of other exponentials": (
        "f = Sin (e) o = MatMul (f, v) t = ReduceSum <keepdims = 1> (e, last) y = Div (o, t)",
        "MatMul of node o",
    ),
    "product first, sum of columns": (
        """o = MatMul (e, v) t0 = ReduceSum <keepdims = 1> (e, middle) t1 = ReduceSum <keepdims = 1> (t0, last)
        y = Div (o, t1)""",
        "MatMul of node o",
    ),
    "mean": (
        "m = ReduceMean <keepdims = 1> (e, last) t = Mul (m, eight) p = Div (e, t) y = MatMul (p, v)",
        "ReduceMean of node m adds them up",
    ),
    "halves": (
        """a, b = Split <axis = 2> (e, halves) c = Sum (a, b) t = ReduceSum <keepdims = 1> (c, last) p = Div (e, t)
        y = MatMul (p, v)""",
        "Sum of node c adds them up",
    ),
    "weighted sum": ("t = MatMul (e, twos) p = Div (e, t) y = MatMul (p, v)", "MatMul of node t adds them up"),
    "einsum of two": (
        'q = Einsum <equation = "bij,jk->bik"> (e, ones) p = Div (e, q) y = MatMul (p, v)',
        "Einsum of node q adds them up",
    ),
}  # fmt: skip
NONE = {
    "sigmoid": "t = Add (e, one) p = Div (e, t) y = MatMul (p, v)",
    "root": "t = ReduceSum <keepdims = 1> (e, last) r = Pow (t, half) p = Mul (d, r) y = MatMul (p, v)",
    "no exponential": "p = LpNormalization <p = 1, axis = 2> (d) y = MatMul (p, v)",
    "length 1": "p = LpNormalization <p = 2, axis = 2> (e) y = MatMul (p, v)",
}


def model(body: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + body + "}")


def run(proto: onnx.ModelProto) -> Array:
    rng = np.random.default_rng(0)
    feed = {"s": rng.normal(size=(2, 4, 8)) * 30, "v": rng.normal(size=(2, 8, 4))}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {name: array.astype(np.float32) for name, array in feed.items()})[0])


@pytest.mark.parametrize("body", RECOGNISED.values(), ids=list(RECOGNISED))
def test_what_is_a_softmax_is_converted_with_its_values(body: str) -> None:
    before = model(body)
    result = softq.convert(before, method="exact")
    assert [(site.id, site.verdict.action, site.role) for site in result.sites] == [("p", "convert", "attention")]
    np.testing.assert_allclose(run(result.model), run(before), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("body", DEFERRED.values(), ids=list(DEFERRED))
def test_a_division_behind_the_product_is_an_attention(body: str) -> None:
    before = model(body)
    result = softq.convert(before, method="exact")
    (site,) = result.sites
    assert (site.form, site.verdict.action, site.role) == ("product-over-sum", "convert", "attention")
    np.testing.assert_allclose(run(result.model), run(before), rtol=1e-5, atol=1e-6)
    assert "softq" in {node.domain for node in result.model.graph.node}


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_no_form_is_named_with_the_reason(body: str, reason: str) -> None:
    (site,) = softq.inspect(model(body))
    assert site.verdict.action == "refuse"
    assert reason in site.verdict.reason


@pytest.mark.parametrize("body", NONE.values(), ids=list(NONE))
def test_what_is_another_function_is_not_named(body: str) -> None:
    assert softq.inspect(model(body)) == ()
