"""What follows a product of matrices is computed in its kernel, for GPUs: as OpenCL on PoCL."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser

pytest.importorskip("tvm")

from softq.artifact.device import nvcc
from softq.codegen.gpu.dialect.dialects import CUDA
from softq.codegen.gpu.program import device_program, machine_of
from softq.modelfile import as_model
from tests.test_gpu_build import on_device, on_onnxruntime, opencl_of

Array = NDArray[np.generic]

BODIES = {
    "bias": "t = MatMul (x, w) y = Add (t, b)",
    "residual": "t = MatMul (x, w) u = Add (t, b) y = Add (u, r)",
    "relu": "t = MatMul (x, w) y = Relu (t)",
    "sigmoid": "t = MatMul (x, w) u = Sigmoid (t) y = Mul (t, u)",
    "tanh": "t = MatMul (x, w) y = Tanh (t)",
    "gelu": "t = MatMul (x, w) u = Add (t, b) y = Gelu (u)",
    "gelu-tanh": 'u = Gemm (x, w, b) y = Gelu <approximate = "tanh"> (u)',
}


def model_of(name: str, dtype: str = "float", columns: int = 36) -> onnx.ModelProto:
    lead = "n" if "Gemm" in BODIES[name] else "b,n"
    model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 20]>
        g ({dtype}[{lead},64] x, {dtype}[{lead},{columns}] r) => ({dtype}[{lead},{columns}] y) {{ {BODIES[name]} }}""")
    rng, held = np.random.default_rng(0), np.float32 if dtype == "float" else np.float16
    for weight, shape in (("w", (64, columns)), ("b", (columns,))):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(held), weight))
    return model


@pytest.mark.parametrize("name", BODIES)
def test_one_launch_gives_what_onnxruntime_gives(name: str) -> None:
    rng = np.random.default_rng(1)
    for columns in (36, 35):
        model = model_of(name, columns=columns)
        run, pocl = on_device(opencl_of(model))
        for rows in (1, 5, 70):
            lead = (rows,) if "Gemm" in BODIES[name] else (2, rows)
            feeds: dict[str, Array] = {part: rng.normal(size=(*lead, width)).astype(np.float32)
                                       for part, width in (("x", 64), ("r", columns))}  # fmt: skip
            (wanted,) = on_onnxruntime(model, feeds)
            np.testing.assert_allclose(run(feeds)["y"].astype(np.float64), wanted.astype(np.float64), 1e-5, 1e-5)
        assert len(pocl.launches) == 3
        assert all(launch.startswith("softq_matmul_f32_") for launch in pocl.launches)


def test_special_values_pass_through() -> None:
    model = model_of("sigmoid")
    run, _ = on_device(opencl_of(model))
    x = np.zeros((1, 4, 64), np.float32)
    x[0, 0, 3], x[0, 1], x[0, 2] = np.nan, 1e30, np.inf
    feeds: dict[str, Array] = {"x": x, "r": np.zeros((1, 4, 36), np.float32)}
    (wanted,) = on_onnxruntime(model, feeds)
    np.testing.assert_allclose(run(feeds)["y"].astype(np.float64), wanted.astype(np.float64), 1e-5)


def test_halves_are_rounded_once() -> None:
    model = model_of("residual", "float16")
    run, pocl = on_device(opencl_of(model))
    rng = np.random.default_rng(1)
    w, b = (numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer)
    for rows in (3, 70):
        x, r = (rng.normal(size=(1, rows, width)).astype(np.float16) for width in (64, 36))
        found = run({"x": x, "r": r})["y"].astype(np.float64)
        np.testing.assert_allclose(found, x.astype(np.float64) @ w + b + r, 2.0**-11, 1e-4)
    names, forms = zip(*(launch.rsplit("_", 1) for launch in pocl.launches), strict=True)
    assert forms == ("rows", "64x64")
    assert len(set(names)) == 1
    assert names[0].startswith("softq_matmul_f16_add_add")


@pytest.mark.parametrize("quantized", [False, True])
def test_dequantized_products_are_scaled_in_their_kernel(quantized: bool) -> None:
    last = "y = QuantizeLinear (u, t, z)" if quantized else "y = Identity (u)"
    model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 20]>
        g (uint8[b,m,48] q) => ({"uint8" if quantized else "float"}[b,m,20] y)
        <float s = {{0.02}}, float t = {{0.5}}, uint8 z = {{120}}> {{
            a = DequantizeLinear (q, s, z)
            c = DequantizeLinear <axis = 1> (w, v)
            p = MatMul (a, c)
            u = Add (p, d)
            {last}
        }}""")
    rng = np.random.default_rng(0)
    for name, array in (("w", rng.integers(-127, 128, (48, 20)).astype(np.int8)),
                        ("v", rng.uniform(0.01, 0.02, 20).astype(np.float32)),
                        ("d", rng.normal(size=20).astype(np.float32))):  # fmt: skip
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    run, pocl = on_device(opencl_of(model))
    for m in (1, 70):
        feeds: dict[str, Array] = {"q": rng.integers(0, 256, (2, m, 48)).astype(np.uint8)}
        (wanted,) = on_onnxruntime(model, feeds)
        found = run(feeds)["y"]
        assert found.dtype == wanted.dtype
        # A number next to the middle of two codes may become either one.
        tolerance = 1 if quantized else 1e-4
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), 0, tolerance)
        assert not quantized or np.mean(found != wanted) < 0.01
    assert len(pocl.launches) == 2, pocl.launches


def test_products_of_integers_become_halves() -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 20]>
        g (uint8[m,48] q) => (float16[m,20] y) <float s = {0.001}, uint8 z = {120}> {
            p = MatMulInteger (q, w, z)
            t = Cast <to = 1> (p)
            u = Mul (t, s)
            y = Cast <to = 10> (u)
        }""")
    rng = np.random.default_rng(0)
    w = rng.integers(-127, 128, (48, 20)).astype(np.int8)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    run, pocl = on_device(opencl_of(model))
    for m in (1, 7, 70):
        q = rng.integers(0, 256, (m, 48)).astype(np.uint8)
        wanted = ((q.astype(np.int32) - 120) @ w.astype(np.int32)).astype(np.float32) * np.float32(0.001)
        np.testing.assert_array_equal(run({"q": q})["y"], wanted.astype(np.float16))
    # All three write halves of their own.
    assert len(set(pocl.launches)) == 3


@pytest.mark.skipif(nvcc.find() is None, reason="needs nvcc: pip install 'softq[cuda]'")
@pytest.mark.parametrize("arch", [*(pytest.param(a, marks=pytest.mark.slow) for a in ("sm_75", "sm_80")), "sm_90"])
def test_they_compile_and_spill_nothing(arch: str) -> None:
    for name, dtype in (("gelu", "float"), ("residual", "float16")):
        text = device_program(as_model(model_of(name, dtype)), machine_of(arch), CUDA).sources["kernels"]
        for symbol, usage in nvcc.compiled(text, arch).usage.items():
            assert usage.spilled == 0, (symbol, usage)
