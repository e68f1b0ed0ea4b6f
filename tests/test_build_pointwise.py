"""Built models whose operators work element by element, against onnxruntime or NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, parser

import softq
from tests.built import check

pytest.importorskip("tvm")

F32 = np.float32


def test_nan_differs_from_every_number(tmp_path: Path) -> None:
    values = np.array([np.nan, 0, -0.0, np.inf, 1], F32)
    check(
        """g (float[N] x, float[N] y) => (bool[N] unequal, bool[N] some) <float zero = {0}> {
            equal = Equal(x, y)
            unequal = Not(equal)
            some = Cast<to = 9>(x)
        }""",
        [{"x": values, "y": values}, {"x": values, "y": values[::-1].copy()}],
        tmp_path,
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
def test_shifts_by_any_number(dtype: str, tmp_path: Path) -> None:
    # By the width or more, or by less than 0, every bit is gone and the sign comes in: ONNX's node tests.
    # onnxruntime does what the processor does.
    kind = np.dtype(dtype)
    width, info = kind.itemsize * 8, np.iinfo(kind)
    shifts = [0, 1, width - 1, width, width + 1, 2 * width] + ([-1, -width, int(info.min)] if info.min else [])
    values = [int(info.min), int(info.max), 0, 1, 5, int(info.max) // 3, *([-1, -8] if info.min else [])]
    x, by = (a.ravel().astype(kind) for a in np.meshgrid(values, shifts))
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 28]> g ({dtype}[N] x, {dtype}[N] by) => ({dtype}[N] l, {dtype}[N] r) {{
            l = BitShift<direction = "LEFT">(x, by)
            r = BitShift<direction = "RIGHT">(x, by)
        }}"""
    )
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        found = built({"x": x, "by": by})
    gone = [(not 0 <= int(b) < width) for b in by]
    left = [0 if g else int(a) << int(b) for a, b, g in zip(x, by, gone, strict=True)]
    right = [(-1 if a < 0 else 0) if g else int(a) >> int(b) for a, b, g in zip(x, by, gone, strict=True)]
    assert found["l"].tolist() == [(v - info.min) % (1 << width) + info.min for v in left]
    assert found["r"].tolist() == right


def test_what_draws_random_numbers_is_refused(tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] y) { y = Bernoulli(x) }'
    )
    with pytest.raises(softq.RefusalError, match="Bernoulli 'y' draws random numbers"):
        softq.build(model, tmp_path / "built", target="cpu")


def test_a_dropout_without_a_ratio_is_none(tmp_path: Path) -> None:
    check(
        """g (float[N] x) => (float[N] y, bool[N] mask) <float ratio = {0}, bool training = {1}> {
            y, mask = Dropout(x, ratio, training)
        }""",
        [{"x": np.arange(5, dtype=F32)}],
        tmp_path,
    )


def test_bits_as_another_type(tmp_path: Path) -> None:
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 26]> g (float[N] x) => (uint32[N] bits, float[N] y) {{
            bits = BitCast<to = {TensorProto.UINT32}>(x)
            y = BitCast<to = {TensorProto.FLOAT}>(bits)
        }}"""
    )
    x = np.array([1, -0.0, np.inf, 1e-40], F32)
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        found = built({"x": x})
    np.testing.assert_array_equal(found["bits"], x.view(np.uint32))
    np.testing.assert_array_equal(found["y"].view(np.uint32), x.view(np.uint32))


@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
def test_remainders_are_exact(dtype: str, tmp_path: Path) -> None:
    kind = np.dtype({"float": "float32", "double": "float64"}.get(dtype, dtype))
    info = np.finfo(kind)
    values = [0.0, -0.0, 1, -3, 5.3, -0.1, np.inf, -np.inf, np.nan, info.max, info.tiny, -info.smallest_subnormal]
    x, y = (a.ravel().astype(kind) for a in np.meshgrid(values, values))
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> g ({dtype}[N] x, {dtype}[N] y) => ({dtype}[N] a, {dtype}[N] b) {{
            a = Mod<fmod = 1>(x, y)
            b = Mod<fmod = 0>(x, y)
        }}"""
    )
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        found = built({"x": x, "y": y})
    with np.errstate(invalid="ignore"):
        wanted = np.fmod(x, y), np.mod(x, y)
    for value, want in zip(found.values(), wanted, strict=True):
        np.testing.assert_array_equal(value, want)
        ordered = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(value)[ordered], np.signbit(want)[ordered])


def test_determinants(tmp_path: Path) -> None:
    x = np.random.default_rng(5).standard_normal((2, 3, 4, 4)).astype(F32)
    x[0, 1, 2], x[1, 0, :, 0], x[1, 1, 0, 0] = x[0, 1, 0], 0, 0
    check("g (float[N, 3, M, M] x) => (float[N, 3] y) { y = Det(x) }", [{"x": x}], tmp_path, absolute=1e-5)


@pytest.mark.parametrize(
    ("base", "exponent"), [("int64", "int64"), ("int32", "int32"), ("int64", "float"), ("int32", "float")]
)
def test_powers_of_integers(base: str, exponent: str, tmp_path: Path) -> None:
    """What the type cannot hold is left out, and 0 to a power below 0: ONNX defines neither, nor does C++."""
    types = {"int64": np.int64, "int32": np.int32, "float": np.float32}
    graph = f"g ({base}[N, 1] x, {exponent}[M] e) => ({base}[A, B] y) {{ y = Pow(x, e) }}"
    x, e = np.array([[-7], [-2], [-1], [1], [2], [3], [8]], types[base]), np.arange(-3, 11).astype(types[exponent])
    if exponent == "float":
        e = np.concatenate([e[3:], [0.5, 2.5]]).astype(np.float32)
        x = np.abs(x)
    check(graph, [{"x": x, "e": e}], tmp_path)
    ones = {"x": np.array([[0], [1]], types[base]), "e": np.array([0, 1, 63, 64, 65, 200], types[exponent])}
    check(graph, [ones], tmp_path)


def test_formulas_of_formulas(tmp_path: Path) -> None:
    """Written into one expression, a few of these would keep TVM's code generator busy for minutes."""
    check(
        """g (float[N] x) => (float[N] y) {
            a = Sigmoid(x)
            b = Sin(a)
            c = Tanh(b)
            d = Exp(c)
            e = Cos(d)
            y = Log(e)
        }""",
        [{"x": np.linspace(-3, -0.2, 37, dtype=F32)}],
        tmp_path,
        absolute=1e-5,
    )


def test_powers_whose_exponents_are_of_another_type_of_floats(tmp_path: Path) -> None:
    x = np.array([-2, -0.5, 0, 1.5, 3], np.float32)
    check(
        """g (float[N] x, double[N] e) => (float[N] y, float[N] z) <double cube = {3}> {
            y = Pow (x, cube)
            z = Pow (x, e)
        }""",
        [{"x": x, "e": np.array([2, 3, 0, 0.5, -1])}],
        tmp_path,
    )


def test_a_function_of_the_product_of_a_vector(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    feeds = {"x": rng.standard_normal(7).astype(np.float32), "w": rng.standard_normal((7, 4)).astype(np.float32)}
    text = "g (float[7] x, float[7, 4] w) => (float[4] y) { t = MatMul (x, w) y = Sinh (t) }"
    check(text, [feeds], tmp_path, relative=1e-5, absolute=1e-5)
