"""A model around one function: for tests, golden vectors, and looking at it in a viewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir
from numpy.typing import ArrayLike

from softq.rowprog.onnx.emitter import emit, output_names
from softq.rowprog.onnx.interface import DOMAIN, arguments, signature
from softq.rowprog.program import Program
from softq.rowprog.types import Kind

_TYPES = {"f32": ir.DataType.FLOAT, "i8": ir.DataType.INT8, "u8": ir.DataType.UINT8, "i16": ir.DataType.INT16,
          "u16": ir.DataType.UINT16, "i32": ir.DataType.INT32, "u32": ir.DataType.UINT32, "i64": ir.DataType.INT64,
          "u64": ir.DataType.UINT64}  # fmt: skip


def to_model(
    program: Program,
    values: Mapping[str, ArrayLike] | None = None,
    *,
    shape: Sequence[int | str] = ("rows", "N"),
    opset: int = 18,
    max_length: int = 65536,
    outputs: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """Return a model that calls the program's function once.

    Args:
        program: What to call.
        values: Run-time parameters, as the interpreter takes them.
        shape: Shape of the scores; a mask has the same.
        opset: Version of the default domain.
        max_length: Greatest length of a row that the proof covers.
        outputs: Names of the outputs; by default those of the interface.
    """
    function = emit(program, opset=opset, max_length=max_length, outputs=outputs)
    inputs = [ir.Value(name="scores", type=ir.TensorType(_TYPES[program.scores.value]), shape=ir.Shape(shape))]
    if program.masked:
        inputs.append(ir.Value(name="valid", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(shape)))
    nodes: list[ir.Node] = []
    given: list[ir.Value] = []
    arrays = arguments(program, values or {})
    for name, array in zip(signature(program)[len(inputs) :], arrays, strict=True):
        node = ir.node("Constant", [], {"value": ir.tensor(array)}, name=name)
        node.outputs[0].name = f"given.{name}"
        nodes.append(node)
        given.append(node.outputs[0])
    names = output_names(program, outputs)
    call = ir.node(function.name, [*inputs, *given], domain=DOMAIN, num_outputs=len(names), name="softmax")
    for name, out in zip(names, call.outputs, strict=True):
        scalar = program.outputs[name].kind is Kind.SCALAR
        out.name, out.type = name, ir.TensorType(ir.DataType.FLOAT)
        out.shape = ir.Shape([*shape[:-1], 1] if scalar else shape)
    graph = ir.Graph(
        inputs, list(call.outputs), nodes=[*nodes, call], opset_imports={"": opset, DOMAIN: 1}, name=program.name
    )
    return ir.to_proto(ir.Model(graph, ir_version=_ir_version(opset), functions=[function]))


def _ir_version(opset: int) -> int:
    """Return the lowest IR version that knows functions and goes with an opset's types."""
    return 8 if opset < 19 else 9 if opset < 21 else 10
