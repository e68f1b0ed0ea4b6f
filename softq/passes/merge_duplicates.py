"""Compute once what is written several times."""

from __future__ import annotations

import onnx_ir as ir

from softq.graph.constants import is_pure
from softq.graph.view import ModelView
from softq.modelfile.tensors import LARGE_BYTES
from softq.passes import PassEntry
from softq.passes.replace import FUNCTION_DOMAIN


class MergeDuplicates(ir.passes.InPlacePass):
    """Merges equal nodes of a graph, and equal small initializers.

    Equal are nodes with the same operator, operands, attributes and present outputs. A node that gives an output of its
    graph stays, and so does an initializer that a caller may set.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Merge them; `modified` says whether there were any."""
        modified = False
        for container in ModelView(model).containers:
            if container.function is None:
                modified |= _merge_initializers(container.graph)
            modified |= _merge_nodes(container.graph)
        return ir.passes.PassResult(model, modified)


def _merge_initializers(graph: ir.Graph) -> bool:
    first: dict[object, ir.Value] = {}
    modified = False
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        is_set = tensor is not None and not value.is_graph_input() and not value.is_graph_output()
        if tensor is None or not is_set or tensor.dtype == ir.DataType.STRING or tensor.nbytes > LARGE_BYTES:
            continue
        kept = first.setdefault((tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()), value)
        if kept is not value:
            ir.convenience.replace_all_uses_with(value, kept)
            del graph.initializers[name]
            modified = True
    return modified


def _merge_nodes(graph: ir.Graph) -> bool:
    first: dict[object, ir.Node] = {}
    modified = False
    for node in list(graph):
        if not is_pure(node) and node.domain != FUNCTION_DOMAIN:
            continue
        attributes = _attributes(node)
        if attributes is None:
            continue
        present = tuple(bool(value.name) for value in node.outputs)
        key = (node.op_identifier(), tuple(map(id, node.inputs)), attributes, present)
        kept = first.setdefault(key, node)
        if kept is node or any(value.is_graph_output() for value in node.outputs):
            continue
        for ours, theirs in zip(kept.outputs, node.outputs, strict=True):
            if ours.type is None or ours.shape is None:
                ours.type, ours.shape = ours.type or theirs.type, ours.shape or theirs.shape
        ir.convenience.replace_all_uses_with(node.outputs, kept.outputs)
        graph.remove(node, safe=True)
        modified = True
    return modified


def _attributes(node: ir.Node) -> tuple[bytes, ...] | None:
    """Return what the attributes say, None where that is not known or long."""
    for attribute in node.attributes.values():
        if attribute.is_ref() or attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            return None
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().nbytes > LARGE_BYTES:
            return None
    protos = (ir.serde.serialize_attribute(attribute) for attribute in node.attributes.values())
    return tuple(sorted(proto.SerializeToString(deterministic=True) for proto in protos))


PASS = PassEntry("merge-duplicates", MergeDuplicates, "Compute once what is written several times")
