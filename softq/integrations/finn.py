"""softq's cores as layers of FINN-plus: softmax on integers, for every device, without floats.

FINN's own `HWSoftmax` computes in float32, and its RTL needs the float units of Versal devices. `InferSoftqSoftmax`
puts a core of softq where a Softmax reads integers of up to 8 bits, or their product with one number, and multiplies
by the scale of the weights behind it. What FINN's steps ask of a layer is here: shapes, data types, folding, simulation
in Python, clocks, and HDL.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from finn.custom_op.fpgadataflow.rtlbackend import RTLBackend
from onnx import helper
from qonnx.core.datatype import DataType
from qonnx.custom_op.registry import add_op_to_domain
from qonnx.transformation.base import Transformation

from softq.errors import RefusalError, SoftqError
from softq.methods import METHODS
from softq.rowprog import run
from softq.rtl import MadeCore, rtl

DOMAIN = "finn.custom_op.fpgadataflow.rtl"

_WRAPPER = """\
module {top}(
    (* X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF in0_V:out0_V, ASSOCIATED_RESET ap_rst_n" *)
    (* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 ap_clk CLK" *)
    input wire ap_clk,
    (* X_INTERFACE_PARAMETER = "POLARITY ACTIVE_LOW" *)
    input wire ap_rst_n,
    input wire [{given_width}-1:0] in0_V_TDATA,
    input wire in0_V_TVALID,
    output wire in0_V_TREADY,
    output wire [{result_width}-1:0] out0_V_TDATA,
    output wire out0_V_TVALID,
    input wire out0_V_TREADY
);
    // FINN's streams have no TLAST: a row has {beats} beats.
    reg [{count_width}-1:0] beat = 0;
    wire last = beat == {beats} - 1;
    always @(posedge ap_clk)
        if (!ap_rst_n) beat <= 0;
        else if (in0_V_TVALID & in0_V_TREADY) beat <= last ? 0 : beat + 1;
    wire [{scores_width}-1:0] scores;
    wire [{padded_width}-1:0] results;
{lanes}
    {core} core (
        .aclk(ap_clk), .aresetn(ap_rst_n),
        .s_axis_tdata(scores), .s_axis_tvalid(in0_V_TVALID), .s_axis_tready(in0_V_TREADY), .s_axis_tlast(last),
{keep}        .m_axis_tdata(results), .m_axis_tvalid(out0_V_TVALID), .m_axis_tready(out0_V_TREADY)
    );
endmodule
"""


@lru_cache(maxsize=64)
def _make(core: str, scores: str, length: int, lanes: int, name: str) -> tuple[MadeCore, int]:
    """Return a core that gives weights alone, and what they sum to."""
    asked = json.loads(core)
    METHODS.get(asked["method"])  # A model may name registered methods only.
    given: dict[str, Any] = {"scores": scores, "length": length, "lanes": lanes, "name": name, "rows": 0}
    built = rtl(asked["method"], asked["settings"], constants=False, **given)
    plan = built.core.plan
    if plan.numbers or "normalizer" not in plan.constants:
        raise RefusalError(
            f"{asked['method']} gives a normalizer for each row; a layer of FINN is one stream, and takes methods "
            "whose weights sum to a constant: those with an option output, for example"
        )
    return built, plan.constants["normalizer"]


class SoftqSoftmax_rtl(RTLBackend):  # type: ignore[misc] # noqa: N801
    """Weights of a softmax over the last axis, as integers.

    Attributes of the node are `ifm_dim` (its shape), `SIMD` (elements of a beat: 1, 2, 4 or 8), `input_data_type` (an
    integer type of up to 8 bits), and `core` (method and settings, as JSON).
    """

    def get_nodeattr_types(self) -> dict[str, Any]:
        """Return the attributes of the node."""
        own = {
            "ifm_dim": ("ints", True, []),
            "SIMD": ("i", False, 1, {1, 2, 4, 8}),
            "input_data_type": ("s", True, ""),
            "core": ("s", True, ""),
        }
        return {**super().get_nodeattr_types(), **own}

    def make(self, name: str = "core") -> MadeCore:
        """Return the layer's core."""
        return self._made(name)[0]

    def normalizer(self) -> int:
        """Return what the weights of a row sum to, but for rounding: a probability is a weight over this."""
        return self._made("core")[1]

    def _made(self, name: str) -> tuple[MadeCore, int]:
        scores = "i8" if self.get_input_datatype().signed() else "u8"
        return _make(
            self.get_nodeattr("core"), scores, self.get_normal_input_shape()[-1], self.get_nodeattr("SIMD"), name
        )

    # Shapes and types

    def get_normal_input_shape(self, ind: int = 0) -> list[int]:
        """Return the shape."""
        return list(self.get_nodeattr("ifm_dim"))

    def get_normal_output_shape(self, ind: int = 0) -> list[int]:
        """Return the shape, which is the input's."""
        return self.get_normal_input_shape()

    def get_folded_input_shape(self, ind: int = 0) -> tuple[int, ...]:
        """Return the shape with the last axis as beats of `SIMD` elements."""
        *outer, length = self.get_normal_input_shape()
        lanes = self.get_nodeattr("SIMD")
        if length % lanes:
            raise RefusalError(f"{self.onnx_node.name}: SIMD is {lanes}; it has to divide {length} elements of a row")
        return (*outer, length // lanes, lanes)

    def get_folded_output_shape(self, ind: int = 0) -> tuple[int, ...]:
        """Return the folded shape, which is the input's."""
        return self.get_folded_input_shape()

    def get_input_datatype(self, ind: int = 0) -> Any:
        """Return the type of the scores."""
        return DataType[self.get_nodeattr("input_data_type")]

    def get_output_datatype(self, ind: int = 0) -> Any:
        """Return the narrowest type of the weights."""
        plan = self.make().core.plan
        field = plan.field(plan.row)
        return DataType[f"{'INT' if field.signed else 'UINT'}{field.width}"]

    def infer_node_datatype(self, model: Any) -> None:
        """Take the type of the scores from the model, and give it that of the weights."""
        self.set_nodeattr("input_data_type", model.get_tensor_datatype(self.onnx_node.input[0]).name)
        model.set_tensor_datatype(self.onnx_node.output[0], self.get_output_datatype())

    def get_instream_width(self, ind: int = 0) -> int:
        """Return the bits of a beat of scores."""
        return self.get_input_datatype().bitwidth() * self.get_nodeattr("SIMD")

    def get_outstream_width(self, ind: int = 0) -> int:
        """Return the bits of a beat of weights."""
        return self.get_output_datatype().bitwidth() * self.get_nodeattr("SIMD")

    def get_number_output_values(self) -> int:
        """Return the beats of all rows."""
        return math.prod(self.get_folded_output_shape()[:-1])

    def get_exp_cycles(self) -> int:
        """Return the clocks of all rows, one behind the other."""
        *outer, length = self.get_normal_input_shape()
        core = self.make().core
        return core.latency(length) + math.ceil((math.prod(outer) - 1) * core.interval(length))

    # What it computes, and the hardware

    def execute_node(self, context: dict[str, Any], graph: Any) -> None:
        """Compute the layer, by the interpreter of the row program or by a simulation of the hardware."""
        if self.get_nodeattr("exec_mode") == "rtlsim":
            super().execute_node(context, graph)
            return
        plan = self.make().core.plan
        scores = np.asarray(context[self.onnx_node.input[0]]).astype(plan.source.scores.numpy)
        weights = run(plan.source, scores)[plan.row_name]
        context[self.onnx_node.output[0]] = weights.astype(np.float32)

    def generate_hdl(self, model: Any, fpgapart: str, clk: float) -> None:
        """Write the core, and what stands between its streams and FINN's."""
        folder, top = Path(self.get_nodeattr("code_gen_dir_ipgen")), self.get_verilog_top_module_name()
        self.set_nodeattr("gen_top_module", top)
        self.set_nodeattr("ipgen_path", str(folder))
        self.set_nodeattr("ip_path", str(folder))
        core = self.make(_core_name(top)).core
        (folder / f"{core.name}.v").write_text(core.text, "utf-8")
        (folder / f"{top}.v").write_text(self._wrap(top, core.name), "utf-8")

    def _wrap(self, top: str, core: str) -> str:
        plan = self.make().core.plan
        lanes, given, result = self.get_nodeattr("SIMD"), self.get_input_datatype(), plan.field(plan.row)
        width, bits, beats = plan.score_field.width, given.bitwidth(), self.get_folded_input_shape()[-2]
        lines = []
        for lane in range(lanes):
            low, top_bit = lane * bits, f"in0_V_TDATA[{(lane + 1) * bits - 1}]" if given.signed() else "1'b0"
            fill = f"{{{width - bits}{{{top_bit}}}}}, " if bits < width else ""
            lines.append(
                f"    assign scores[{lane * width} +: {width}] = {{{fill}in0_V_TDATA[{low} +: {bits}]}};\n"
                f"    assign out0_V_TDATA[{lane * result.width} +: {result.width}] = "
                f"results[{lane * result.padded} +: {result.width}];"
            )
        unused = self.get_outstream_width_padded() - self.get_outstream_width()
        if unused:
            lines.append(f"    assign out0_V_TDATA[{self.get_outstream_width()} +: {unused}] = 0;")
        return _WRAPPER.format(
            top=top,
            core=core,
            given_width=self.get_instream_width_padded(),
            result_width=self.get_outstream_width_padded(),
            beats=beats,
            count_width=max(beats.bit_length(), 1),
            scores_width=width * lanes,
            padded_width=result.padded * lanes,
            lanes="\n".join(lines),
            keep=f"        .s_axis_tkeep({{{lanes}{{1'b1}}}}),\n" if lanes > 1 else "",
        )

    def get_rtl_file_list(self, abspath: bool = False) -> list[str]:
        """Return the files of the layer, the top module last."""
        top = self.get_nodeattr("gen_top_module")
        folder = self.get_nodeattr("code_gen_dir_ipgen") if abspath else ""
        return [os.path.join(folder, f"{name}.v") for name in (_core_name(top), top)]

    def code_generation_ipi(self) -> list[str]:
        """Return the commands that put the layer into a block design of Vivado."""
        top = self.get_nodeattr("gen_top_module")
        files = [f"add_files -norecurse {file}" for file in self.get_rtl_file_list(abspath=True)]
        return [*files, f"create_bd_cell -type module -reference {top} {self.onnx_node.name}"]


def _core_name(top: str) -> str:
    """Return the name of a layer's core, which is its own: two layers may differ in more than their tables."""
    return f"{top}_core".lower()


class InferSoftqSoftmax(Transformation):  # type: ignore[misc]
    """Puts cores where a Softmax over the last axis reads integers, or their product with one number.

    Args:
        method: A method of softq whose weights sum to a constant.
        settings: Its options; `step` is the number that scores are multiplied by, and comes from the model.
        simd: Elements of a beat: 1, 2, 4 or 8; it has to divide the length of each row.

    Attributes:
        left: Why each Softmax that is still there is, by its name.
    """

    def __init__(self, method: str, settings: Mapping[str, object] | None = None, simd: int = 1) -> None:
        super().__init__()
        self._method, self._settings, self._simd = METHODS.open(method).name, dict(settings or {}), simd
        self.left: dict[str, str] = {}

    def apply(self, model: Any) -> tuple[Any, bool]:
        """Return the model, which is changed, and that once is enough."""
        for node in [node for node in model.graph.node if node.op_type == "Softmax"]:
            try:
                self._replace(model, node)
            except SoftqError as error:
                self.left[node.name or node.output[0]] = str(error)
        return model, False

    def _replace(self, model: Any, node: Any) -> None:
        shape = model.get_tensor_shape(node.input[0])
        axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
        if shape is None or axis not in (-1, len(shape) - 1):
            raise RefusalError("its axis is not the last one, or its shape is not known")
        scores, step = _find_scores(model, node.input[0])
        settings = {**self._settings, "step": step}
        name = node.name or node.output[0]
        kind = model.get_tensor_datatype(scores)
        layer = helper.make_node(
            "SoftqSoftmax_rtl",
            [scores],
            [model.make_new_valueinfo_name()],
            domain=DOMAIN,
            name=name,
            backend="fpgadataflow",
            ifm_dim=list(shape),
            SIMD=self._simd,
            input_data_type=kind.name,
            core=json.dumps({"method": self._method, "settings": settings}, sort_keys=True),
        )
        op = SoftqSoftmax_rtl(layer)
        op.get_folded_input_shape()
        normalizer = op.normalizer()
        scale = model.make_new_valueinfo_name()
        at = list(model.graph.node).index(node)
        model.graph.node.remove(node)
        model.graph.node.insert(at, layer)
        model.set_tensor_shape(layer.output[0], list(shape))
        model.set_tensor_datatype(layer.output[0], op.get_output_datatype())
        model.set_initializer(scale, np.asarray(1 / normalizer, np.float32))
        rescale = helper.make_node("Mul", [layer.output[0], scale], list(node.output), name=f"{name}_scale")
        model.graph.node.insert(at + 1, rescale)


def _find_scores(model: Any, tensor: str) -> tuple[str, float]:
    """Return the integers that a Softmax reads, and what they are multiplied by."""
    step, source = 1.0, tensor
    producer = model.find_producer(tensor)
    if producer is not None and producer.op_type == "Mul" and not model.get_tensor_datatype(tensor).is_integer():
        for given, other in (producer.input, producer.input[::-1]):
            factor = model.get_initializer(other)
            if factor is not None and factor.size == 1:
                source, step = given, float(factor.item())
    kind = model.get_tensor_datatype(source)
    if not kind.is_integer() or kind.bitwidth() > 8:
        raise RefusalError(
            f"it reads {kind.name}; a core takes integers of up to 8 bits, or their product with a number"
        )
    if step <= 0:
        raise RefusalError(f"its integers are multiplied by {step}; a core takes a factor above 0")
    return source, step


add_op_to_domain(DOMAIN, SoftqSoftmax_rtl)
