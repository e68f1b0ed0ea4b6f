"""LayerNormalization of dequantized codes, built: sums of integers, against float64 and onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

pytest.importorskip("tvm")

import softq
from tests.built import Array
from tests.native import build_program
from tests.test_build_qdq import by_onnxruntime, results

KINDS = ("int8", "uint8")
EPSILON = 1e-3
SCALE = 0.0137

SHAPES = {
    "rows": ((2, 5, 64), -1),
    "two axes": ((3, 4, 10), 1),
    "all axes": ((1, 13), 0),
    "one code": ((4, 1), -1),
    "sums beyond 32 bits": ((3, 700), -1),
}
"""Shape and axis. Squares of 700 codes, times 700, are above 2^31."""


def model_of(kind: str, shape: tuple[int, ...], axis: int, bias: bool) -> tuple[onnx.ModelProto, dict[str, Array]]:
    dims, row = ", ".join(map(str, shape)), shape[axis:]
    given = "real, gamma, beta" if bias else "real, gamma"
    model = parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 21]>
    g ({kind}[{dims}] q) => (float[{dims}] y, int8[{dims}] codes)
    <float s = {{{SCALE}}}, {kind} z = {{{np.iinfo(kind).min + 100}}},
     float bs = {{0.01}}, float t = {{0.03}}, int8 w = {{3}}>
    {{
        real = DequantizeLinear(q, s, z)
        beta = DequantizeLinear(b, bs)
        y = LayerNormalization <axis = {axis}, epsilon = {EPSILON}> ({given})
        codes = QuantizeLinear(y, t, w)
    }}
    """)
    rng = np.random.default_rng(5)
    numbers = {"gamma": rng.normal(size=row).astype(np.float32), "b": rng.integers(-90, 90, row, np.int32)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in numbers.items())
    low = np.iinfo(kind).min
    codes = rng.integers(low, low + 256, shape)
    codes[0] = low + 100 + codes[0] % 3  # A variance that the epsilon counts beside.
    return model, {"q": codes.astype(kind)}


def exact(model: onnx.ModelProto, feed: dict[str, Array], axis: int, bias: bool) -> Array:
    numbers = {x.name: numpy_helper.to_array(x).astype(np.float64) for x in model.graph.initializer}
    x = (feed["q"].astype(np.float64) - numbers["z"]) * np.float64(np.float32(SCALE))
    axes = tuple(range(axis % x.ndim, x.ndim))
    centred = x - x.mean(axes, keepdims=True)
    root = np.sqrt((centred**2).mean(axes, keepdims=True) + np.float64(np.float32(EPSILON)))
    return centred / root * numbers["gamma"] + (numbers["b"] * np.float64(np.float32(0.01)) if bias else 0)


def kernels_of(folder: Path) -> list[str]:
    return [step["kernel"] for step in json.loads((folder / "manifest.json").read_text())["steps"]]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SHAPES)
def test_codes_are_normalized_by_sums_of_integers(name: str, kind: str, bias: bool, tmp_path: Path) -> None:
    shape, axis = SHAPES[name]
    model, feed = model_of(kind, shape, axis, bias)
    wanted, (theirs, coded) = exact(model, feed, axis, bias), by_onnxruntime(model, feed)
    # Numbers of size 4: a few roundings each, and onnxruntime's own.
    np.testing.assert_allclose(theirs, wanted, rtol=0, atol=1e-4)
    for target in ("cpu", "c"):
        real, codes = results(model, feed, target, tmp_path / target)
        np.testing.assert_allclose(real, wanted, rtol=0, atol=2e-6, err_msg=target)
        assert np.abs(codes.astype(int) - coded).max() <= 1
        assert np.count_nonzero(codes != coded) <= codes.size // 50
        assert any("normalize_codes" in kernel for kernel in kernels_of(tmp_path / target))


OTHERS = {
    "floats": ("int8[4, 8] q", "x = Mul(d, d) y = LayerNormalization(x, g)"),
    "statistics": ("int8[4, 8] q", "y, mean = LayerNormalization(d, g) used = Neg(mean)"),
    "unknown length": ("int8[4, n] q, float[n] h", "y = LayerNormalization(d, h)"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_no_such_sums_stays(name: str, tmp_path: Path) -> None:
    given, nodes = OTHERS[name]
    model = parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 21]>
    f ({given}) => (float[4, 8] y{", float[4, 1] used" * ("used" in nodes)})
    <float s = {{0.1}}, float[8] g = {{1, 2, 3, 4, 5, 6, 7, 8}}>
    {{ d = DequantizeLinear(q, s) {nodes} }}
    """)
    feed: dict[str, Array] = {"q": np.arange(32, dtype=np.int8).reshape(4, 8)}
    feed |= {"h": np.arange(8, dtype=np.float32)} if "h" in {x.name for x in model.graph.input} else {}
    for found, wanted in zip(results(model, feed, "cpu", tmp_path), by_onnxruntime(model, feed), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert not any("normalize_codes" in kernel for kernel in kernels_of(tmp_path))


@pytest.mark.parametrize("given", ["float[4, 8] q", "int8[4, n] q", "int8[2, 40000] q"])
def test_normalizations_of_a_file_are_checked(given: str) -> None:
    """Sums of what is no byte, or of too many, would not be exact."""
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18, "softq.compiler" : 1]>
        g ({given}, float[8] a) => (float[m, k] y)
        {{ y = softq.compiler.NormalizeCodes <axis = 1, epsilon = 0.5> (q, a) }}""")
    with pytest.raises(softq.RefusalError, match="takes rows of up to 32768 bytes"):
        build_program(model)
