"""Operators whose meaning differs between ONNX and TVM, or that softq imports itself, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

import softq
from tests.native import Array, Executor, build_program

pytest.importorskip("tvm")

RNG = np.random.default_rng(0)
X = RNG.normal(0, 3, (3, 5)).astype(np.float32)
I = RNG.integers(-9, 9, (3, 5))  # noqa: E741
J = RNG.integers(1, 5, (3, 5)) * RNG.choice([-1, 1], (3, 5))
IMAGES = RNG.normal(size=(2, 4, 9, 9)).astype(np.float32)


def slices(start: int, end: int, axis: int, step: int) -> str:
    weights = ", ".join(f"int64[1] {n} = {{{v}}}" for n, v in zip("abcd", (start, end, axis, step), strict=True))
    return f"(float[3, 5] x) => (float[p, q] z) <{weights}> {{ z = Slice(x, a, b, c, d) }}"


# fmt: off
CASES: dict[str, tuple[str, dict[str, Array]]] = {
    "Div": ("(int64[n, 5] x, int64[n, 5] y) => (int64[n, 5] z) { z = Div(x, y) }", {"x": I, "y": J}),
    "Mod": ("(int64[n, 5] x, int64[n, 5] y) => (int64[n, 5] z) { z = Mod(x, y) }", {"x": I, "y": J}),
    "LogSoftmax": ("(float[n, 5] x) => (float[n, 5] z) { z = LogSoftmax(x) }", {"x": X}),
    "Softmax, first axis": ("(float[n, 5] x) => (float[n, 5] z) { z = Softmax<axis=0>(x) }", {"x": X}),
    "ArgMax": ("(float[n, 5] x) => (int64[n] z) { z = ArgMax<axis=1, keepdims=0>(x) }", {"x": X}),
    "Clip": ("(float[n, 5] x) => (float[n, 5] z) <float a = {-1}, float b = {2}> { z = Clip(x, a, b) }", {"x": X}),
    "Pad": ("(float[n, 5] x) => (float[n, 9] z) <int64[4] p = {0, 1, 0, 3}> { z = Pad(x, p) }", {"x": X}),
    "Round": (
        "(float[n, 5] x) => (float[n, 5] z) { z = Round(x) }", {"x": np.array([[0.5, 1.5, -0.5, 2.5, -1.2]], "f")}),
    "Cast": ("(float[n, 5] x) => (int32[n, 5] z) { z = Cast<to=6>(x) }", {"x": X}),
    "ReduceMean": ("(float[n, 5] x) => (float[n] z)"
        " <int64[1] a = {1}> { z = ReduceMean<keepdims=0>(x, a) }", {"x": X}),
    "ReduceLogSumExp": ("(float[n, 5] x) => (float[n, 1] z)"
        " <int64[1] a = {1}> { z = ReduceLogSumExp(x, a) }", {"x": X}),
    "CumSum": ("(float[n, 5] x) => (float[n, 5] z)"
        " <int64 a = {1}> { z = CumSum<exclusive=1, reverse=1>(x, a) }", {"x": X}),
    "AveragePool": (
        "(float[n, 4, 9, 9] x) => (float[n, 4, 5, 5] z) "
        "{ z = AveragePool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(x) }",
        {"x": IMAGES},
    ),
    "Trilu": ("(float[n, 5] x) => (float[n, 5] z) { z = Trilu<upper=0>(x) }", {"x": X}),
    "Gemm": (
        "(float[n, 5] x, float[3, 5] w, float[3] c) => (float[n, 3] z) "
        "{ z = Gemm<transB=1, alpha=2.0, beta=3.0>(x, w, c) }",
        {"x": X, "w": X[::-1].copy(), "c": X[:, 0].copy()},
    ),
    "MatMul, a broadcast batch": (
        "(float[n, 4, 9, 9] x, float[9, 9] y) => (float[n, 4, 9, 9] z) "
        "{ t = Transpose<perm=[1, 0]>(y) z = MatMul(x, t) }",
        {"x": IMAGES, "y": IMAGES[0, 0]},
    ),
    "MatMul, a vector": ("(float[n, 5] x, float[5] y) => (float[n] z) { z = MatMul(x, y) }", {"x": X, "y": X[0]}),
    "Reshape": (
        "(float[n, 4, 9, 9] x) => (float[a, b] z) <int64[2] s = {0, -1}> { z = Reshape(x, s) }", {"x": IMAGES}
    ),
    "Slice, backwards": (slices(-1, -6, 1, -2), {"x": X}),
    "Slice, far backwards": (slices(100, -(2**31), -1, -1), {"x": X}),
    "Slice, from the back": (slices(-3, 100, 1, 2), {"x": X}),
    "Slice, nothing": (slices(4, 2, 1, 1), {"x": X}),
    "float16": (
        "(float16[n, 5] x) => (float16[n, 5] z) { y = Exp(x) z = Softmax(y) }", {"x": X.astype(np.float16)}
    ),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_operators_equal_onnxruntime(name: str) -> None:
    text, inputs = CASES[name]
    model = parser.parse_model('<ir_version: 10, opset_import: ["" : 18]> g ' + text)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, inputs)
    found = Executor(build_program(model))(inputs)["z"]
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
    else:
        # Sums of at most 400 products in another order, values of at most 10; half precision has 11 bits.
        bound = 2e-3 if found.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=bound, atol=bound)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(float[n, 5] x) => (float[n, 2] z, int64[n, 2] i) <int64[1] k = {2}> { z, i = TopK(x, k) }", "topk"),
        ("(float[n, 5] x, int64[2] s) => (float[a, b] z) { z = Reshape(x, s) }", "gives a shape that depends on data"),
    ],
)
def test_what_has_no_kernel_is_refused_by_name(text: str, message: str) -> None:
    model = parser.parse_model('<ir_version: 10, opset_import: ["" : 18]> g ' + text)
    with pytest.raises(softq.RefusalError, match=message):
        build_program(model)
