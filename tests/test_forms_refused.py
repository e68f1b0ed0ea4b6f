"""What looks like a softmax and cannot be shown to be one: refused with a reason, or not taken for one; never wrong."""

from __future__ import annotations

import numpy as np
import pytest

import softq
from tests.forms import Array, build, normal, run

X = "float[2,3,4,5] x"
BARE = "e = Exp(x); t = ReduceSum[-1](e)"
FEEDS: dict[str, tuple[str, Array]] = {
    "x": (X, normal(2, 3, 4, 5)),
    "square": ("float[5,5] square", normal(5, 5)),
    "row": ("float[1,1,1,5] row", normal(1, 1, 1, 5)),
    "sinks": ("float[2,3,4,1] sinks", np.abs(normal(2, 3, 4, 1))),
    "factors": ("float[2,3,4,5] factors", np.abs(normal(2, 3, 4, 5))),
    "axes": ("int64[1] axes", np.array([-1])),
}
REFUSED = {
    "rows that meet the sums of columns": (
        "e = Exp(square); t = ReduceSum[1]k0(e); z = Div(e, t)", "float[5,5] z", "of its own row",
    ),
    "a sum that is repeated": (
        "e = Exp(row); t = ReduceSum[-1](e); k = [2, 3, 4, 5]; u = Expand(t, k); z = Div(e, u)", "float[2,3,4,5] z",
        "of its own row",
    ),
    "a tensor in the sum": (f"{BARE}; u = Add(t, sinks); z = Div(e, u)", "float[2,3,4,5] z", "changes its sum"),
    "a negative number in the sum": (
        f"{BARE}; c = -0.5; u = Add(t, c); z = Div(e, u)", "float[2,3,4,5] z", "-0.5 is added",
    ),
    "a bound that may hold": (f"{BARE}; c = 5.0; u = Max(t, c); z = Div(e, u)", "float[2,3,4,5] z", "kept above 5"),
    "a number in the sum over two axes": (
        "e = Exp(x); t = ReduceSum[1, 3](e); c = 1.0; u = Add(t, c); z = Div(e, u)", "float[2,3,4,5] z", "1 is added",
    ),
    "factors that are no mask": (
        "g = Exp(x); e = Mul(g, factors); t = ReduceSum[-1](e); z = Div(e, t)", "float[2,3,4,5] z", "0 or 1 everywhere",
    ),
    "exponentials that are reshaped": (
        "e = Exp(x); k = [6, 20]; r = Reshape(e, k); t = ReduceSum[-1](r); z = Div(r, t)", "float[6,20] z", "reshaped",
    ),
    "axes at run time": ("e = Exp(x); t = ReduceSum(e, axes); z = Div(e, t)", "float[2,3,4,5] z", "not constant"),
    "a mean": ("e = Exp(x); t = ReduceMean[-1](e); z = Div(e, t)", "float[2,3,4,5] z", "ReduceMean of node"),
    "no known rank": (
        "k = ConstantOfShape(axes); w = Reshape(x, k); e = Exp(w); t = ReduceSum[1](e); z = Div(e, t)",
        "float z", "rank",
    ),
}  # fmt: skip
NONE = {
    "another's sum": "e = Exp(x); f = Exp(factors); t = ReduceSum[-1](f); z = Div(e, t)",
    "no exponential": "t = ReduceSum[-1](x); z = Div(x, t)",
}


def inputs(body: str) -> list[str]:
    return [name for name in FEEDS if name in body.replace("(", " ").replace(",", " ").replace(")", " ").split()]


@pytest.mark.parametrize(("body", "outputs", "reason"), REFUSED.values(), ids=list(REFUSED))
def test_refused_with_the_reason(body: str, outputs: str, reason: str) -> None:
    proto = build(body, ", ".join(FEEDS[name][0] for name in inputs(body)), outputs)
    (site,) = softq.inspect(proto, method="exact", all_sites=True)
    assert site.verdict.action == "refuse"
    assert reason in site.verdict.reason
    left = softq.convert(proto, method="exact", all_sites=True).model.graph.node
    assert [node.op_type for node in left] == [node.op_type for node in proto.graph.node]


@pytest.mark.parametrize("body", NONE.values(), ids=list(NONE))
def test_what_is_no_softmax(body: str) -> None:
    proto = build(body, ", ".join(FEEDS[name][0] for name in inputs(body)), "float[2,3,4,5] z")
    assert softq.inspect(proto, method="exact", all_sites=True) == ()


@pytest.mark.parametrize("value", [np.inf, 3e38])
def test_scores_of_plus_infinity_take_all_the_weight(value: float) -> None:
    x = normal(3, 4)
    x[1, 2] = value
    proto = build("z = Softmax(x)", "float[3,4] x", "float[3,4] z")
    got = run(softq.convert(proto, method="exact", all_sites=True).model, {"x": x})[0]
    np.testing.assert_array_equal(got[1], [0, 0, 1, 0])


def test_a_mask_that_the_model_does_not_have_is_an_error() -> None:
    proto = build("z = Softmax(x)", X, "float[2,3,4,5] z")
    with pytest.raises(softq.UsageError, match=r"'padding'.*x"):
        softq.convert(proto, masks=["padding"])


def test_a_finite_mask_does_not_shrink_the_scores() -> None:
    # A mask of -1e4 inside the range of a quantizer left one key in ten where it was.
    body = "c = -10000.0; s = Where(keep, x, c); p = Softmax(s); z = MatMul(p, v)"
    proto = build(body, "float[1,1,8,16] x, bool[1,1,8,16] keep, float[1,1,16,4] v", "float[1,1,8,4] z")
    rng = np.random.default_rng(0)
    x, v = rng.normal(size=(1, 1, 8, 16)).astype(np.float32), rng.normal(size=(1, 1, 16, 4)).astype(np.float32)
    keep = rng.random((1, 1, 8, 16)) < 0.5
    keep[..., 0] = True
    converted = softq.convert(proto, bits=4).model
    masked = run(converted, {"x": x, "keep": keep, "v": v})[0]
    for row in range(8):
        kept = keep[0, 0, row]
        alone = {"x": x[..., row : row + 1, kept], "keep": np.ones((1, 1, 1, kept.sum()), bool), "v": v[..., kept, :]}
        small = build(
            body,
            f"float[1,1,1,{kept.sum()}] x, bool[1,1,1,{kept.sum()}] keep, float[1,1,{kept.sum()},4] v",
            "float[1,1,1,4] z",
        )
        got = run(softq.convert(small, bits=4).model, alone)[0]
        np.testing.assert_allclose(masked[0, 0, row], got[0, 0, 0], rtol=1e-5, atol=1e-6)
