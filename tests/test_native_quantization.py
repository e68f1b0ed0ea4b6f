"""QuantizeLinear without a division gives the codes of the division, to the bit."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper, parser

pytest.importorskip("tvm")

import softq
from softq.codegen.cpu.machines import host
from softq.compiler.legalize.quantization import fused, is_exact, legalize
from softq.compiler.tir import expressions

Floats = NDArray[np.float32]

SCALES = np.array([0.05, 1 / 3, 0.0039215689, 0.125, 1.0, 3.7e-5, 212.3, 2.0**-95, 1.9999999, 1e-30, 1e28], np.float32)


def around_boundaries(scale: np.float32, low: int, high: int) -> Floats:
    """Return the floats around every boundary between two codes, and some far from all of them."""
    middles = ((np.arange(low - 2, high + 2) + 0.5) * np.float64(scale)).astype(np.float32)
    near = (middles.view(np.int32)[:, None] + np.arange(-9, 10, dtype=np.int32)).view(np.float32).ravel()
    rng = np.random.default_rng(0)
    anywhere = rng.integers(0, 2**32, 4096, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 3e38, -3e38], np.float32)
    return np.concatenate([near, special, anywhere[~np.isnan(anywhere)]])


def divided(x: Floats, scale: np.float32, zero: int, dtype: str) -> NDArray[np.generic]:
    info = np.iinfo(dtype)
    with np.errstate(over="ignore", under="ignore"):
        codes = np.rint(x / scale) + np.float32(zero)
    return np.clip(codes, info.min, info.max).astype(dtype)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("target", ["cpu", "cpu,mcpu=x86-64"])
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 131), ("int8", 0), ("int8", -128)])
def test_codes_are_those_of_the_division(dtype: str, zero: int, target: str, tmp_path: Path) -> None:
    info = np.iinfo(dtype)
    given = {f"x{i}": around_boundaries(s, info.min - zero, info.max - zero) for i, s in enumerate(SCALES)}
    nodes = "\n".join(f"y{i} = QuantizeLinear(x{i}, s{i}, z)" for i in range(len(SCALES)))
    inputs = ", ".join(f"float[{len(x)}] {name}" for name, x in given.items())
    outputs = ", ".join(f"{dtype}[{len(x)}] y{i}" for i, x in enumerate(given.values()))
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => ({outputs}) {{ {nodes} }}')
    for i, scale in enumerate(SCALES):
        model.graph.initializer.append(numpy_helper.from_array(scale, f"s{i}"))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model.graph.initializer.append(helper.make_tensor("z", kind, [], [zero]))
    softq.build(model, tmp_path / "built", target=target)
    found = softq.load(tmp_path / "built")(given)
    theirs = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)
    for i, scale in enumerate(SCALES):
        expected = divided(given[f"x{i}"], scale, zero, dtype)
        np.testing.assert_array_equal(found[f"y{i}"], expected, err_msg=f"scale {scale}")
        finite = np.abs(given[f"x{i}"]) < 2.0**31 * scale  # beyond, onnxruntime converts what no integer holds
        np.testing.assert_array_equal(np.asarray(theirs[i])[finite], expected[finite], err_msg=f"scale {scale}")


def test_a_scale_whose_codes_differ_is_seen() -> None:
    for scale in map(float, SCALES[1:3]):
        inverse = np.float32(1) / np.float32(scale)
        assert is_exact(scale, -128, 127)
        assert not is_exact(scale, -128, 127, float(inverse * np.float32(1.001)))
    assert not is_exact(1e-38, -128, 127)
    assert not is_exact(math.inf, 0, 255)
    assert not is_exact(math.nan, 0, 255)
    assert not is_exact(-0.5, 0, 255)


def test_multiply_adds_are_rounded_once() -> None:
    rng = np.random.default_rng(1)
    a, c = (rng.normal(size=400).astype(np.float32) for _ in range(2))
    c[::2] = -a[::2] * np.float32(1.7)  # nearly all of the sum is gone
    b = np.float32(1.7)
    for x, y, found in zip(a, c, fused(a, b, c), strict=True):
        exact = Fraction(float(x)) * Fraction(float(b)) + Fraction(float(y))
        nearest = abs(Fraction(float(found)) - exact)
        for other in (np.nextafter(found, np.float32(-np.inf)), np.nextafter(found, np.float32(np.inf))):
            assert nearest <= abs(Fraction(float(other)) - exact)


@pytest.mark.parametrize(("source", "dtype", "constant", "divides"), [
    ("float32", "int8", True, False), ("float32", "uint8", True, False), ("float32", "int8", False, True),
    ("float16", "int8", True, True), ("float32", "float8_e4m3fn", True, True),
])  # fmt: skip
def test_what_is_proved_is_not_divided(source: str, dtype: str, constant: bool, divides: bool) -> None:
    """The codes are the same; a division takes several times as long. Only constant scales and bytes have the proof."""
    relax, tirx = pytest.importorskip("tvm.relax"), pytest.importorskip("tvm.tirx")
    scale = relax.const(np.asarray(0.05, source)) if constant else relax.Var("s", relax.TensorType((), source))
    x = relax.Var("x", relax.TensorType((8,), source))
    builder = relax.BlockBuilder()
    with builder.function("main", [x] if constant else [x, scale]):
        codes = relax.op.quantize(x, scale, relax.const(np.asarray(0, "int8")), axis=0, out_dtype=dtype)
        builder.emit_func_output(builder.emit(codes))
    module = relax.transform.LegalizeOps(legalize(host("cpu", "x86-64-v3", "")))(builder.get())
    (kernel,) = [function for function in module.functions.values() if isinstance(function, tirx.PrimFunc)]
    assert bool(expressions.found(kernel.body, tirx.Div)) == divides
