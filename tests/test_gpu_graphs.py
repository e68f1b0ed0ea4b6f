"""Graphs for GPUs whose products are of halves or integers, and norms: their kernels as OpenCL on PoCL."""

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


NORMS = {
    "layer": "y = LayerNormalization <axis = -1, epsilon = 1e-5> (x, s, c)",
    "rms": """p = Mul (x, x) m = ReduceMean <keepdims = 1> (p, last) e = Add (m, tiny) q = Sqrt (e)
              d = Div (x, q) y = Mul (s, d)""",
    "mean": "m = ReduceMean <keepdims = 1> (x, last) y = Sub (x, m)",
}


def normed(kind: str, x: NDArray[np.float64], s: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    mean = x.mean(-1, keepdims=True)
    if kind == "rms":
        return s * x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x - mean if kind == "mean" else (x - mean) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * s + c


def norm_model(kind: str, width: int | str, dtype: str = "float") -> onnx.ModelProto:
    row = f"{dtype}[{width}]"
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g ({dtype}[b,n,{width}] x, {row} s, {row} c) => ({dtype}[b,n,{width}] y)
        <int64[1] last = {{-1}}, float tiny = {{1e-5}}> {{ {NORMS[kind]} }}""")


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("width", [64, 384, 1000, "w"])
@pytest.mark.parametrize("kind", NORMS)
def test_a_row_of_a_norm_is_summed_by_a_block(kind: str, width: int | str) -> None:
    run, pocl = on_device(opencl_of(norm_model(kind, width)))
    rng = np.random.default_rng(0)
    for b, n, size in ((1, 3, 70), (2, 5, 600)):
        size = width if isinstance(width, int) else size
        x, s, c = (rng.normal(1, 2, shape).astype(np.float32) for shape in ((b, n, size), (size,), (size,)))
        wanted = normed(kind, *(v.astype(np.float64) for v in (x, s, c)))
        np.testing.assert_allclose(run({"x": x, "s": s, "c": c})["y"].astype(np.float64), wanted, 1e-5, 1e-5)
    assert sum(name.startswith("softq_sums_") for name in pocl.launches) == 2
    # What follows the sums is in the same kernel, if it is one function of TVM's.
    assert kind != "layer" or len(pocl.launches) == 2


def test_short_rows_and_other_reductions_have_a_thread_each() -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[n,16] x, float[k,n] z) => (float[n,1] a, float[1,n] b, float[k,1] c)
        <int64[1] last = {-1}, int64[1] first = {0}> {
            a = ReduceSum (x, last) b = ReduceSum (z, first) c = ReduceMax (z, last) }""")
    run, pocl = on_device(opencl_of(model))
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(70, 16)).astype(np.float32), rng.normal(size=(90, 70)).astype(np.float32)
    found = run({"x": x, "z": z})
    np.testing.assert_allclose(found["a"].astype(np.float64), x.astype(np.float64).sum(-1, keepdims=True), 0, 1e-5)
    np.testing.assert_allclose(found["b"].astype(np.float64), z.astype(np.float64).sum(0, keepdims=True), 0, 1e-4)
    np.testing.assert_array_equal(found["c"], z.max(-1, keepdims=True))
    assert not any(name.startswith("softq_sums_") for name in pocl.launches)


@pytest.mark.skipif(nvcc.find() is None, reason="needs nvcc: pip install 'softq[cuda]'")
@pytest.mark.slow
def test_kernels_of_norms_compile_and_spill_nothing() -> None:
    for kind, dtype in (*((kind, "float") for kind in NORMS), ("layer", "float16")):
        graph = device_program(as_model(norm_model(kind, 384, dtype)), machine_of("sm_90"), CUDA).sources["graph"]
        used = nvcc.compiled(graph, "sm_90", strict=False).usage
        (symbol,) = (name for name in used if name.startswith("softq_sums_"))
        assert (used[symbol].spilled, used[symbol].registers <= 64) == (0, True), (kind, used[symbol])


# What is behind the step is computed for each code: TVM takes 20 s for that kernel.
@pytest.mark.parametrize("result", ["float s", pytest.param("uint8[b,n,96] q", marks=pytest.mark.slow)])
def test_greatest_and_least_values_are_found_in_steps(result: str) -> None:
    model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[b,n,96] x) => (float m, float[b,n,1] r, float[b] t, {result})
        <int64[1] last = {{-1}}, int64[2] two = {{1, 2}}> {{
            m = ReduceMax <keepdims = 0> (x)
            r = ReduceMin (x, last)
            t = ReduceMax <keepdims = 0> (x, two)
            q, s, z = DynamicQuantizeLinear (x)
        }}""")
    program = opencl_of(model)
    run, _ = on_device(program)
    rng = np.random.default_rng(0)
    for b, n in ((1, 1), (2, 70)):
        x = rng.normal(size=(b, n, 96)).astype(np.float32)
        wanted = on_onnxruntime(model, {"x": x})
        for (name, found), value in zip(run({"x": x}).items(), wanted, strict=True):
            np.testing.assert_array_equal(found, value, name)
    x[0, 0] = -np.inf
    x[1, 3, 5], x[1, 4, 95] = np.nan, np.inf
    found = run({"x": x})
    assert np.isnan(found["m"]) & np.isnan(found["t"][1]) & np.isnan(found["r"][1, 3, 0])
    assert np.isnan(found["r"]).sum() == 1
    np.testing.assert_array_equal(found["t"][0], x[0].max())
    np.testing.assert_array_equal(found["r"][0, 0], -np.inf)
    # No thread goes along the tensor alone.
    assert any("in_parts" in step.kernel for step in program.program.steps)
