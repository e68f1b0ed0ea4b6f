"""Graphs whose products are of halves or integers, for GPUs: their kernels as OpenCL on PoCL."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser

pytest.importorskip("tvm")

from tests.test_gpu_build import on_device, on_onnxruntime, opencl_of

Array = NDArray[np.generic]


def test_products_of_halves() -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float16[b,h,m,k] x, float16[b,h,n,k] y, float16[b,h,n,7] z) => (float16[b,h,m,n] s, float16[b,h,m,7] o,
                                                                            float16[b,h,m,40] w) {
            t = Transpose <perm = [0, 1, 3, 2]> (y)
            s = MatMul (x, t)
            o = MatMul (s, z)
            w = MatMul (o, u)
        }""")
    rng = np.random.default_rng(0)
    u = rng.normal(size=(7, 40)).astype(np.float16)
    model.graph.initializer.append(numpy_helper.from_array(u, "u"))
    program = opencl_of(model)
    run, pocl = on_device(program)
    # A weight is kept once, with its rows padded to whole pieces of 16 bytes.
    assert [np.asarray(array).shape for array in program.program.weights.values()] == [(40, 8)]
    for b, h, m, n, k in ((1, 2, 3, 5, 16), (2, 1, 9, 70, 11), (1, 1, 66, 3, 8)):
        x, y, z = (rng.normal(size=(b, h, *shape)).astype(np.float16) for shape in ((m, k), (n, k), (n, 7)))
        found = run({"x": x, "y": y, "z": z})
        # Each result is rounded once, from products of what was rounded before.
        s = np.asarray(found["s"], np.float64)
        np.testing.assert_allclose(s, x.astype(np.float64) @ y.astype(np.float64).swapaxes(-1, -2), 2**-11, 1e-5 * k)
        o = np.asarray(found["o"], np.float64)
        np.testing.assert_allclose(o, s @ z.astype(np.float64), 2**-11, 1e-4 * n)
        np.testing.assert_allclose(found["w"].astype(np.float64), o @ u.astype(np.float64), 2**-11, 1e-3)
    names = {name.removeprefix("softq_matmul_f16_") for name in pocl.launches if name.startswith("softq_matmul")}
    assert names == {"rows", "64x64", "64x64_any", "kn_64x64_any"}


@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("int8", "uint8")])
def test_products_of_integers_are_exact(left: str, right: str) -> None:
    model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g ({left}[b,m,k] x, {right}[b,n,k] y, {right}[k,n] w, {left} z) => (int32[b,m,n] s, int32[b,m,n] o) {{
            t = Transpose <perm = [0, 2, 1]> (y)
            s = MatMulInteger (x, t, z)
            o = MatMulInteger (x, w, z)
        }}""")
    run, pocl = on_device(opencl_of(model))
    rng, low = np.random.default_rng(0), {"int8": -128, "uint8": 0}
    for b, m, n, k in ((1, 1, 5, 16), (2, 3, 7, 300), (1, 65, 80, 48), (2, 70, 3, 1)):
        shapes = (left, (b, m, k)), (right, (b, n, k)), (right, (k, n)), (left, ())
        x, y, w, z = (rng.integers(low[kind], low[kind] + 256, shape).astype(kind) for kind, shape in shapes)
        found = run({"x": x, "y": y, "w": w, "z": z})
        shifted = x.astype(np.int64) - z
        np.testing.assert_array_equal(found["s"], shifted @ y.astype(np.int64).swapaxes(-1, -2))
        np.testing.assert_array_equal(found["o"], shifted @ w.astype(np.int64))
    assert sum(name.startswith("softq_matmul") for name in pocl.launches) == len(pocl.launches)


def test_dequantized_codes_are_multiplied_as_integers() -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[b,m,48] x) => (float[b,m,20] y) <float s = {0.02}, uint8 z = {120}, float[20] v = {
            0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2}> {
            q = QuantizeLinear (x, s, z)
            a = DequantizeLinear (q, s, z)
            b = DequantizeLinear <axis = 1> (w, v)
            y = MatMul (a, b)
        }""")
    rng = np.random.default_rng(0)
    w = rng.integers(-127, 128, (48, 20)).astype(np.int8)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    run, pocl = on_device(opencl_of(model))
    for m in (1, 70):
        feeds: dict[str, Array] = {"x": rng.normal(size=(2, m, 48)).astype(np.float32)}
        (wanted,) = on_onnxruntime(model, feeds)
        np.testing.assert_allclose(run(feeds)["y"].astype(np.float64), wanted.astype(np.float64), 1e-5, 1e-4)
    assert any(name.startswith("softq_matmul_u8_i8") for name in pocl.launches)
