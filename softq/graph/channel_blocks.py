"""Channels in blocks, as onnxruntime writes them at ORT_ENABLE_ALL (domain `com.microsoft.nchwc`): what lies so.

A value [N, C, H, W] lies in memory as [N, C / width, H, W, width]; where channels fill no whole block, C counts zeros.
Weights [O, I, h, w] lie as [O / width, I / width, h, w, width of I, width of O], or, of depthwise convolutions and of
those whose operand is in no blocks, as [O / width, I, h, w, width of O]. Source: microsoft/onnxruntime,
core/optimizer/nchwc_transformer.cc, contrib_ops/cpu/nchwc_ops.cc, core/mlas/lib/reorder.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from softq.errors import RefusalError
from softq.graph.block_bodies import DOMAIN, POOLS
from softq.graph.facts import Facts
from softq.graph.queries import constant, constant_tensor, is_op, node_label, operand, operator_label
from softq.graph.view import ModelView

WAY_OUT = "save it at ORT_ENABLE_EXTENDED"

_ELEMENTWISE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish"}
    | {"Tanh", "Clip", "Elu", "Softplus", "Erf", "Gelu", "QuickGelu", "Identity", "Neg", "Abs", "Exp", "Sqrt"}
)
"""Operators, of ONNX and of `com.microsoft`, that do not care in what order the elements of their operands lie."""


@dataclass(eq=False)
class Channels:
    """Channels that several values have, one by one the same.

    Attributes:
        values: The values, all of them in blocks.
        padded: How many there are with padding, as weights say; contradictory where these are two.
        read: How many are kept where the values leave the blocks.
        given: How many there are where values are put into blocks; None where that is not known.
        parts: The channels that were put behind each other to get these; empty for others.
    """

    values: set[ir.Value] = field(default_factory=set[ir.Value])
    padded: set[int] = field(default_factory=set[int])
    read: set[int] = field(default_factory=set[int])
    given: set[int | None] = field(default_factory=set["int | None"])
    parts: list[ir.Value] = field(default_factory=list[ir.Value])

    def absorb(self, other: Channels) -> None:
        """Take over what is known of the same channels."""
        self.values |= other.values
        self.padded |= other.padded
        self.read |= other.read
        self.given |= other.given
        self.parts = self.parts or other.parts


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution on blocks.

    Attributes:
        node: Its operands are X, W, B and a summand.
        weights: As they lie in the file, [O, I, h, w] by name.
        in_blocks: Whether X is in blocks.
        groups: Of how many convolutions it consists.
    """

    node: ir.Node
    weights: ir.TensorProtocol
    in_blocks: bool
    groups: int

    @property
    def operand(self) -> ir.Value:
        """What is convolved."""
        value = self.node.inputs[0]
        assert value is not None, "a convolution has an operand"
        return value

    @property
    def depthwise(self) -> bool:
        """Whether each channel has weights of its own."""
        return self.groups > 1 and self.weights.shape[:2] == (self.groups, 1)

    @property
    def both(self) -> bool:
        """Whether input channels are in blocks, too, and not output channels alone."""
        return self.in_blocks and not self.depthwise

    def unpack(self, width: int) -> NDArray[np.generic]:
        """Return the weights as [O, I, h, w], if blocks have that width."""
        o, i, h, w = self.weights.shape.numpy()
        packed = self.weights.numpy()
        if self.both:
            ordered = packed.reshape(o // width, i // width, h, w, width, width).transpose(0, 5, 1, 4, 2, 3)
        else:
            ordered = packed.reshape(o // width, i, h, w, width).transpose(0, 4, 1, 2, 3)
        return ordered.reshape(o, i, h, w)


@dataclass(eq=False)
class Blocks:
    """What of a model is in blocks.

    Attributes:
        channels: The channels of each value that is in blocks.
        convolutions: The convolutions on blocks.
        nodes: All operators of the domain.
        entries: Those that put values into blocks, with how many channels these have, None where that is not known.
        reshapes: Reshapes that make blocks an axis, or take it away.
        widths: How wide these say that blocks are.
    """

    channels: dict[ir.Value, Channels] = field(default_factory=dict[ir.Value, Channels])
    convolutions: list[Convolution] = field(default_factory=list[Convolution])
    nodes: list[ir.Node] = field(default_factory=list[ir.Node])
    entries: dict[ir.Node, int | None] = field(default_factory=dict[ir.Node, "int | None"])
    reshapes: list[ir.Node] = field(default_factory=list[ir.Node])
    widths: set[int] = field(default_factory=set[int])

    def count(self, channels: Channels, width: int) -> int | None:
        """Return how many channels there are with padding, if blocks have that width; None if nothing says so."""
        if channels.padded:
            return max(channels.padded)
        if channels.parts:
            counts = [self.count(self.channels[part], width) for part in channels.parts]
            return None if None in counts else sum(filter(None, counts))
        known = [number for number in (*channels.given, *channels.read) if number is not None]
        return -(-max(known) // width) * width if known else None

    def fit(self, width: int) -> bool:
        """Return whether blocks can be of that width."""
        return (
            self.widths <= {width}
            and all(self._channels_fit(channels, width) for channels in set(self.channels.values()))
            and all(_convolution_fits(convolution, width) for convolution in self.convolutions)
        )

    def _channels_fit(self, channels: Channels, width: int) -> bool:
        count = self.count(channels, width)
        if count is None or count % width or len(channels.padded) > 1:
            return False
        known = (number for number in (*channels.given, *channels.read) if number is not None)
        return all(0 <= count - number < width for number in known)


def _convolution_fits(convolution: Convolution, width: int) -> bool:
    outputs, inputs = convolution.weights.shape.numpy()[:2]
    if convolution.depthwise:
        return True
    if convolution.groups == 1:
        # Fewer than a block are read as they are.
        return convolution.in_blocks == (inputs >= width)
    return inputs % width == 0 and outputs % (convolution.groups * width) == 0


def find_blocks(model: ir.Model) -> Blocks | None:
    """Return what of a model's graph is in blocks, None if nothing is.

    Raises:
        RefusalError: something reads blocks of which it is not known what it does to them, or weights are computed.
    """
    view = ModelView(model)
    containers = [container for container in view.containers if container.function is None]
    if not any(node.domain == DOMAIN for container in containers for node in container.body):
        return None
    walk = _Walk(Facts(view))
    for container in containers:
        for node in container.body:
            walk.visit(node)
        for value in container.body.outputs:
            if value in walk.blocks.channels:
                raise RefusalError(f"{value.name!r} is a result, with {_BLOCKS}: {WAY_OUT}")
    return walk.blocks


_BLOCKS = "channels in blocks of onnxruntime's (ORT_ENABLE_ALL)"


def refuse(node: ir.Node, reason: str) -> NoReturn:
    """Refuse a model for what a node does with blocks."""
    position = next((value.name for value in node.outputs if value.name), None) or node_label(node)
    raise RefusalError(f"{operator_label(node)} {position!r} has {_BLOCKS}, {reason}: {WAY_OUT}")


@dataclass(eq=False)
class _Walk:
    """The walk over the nodes in their order."""

    facts: Facts
    blocks: Blocks = field(default_factory=Blocks)
    split: set[ir.Value] = field(default_factory=set[ir.Value])
    """Values [N, C / width, H, W, width]."""

    def visit(self, node: ir.Node) -> None:
        if node.domain == DOMAIN:
            self.blocks.nodes.append(node)
            self._visit_own(node)
        elif any(value in self.blocks.channels for value in node.inputs if value is not None):
            self._visit_other(node)

    def _visit_own(self, node: ir.Node) -> None:
        first = operand(node, 0)
        if first is None:
            refuse(node, "and no operand")
        if node.op_type == "ReorderInput":
            shape, last = self.facts.shape(first), node.attributes.get_int("channels_last", 0)
            count = shape[-1 if last else 1] if shape is not None and len(shape) == 4 else None
            self.blocks.entries[node] = count if isinstance(count, int) else None
            self._add(node).given.add(self.blocks.entries[node])
        elif node.op_type == "Conv":
            self._convolve(node, first)
        elif node.op_type == "ReorderOutput":
            self._of(node, first).read.add(node.attributes.get_int("channels", 0))
        elif node.op_type in {*POOLS, "Upsample"}:
            self._join(node, [first])
        else:
            refuse(node, "and is not known")

    def _convolve(self, node: ir.Node, first: ir.Value) -> None:
        tensor = constant_tensor(operand(node, 1))
        if tensor is None or len(tensor.shape) != 4:
            refuse(node, "and its weights are computed")
        in_blocks = first in self.blocks.channels
        groups = node.attributes.get_int("group", 1)
        convolution = Convolution(node, tensor, in_blocks, groups)
        outputs, inputs = tensor.shape.numpy()[:2]
        channels = self._add(node)
        channels.padded.add(outputs)
        if convolution.depthwise:
            self._join(node, [first])
        elif in_blocks or groups > 1:
            self._of(node, first).padded.add(inputs * groups)
        summand = operand(node, 3)
        if summand is not None:
            self._join(node, [summand])
        self.blocks.convolutions.append(convolution)

    def _visit_other(self, node: ir.Node) -> None:
        given = [value for value in node.inputs if value is not None]
        blocked = [value for value in given if value in self.blocks.channels]
        others = [value for value in given if value not in self.blocks.channels]
        if is_op(node, "Reshape") and blocked == given[:1]:
            self._reshape(node, blocked[0])
        elif is_op(node, "Concat") and node.attributes.get_int("axis", 0) == 1 and not others:
            parts = [value for value in blocked if self._of(node, value)]
            self._add(node).parts.extend(parts)
        elif node.op_type in _ELEMENTWISE and node.domain in ("", "com.microsoft") and all(map(_is_scalar, others)):
            if len({value in self.split for value in blocked}) > 1:
                refuse(node, "of two shapes")
            self._join(node, blocked)
            self.split |= {node.outputs[0]} if blocked[0] in self.split else set()
        else:
            refuse(node, "and it is not known what the operator does to them")

    def _reshape(self, node: ir.Node, source: ir.Value) -> None:
        target = constant(operand(node, 1))
        sizes: Sequence[int] = [] if target is None or target.ndim != 1 else target.tolist()
        is_split = source in self.split
        kept = len(sizes) > 3 and sizes[0] == sizes[2] == sizes[3] == 0 and not node.attributes.get_int("allowzero", 0)
        if not kept or len(sizes) != (4 if is_split else 5):
            refuse(node, "and gives them another shape")
        self._join(node, [source])
        if not is_split:
            self.split.add(node.outputs[0])
            self.blocks.widths.add(sizes[4])
        self.blocks.reshapes.append(node)

    def _add(self, node: ir.Node) -> Channels:
        """Return new channels for a node's result."""
        return self.blocks.channels.setdefault(node.outputs[0], Channels({node.outputs[0]}))

    def _of(self, node: ir.Node, value: ir.Value) -> Channels:
        """Return the channels of an operand [N, C, H, W]."""
        channels = self.blocks.channels.get(value)
        if channels is None or value in self.split:
            refuse(node, "but not where it looks for them")
        return channels

    def _join(self, node: ir.Node, values: Sequence[ir.Value]) -> None:
        """Say that a node's result has the channels of operands."""
        channels = self._add(node)
        for value in values:
            other = self.blocks.channels.get(value)
            if other is None:
                refuse(node, "but not where it looks for them")
            if other is channels:
                continue
            channels.absorb(other)
            self.blocks.channels.update(dict.fromkeys(other.values, channels))


def _is_scalar(value: ir.Value) -> bool:
    tensor = constant_tensor(value)
    return tensor is not None and tensor.size == 1
