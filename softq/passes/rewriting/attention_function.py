"""The function of an attention: its region's nodes, with small constants of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from softq.graph.queries import constant_tensor, is_op
from softq.passes.rewriting.attention_regions import Region, Repeat
from softq.rowprog.onnx.interface import DOMAIN

PREFIX = "Attention_"
"""What the names of functions of attentions begin with."""


def write_function(model: ir.Model, region: Region, nodes: Sequence[ir.Node], given: Sequence[ir.Value]) -> ir.Function:
    """Return the function of a region; its name says what it computes, to the last constant.

    Args:
        model: The model, which has the row function.
        region: The attention.
        nodes: Its nodes, in the order of the graph.
        given: What the function takes.
    """
    names = _names(region, given, model.functions[region.call.op_identifier()])
    body = _Body(given, names)
    for node in nodes:
        body.add(node, region.repeats.get(node))
    result = body.values[region.result]
    result.name = "result"
    imports = {"": model.opset_imports[""], DOMAIN: 1}
    graph = ir.Graph(body.inputs, [result], nodes=body.nodes, opset_imports=imports)
    proto = ir.to_proto(ir.Function(DOMAIN, "", graph=graph, attributes=[]))
    digest = hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()
    name = f"{PREFIX}{region.call.op_type}_{digest[:8]}"
    return ir.Function(DOMAIN, name, graph=graph, attributes=[])


class _Body:
    """Nodes while they are written."""

    def __init__(self, given: Sequence[ir.Value], names: Sequence[str]) -> None:
        self.inputs = [ir.val(name) for name in names]
        self.values: dict[ir.Value, ir.Value] = dict(zip(given, self.inputs, strict=True))
        self.nodes: list[ir.Node] = []

    def add(self, node: ir.Node, repeat: Repeat | None) -> None:
        """Write a node; one that repeats heads gets a shape that is made here."""
        read = [None if value is None else self._value(value) for value in node.inputs[: None if repeat is None else 1]]
        if repeat is not None:
            read.append(self._shape(node, repeat))
        self.values.update(zip(node.outputs, self._write(node, read), strict=True))

    def _value(self, value: ir.Value) -> ir.Value:
        if value not in self.values:
            tensor = constant_tensor(value)
            assert tensor is not None, "what is not given and not computed is a small constant"
            self.values[value] = self._constant(ir.tensor(tensor.numpy(), dtype=tensor.dtype))
        return self.values[value]

    def _write(self, node: ir.Node, read: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        number = len(self.nodes)
        outputs = [ir.val(f"value{number}_{i}") for i in range(len(node.outputs))]
        attributes = node.attributes.values()
        self.nodes.append(ir.Node(node.domain, node.op_type, read, attributes, outputs=outputs, name=f"node{number}"))
        return outputs

    def _constant(self, tensor: ir.TensorProtocol) -> ir.Value:
        return self._write(ir.node("Constant", [], {"value": tensor}), [])[0]

    def _shape(self, node: ir.Node, repeat: Repeat) -> ir.Value:
        """Return the shape that a node gives to repeated heads."""
        source = self.values[repeat.source]
        if is_op(node, "Expand"):
            return self._constant(ir.tensor(np.array([1, 1, repeat.times, 1, 1])))
        heads, width = (self._constant(ir.tensor(np.array([size]))) for size in (repeat.heads, repeat.width))
        batch, rows = (
            self._write(ir.node("Shape", [source], {"start": axis, "end": axis + 1}), [source])[0] for axis in (0, 3)
        )
        return self._write(ir.node("Concat", [batch, heads, rows, width], {"axis": 0}), [batch, heads, rows, width])[0]


def _names(region: Region, given: Sequence[ir.Value], row: ir.Function) -> list[str]:
    """Return names for the function's inputs."""
    roles: dict[ir.Value | None, str] = {}
    for value, own in zip(region.call.inputs, row.inputs, strict=False):
        roles[value] = str(own.name)
    if region.first is not None:
        roles[region.behind_moves(region.first.inputs[0])] = "query"
        roles[region.behind_moves(region.first.inputs[1])] = "key"
    roles[region.behind_moves(region.second.inputs[1])] = "value"
    names = [roles.get(value, "mask") for value in given]
    counts: Mapping[str, int] = {name: names.count(name) for name in names}
    return [name if counts[name] == 1 else f"{name}{names[:i].count(name)}" for i, name in enumerate(names)]
