"""Models between QuantizeLinear and DequantizeLinear, built: their integers are the same for every target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import softq
from tests.built import Array

pytest.importorskip("tvm")

TARGETS = ("cpu", "cpu,mcpu=x86-64")


def model_of(graph: str, opset: int = 21) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')


def results(model: onnx.ModelProto, feed: dict[str, Array], target: str, folder: Path) -> list[Array]:
    softq.build(model, folder, target=target)
    with softq.load(folder) as built:
        found = built(feed)
    return [np.asarray(found[value.name]) for value in model.graph.output]


def by_onnxruntime(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(x) for x in session.run(None, feed)]


PRODUCT = """
g (int8[7, 50] a) => (int8[7, 11] y, float[7, 11] real)
<float s = {{0.013}}, int8 z = {{{zero}}}, float t = {{0.021}}, int8 w = {{0}}, float u = {{0.09}}, int8 p = {{-9}},
 float bs = {{0.000273}}, int32 bz = {{0}}>
{{
    x = DequantizeLinear(a, s, z)
    m = DequantizeLinear(b, t, w)
    c = DequantizeLinear(bias, bs, bz)
    {product}
    y = QuantizeLinear(real, u, p)
}}
"""
FORMS = {
    "Gemm": "real = Gemm <transB = 1> (x, m, c)",
    "MatMul": "plain = MatMul(x, m) real = Add(plain, c)",
}


def product(form: str, zero: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    rng = np.random.default_rng(3)
    model = model_of(PRODUCT.format(product=FORMS[form], zero=zero))
    b, bias = rng.integers(-128, 128, (11, 50)).astype(np.int8), rng.integers(-4000, 4000, 11).astype(np.int32)
    b = b if form == "Gemm" else np.ascontiguousarray(b.T)
    model.graph.initializer.extend([onnx.numpy_helper.from_array(b, "b"), onnx.numpy_helper.from_array(bias, "bias")])
    return model, {"a": rng.integers(-128, 128, (7, 50)).astype(np.int8)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("zero", [0, 7])
def test_gemm_gives_what_matmul_gives(zero: int, target: str, tmp_path: Path) -> None:
    """Exact sums, each rounded once; onnxruntime's sums of floats are within 50 roundings of terms up to 7.3."""
    found = {form: results(*product(form, zero), target, tmp_path / form) for form in FORMS}
    for ours, theirs in zip(found["Gemm"], found["MatMul"], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    codes, real = by_onnxruntime(*product("Gemm", zero))
    np.testing.assert_allclose(found["Gemm"][1], real, rtol=0, atol=50 * 7.3 * 2**-23)
    assert np.abs(found["Gemm"][0].astype(int) - codes).max() <= 1
