"""Constants, guards and one more exponential in the sum of a softmax that is written out."""

from __future__ import annotations

import numpy as np
import pytest

import softq
from tests.forms import Array, build, normal, run

X = "float[2,3,4,5] x"
STABLE = "m = ReduceMax[-1](x); d = Sub(x, m); e = Exp(d); t = ReduceSum[-1](e)"
RAISED = "low = 0.0; r = ReduceMax[-1](x); m = Max(r, low); d = Sub(x, m); e = Exp(d); t = ReduceSum[-1](e)"
PLUS_ONE = {
    "the maximum": f"{STABLE}; n = Neg(m); a = Exp(n); u = Add(t, a); z = Div(e, u)",
    "the maximum or 0": f"{RAISED}; n = Neg(m); a = Exp(n); u = Add(t, a); z = Div(e, u)",
    "the maximum or 0, with a constant": f"""{RAISED}; n = Neg(m); a = Exp(n); u = Add(t, a); k = 1e-9; w = Add(u, k)
        z = Div(e, w)""",
    "the maximum by Relu": """r = ReduceMax[-1](x); m = Relu(r); d = Sub(x, m); e = Exp(d); t = ReduceSum[-1](e)
        k = 0.0; n = Sub(k, m); a = Exp(n); u = Add(a, t); z = Div(e, u)""",
    "a product with -1": f"""{STABLE}; k = -1.0; n = Mul(k, m); a = Exp(n); u = Add(t, a); i = Reciprocal(u)
        z = Mul(e, i)""",
    "axes that come and go": """m = ReduceMax[-1](x); d = Sub(x, m); e = Exp(d); t = ReduceSum[-1]k0(e); n = Neg(m)
        q = Squeeze[-1](n); a = Exp(q); u = Add(t, a); w = Unsqueeze[-1](u); z = Div(e, w)""",
    "another row's number": """m = ReduceMax[-1](x); s = ReduceMean[-1](x); d = Sub(x, s); e = Exp(d)
        t = ReduceSum[-1](e); n = Neg(s); a = Exp(n); u = Add(t, a); z = Div(e, u)""",
}
IDLE = {
    "Max": "k = 1e-9; u = Max(t, k)",
    "Min": "k = 6.0; u = Min(k, t)",
    "Clip": "k = 1e-9; h = 1e30; u = Clip(t, k, h)",
    "Clip to the length": "k = 0.5; h = 6.0; u = Clip(t, k, h)",
    "zero": "k = 0.0; o = 1.0; c = Equal(t, k); u = Where(c, o, t)",
    "positive": "k = 0.0; o = 1.0; c = Less(k, t); u = Where(c, t, o)",
    "not small": "k = 1e-6; c = LessOrEqual(t, k); f = Not(c); u = Where(f, t, k)",
    "NumPy's idiom": "k = 0.0; c = Equal(t, k); f = Cast<to = 1>(c); u = Add(t, f)",
}
ACTING = {
    "Max": (STABLE, "k = 1.5; u = Max(t, k)", "kept above 1.5"),
    "Clip": (STABLE, "k = 0.0; h = 4.0; u = Clip(t, k, h)", "kept below 4"),
    "a larger number": (STABLE, "k = 1.5; o = 1.0; c = Less(t, k); u = Where(c, o, t)", "kept above 1.5"),
    "the other branch": (STABLE, "k = 0.0; o = 1.0; c = Equal(t, k); u = Where(c, t, o)", "Where of node u"),
    "no maximum": ("e = Exp(x); t = ReduceSum[-1](e)", "k = 0.0; o = 1.0; c = Equal(t, k); u = Where(c, o, t)",
                   "no maximum is subtracted"),
    "a number per column": ("s = ReduceMax[-2](x); d = Sub(x, s); e = Exp(d); t = ReduceSum[-1](e)",
                            "n = Neg(s); f = Exp(n); a = ReduceSum[-1](f); u = Add(t, a)", "Add of node u"),
    "another exponential": (STABLE, "q = ReduceMin[-1](x); n = Neg(q); a = Exp(n); u = Add(t, a)",
                            "an exponential is added"),
}  # fmt: skip


def scores() -> Array:
    x = normal(2, 3, 4, 5)
    x[0, 0] = [[-200, -200, -201, -210, -230], [100, 90, 0, 99, 100], [0, 0, 0, 0, 0], [-1, -2, -3, 2, 1]]
    return x


def softmax(x: Array, sink: float) -> Array:
    wide = x.astype(np.float64)
    top = np.maximum(wide.max(-1, keepdims=True), 0 if sink else -np.inf)
    e = np.exp(wide - top)
    return e / (e.sum(-1, keepdims=True) + sink * np.exp(-top))


@pytest.mark.parametrize("body", PLUS_ONE.values(), ids=list(PLUS_ONE))
def test_a_stable_softmax_plus_one_is_converted(body: str) -> None:
    proto = build(body, X, "float[2,3,4,5] z")
    result = softq.convert(proto, method="exact", all_sites=True)
    assert [(site.id, site.verdict.action) for site in result.sites] == [("z", "convert")]
    np.testing.assert_allclose(run(result.model, {"x": scores()})[0], softmax(scores(), 1), rtol=2e-6, atol=1e-30)


@pytest.mark.parametrize("guard", IDLE.values(), ids=list(IDLE))
def test_a_guard_that_can_never_act_is_ignored(guard: str) -> None:
    proto = build(f"{STABLE}; {guard}; z = Div(e, u)", X, "float[2,3,4,5] z")
    result = softq.convert(proto, method="exact", all_sites=True)
    assert [(site.id, site.verdict.action) for site in result.sites] == [("z", "convert")]
    np.testing.assert_allclose(run(result.model, {"x": scores()})[0], softmax(scores(), 0), rtol=2e-6, atol=1e-30)


@pytest.mark.parametrize(("start", "guard", "reason"), ACTING.values(), ids=list(ACTING))
def test_a_guard_that_may_act_is_refused(start: str, guard: str, reason: str) -> None:
    proto = build(f"{start}; {guard}; z = Div(e, u)", X, "float[2,3,4,5] z")
    (site,) = softq.inspect(proto, method="exact", all_sites=True)
    assert site.verdict.action == "refuse"
    assert reason in site.verdict.reason


def test_bounds_of_a_clip_of_opset_10_are_attributes() -> None:
    body = f"{STABLE}; u = Clip<min = 0.000001>(t); z = Div(e, u)"
    result = softq.convert(build(body, X, "float[2,3,4,5] z", 10), method="exact", all_sites=True)
    assert [site.verdict.action for site in result.sites] == ["convert"]


def test_an_axis_that_spans_a_mask_is_not_at_least_one() -> None:
    # The maximum may be masked, and the sum of the others is then as small as they are.
    body = "m = ReduceMax[-1](x); d = Sub(x, m); g = Exp(d); o = 0.0; e = Where(keep, g, o); t = ReduceSum[-1](e)"
    proto = build(f"{body}; k = 1e-9; u = Max(t, k); z = Div(e, u)", f"{X}, bool[2,3,4,5] keep", "float[2,3,4,5] z")
    (site,) = softq.inspect(proto, method="exact", all_sites=True)
    assert site.verdict.action == "refuse"


def test_a_shift_that_is_another_in_each_column_is_refused() -> None:
    body = "q = ReduceMax[0]k0(x); d = Sub(x, q); e = Exp(d); t = ReduceSum[-1]k0(e); n = Neg(q); a = Exp(n)"
    proto = build(f"{body}; u = Add(t, a); w = Unsqueeze[-1](u); z = Div(e, w)", "float[4,4,4] x", "float[4,4,4] z")
    (site,) = softq.inspect(proto, method="exact", all_sites=True)
    assert (site.verdict.action, "an exponential is added" in site.verdict.reason) == ("refuse", True)


def test_a_masked_maximum_bounds_no_sum() -> None:
    masked = RAISED.replace("e = Exp(d)", "g = Exp(d); e = Where(keep, g, low)")
    body = f"{masked}; n = Neg(m); a = Exp(n); u = Add(t, a)"
    proto = build(f"{body}; k = 0.5; w = Max(u, k); z = Div(e, w)", f"{X}, bool[2,3,4,5] keep", "float[2,3,4,5] z")
    (site,) = softq.inspect(proto, method="exact", all_sites=True)
    assert (site.verdict.action, "kept above 0.5" in site.verdict.reason) == ("refuse", True)
