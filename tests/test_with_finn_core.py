"""Cores as layers of FINN-plus: FINN's own steps, and its simulation of HDL with Icarus in the place of Vivado's.

Runs where FINN-plus is installed: `make integrations`.
"""

# The tool is not there where types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("finn.custom_op.fpgadataflow")
pytestmark = pytest.mark.integrations

from finn.analysis.fpgadataflow.exp_cycles_per_layer import exp_cycles_per_layer  # noqa: E402
from finn.transformation.fpgadataflow.prepare_ip import PrepareIP  # noqa: E402
from finn.util.settings import initialize_dummy_settings  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from qonnx.core.datatype import DataType  # noqa: E402
from qonnx.core.modelwrapper import ModelWrapper  # noqa: E402
from qonnx.core.onnx_exec import execute_onnx  # noqa: E402
from qonnx.custom_op.registry import getCustomOp  # noqa: E402
from qonnx.transformation.infer_datatypes import InferDataTypes  # noqa: E402
from qonnx.transformation.infer_shapes import InferShapes  # noqa: E402

from softq.integrations.finn import InferSoftqSoftmax, SoftqSoftmax_rtl  # noqa: E402
from softq.rowprog import run  # noqa: E402

_BENCH = """\
module bench;
    reg clk = 0, resetn = 0;
    always #5 clk = ~clk;
    reg [{given}-1:0] given [0:{beats}-1];
    integer at = 0, got = 0, out, clocks = 0;
    wire ready, result;
    wire valid = at < {beats} && resetn && (clocks % 3 != 2);
    wire [{result}-1:0] data;
    wire taken = clocks % 5 != 4;
    {top} dut(.ap_clk(clk), .ap_rst_n(resetn), .in0_V_TDATA(given[at]), .in0_V_TVALID(valid), .in0_V_TREADY(ready),
        .out0_V_TDATA(data), .out0_V_TVALID(result), .out0_V_TREADY(taken));
    initial begin
        $readmemh("given.hex", given);
        out = $fopen("results.hex", "w");
        #42 resetn = 1;
    end
    always @(posedge clk) if (resetn) begin
        clocks <= clocks + 1;
        if (valid && ready) at <= at + 1;
        if (result && taken) begin
            $fdisplay(out, "%h", data);
            got = got + 1;
            if (got == {beats}) begin $fclose(out); $display("%0d", clocks); $finish; end
        end
        if (clocks > 1000000) $finish;
    end
endmodule
"""


def _model(kind: str, shape: list[int], step: float | None, axis: int = -1) -> Any:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("scores", "y")]
    nodes = [helper.make_node("Softmax", ["scores" if step is None else "x"], ["y"], name="softmax", axis=axis)]
    if step is not None:
        nodes.insert(0, helper.make_node("Mul", ["scores", "step"], ["x"]))
    graph = helper.make_graph(nodes, "attention", values[:1], values[1:])
    model = ModelWrapper(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    if step is not None:
        model.set_initializer("step", np.asarray(step, np.float32))
        model.set_tensor_shape("x", shape)
    model.set_tensor_datatype("scores", DataType[kind])
    return model


class _Icarus:
    """FINN's simulation of a layer, by Icarus."""

    def __init__(self, layer: SoftqSoftmax_rtl) -> None:
        self.layer = layer

    def run(self, io: dict[str, dict[str, list[int]]]) -> int:
        layer, folder = self.layer, Path(self.layer.get_nodeattr("code_gen_dir_ipgen"))
        words = io["inputs"]["in0"]
        text = _BENCH.format(
            given=layer.get_instream_width_padded(),
            result=layer.get_outstream_width_padded(),
            beats=len(words),
            top=layer.get_verilog_top_module_name(),
        )
        (folder / "bench.v").write_text(text)
        (folder / "given.hex").write_text("".join(f"{word:x}\n" for word in words))
        sources = ["bench.v", *layer.get_rtl_file_list(abspath=True)]
        subprocess.run(["iverilog", "-g2001", "-o", "bench", "-s", "bench", *sources], cwd=folder, check=True)
        said = subprocess.run(["vvp", "bench"], cwd=folder, check=True, capture_output=True, text=True).stdout
        io["outputs"]["out0"] = [int(line, 16) for line in (folder / "results.hex").read_text().split()]
        return int(said.split()[0])


@pytest.fixture
def _icarus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which("iverilog") is None:
        pytest.skip("iverilog is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FINN_TMP").mkdir()
    initialize_dummy_settings()
    monkeypatch.setattr(SoftqSoftmax_rtl, "get_rtlsim", lambda self: _Icarus(self))
    monkeypatch.setattr(SoftqSoftmax_rtl, "reset_rtlsim", lambda self, sim: None)
    monkeypatch.setattr(SoftqSoftmax_rtl, "close_rtlsim", lambda self, sim: None)
    monkeypatch.setattr(
        SoftqSoftmax_rtl,
        "rtlsim_multi_io",
        lambda self, sim, io, sname="_V": self.set_nodeattr("cycles_rtlsim", sim.run(io)),
    )


@pytest.mark.parametrize(
    ("method", "output", "kind", "simd", "bits"),
    [
        ("ita", "uint8", "INT8", 1, 8),
        ("ita", "uint8", "UINT8", 4, 8),
        ("index-softmax", "uint8", "INT5", 2, 8),
        ("shiftmax", "int16", "INT8", 8, 16),
        ("hls4ml", "fixed", "UINT3", 2, 11),
    ],
)
@pytest.mark.usefixtures("_icarus")
def test_hdl_and_python_agree(method: str, output: str, kind: str, simd: int, bits: int) -> None:
    """FINN packs the scores, simulates the HDL it was given, and unpacks: the interpreter's weights, to the bit."""
    shape = [3, 5, 24]
    given = DataType[kind]
    scores = np.random.default_rng(1).integers(int(given.min()), int(given.max()) + 1, shape).astype(np.float32)
    model = _model(kind, shape, 0.06)
    cores = InferSoftqSoftmax(method, {"output": output}, simd)
    model = model.transform(cores).transform(InferShapes()).transform(InferDataTypes())
    assert cores.left == {}
    model = model.transform(PrepareIP("xc7z020clg400-1", 5.0))
    (node,) = model.get_nodes_by_op_type("SoftqSoftmax_rtl")
    layer = getCustomOp(node)
    assert model.get_tensor_datatype(node.output[0]).bitwidth() <= bits
    python = execute_onnx(model, {"scores": scores}, return_full_exec_context=True)
    program = layer.make().core.plan.source
    (expected,) = run(program, scores.astype(program.scores.numpy)).values()
    np.testing.assert_array_equal(python[node.output[0]], expected)
    layer.set_nodeattr("exec_mode", "rtlsim")
    hardware = execute_onnx(model, {"scores": scores}, return_full_exec_context=True)
    np.testing.assert_array_equal(hardware[node.output[0]], expected)
    np.testing.assert_array_equal(hardware["y"], expected.astype(np.float32) * np.float32(1 / layer.normalizer()))
    assert exp_cycles_per_layer(model)[node.name] >= 15 * 24 // simd


@pytest.mark.parametrize(
    ("model", "method", "settings", "reason"),
    [
        (_model("FLOAT32", [4, 8], None), "ita", {"output": "uint8"}, "reads FLOAT32"),
        (_model("INT16", [4, 8], 0.1), "ita", {"output": "uint8"}, "reads FLOAT32|reads INT16"),
        (_model("INT8", [4, 8], -0.1), "ita", {"output": "uint8"}, "multiplied by -0.1"),
        (_model("INT8", [4, 8], 0.1, axis=0), "ita", {"output": "uint8"}, "axis"),
        (_model("INT8", [4, 9], 0.1), "ita", {"output": "uint8"}, "SIMD is 2"),
        (_model("INT8", [4, 8], 0.1), "deferred-log", {}, "normalizer for each row"),
        (_model("INT8", [4, 8], 0.1), "ita", {"output": "uint9"}, "uint9"),
    ],
)
def test_says_why_a_softmax_stays(model: Any, method: str, settings: dict[str, object], reason: str) -> None:
    """A Softmax that no core can be is still there, with a line about it."""
    cores = InferSoftqSoftmax(method, settings, 2)
    model = model.transform(cores)
    assert [node.op_type for node in model.graph.node][-1] == "Softmax"
    (said,) = cores.left.values()
    assert re.search(reason, said), said


def test_takes_integers_as_they_are() -> None:
    """Without a product in front, a score counts as the logit itself."""
    cores = InferSoftqSoftmax("ita", {"output": "uint8"})
    model = _model("INT4", [2, 8], None).transform(cores)
    (node,) = model.get_nodes_by_op_type("SoftqSoftmax_rtl")
    assert json.loads(getCustomOp(node).get_nodeattr("core"))["settings"]["step"] == 1.0
