"""Values that turn out to be constants: what a node computes from constants, and putting the result in its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import has_references, subgraphs
from softq.graph.reference import LIVE, Array, Budget, Reference
from softq.graph.view import Container

_NOT_PURE = frozenset({"Bernoulli", "Multinomial", "Optional", "OptionalGetElement", "OptionalHasElement"})


def is_pure(node: ir.Node) -> bool:
    """Return whether a node of the default domain computes its outputs from its inputs alone, always the same ones."""
    if node.domain != "" or node.op_type in _NOT_PURE or node.op_type.startswith(("Random", "Sequence")):
        return False
    trains = node.op_type == "Dropout" and len(node.inputs) > 2
    return not (trains or has_references(node) or any(True for _ in subgraphs(node)))


def evaluate(
    node: ir.Node, opset: int, inputs: Sequence[Array | None], budget: Budget | None = None, most: int = LIVE
) -> list[Array] | None:
    """Return the results of a node by onnx's reference, None where it has none, they are not defined or too large.

    Not defined are a division by zero and the integer of a NaN: a runtime may answer as it likes. Too large are more
    than `most` elements, or than are left of the budget, by default that of a whole model.
    """
    names = [f"i{k}" if array is not None else "" for k, array in enumerate(inputs)]
    proto = to_lone_proto(node, names, [f"o{k}" for k in range(len(node.outputs))])
    graph = onnx.GraphProto(name="node", node=[proto])
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in names if name)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in proto.output)
    imports = [onnx.OperatorSetIdProto(domain="", version=opset)]
    feed = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    try:
        with np.errstate(divide="raise", invalid="raise", over="ignore", under="ignore"):
            model = onnx.ModelProto(ir_version=10, opset_import=imports, graph=graph)
            results = Reference(model, budget or Budget()).run(feed, most)
    except Exception:
        # Operators and types that the reference lacks each fail in their own way; such a node stays.
        return None
    arrays = [np.asarray(result) for result in results if result is not None]
    return arrays if len(arrays) == len(node.outputs) else None


def to_lone_proto(node: ir.Node, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.NodeProto:
    """Return a node of the default domain with its attributes and with other names, as a model of its own has it."""
    attributes = ir.serde.serialize_node(node).attribute
    return onnx.NodeProto(op_type=node.op_type, attribute=attributes, input=inputs, output=outputs)


def become_constants(node: ir.Node, arrays: Sequence[Array], container: Container) -> bool:
    """Put constants in the place of all that a node computes; return whether their types are those of the model.

    Where one is not, either is wrong, and everything stays.
    """
    tensors = [ir.tensor(np.ascontiguousarray(array).reshape(array.shape)) for array in arrays]
    if any(value.dtype not in (None, tensor.dtype) for value, tensor in zip(node.outputs, tensors, strict=True)):
        return False
    for value, tensor in zip(node.outputs, tensors, strict=True):
        become_constant(value, tensor, container)
    remove_if_unused(node)
    return True


def become_constant(old: ir.Value, tensor: ir.TensorProtocol, container: Container) -> None:
    """Put a constant in the place of what a node computes; the node stays, unused.

    It is an initializer; but a Constant node in functions, which know none, and for the outputs of a body.
    """
    node, name = old.producer(), old.name or "constant"
    assert node is not None, "a computed value has a producer"
    if container.function is not None or (container.path and old.is_graph_output()):
        holder = ir.node("Constant", [], {"value": tensor}, name=f"{name}.const")
        new = holder.outputs[0]
        new.name = f"{name}.const"
        container.body.insert_before(node, holder)
    else:
        new = ir.Value(name=f"{name}.const", const_value=tensor)
    new.type, new.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
    new.metadata_props.update(old.metadata_props)
    take_over(old, new)
    new.shape = ir.Shape(tensor.shape.numpy())
    if new.producer() is None:
        container.graph.register_initializer(new)
