"""QuantizeLinear and DequantizeLinear of com.microsoft, which onnxruntime's quantizer writes with UseQDQContribOps.

They mean what those of ONNX mean. onnxruntime is the reference; results are codes times a scale, and a sum in another
order may give the next code, so results differ by one step at most.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser

import softq

RNG = np.random.default_rng(4)
SHAPES = {"q": (1, 2, 6, 8), "k": (1, 2, 8, 6), "v": (1, 2, 6, 8)}
FEEDS = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
STEP = 1 / 32
MIDDLE = {"uint8": 128, "int8": 0, "uint16": 32768, "int16": 0}


def attention(kind: str, domain: str, opset: int) -> onnx.ModelProto:
    """Return an attention whose scores, weights, values and result are codes of a type; the values have two scales."""

    def code(name: str, scale: str, more: str = "") -> str:
        numbers = f"{scale}, {'zz' if more else 'z'}"
        return (
            f"{name}_c = {domain}QuantizeLinear{more} ({name}, {numbers}) "
            f"{name}_d = {domain}DequantizeLinear{more} ({name}_c, {numbers})"
        )

    zero = MIDDLE[kind]
    return parser.parse_model(f"""<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]>
        g (float[1,2,6,8] q, float[1,2,8,6] k, float[1,2,6,8] v) => (float[1,2,6,8] r_d)
        <float s = {{{STEP}}}, float t = {{{1 / 100}}}, float[2] ss = {{{STEP}, {STEP * 1.5}}},
         {kind} z = {{{zero}}}, {kind}[2] zz = {{{zero}, {zero}}}>
        {{ scores = MatMul (q, k) {code("scores", "s")} p = Softmax <axis = -1> (scores_d) {code("p", "t")}
           {code("v", "ss", "<axis = 1>")} r = MatMul (p_d, v_d) {code("r", "s")} }}""")


def run(model: onnx.ModelProto) -> NDArray[np.float32]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(FEEDS))[0], np.float32)


@pytest.mark.parametrize(("kind", "opset"), [("uint8", 17), ("int8", 21), ("uint16", 17), ("int16", 18), ("int16", 21)])
def test_they_are_looked_through_and_built_as_those_of_onnx(kind: str, opset: int, tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    model = attention(kind, "com.microsoft.", opset)
    (site,), (same,) = softq.inspect(model), softq.inspect(attention(kind, "", 21))
    assert (site.verdict, site.role, site.shape, site.dtype) == (same.verdict, same.role, same.shape, same.dtype)
    assert (site.verdict.action, site.role, site.shape) == ("convert", "attention", (1, 2, 6, 6))
    want = run(model)
    np.testing.assert_allclose(want, run(attention(kind, "", 21)), rtol=0, atol=0)
    np.testing.assert_allclose(run(softq.convert(model, method="exact").model), want, rtol=0, atol=STEP * 1.01)
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        got = np.asarray(built(dict(FEEDS))["r_d"], np.float32)
    np.testing.assert_allclose(got, want, rtol=0, atol=STEP * 1.01)
    assert np.abs(want).max() > 4 * STEP


def test_scales_of_float16_below_opset_19_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]>
        g (uint8[4] x, float16 s) => (float16[4] y) <uint8 z = {3}>
        { y = com.microsoft.DequantizeLinear (x, s, z) }""")
    with pytest.raises(softq.RefusalError, match=r"com\.microsoft::DequantizeLinear"):
        softq.build(model, tmp_path / "built", target="cpu")
