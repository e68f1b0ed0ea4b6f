"""Nodes as graphs of their own, of which the converter of operator sets makes what their model needs to know."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import checker, numpy_helper

from softq.graph.constants import to_lone_proto
from softq.graph.facts import Facts
from softq.graph.queries import constant_tensor
from softq.graph.ranks import Dims
from softq.modelfile.tensors import LARGE_BYTES

_IR_VERSION = 8
"""IR version by whose rules nodes are checked: that of the onnx release that brought operator set 18."""

_EMPTY = "empty"

FLATTENING = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
"""Operators that below 13 reduced all axes from `axis` on, not one."""


_Known = tuple[ir.DataType, tuple[int | str | None, ...] | None] | bytes | None
"""Element type and shape of a value; the type as ONNX writes it if it is no tensor; None if nothing is known."""

Key = tuple[str, tuple[bytes, ...], tuple[int | None, ...], tuple[bytes, ...], tuple[_Known, ...], tuple[_Known, ...]]
"""Operator, attributes, which inputs are the same, which are constants, what is known of the others and of results."""


class LoneNodes:
    """Nodes of one model as graphs, and keys that graphs have in common of which the converter makes the same.

    Args:
        facts: Of the model.
        version: Its operator set.
    """

    def __init__(self, facts: Facts, version: int) -> None:
        self._facts, self._version = facts, version
        self._context = checker.C.CheckerContext()
        self._context.ir_version = _IR_VERSION
        self._context.opset_imports = {"": version}
        self._constants: dict[ir.Value, bytes] = {}

    def key(self, node: ir.Node) -> Key:
        """Return all that the answer depends on; names of axes count as far as they are the same.

        Raises:
            ValueError: the meaning of the node depends on a rank that is not known, or contradicts it.
        """
        if node.op_type in FLATTENING and self._version < 13:
            _check_axis(node, self._facts.shape(node.inputs[0] if node.inputs else None))
        places = {value: place for place, value in enumerate(input_names(node))}
        axes: dict[str, int] = {}
        attributes = tuple(
            ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True)
            for attribute in node.attributes.values()
        )
        return (
            node.op_type,
            attributes,
            tuple(None if value is None else places[value] for value in node.inputs),
            tuple(map(self._constant, places)),
            tuple(None if self._constant(value) else self._known(value, axes) for value in places),
            tuple(self._known(value, axes) if value.name else None for value in node.outputs),
        )

    def graph(self, node: ir.Node, key: Key) -> onnx.GraphProto:
        """Return the node as a graph: inputs and outputs typed by what is known, small constants beside it.

        Args:
            node: The node.
            key: What `key` says of it.

        Raises:
            Exception: onnx's checker refuses the node.
        """
        inputs, outputs = input_names(node), output_names(node)
        proto = to_lone_proto(node, ["" if value is None else inputs[value] for value in node.inputs], outputs)
        proto.name = "n"
        if node.op_type == "Hardmax" and self._version < 13:
            # The converter takes Hardmax for unchanged at 13, but its axis changed as that of Softmax did.
            proto.op_type = "Softmax"
        graph = onnx.GraphProto(name="node")
        if node.op_type == "Resize" and self._version < 13:
            # Below 13 what is not given is empty; onnxruntime leaves it out all the same.
            for place, name in enumerate(proto.input):
                if not name:
                    proto.input[place] = _EMPTY
                    graph.initializer.append(numpy_helper.from_array(np.empty(0, np.float32), _EMPTY))
        graph.node.append(proto)
        for value, name, known in zip(inputs, inputs.values(), key[4], strict=True):
            if constant := self._constant(value):
                # Some adapters read constants: sizes, scales, pads.
                graph.initializer.append(onnx.TensorProto.FromString(constant))
                graph.initializer[-1].name = name
            else:
                _say(graph.input.add(name=name), known)
        for name, known in zip(outputs, key[5], strict=True):
            if name:
                _say(graph.output.add(name=name), known)
        # The converter trusts counts of inputs and outputs, and ends the process where they are wrong.
        checker.check_node(proto, self._context)
        return graph

    def _constant(self, value: ir.Value) -> bytes:
        """Return the tensor of a small constant without its name; nothing for other values."""
        if value not in self._constants:
            tensor, found = constant_tensor(value), b""
            if tensor is not None and tensor.nbytes <= LARGE_BYTES and tensor.dtype != ir.DataType.STRING:
                proto = ir.serde.serialize_tensor(tensor)
                proto.ClearField("name")
                found = proto.SerializeToString(deterministic=True)
            self._constants[value] = found
        return self._constants[value]

    def _known(self, value: ir.Value, axes: dict[str, int]) -> _Known:
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            other = ir.serde.serialize_value(ir.Value(name="x", type=value.type, shape=value.shape)).type
            return other.SerializeToString(deterministic=True)
        dtype = self._facts.dtype(value)
        if dtype is None:
            return None
        shape = self._facts.shape(value)
        if shape is not None and any(isinstance(d, str) for d in shape):
            shape = tuple(f"d{axes.setdefault(d, len(axes))}" if isinstance(d, str) else d for d in shape)
        return dtype, shape


def _check_axis(node: ir.Node, shape: Dims | None) -> None:
    axis = node.attributes.get_int("axis", 1)
    if shape is None and axis != -1:
        raise ValueError(f"its axis {axis} spans all later axes, and the rank is not known")
    if shape is not None and not -len(shape) <= axis < len(shape):
        raise ValueError(f"its axis is {axis}; rank {len(shape)} allows {-len(shape)} to {len(shape) - 1}")


def input_names(node: ir.Node) -> dict[ir.Value, str]:
    """Return the name of each different input in the graph of the node."""
    return {value: f"i{k}" for k, value in enumerate(dict.fromkeys(v for v in node.inputs if v is not None))}


def output_names(node: ir.Node) -> list[str]:
    """Return the name of each output in the graph of the node; none for those that are not there."""
    return [f"o{k}" if value.name else "" for k, value in enumerate(node.outputs)]


def _say(info: onnx.ValueInfoProto, known: _Known) -> None:
    """Write down what is known of a value."""
    if isinstance(known, bytes):
        info.type.ParseFromString(known)
    elif known is not None:
        dtype, shape = known
        info.type.tensor_type.elem_type = dtype.value
        if shape is not None:
            dims = info.type.tensor_type.shape
            dims.SetInParent()
            for dim in shape:
                dims.dim.add(
                    **({} if dim is None else {"dim_param": dim} if isinstance(dim, str) else {"dim_value": dim})
                )
