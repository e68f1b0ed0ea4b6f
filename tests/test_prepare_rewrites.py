"""expand-contrib, expand-quantized, rewrite-pow, rewrite-bool-reductions: the same results as onnxruntime's kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from softq.passes.expand_contrib import BODIES, ExpandContrib
from softq.passes.expand_quantized import ExpandQuantized
from softq.passes.rewrite_bool_reductions import RewriteBoolReductions
from softq.passes.rewrite_pow import RewritePow
from tests.prepared import Array, applied, assert_close, by_onnxruntime, model, normal, operators

OPSETS = [18, 20, 23]

# Sums of at most 16 terms, an erf or tanh, a division: float32 roundings of 6e-8 each in another order.
TOLERANCE = {"rtol": 1e-5, "atol": 2e-6}

X = "float[N, 5, 16] x"
FEED = {"x": normal(1, 3, 5, 16), "s": normal(2, 3, 5, 16), "w": normal(3, 16), "b": normal(4, 16), "c": normal(5, 16)}
FEED["u"] = normal(6, 5, 16)

CONTRIB = {
    "BiasGelu": (f"{X}, float[16] b", "y = com.microsoft.BiasGelu (x, b)"),
    "FastGelu": (X, "y = com.microsoft.FastGelu (x)"),
    "FastGelu-bias": (f"{X}, float[16] b", "y = com.microsoft.FastGelu (x, b)"),
    "Gelu": (X, "y = com.microsoft.Gelu (x)"),
    "QuickGelu": (X, "y = com.microsoft.QuickGelu <alpha: float = 1.5> (x)"),
    "QuickGelu-default": (X, "y = com.microsoft.QuickGelu (x)"),
    "SkipLayerNormalization": (
        f"{X}, float[N, 5, 16] s, float[16] w, float[16] b",
        "y = com.microsoft.SkipLayerNormalization <epsilon: float = 0.01> (x, s, w, b)",
    ),
    "SkipLayerNormalization-bias": (
        f"{X}, float[N, 5, 16] s, float[16] w, float[16] b, float[16] c",
        "y, , , z = com.microsoft.SkipLayerNormalization (x, s, w, b, c)",
    ),
    "SkipLayerNormalization-no-beta": (
        f"{X}, float[N, 5, 16] s, float[16] w",
        "y = com.microsoft.SkipLayerNormalization (x, s, w)",
    ),
    "SkipSimplifiedLayerNormalization": (
        f"{X}, float[N, 5, 16] s, float[16] w, float[16] b",
        "y, , , z = com.microsoft.SkipSimplifiedLayerNormalization <epsilon: float = 0.01> (x, s, w, b)",
    ),
    "SkipSimplifiedLayerNormalization-plain": (
        f"{X}, float[N, 5, 16] s, float[16] w",
        "y = com.microsoft.SkipSimplifiedLayerNormalization (x, s, w)",
    ),
    "SimplifiedLayerNormalization": (
        f"{X}, float[16] w",
        "y = SimplifiedLayerNormalization <axis: int = -1, epsilon: float = 0.01, stash_type: int = 1> (x, w)",
    ),
    "SimplifiedLayerNormalization-axes": (
        f"{X}, float[5, 16] u",
        "y = SimplifiedLayerNormalization <axis: int = 1, epsilon: float = 0.01, stash_type: int = 1> (x, u)",
    ),
}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", CONTRIB)
def test_contrib_operators(name: str, opset: int) -> None:
    inputs, line = CONTRIB[name]
    outputs = "float[N, 5, 16] y" + (", float[N, 5, 16] z" if "z =" in line else "")
    before = model(f"g ({inputs}) => ({outputs}) {{ {line} }}", opset, com_microsoft=1)
    feed = {value.name: FEED[value.name] for value in before.graph.input}
    after = applied(ExpandContrib(), before)
    assert all(node.domain == "" for node in after.graph.node)
    assert "SimplifiedLayerNormalization" not in operators(after)
    assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed), **TOLERANCE)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(("a", "b"), list(itertools.product([0, 1], [0, 1])))
def test_fused_matmul(a: int, b: int, opset: int) -> None:
    shapes = ((2, 4, 3) if a else (2, 3, 4)), ((2, 5, 4) if b else (2, 4, 5))
    texts = [f"float[{', '.join(map(str, shape))}]" for shape in shapes]
    before = model(
        f"g ({texts[0]} a, {texts[1]} b) => (float[2, 3, 5] y) "
        f"{{ y = com.microsoft.FusedMatMul <alpha: float = 0.125, transA: int = {a}, transB: int = {b}> (a, b) }}",
        opset,
        com_microsoft=1,
    )
    feed = {"a": normal(1, *shapes[0]), "b": normal(2, *shapes[1])}
    after = applied(ExpandContrib(), before)
    assert operators(after)["MatMul"] == 1
    assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed), **TOLERANCE)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "LeakyRelu"])
def test_fused_gemm(activation: str) -> None:
    before = model(
        "g (float[4, N] a, float[5, 4] b, float[5] c) => (float[N, 5] y) { y = com.microsoft.FusedGemm "
        f'<activation: string = "{activation}", activation_alpha: float = 0.2, alpha: float = 0.5, beta: float = 2.0, '
        "transA: int = 1, transB: int = 1> (a, b, c) }",
        com_microsoft=1,
    )
    feed = {"a": normal(1, 4, 3), "b": normal(2, 5, 4), "c": normal(3, 5)}
    assert_close(by_onnxruntime(applied(ExpandContrib(), before), feed), by_onnxruntime(before, feed), **TOLERANCE)


def test_contrib_operators_that_the_texts_do_not_cover_stay() -> None:
    # How many axes there are to turn is not known.
    before = model(
        "g (float[2, 3, 4] a, float[2, 4, 5] b) => (float[a, b, c] y) "
        "{ t = custom.Unknown (a) y = com.microsoft.FusedMatMul <transBatchA: int = 1> (t, b) }",
        com_microsoft=1,
        custom=1,
    )
    assert operators(applied(ExpandContrib(), before, check=False))["FusedMatMul"] == 1
    other = model("g (float[N] x) => (float[N] y) { y = custom.Gelu (x) }", custom=1)
    assert operators(applied(ExpandContrib(), other, check=False))["Gelu"] == 1
    assert set(BODIES) == {name.split("-")[0] for name in CONTRIB} | {
        "FusedGemm",
        "FusedMatMul",
        "QuantizeLinear",
        "DequantizeLinear",
    }


def codes(seed: int, *shape: int, dtype: str = "uint8") -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def one_step(ours: Array, theirs: Array) -> None:
    """Assert the bound that expand-quantized states: a code at a rounding boundary may be the one beside."""
    assert ours.dtype == theirs.dtype
    apart = np.abs(ours.astype(int) - theirs.astype(int))
    assert apart.max() <= 1
    # Boundaries are rare: a sum lies within 1e-6 of one in a few of a million cases.
    assert (apart != 0).mean() <= 0.01


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("kinds", [("uint8", "uint8"), ("uint8", "int8")])
def test_qlinear_matmul(kinds: tuple[str, str], columns: bool, opset: int) -> None:
    a, b = kinds
    width = "5" if columns else "1"
    before = model(
        f"g ({a}[N, 7, 64] a, float az, {a} a0, {b}[64, 5] b, float[{width}] bz, {b}[{width}] b0, float yz, {a} y0) "
        f"=> ({a}[N, 7, 5] y) {{ y = QLinearMatMul (a, az, a0, b, bz, b0, yz, y0) }}",
        opset,
    )
    feed = {
        "a": codes(1, 3, 7, 64, dtype=a),
        "az": np.array(0.02, np.float32),
        "a0": np.array(113, a),
        "b": codes(2, 64, 5, dtype=b),
        "bz": np.array([0.01, 0.02, 0.005, 0.03, 0.01] if columns else [0.01], np.float32),
        "b0": np.full(5 if columns else 1, 7, b),
        "yz": np.array(0.7, np.float32),
        "y0": np.array(120, a),
    }
    after = applied(ExpandQuantized(), before)
    assert operators(after)["MatMulInteger"] == 1
    one_step(by_onnxruntime(after, feed)[0], by_onnxruntime(before, feed)[0])


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("turned", [0, 1])
def test_qgemm(turned: int, quantized: bool) -> None:
    b = "uint8[5, 64]" if turned else "uint8[64, 5]"
    inputs = f"uint8[N, 64] a, float az, uint8 a0, {b} b, float bz, uint8 b0, int32[5] c"
    names, result = "a, az, a0, b, bz, b0, c", "float[N, 5] y"
    if quantized:
        inputs, names, result = f"{inputs}, float yz, uint8 y0", f"{names}, yz, y0", "uint8[N, 5] y"
    options = f"alpha: float = 0.5, transB: int = {turned}"
    before = model(f"g ({inputs}) => ({result}) {{ y = com.microsoft.QGemm <{options}> ({names}) }}", com_microsoft=1)
    scales = {name: np.array(value, np.float32) for name, value in (("az", 0.02), ("bz", 0.01), ("yz", 0.4))}
    zeros = {name: np.array(value, np.uint8) for name, value in (("a0", 113), ("b0", 7), ("y0", 120))}
    feed = {**scales, **zeros, "a": codes(1, 30, 64), "b": codes(2, *((5, 64) if turned else (64, 5)))}
    feed["c"] = codes(3, 5, dtype="int16").astype(np.int32)
    feed = {value.name: feed[value.name] for value in before.graph.input}
    after = applied(ExpandQuantized(), before)
    ours, theirs = by_onnxruntime(after, feed), by_onnxruntime(before, feed)
    if quantized:
        one_step(ours[0], theirs[0])
    else:
        assert_close(ours, theirs, rtol=1e-6)


def test_qlinear_softmax() -> None:
    before = model(
        "g (uint8[N, 20] x, float xz, uint8 x0, float yz, uint8 y0) => (uint8[N, 20] y) "
        "{ y = com.microsoft.QLinearSoftmax <axis: int = -1, opset: int = 13> (x, xz, x0, yz, y0) }",
        com_microsoft=1,
    )
    scales = {"xz": np.array(0.05, np.float32), "yz": np.array(1 / 256, np.float32)}
    zeros = {"x0": np.array(100, np.uint8), "y0": np.array(0, np.uint8)}
    feed = {"x": codes(1, 200, 20), **scales, **zeros}
    feed = {value.name: feed[value.name] for value in before.graph.input}
    after = applied(ExpandQuantized(), before)
    assert operators(after)["Softmax"] == 1
    one_step(by_onnxruntime(after, feed)[0], by_onnxruntime(before, feed)[0])


@pytest.mark.parametrize(("a", "b"), [("[7]", ""), ("", "[1, 5]")])
def test_quantized_rows_stay(a: str, b: str) -> None:
    before = model(
        f"g (uint8[7, 6] a, float{a} az, uint8{a} a0, uint8[6, 5] b, float{b} bz, uint8{b} b0, float yz, uint8 y0) "
        "=> (uint8[7, 5] y) { y = QLinearMatMul (a, az, a0, b, bz, b0, yz, y0) }"
    )
    assert operators(applied(ExpandQuantized(), before))["QLinearMatMul"] == 1


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(
    ("exponent", "kind", "left"),
    [
        ("2", "int64", 0),
        ("3", "int64", 0),
        ("1", "int64", 0),
        ("-1", "int64", 0),
        ("-2", "int64", 1),
        ("5", "int64", 1),
        ("2.0", "float", 0),
        ("3.0", "float", 0),
        ("0.5", "float", 0),
        ("-1.0", "float", 0),
        ("1.7", "float", 1),
    ],
)
def test_powers(exponent: str, kind: str, left: int, opset: int) -> None:
    before = model(f"g (float[N] x) => (float[N] y) <{kind} e = {{{exponent}}}> {{ y = Pow (x, e) }}", opset)
    x = np.concatenate([np.abs(normal(1, 50)), [0.0, np.inf, np.nan, 1e-30, 1e30]]).astype(np.float32)
    x = np.concatenate([x, -x]) if exponent not in ("0.5", "1.7") else x
    after = applied(RewritePow(), before)
    assert operators(after)["Pow"] == left
    if left:
        kinds = {tensor.data_type for tensor in after.graph.initializer}
        assert kinds == {1} or operators(after)["Cast"] == 1
    # onnxruntime multiplies for 2 and 3; its pow and a correctly rounded root or reciprocal are one unit apart at most.
    rtol = 0.0 if exponent.removesuffix(".0") in ("1", "2", "3") else 1.2e-7
    assert_close(by_onnxruntime(after, {"x": x}), by_onnxruntime(before, {"x": x}), rtol=rtol)


def test_powers_of_integers_and_exponents_with_a_shape() -> None:
    feed = {"x": np.array([-7, 0, 3, 11], np.int64)}
    for exponent, left in (("2", 0), ("3", 0), ("4", 1), ("-1", 1)):
        before = model(f"g (int64[N] x) => (int64[N] y) <int64 e = {{{exponent}}}> {{ y = Pow (x, e) }}")
        after = applied(RewritePow(), before)
        assert operators(after)["Pow"] == left
        assert not left or operators(after) == {"Pow": 1}
        if exponent != "-1":
            assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed))
    wider = model("g (float[N] x) => (float[1, N] y) <float[1, 1] e = {2.0}> { y = Pow (x, e) }")
    assert operators(applied(RewritePow(), wider))["Pow"] == 1
    variable = model("g (float[N] x, int32[N] e) => (float[N] y) { y = Pow (x, e) }")
    several = {"x": np.array([2, -3, 0.5], np.float32), "e": np.array([3, 2, -1], np.int32)}
    after = applied(RewritePow(), variable)
    assert operators(after) == {"Cast": 1, "Pow": 1}
    assert_close(by_onnxruntime(after, several), by_onnxruntime(variable, several), rtol=1.2e-7)


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions_of_truth_values(operator: str, keep: int) -> None:
    result = "bool[N, 1]" if keep else "bool[N]"
    before = model(
        f"g (bool[N, 4] x) => ({result} y) <int64[1] axes = {{1}}> "
        f"{{ y = {operator} <keepdims: int = {keep}> (x, axes) }}",
        20,
    )
    feed = {"x": np.array(list(itertools.product([False, True], repeat=4)))}
    after = applied(RewriteBoolReductions(), before)
    expected = (np.max if operator == "ReduceMax" else np.min)(feed["x"], axis=1, keepdims=bool(keep))
    assert_close(by_onnxruntime(after, feed), [np.asarray(expected)])
    assert operators(after)["Cast"] == 2
    real = model(f"g (float[N, 4] x) => (float[N, 1] y) <int64[1] axes = {{1}}> {{ y = {operator} (x, axes) }}", 20)
    assert operators(applied(RewriteBoolReductions(), real))["Cast"] == 0
