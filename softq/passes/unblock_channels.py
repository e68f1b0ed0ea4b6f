"""Put channels that onnxruntime keeps in blocks (ORT_ENABLE_ALL) back into the order of ONNX, with standard operators.

What the operators of domain `com.microsoft.nchwc` mean and where: `softq/graph/channel_blocks.py`. Channels that only
fill a block up go, where nothing reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import defs

from softq.graph.block_bodies import DOMAIN, LEAST_OPSET, POOLS, fill, leave, resize
from softq.graph.block_width import describe, find_width
from softq.graph.bodies import has_input, open_nodes, parse_body
from softq.graph.channel_blocks import Blocks, Channels, Convolution, find_blocks, refuse
from softq.graph.queries import constant_tensor, operand
from softq.graph.rewriter import Names
from softq.graph.view import ModelView, default_opset
from softq.passes import NOTES_KEY, PassEntry
from softq.passes.expand_layers import fused_conv


class UnblockChannels(ir.passes.InPlacePass):
    """Opens the operators of the domain; a model below operator set 7 stays, and so do operators in functions."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Open them; `modified` says whether there were any.

        Raises:
            RefusalError: something is done with blocks that is not known, or it is not known how wide they are.
        """
        opset = default_opset(model.opset_imports, 0)
        blocks = find_blocks(model) if opset >= LEAST_OPSET else None
        if blocks is None:
            return ir.passes.PassResult(model, modified=False)
        width = find_width(blocks)
        notes: tuple[str, ...] = model.meta.get(NOTES_KEY, ())
        model.meta[NOTES_KEY] = (*notes, *describe(width))
        work = _Unblocking(blocks, width.channels, Names(model))
        for convolution in blocks.convolutions:
            work.unpack(convolution)
        for value in blocks.channels:
            value.shape = None
        bodies = {node: work.body(node, opset) for node in (*blocks.nodes, *blocks.reshapes)}
        open_nodes(model, lambda node, _: bodies.get(node))
        for node in blocks.nodes:
            if node.graph is not None:  # Its operator is that of ONNX but for the order.
                node.domain = ""
                known = defs.get_schema(node.op_type, opset, "").attributes
                for name in node.attributes.keys() - known:  # With its default, which older ones do not have.
                    node.attributes.pop(name)
        if not any(node.domain == DOMAIN for node in ModelView(model).nodes):
            model.opset_imports.pop(DOMAIN, None)
        return ir.passes.PassResult(model, modified=True)


@dataclass(eq=False)
class _Unblocking:
    blocks: Blocks
    width: int
    names: Names
    kept: dict[Channels, int] = field(init=False)
    """How many channels stay."""
    replaced: dict[tuple[object, ...], ir.Value] = field(default_factory=dict[tuple[object, ...], ir.Value])

    def __post_init__(self) -> None:
        self.kept = {channels: self._count_kept(channels) for channels in set(self.blocks.channels.values())}

    def _count_kept(self, channels: Channels) -> int:
        """Return how many channels something reads; the others have weights of zero behind them, or nothing."""
        of, count = self.blocks.channels, self.blocks.count(channels, self.width)
        assert count is not None, "a width that fits says how many there are"
        parts = (of[part] for other in of.values() for part in other.parts)
        if None in channels.given or channels.parts or channels in parts:
            return count
        used = [*channels.read, *(number for number in channels.given if number is not None)]
        for convolution in self.blocks.convolutions:
            if of[convolution.node.outputs[0]] is channels and _is_computed(operand(convolution.node, 2)):
                return count
            if not convolution.depthwise and of.get(convolution.operand) is channels:
                live = np.flatnonzero(convolution.unpack(self.width).any(axis=(0, 2, 3)))
                used.append(int(live.max(initial=-1)) + 1 if convolution.groups == 1 else count)
        most = max(used, default=0)
        return most if count - most < self.width else count

    def unpack(self, convolution: Convolution) -> None:
        """Give a convolution weights in the order of ONNX, and bias and groups as many as there are channels."""
        node, of = convolution.node, self.blocks.channels
        _, inputs, *kernel = convolution.weights.shape.numpy()
        outputs = self.kept[of[node.outputs[0]]]
        if convolution.depthwise:
            node.attributes["group"] = ir.AttrInt64("group", outputs)
        elif convolution.in_blocks and convolution.groups == 1:
            inputs = self.kept[of[convolution.operand]]

        def read() -> NDArray[np.generic]:
            return np.ascontiguousarray(convolution.unpack(self.width)[:outputs, :inputs])

        self._replace(node, 1, read, (outputs, inputs, *kernel))
        if has_input(node, 2):
            bias = constant_tensor(node.inputs[2])
            if bias is not None and bias.size > outputs:
                self._replace(node, 2, lambda: bias.numpy()[:outputs], (outputs,))

    def _replace(
        self, node: ir.Node, place: int, read: Callable[[], NDArray[np.generic]], shape: tuple[int, ...]
    ) -> None:
        """Put another initializer in the place of an operand; nodes that share one share the other, too."""
        old, graph = node.inputs[place], node.graph
        assert old is not None, "a convolution has weights"
        assert isinstance(graph, ir.Graph), "functions are left alone"
        key = old, graph, shape
        if key not in self.replaced:
            name = self.names.fresh(f"{old.name}.unblocked")
            tensor = ir.LazyTensor(lambda: ir.tensor(read()), ir.DataType.FLOAT, ir.Shape(shape), name=name)
            new = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(shape))
            graph.register_initializer(new)
            self.replaced[key] = new
        node.replace_input_with(place, self.replaced[key])

    def body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        """Return what a node is in the order of ONNX, where that is another."""
        if node in self.blocks.reshapes:
            return parse_body(opset, ["X", "shape"], ["Y"], ["Y = Identity (X)"])
        if node.op_type == "Conv":
            return fused_conv(node, opset) or refuse(node, "and an activation that is not known")
        lines = self._lines(node, opset)
        return None if lines is None else parse_body(opset, ["X"], ["Y"], lines)

    def _lines(self, node: ir.Node, opset: int) -> list[str] | None:
        if node.op_type == "ReorderInput":
            given, kept = self.blocks.entries[node], self.kept[self.blocks.channels[node.outputs[0]]]
            # Where it is not known how many there are, one block less one is the most that can be missing.
            return fill(node, opset, "X", self.width - 1 if given is None else kept - given, kept, "Y")
        if node.op_type == "ReorderOutput":
            source = operand(node, 0)
            assert source is not None, "what has none is refused"
            return leave(node, opset, "X", self.kept[self.blocks.channels[source]], "Y")
        return resize(node, opset, "X", "Y") if node.op_type == "Upsample" else None


def _is_computed(value: ir.Value | None) -> bool:
    return value is not None and constant_tensor(value) is None


PASS = PassEntry(
    "unblock-channels",
    UnblockChannels,
    "Put channels that onnxruntime keeps in blocks back into the order of ONNX",
    frozenset((DOMAIN, name) for name in (*POOLS, "Upsample", "Conv", "ReorderInput", "ReorderOutput")),
)
