"""Long chains of fused operators: names in expressions become local variables, and results stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import softq

tirx = pytest.importorskip("tvm").tirx

from tvm.ir import IRModule  # noqa: E402

from softq.codegen.cpu.bindings import names_to_locals  # noqa: E402
from softq.compiler.tir.expressions import found  # noqa: E402


@pytest.mark.parametrize("names", [1, 7, 40])
def test_names_become_variables_that_are_set_in_order(names: int) -> None:
    """Each in the value of the next, and one in another branch: a branch sets what it alone needs."""
    data = tirx.decl_buffer((8,), "float32")
    value = data[0]
    for place in range(names):
        var = tirx.Var(f"v{place}", "float32")
        value = tirx.Let(var, value, var * var + tirx.FloatImm("float32", 1.0))
    other = tirx.Var("other", "float32")
    branches = value, tirx.Let(other, data[2], other * other)
    stored = tirx.if_then_else(data[1] > tirx.FloatImm("float32", 0.0), *branches)
    function = tirx.PrimFunc([data], tirx.BufferStore(data, stored, [3]))
    body = names_to_locals(IRModule({"f": function}))["f"].body  # pyright: ignore[reportCallIssue]
    assert not found(body, tirx.Let)
    (choice,) = found(body, tirx.IfThenElse)
    for branch, expected in ((choice.then_case, [f"v{i}" for i in range(names)]), (choice.else_case, ["other"])):
        assert [store.buffer.name for store in found(branch, tirx.BufferStore)] == [*expected, "chosen"]
    assert len(found(body, tirx.AllocBuffer)) == names + 2


def test_codes_of_codes_are_right_behind_a_concatenation(tmp_path: Path) -> None:
    """A chain of eight, one of them of a part of the elements; code generation took minutes for five."""
    steps = "\n".join(
        f"q{i} = QuantizeLinear (t{i}, s{i}, z)  d{i} = DequantizeLinear (q{i}, s{i}, z)  t{i + 1} = Add (d{i}, b)"
        for i in range(1, 8)
    )
    scales = ", ".join(f"float s{i} = {{{0.011 + 0.001 * i}}}" for i in range(8))
    model: onnx.ModelProto = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[N, 6] x, float[N, 10] b) => (float[N, 10] t8)
        <uint8 z = {{120}}, {scales}, int64[4] pads = {{0, 4, 0, 0}}, float zero = {{0.25}}> {{
            q0 = QuantizeLinear (x, s0, z)
            d0 = DequantizeLinear (q0, s0, z)
            t1 = Pad (d0, pads, zero)
            {steps}
        }}""")
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((7, 6), np.float32), "b": rng.standard_normal((7, 10), np.float32)}
    feeds["x"][0, :3] = np.nan, np.inf, -np.inf
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        result = np.asarray(built(feeds)["t8"], np.float32)
    expected = np.asarray(session.run(None, feeds)[0], np.float32)
    # onnxruntime gives NaN the least code, which is open in ONNX.
    expected, result = np.delete(expected.reshape(-1), 4), np.delete(result.reshape(-1), 4)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
