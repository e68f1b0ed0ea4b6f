"""Functions that are no softmax, as exporters write them out: which method each is, with which numbers."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import softq
from softq.errors import UsageError
from tests.forms import build, run
from tests.test_method_functions import (
    adaptive,
    clipped,
    consmax,
    entmax15,
    power,
    relu,
    self_adjust,
    sharpened,
    sigmoid,
    softpick,
    softplus,
    sparsemax,
    ssmax,
    taylor,
)

F64 = NDArray[np.float64]
Reference = Callable[[F64], F64]
Options = Mapping[str, object]

SIZE = 9
"""Elements of a row."""

SUM = "t = ReduceSum[-1]({0}); u = Add(t, eps); w = Div({0}, u)"
"""Elements over their sum and a number."""

NORMALIZE = (
    "p = {0}; t = ReduceL1[-1](p); eps = 1e-12; u = Clip(t, eps); shape = Shape(p); b = Expand(u, shape); w = Div(p, b)"
)
"""As torch's F.normalize with p=1 is exported."""

SPARSEMAX = """
    m = ReduceMax[-1](x); z = Sub(x, m); n = [9]
    sorted, order = TopK<axis = -1>(z, n)
    last = Constant<value_int = -1>(); sums = CumSum(sorted, last)
    one = 1.0; above = Sub(sums, one)
    places = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]>()
    scaled = Mul(places, sorted); inside = Greater(scaled, above)
    ones = Cast<to = 7>(inside); k = ReduceSum[-1](ones)
    unit = [1]; at = Sub(k, unit); s = GatherElements<axis = -1>(above, at)
    kf = Cast<to = 1>(k); tau = Div(s, kf); d = Sub(z, tau); low = 0.0; w = Max(d, low)"""
"""As the package entmax writes it, support counted and the sum gathered there."""

ENTMAX = """
    two = 2.0; m = ReduceMax[-1](x); z = Sub(x, m); h = Div(z, two); n = [9]
    sorted, order = TopK<axis = -1>(h, n)
    last = Constant<value_int = -1>()
    rho = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]>()
    sums = CumSum(sorted, last); mean = Div(sums, rho)
    squares = Mul(sorted, sorted); sums2 = CumSum(squares, last); mean2 = Div(sums2, rho)
    mm = Mul(mean, mean); v1 = Sub(mean2, mm); ss = Mul(rho, v1)
    one = 1.0; rest = Sub(one, ss); delta = Div(rest, rho); nil = 0.0; root = Clip(delta, nil); r = Sqrt(root)
    tau = Sub(mean, r); inside = LessOrEqual(tau, sorted); ones = Cast<to = 7>(inside); k = ReduceSum[-1](ones)
    unit = [1]; at = Sub(k, unit); threshold = GatherElements<axis = -1>(tau, at)
    d = Sub(h, threshold); c = Clip(d, nil); w = Pow(c, two)"""

ADJUST = """
    p = Softmax<axis = -1>(x); nil = 0.0; eps = 2e-10; lo = ReduceMin[-1](x); low = Min(lo, nil)
    hi = ReduceMax[-1](x); high = Max(hi, nil); above = Sub(x, low); range = Sub(high, low); r = Add(range, eps)
    place = Div(above, r); w = Mul(place, p)"""


def a_head(beta: str, gamma: str, rest: str) -> str:
    return f"""
        b = Constant<value = float[3, 1, 1] {{{beta}}}>(); g = Constant<value = float[3, 1, 1] {{{gamma}}}>()
        z = Sub(x, b); {rest}"""


# What is written, the method, its options (of those, what is not the default), numbers a head, and the formula.
CASES: dict[str, tuple[str, str, Options, Options, Reference | list[Reference]]] = {
    "relu": ("w = Relu(x)", "relu", {"divisor": 1.0}, {}, relu(1, 1)),
    "relu-length": ("r = Relu(x); n = 9.0; w = Div(r, n)", "relu", {"divisor": 9.0}, {}, relu(1, 9)),
    "relu-number-first": ("n = 0.25; r = Relu(x); w = Mul(n, r)", "relu", {"divisor": 4.0}, {}, relu(1, 4)),
    "relu-clip": ("z = 0.0; r = Clip(x, z); n = 9.0; w = Div(r, n)", "relu", {"divisor": 9.0}, {}, relu(1, 9)),
    "relu-shape": (
        "r = Relu(x); s = Shape(x); last = Constant<value_int = 3>(); n = Gather(s, last); f = Cast<to = 1>(n); "
        "w = Div(r, f)", "relu", {"divisor": 9.0}, {}, relu(1, 9),
    ),
    "relu-squared": ("r = Relu(x); s = Mul(r, r); n = 9.0; w = Div(s, n)", "relu", {"power": 2, "divisor": 9.0}, {},
                     relu(2, 9)),
    "relu-cubed": ("r = Relu(x); p = 3.0; w = Pow(r, p)", "relu", {"power": 3, "divisor": 1.0}, {}, relu(3, 1)),
    "relu-sum": ("r = Relu(x); eps = 1e-6; " + SUM.format("r"), "relu", {"divisor": "sum", "eps": 1e-6}, {},
                 lambda x: np.maximum(x, 0) / (np.maximum(x, 0).sum() + 1e-6)),
    "relu-squared-sum": (
        "r = Relu(x); q = Mul(r, r); eps = 1e-5; " + SUM.format("q"), "relu",
        {"power": 2, "divisor": "sum", "eps": 1e-5}, {},
        lambda x: np.maximum(x, 0) ** 2 / (np.sum(np.maximum(x, 0) ** 2) + 1e-5),
    ),
    "sigmoid": ("b = 2.1972246; z = Sub(x, b); w = Sigmoid(z)", "sigmoid", {"bias": -2.1972246}, {},
                sigmoid(-math.log(9))),
    "sigmoid-spelled": ("m = Neg(x); e = Exp(m); c = 1.0; d = Add(c, e); w = Reciprocal(d)", "sigmoid", {"bias": 0.0},
                        {}, sigmoid(0.0)),
    "softplus": ("p = Softplus(x); eps = 1e-8; " + SUM.format("p"), "softplus", {}, {}, softplus),
    "relu-normalize": (NORMALIZE.format("Relu(x)"), "relu", {"divisor": "sum", "least": 1e-12}, {},
                       lambda x: np.maximum(x, 0) / max(np.maximum(x, 0).sum(), 1e-12)),
    "relu-squared-normalize": (
        "r = Relu(x); q = Mul(r, r); t = ReduceSum[-1](q); eps = 1e-6; u = Max(t, eps); w = Div(q, u)", "relu",
        {"power": 2, "divisor": "sum", "least": 1e-6}, {},
        lambda x: np.maximum(x, 0) ** 2 / max(np.sum(np.maximum(x, 0) ** 2), 1e-6),
    ),
    "softplus-normalize": (NORMALIZE.format("Softplus(x)"), "softplus", {"eps": 0.0, "least": 1e-12}, {},
                           lambda x: np.logaddexp(0, x) / max(np.logaddexp(0, x).sum(), 1e-12)),
    "softplus-spelled": ("e = Exp(x); c = 1.0; s = Add(e, c); p = Log(s); eps = 1e-8; " + SUM.format("p"), "softplus",
                         {}, {}, softplus),
    "softplus-spelled-normalize": (
        "e = Exp(x); c = 1.0; s = Add(c, e); " + NORMALIZE.format("Log(s)"), "softplus", {"eps": 0.0, "least": 1e-12},
        {}, lambda x: np.logaddexp(0, x) / max(np.logaddexp(0, x).sum(), 1e-12),
    ),
    "softplus-sharpened": (
        "p = Softplus(x); eps = 1e-8; t0 = ReduceSum[-1](p); u0 = Add(t0, eps); a = Div(p, u0); n = 9.0; "
        "na = Mul(a, n); c = 1.0; o = Sub(na, c); r = Relu(o); k = 15.0; s = Pow(r, k); t = ReduceSum[-1](s); "
        "w = Div(s, t)",
        "softplus", {"power": 15}, {}, sharpened(15, 1.0),
    ),
    "softpick": (
        "m = ReduceMax[-1](x); nm = Neg(m); one = Exp(nm); z = Sub(x, m); e = Exp(z); d = Sub(e, one); r = Relu(d); "
        "a = Abs(d); t = ReduceSum[-1](a); eps = 1e-8; u = Add(t, eps); w = Div(r, u)",
        "softpick", {}, {}, softpick(1e-8),
    ),
    "softpick-spelled": (
        "e = Exp(x); one = 1.0; d = Sub(e, one); r = Relu(d); a = Abs(d); t = ReduceSum[-1](a); eps = 1e-8; "
        "u = Add(t, eps); w = Div(r, u)", "softpick", {}, {}, softpick(1e-8),
    ),
    "softpick-of-finite": (
        "m = ReduceMax[-1](x); nm = Neg(m); one = Exp(nm); z = Sub(x, m); e = Exp(z); d = Sub(e, one); r = Relu(d); "
        "a0 = Abs(d); i = IsInf(x); nil = 0.0; a = Where(i, nil, a0); t = ReduceSum[-1](a); eps = 1e-8; "
        "u = Add(t, eps); w = Div(r, u)", "softpick", {}, {}, softpick(1e-8),
    ),
    "sparsemax": (SPARSEMAX, "sparsemax", {}, {}, sparsemax),
    "entmax15": (ENTMAX, "entmax15", {}, {}, entmax15),
    "taylor": ("h = 0.5; c = 1.0; s = Mul(x, x); q = Mul(s, h); a = Add(x, c); f = Add(a, q); t = ReduceSum[-1](f); "
               "w = Div(f, t)", "taylor", {}, {}, taylor(2)),
    "taylor-of-ones": (
        f"c = Constant<value = float[2, 3, 9, 9] {{{', '.join(['1'] * 486)}}}>(); h = 0.5; s = Mul(x, x); "
        "q = Mul(s, h); a = Add(c, x); f = Add(a, q); t = ReduceSum[-1](f); w = Div(f, t)", "taylor", {}, {}, taylor(2),
    ),
    "taylor-4": (
        "c = 1.0; p2 = 2.0; f2 = 2.0; p3 = 3.0; f3 = 6.0; p4 = 4.0; f4 = 24.0; a = Add(x, c); b2 = Pow(x, p2); "
        "c2 = Div(b2, f2); b3 = Pow(x, p3); c3 = Div(b3, f3); b4 = Pow(x, p4); c4 = Div(b4, f4); d2 = Add(a, c2); "
        "d3 = Add(d2, c3); f = Add(d3, c4); t = ReduceSum[-1](f); w = Div(f, t)", "taylor", {"order": 4}, {}, taylor(4),
    ),
    "power": ("p = 4.0; e = Pow(x, p); t = ReduceSum[-1](e); w = Div(e, t)", "power", {}, {}, power(4)),
    "power-scaled": ("a = Abs(x); m = ReduceMax[-1](a); u = Div(x, m); e = Mul(u, u); t = ReduceSum[-1](e); "
                     "w = Div(e, t)", "power", {"power": 2}, {}, power(2)),
    "clipped": ("p = Softmax<axis = -1>(x); k = 1.025; s = Mul(p, k); g = -0.025; z = Add(s, g); low = 0.0; "
                "high = 1.0; w = Clip(z, low, high)", "clipped", {}, {}, clipped(-0.025, 1.0)),
    "clipped-both": (
        "p = Softmax<axis = -1>(x); k = 1.2; s = Mul(p, k); g = 0.1; z = Sub(s, g); low = 0.0; high = 1.0; "
        "a = Max(z, low); w = Min(a, high)", "clipped", {"gamma": -0.1, "zeta": 1.1}, {}, clipped(-0.1, 1.1),
    ),
    "self-adjust": (ADJUST, "self-adjust", {}, {}, self_adjust),
    "consmax": ("b = 1.5; g = 50.0; z = Sub(x, b); m = 80.0; c = Min(z, m); e = Exp(c); w = Div(e, g)", "consmax",
                {"beta": 1.5, "gamma": 50.0}, {}, consmax(1.5, 50, 80)),
    "consmax-merged": ("k = 0.01; e = Exp(x); w = Mul(e, k)", "consmax", {"beta": 0.0, "clamp": 86.0}, {},
                       consmax(0, 100, 86)),
    "consmax-heads": (
        a_head("0.5, 1.5, 2.5", "50, 75, 100", "m = 80.0; c = Min(z, m); e = Exp(c); w = Div(e, g)"), "consmax",
        {"beta": "head", "gamma": "head"}, {"beta": (0.5, 1.5, 2.5), "gamma": (50.0, 75.0, 100.0)},
        [consmax(0.5, 50, 80), consmax(1.5, 75, 80), consmax(2.5, 100, 80)],
    ),
    "consmax-one-gamma": (
        a_head("0.5, 1.5, 2.5", "60, 60, 60", "e = Exp(z); w = Div(e, g)"), "consmax",
        {"beta": "head", "gamma": 60.0, "clamp": 86.0}, {"beta": (0.5, 1.5, 2.5)},
        [consmax(beta, 60, 86) for beta in (0.5, 1.5, 2.5)],
    ),
}  # fmt: skip


def model(function: str, opset: int = 18, *, scores: str = "x = Mul(QK, half)", given: str = "") -> onnx.ModelProto:
    four = f"float[2, 3, {SIZE}, 4]"
    before = f"KT = Transpose<perm = [0, 1, 3, 2]>(K); QK = MatMul(Q, KT); half = 0.5; {scores}; "
    names = "" if not given else f", {given}"
    return build(
        before + function + "; y = MatMul(w, V)",
        f"{four} Q, {four} K, {four} V{names}", f"float[2, 3, {SIZE}, 4] y", opset,
    )  # fmt: skip


def feed(seed: int = 0, spread: float = 1.3) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return {name: (rng.normal(size=(2, 3, SIZE, 4)) * spread).astype(np.float32) for name in "QKV"}


def expected(reference: Reference | list[Reference], given: Mapping[str, NDArray[np.float32]]) -> F64:
    q, k, v = (given[name].astype(np.float64) for name in "QKV")
    scores = 0.5 * (q @ np.swapaxes(k, -1, -2))
    each = reference if isinstance(reference, list) else [reference] * 3
    weights = np.array([[[each[h](row) for row in scores[b, h]] for h in range(3)] for b in range(2)])
    return weights @ v


def options_of(method: str, changed: Options) -> dict[str, object]:
    from softq.methods import METHODS

    chosen = METHODS.get(method)
    return dict(chosen.resolve(chosen.configure({}), False).to_json()) | dict(changed)


OLDER = ("relu-sum", "softpick", "sparsemax", "clipped-both", "consmax-heads")
"""What is raised from opset 13 on the way."""


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize(("name", "opset"), [(name, 18) for name in CASES] + [(name, 13) for name in OLDER])
def test_a_function_is_found_with_its_numbers_and_replaced(name: str, opset: int) -> None:
    body, method, options, fitted, reference = CASES[name]
    made = model(body, opset)
    (site,) = [site for site in softq.inspect(made) if site.function is not None]
    assert (site.form, site.role, site.verdict.action) == ("written-function", "attention", "keep")
    assert f"the function of the method {method}" in site.verdict.reason
    assert site.function is not None
    assert site.function.method == method
    assert dict(site.function.options) == options_of(method, options)
    assert dict(site.function.fitted) == fitted

    result = softq.convert(made, method=method)
    (planned,) = result.plan.sites
    assert (planned.method, dict(planned.fitted)) == (method, fitted)
    onnx.checker.check_model(result.model, full_check=True)
    (call,) = [node for node in result.model.graph.node if node.domain == "softq"]
    left = {node.op_type for node in result.model.graph.node} - {call.op_type}
    assert left <= {"Transpose", "MatMul", "Mul", "Div", "Constant"}, left
    for seed in range(2):
        given = feed(seed)
        (got,), (before,) = run(result.model, given), run(made, given)
        want = expected(reference, given)
        scale = np.abs(want).max()
        np.testing.assert_allclose(before, want, rtol=0, atol=3e-5 * scale)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * scale)
        np.testing.assert_allclose(got, before, rtol=0, atol=3e-5 * scale)
    assert softq.convert(made, plan=result.plan).model == result.model


@pytest.mark.parametrize("scale", [0.5, 0.05, 5e-4])
@pytest.mark.parametrize("name", ["softpick", "softpick-of-finite"])
def test_softpick_of_small_scores_is_nearer_to_the_formula_than_its_graph(name: str, scale: float) -> None:
    """In the graph e^(x - m) - e^-m cancels; the method has a polynomial of e^x - 1, which does not.

    The two exponentials are each within 2^-23 (an ulp), so a weight of the graph is within 2^-22 and N of them, summed
    with V and in S, are within 2 * N * 2^-22 * max |V| / S. The method's weights are within 2e-6 relatively, as it
    says, and the scores of float32 within 2^-22 of the sum of their four products' sizes.
    """
    made = model(CASES[name][0], scores=f"f = {scale:g}; x = Mul(QK, f)".replace("0.0005", "5e-4"))
    converted = softq.convert(made, method="softpick").model
    seen = 0.0
    for seed in range(4):
        given = feed(seed, 0.5)
        q, k, v = (given[n].astype(np.float64) for n in "QKV")
        scores = scale * (q @ np.swapaxes(k, -1, -2))
        want = np.apply_along_axis(softpick(1e-8), -1, scores) @ v
        m = np.maximum(scores.max(axis=-1, keepdims=True), 0)
        sizes = np.abs(np.exp(scores - m) - np.exp(-m)).sum(axis=-1, keepdims=True)
        (got,), (before,) = run(converted, given), run(made, given)
        assert np.max(np.abs(got - want)) <= 5e-6 * np.abs(want).max()
        error = np.abs(before - want)
        assert np.all(error <= 2 * SIZE * 2.0**-22 * np.abs(v).max() / sizes + 5e-6 * np.abs(want).max())
        seen = max(seen, float(error.max() / np.abs(want).max()))
    assert seen > 3e-5 or scale > 1e-3


RELU_SUM, SOFTPLUS_SUM = "r = Relu(x); eps = 1e-6; ", "p = Softplus(x); eps = 1e-8; "
NEAR: dict[str, str] = {
    "leaky": "w = LeakyRelu<alpha = 0.001>(x)",
    "relu-with-an-end": "z = 0.0; m = 70.0; w = Clip(x, z, m)",
    "relu-from-elsewhere": "z = 0.001; w = Max(x, z)",
    "relu-odd-power": "r = Relu(x); p = 2.001; w = Pow(r, p)",
    "relu-by-position": "r = Relu(x); n = Constant<value = float[9] {1,2,3,4,5,6,7,8,9}>(); w = Div(r, n)",
    "relu-sum-of-columns": RELU_SUM + "t = ReduceSum[-2](r); u = Add(t, eps); w = Div(r, u)",
    "relu-sum-over-heads": RELU_SUM + "t = ReduceSum[1](r); u = Add(t, eps); w = Div(r, u)",
    "relu-over-the-sum-of-others": RELU_SUM + "o = Abs(x); t = ReduceSum[-1](o); u = Add(t, eps); w = Div(r, u)",
    "relu-over-mean": RELU_SUM + "t = ReduceMean[-1](r); u = Add(t, eps); w = Div(r, u)",
    "relu-over-its-length": NORMALIZE.replace("ReduceL1", "ReduceL2").format("Relu(x)"),
    "relu-over-columns": NORMALIZE.replace("[-1]", "[-2]").format("Relu(x)"),
    "relu-over-sizes": "r = Relu(x); t = ReduceL1[-1](x); eps = 1e-12; u = Clip(t, eps); w = Div(r, u)",
    "relu-over-at-most": "r = Relu(x); t = ReduceL1[-1](r); eps = 1e-6; u = Min(t, eps); w = Div(r, u)",
    "relu-over-at-least-and-more": "r = Relu(x); t = ReduceL1[-1](r); eps = 1e-6; u0 = Clip(t, eps); u = Add(u0, eps); "
                                   "w = Div(r, u)",
    "relu-over-a-hypotenuse": "r = Relu(x); t = ReduceL1[-1](r); eps = 1e-12; tt = Mul(t, t); s = Add(tt, eps); "
                              "u = Sqrt(s); w = Div(r, u)",
    "sizes-over-their-sum": NORMALIZE.format("Abs(x)"),
    "softplus-of-two": "e = Exp(x); c = 2.0; s = Add(e, c); " + NORMALIZE.format("Log(s)"),
    "softplus-almost": "e = Exp(x); c = 1.00001; s = Add(e, c); " + NORMALIZE.format("Log(s)"),
    "tanh": "w = Tanh(x)",
    "cosh": "e = Exp(x); i = Reciprocal(e); w = Add(e, i)",
    "nothing": "n = 0.0; w = Mul(x, n)",
    "undefined": "n = 0.0; z = Mul(x, n); w = Div(z, n)",
    "negative": "r = Relu(x); w = Neg(r)",
    "constant": "n = 0.0; z = Mul(x, n); o = 0.2; w = Add(z, o)",
    "hard-sigmoid": "w = HardSigmoid(x)",
    "sigmoid-squared": "s = Sigmoid(x); w = Mul(s, s)",
    "sigmoid-times-score": "s = Sigmoid(x); w = Mul(s, x)",
    "softplus-of-columns": SOFTPLUS_SUM + "t = ReduceSum[-2](p); u = Add(t, eps); w = Div(p, u)",
    "softplus-plus-more": SOFTPLUS_SUM + "c = 0.001; o = Add(p, c); t = ReduceSum[-1](o); w = Div(o, t)",
    "softpick-without-size": CASES["softpick"][0].replace("a = Abs(d)", "a = Relu(d)"),
    "softpick-shifted": CASES["softpick"][0].replace("e = Exp(z)", "k = 1.001; ez = Exp(z); e = Mul(ez, k)"),
    "sparsemax-of-half-its-sum": SPARSEMAX.replace("one = 1.0", "one = 0.99"),
    "sparsemax-of-few": SPARSEMAX.replace("5.0, 6.0, 7.0, 8.0, 9.0]", "5.0, 6.0, 7.0, 8.0, 8.5]"),
    "entmax-of-the-scores": ENTMAX.replace("h = Div(z, two)", "o = 1.99; h = Div(z, o)"),
    "taylor-other-constant": CASES["taylor"][0].replace("h = 0.5", "h = 0.5005"),
    "taylor-3": "c = 1.0; a = Add(x, c); s = Mul(x, x); h = 0.5; q = Mul(s, h); s3 = Mul(s, x); k = 0.1666667; "
                "q3 = Mul(s3, k); b = Add(a, q); f = Add(b, q3); t = ReduceSum[-1](f); w = Div(f, t)",
    "power-of-size": "a = Abs(x); p = 3.0; e = Pow(a, p); t = ReduceSum[-1](e); w = Div(e, t)",
    "power-of-columns": "p = 4.0; e = Pow(x, p); t = ReduceSum[-2](e); w = Div(e, t)",
    "clipped-lower": CASES["clipped"][0].replace("high = 1.0", "high = 0.9"),
    "clipped-above-zero": CASES["clipped"][0].replace("low = 0.0", "low = 0.001"),
    "clipped-upwards": CASES["clipped"][0].replace("g = -0.025", "g = 0.025"),
    "clipped-columns": CASES["clipped"][0].replace("axis = -1", "axis = -2"),
    "self-adjust-without-zero": ADJUST.replace("low = Min(lo, nil)", "low = Identity(lo)"),
    "self-adjust-twice": ADJUST.replace("w = Mul(place, p)", "w0 = Mul(place, p); w = Mul(w0, place)"),
    "consmax-of-the-mean": "b = ReduceMean[-1](x); g = 50.0; z = Sub(x, b); e = Exp(z); w = Div(e, g)",
    "consmax-of-two": "b = 2.0; e = Pow(b, x); g = 50.0; w = Div(e, g)",
    "a-query-each": "r0 = Relu(x); n = Constant<value = float[9, 1] {1,2,3,4,5,6,7,8,9}>(); w = Div(r0, n)",
    "the-softmax": "w0 = Softmax<axis = -1>(x); n = IsNaN(w0); z = 0.0; w = Where(n, z, w0)",
}  # fmt: skip


@pytest.mark.quick_cases(24)
@pytest.mark.parametrize("name", NEAR)
def test_what_differs_a_little_is_not_found(name: str) -> None:
    assert not [site for site in softq.inspect(model(NEAR[name])) if site.function is not None]


def test_another_reader_of_what_is_inside_is_a_reason_not_to() -> None:
    outside = model("r0 = Relu(x); eps = 1e-6; t = ReduceSum[-1](r0); u = Add(t, eps); w = Div(r0, u)")
    assert [site for site in softq.inspect(outside) if site.function]
    shape = [2, 3, SIZE, SIZE]
    outside.graph.output.append(onnx.helper.make_tensor_value_info("r0", onnx.TensorProto.FLOAT, shape))
    assert not [site for site in softq.inspect(outside) if site.function]


def test_a_constant_that_repeats_the_scores_is_no_number() -> None:
    """One query's scores, of which a constant makes nine rows: the result has another shape than the scores."""
    made = model("c = Constant<value = float[9, 1] {1, 1, 1, 1, 1, 1, 1, 1, 1}>(); r = Relu(x); w = Mul(r, c)")
    assert softq.inspect(made, method="relu")[0].function is not None
    made.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 1
    assert [site.id for site in softq.inspect(made, method="relu")] == []


def test_the_result_of_the_function_may_be_read_by_its_product_only() -> None:
    made = model("w = Relu(x)")
    made.graph.output.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [2, 3, SIZE, SIZE]))
    assert not [site for site in softq.inspect(made) if site.function]


MASKED = {
    "finite": ("relu", "relu-length", "relu-sum", "sigmoid", "sparsemax", "entmax15", "clipped", "consmax"),
    "infinite": ("softpick-of-finite", "softplus"),
    "none": ("taylor", "power", "softpick"),
}
"""Which masks in front leave each function what the method is: of any numbers, of -inf only, and none at all.

Of softplus a row that is hidden throughout is zeros, so that the mask is one inside it.
"""


@pytest.mark.parametrize(("name", "masks"), [(name, masks) for masks, names in MASKED.items() for name in names])
def test_a_mask_in_front_must_mean_the_same_to_both(name: str, masks: str) -> None:
    """A mask that is an input may hold anything: where the function makes something of it, it is not replaced."""
    body, method, *_ = CASES[name]
    added = model(body, scores="H = Mul(QK, half); x = Add(H, bias)", given=f"float[{SIZE}, {SIZE}] bias")
    chosen = model(body, scores="H = Mul(QK, half); out = -inf; x = Where(keep, H, out)",
                   given=f"bool[{SIZE}, {SIZE}] keep")  # fmt: skip
    for made, allowed in ((added, ["finite"]), (chosen, ["finite", "infinite"])):
        found = [site.verdict.action for site in softq.inspect(made, method=method) if site.function is not None]
        assert found == ["convert"] * (masks in allowed)
    if masks != "finite":
        return
    converted = softq.convert(added, method=method).model
    for low in (-1e4, -1e9, -np.inf):
        hidden = np.triu(np.full((SIZE, SIZE), low), 1).astype(np.float32)
        given = feed(1) | {"bias": hidden}
        (got,), (want,) = run(converted, given), run(added, given)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max())


def test_numbers_a_head_are_parameters_and_cannot_be_changed() -> None:
    made = model(CASES["consmax-heads"][0])
    result = softq.convert(made, method="consmax")
    function = next(f for f in result.model.functions if f.name.startswith("Consmax"))
    assert list(function.input) == ["scores", "given_beta", "given_gamma"]
    with pytest.raises(UsageError, match="holds the function consmax with"):
        softq.convert(made, method="consmax", settings={"clamp": 70})
    with pytest.raises(UsageError, match="consmax: beta=head is fitted on data"):
        softq.convert(made, method="consmax", settings={"beta": "head"})


def test_the_softmax_inside_stays_for_other_methods_and_goes_with_the_whole() -> None:
    made = model(CASES["clipped"][0])
    inner, whole = softq.inspect(made, method="clipped", all_sites=True)
    assert (inner.form, inner.verdict.action) == ("softmax", "keep")
    assert f"it is a part of {whole.id}, which is converted as a whole" in inner.verdict.reason
    inner, whole = softq.inspect(made, all_sites=True)
    assert [site.verdict.action for site in (inner, whole)] == ["convert", "keep"]


SSMAX = """s = Shape(x); last = Constant<value_int = 3>(); n0 = Gather(s, last); n = Cast<to = 1>(n0); l = Log(n)
    k = Constant<value = float[3, 1, 1] {0.3, 0.43, 0.8}>(); f = Mul(k, l); z = Mul(f, x); w = Softmax<axis = -1>(z)"""
ADAPTIVE = """p = Softmax<axis = -1>(x); tiny = 1e-9; pt = Add(p, tiny); lp = Log(pt); m = Mul(p, lp)
    t = ReduceSum[-1](m); h = Neg(t); c4 = -0.037; c3 = 0.481; c2 = -2.3; c1 = 4.917; c0 = -1.791
    a4 = Mul(h, c4); a3 = Add(a4, c3); b3 = Mul(a3, h); a2 = Add(b3, c2); b2 = Mul(a2, h); a1 = Add(b2, c1)
    b1 = Mul(a1, h); q = Add(b1, c0); one = 1.0; r = Max(q, one); half2 = 0.5; flat = Greater(h, half2)
    theta = Where(flat, r, one); z = Mul(x, theta); w = Softmax<axis = -1>(z)"""
AROUND: dict[str, tuple[str, str, Options, Options, Reference | list[Reference]]] = {
    "ssmax": (SSMAX.replace("float[3, 1, 1] {0.3, 0.43, 0.8}", "float {0.43}"), "ssmax", {}, {}, ssmax(0.43)),
    "ssmax-heads": (SSMAX, "ssmax", {"s": "head"}, {"s": (0.3, 0.43, 0.8)}, [ssmax(s) for s in (0.3, 0.43, 0.8)]),
    "adaptive-temperature": (ADAPTIVE, "adaptive-temperature", {"beyond": "published"}, {}, adaptive(False)),
}
"""A softmax with what is in front of it."""


def of_any_length(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model for rows of any length: only there it shows what depends on it."""
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[2].dim_param = "n"
    return proto


@pytest.mark.parametrize("name", AROUND)
def test_a_softmax_and_what_is_in_front_of_it(name: str) -> None:
    body, method, options, fitted, reference = AROUND[name]
    proto = of_any_length(model(body))
    whole = softq.inspect(proto)[-1]
    assert (whole.form, whole.verdict.action, whole.function) == ("softmax", "convert", None)
    assert f"together with the operators before it, it is the function of the method {method}" in whole.verdict.reason
    given = feed(4)
    want = expected(reference, given)
    for chosen in (method, "exact"):
        result = softq.convert(proto, method=chosen)
        (planned,) = result.plan.sites
        assert (planned.id, planned.method) == (whole.id, chosen)
        np.testing.assert_allclose(run(result.model, given)[0], want, rtol=0, atol=3e-5 * np.abs(want).max())
        assert softq.convert(proto, plan=result.plan).model == result.model
        if chosen == method:
            assert dict(planned.options) == options_of(method, options)
            assert dict(planned.fitted) == fitted
            left = {node.op_type for node in result.model.graph.node if not node.domain}
            assert left <= {"Transpose", "MatMul", "Mul", "Div", "Constant"}, left


@pytest.mark.parametrize("body", [
    SSMAX.replace("l = Log(n)", "l = Sqrt(n)"), ADAPTIVE.replace("c3 = 0.481", "c3 = 0.482"),
    ADAPTIVE.replace("r = Max(q, one)", "r = Identity(q)"), "k = 0.43; z = Mul(x, k); w = Softmax<axis = -1>(z)",
])  # fmt: skip
def test_another_softmax_in_front_is_none_of_them(body: str) -> None:
    made = of_any_length(model(body))
    assert "the operators before it" not in softq.inspect(made)[-1].verdict.reason
    for method in ("ssmax", "adaptive-temperature"):
        with pytest.raises(UsageError, match="is another function"):
            softq.convert(made, method=method)


@pytest.mark.parametrize(("equation", "found"), [
    ("bhij,bhjd->bhid", True), ("bhij, bhjd -> bihd", True), ("bhij,bhid->bhjd", False), ("bhij,bhjd->bhd", False),
])  # fmt: skip
def test_a_product_may_be_an_einsum(equation: str, found: bool) -> None:
    made = model("w = Relu(x)")
    product = next(node for node in made.graph.node if node.output[0] == "QK")
    product.op_type, product.input[1] = "Einsum", "K"
    product.attribute.append(onnx.helper.make_attribute("equation", "bhid,bhjd->bhij"))
    made.graph.node[-1].op_type = "Einsum"
    made.graph.node[-1].attribute.append(onnx.helper.make_attribute("equation", equation))
    made.graph.output[0].type.tensor_type.ClearField("shape")
    sites = softq.inspect(made, method="relu")
    assert [site.verdict.action for site in sites] == ["convert"] * found
    if found:
        got, want = (run(proto, feed())[0] for proto in (softq.convert(made, method="relu").model, made))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


def test_rows_of_any_length() -> None:
    four = "float[b, 3, n, 4]"
    body = """t = Transpose<perm = [0, 1, 3, 2]>(K); x = MatMul(Q, t); r = Relu(x); s = Shape(K)
        at = Constant<value_int = 2>(); n = Gather(s, at); f = Cast<to = 1>(n); w = Div(r, f); y = MatMul(w, V)"""
    made = build(body, f"{four} Q, {four} K, {four} V", "float[b, 3, n, 4] y")
    (site,) = softq.inspect(made, method="relu")
    assert site.function is not None
    assert site.function.options["divisor"] == "row"
    converted = softq.convert(made, method="relu").model
    rng = np.random.default_rng(0)
    for length in (1, 5, 12):
        given = {name: rng.normal(size=(2, 3, length, 4)).astype(np.float32) for name in "QKV"}
        np.testing.assert_allclose(run(converted, given)[0], run(made, given)[0], rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_with_another_number_it_is_what_it_is_said_to_be_or_nothing(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for factor in (0.5, 0.99, 0.999, 1.001, 1.01, -1.0):
        made = model(CASES[name][0])
        numbers = [node.attribute[0] for node in made.graph.node if node.op_type == "Constant"]
        numbers = [a for a in numbers if a.name == "value" and a.t.data_type == onnx.TensorProto.FLOAT]
        changed = numbers[int(rng.integers(len(numbers)))].t
        array = (onnx.numpy_helper.to_array(changed) * np.float32(factor)).astype(np.float32)
        changed.CopyFrom(onnx.numpy_helper.from_array(array))
        for site in softq.inspect(made):
            if site.function is None:
                continue
            converted = softq.convert(made, method=site.function.method).model
            for spread in (0.5, 1.3, 3.0):
                got, want = (run(proto, feed(5, spread))[0] for proto in (converted, made))
                np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max(), err_msg=str(factor))


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["script-13", "script-18", "dynamo"])
def test_as_torch_exports_them(exporter: str) -> None:
    torch = pytest.importorskip("torch")
    functional: Any = torch.nn.functional

    def sparse(x: Any) -> Any:
        z = x - x.max(dim=-1, keepdim=True)[0]
        ordered = torch.sort(z, dim=-1, descending=True)[0]
        places = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        sums = torch.cumsum(ordered, -1)
        inside = torch.gt(1 + places * ordered, sums).to(x.dtype)
        k = torch.max(inside * places, -1, keepdim=True)[0]
        return torch.clamp(z - (torch.sum(inside * ordered, -1, keepdim=True) - 1) / k, min=0)

    def over_sum(w: Any) -> Any:
        return w / w.sum(-1, keepdim=True)

    beta, gamma = (torch.nn.Parameter(torch.tensor(v).view(3, 1, 1)) for v in ([0.5, 1.5, 2.5], [50.0, 75.0, 100.0]))
    functions: dict[str, Callable[[Any], Any]] = {
        "relu": lambda x: functional.relu(x).square() / x.shape[-1],
        "sigmoid": lambda x: torch.sigmoid(x - math.log(x.shape[-1])),
        "softplus": lambda x: over_sum(functional.softplus(x)),
        "softplus ": lambda x: functional.normalize(torch.log(1 + torch.exp(x)), p=1, dim=-1),
        "softplus  ": lambda x: functional.normalize(torch.log1p(torch.exp(x)), p=1, dim=-1),
        "relu ": lambda x: functional.normalize(functional.relu(x), p=1, dim=-1),
        "taylor": lambda x: over_sum(1 + x + 0.5 * x**2),
        "power": lambda x: over_sum(x.pow(4)),
        "clipped": lambda x: torch.clip(torch.softmax(x, -1) * 1.025 - 0.025, 0, 1),
        "sparsemax": sparse,
        "consmax": lambda x: torch.exp(torch.clamp(x - beta, max=80.0)) / gamma,
    }
    for method, function in functions.items():

        class Attention(torch.nn.Module):
            def __init__(self, function: Callable[[Any], Any]) -> None:
                super().__init__()
                self.function, self.beta, self.gamma = function, beta, gamma

            def forward(self, q: Any, k: Any, v: Any) -> Any:
                return self.function(q @ k.transpose(-1, -2) * 0.5) @ v

        arguments = tuple(torch.from_numpy(array) for array in feed().values())
        if exporter == "dynamo":
            made = torch.onnx.export(Attention(function).eval(), arguments, dynamo=True, verbose=False).model_proto
        else:
            held = io.BytesIO()
            torch.onnx.export(Attention(function).eval(), arguments, held, opset_version=int(exporter[-2:]),
                              input_names=list("QKV"), dynamo=False)  # fmt: skip
            made = onnx.load_from_string(held.getvalue())
        result = softq.convert(made, method=method.strip())
        assert [planned.method for planned in result.plan.sites] == [method.strip()]
        names = [value.name for value in made.graph.input]
        given = dict(zip(names, feed(3).values(), strict=True))
        want = run(made, given)[0]
        np.testing.assert_allclose(run(result.model, given)[0], want, rtol=0, atol=2e-5 * np.abs(want).max())
