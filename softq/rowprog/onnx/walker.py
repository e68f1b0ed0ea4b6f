"""The nodes of a function as they are written, and what carries each value of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from softq.rowprog.onnx.carriers import Carrier, carrier
from softq.rowprog.program import Node, walk
from softq.rowprog.ranges import Proof
from softq.rowprog.types import DType, Kind

INT64 = np.dtype(np.int64)
UINT64 = np.dtype(np.uint64)

Emitted = tuple[ir.Value, Carrier]
Rule = Callable[["Walker", Node], Emitted]
Attribute = int | str | ir.TensorProtocol | ir.Graph | Sequence[int]


class Walker:
    """Writes nodes, each value of the program once.

    Args:
        proof: The intervals, which decide the carriers.
        inputs: The function's inputs by name.
        rules: What writes each operator.
        prefix: What the names of nodes and values begin with.
    """

    def __init__(
        self, proof: Proof, inputs: Mapping[str, ir.Value], rules: Mapping[str, Rule], prefix: str = "v"
    ) -> None:
        self.proof = proof
        self.inputs = inputs
        self._nodes: list[ir.Node] = []
        self._rules = rules
        self._prefix = prefix
        self._values: dict[Node, Emitted] = {}
        self._full: set[Node] = set()
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], ir.Value] = {}

    def within(self) -> Walker:
        """Return a walker for the body of the node that comes next: it sees these values and keeps its own."""
        inner = Walker(self.proof, self.inputs, self._rules, self.next_name + "s")
        inner._values.update(self._values)
        inner._full |= self._full
        return inner

    # Writing nodes

    @property
    def next_name(self) -> str:
        """Name of the value that is written next."""
        return f"{self._prefix}{len(self._nodes)}"

    def add(self, op: str, *args: ir.Value, **attributes: Attribute) -> ir.Value:
        """Append a node of the default domain with one output."""
        return self.add_many(op, args, 1, **attributes)[0]

    def add_many(self, op: str, args: Sequence[ir.Value], count: int, **attributes: Attribute) -> Sequence[ir.Value]:
        """Append a node of the default domain."""
        node = ir.node(op, args, attributes, num_outputs=count, name=self.next_name)
        for i, out in enumerate(node.outputs):
            out.name = self.next_name + (f"_{i}" if count > 1 else "")
        self._nodes.append(node)
        return node.outputs

    def constant(self, value: ArrayLike, dtype: np.dtype[np.generic]) -> ir.Value:
        """Return a constant; equal ones are one node."""
        array = np.asarray(value, dtype=dtype)
        key = (str(array.dtype), array.tobytes(), array.shape)
        if key not in self._constants:
            self._constants[key] = self.add("Constant", value=ir.tensor(array))
        return self._constants[key]

    def like(self, value: float, kind: Carrier) -> ir.Value:
        """Return a constant number in a carrier."""
        return self.constant(value, kind.numpy)

    def last_axis(self) -> ir.Value:
        """Return the axis of the row's elements as an input of nodes."""
        return self.constant([-1], INT64)

    def cast(self, value: ir.Value, to: ir.DataType) -> ir.Value:
        """Append a cast."""
        return self.add("Cast", value, to=int(to))

    def nodes_for(self, results: Sequence[ir.Value]) -> list[ir.Node]:
        """Return the nodes that the results need: a closed form leaves its table, a peephole its constants behind."""
        kept: list[ir.Node] = []
        wanted = set(results)
        for node in reversed(self._nodes):
            if wanted.isdisjoint(node.outputs):
                continue
            kept.append(node)
            wanted.update(value for value in node.inputs if value is not None)
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    wanted.update(v for inner in attribute.as_graph() for v in inner.inputs if v is not None)
        return kept[::-1]

    # Walking

    def carrier_of(self, node: Node) -> Carrier:
        """Return what carries a value: decided by its type and proven interval."""
        interval = self.proof.interval(node)
        return carrier(node.dtype, interval.low, interval.high)

    def compute(self, root: Node) -> Emitted:
        """Return the ONNX value and carrier of a value of the program, writing what is missing."""
        if root not in self._values:
            for node in walk([root]):
                if node not in self._values:
                    self.keep(node, self._rules[node.op](self, node))
        return self._values[root]

    def keep(self, node: Node, emitted: Emitted) -> None:
        """Remember what was written for a value of the program."""
        self._values[node] = emitted
        if _is_full(node, self._full):
            self._full.add(node)

    def arg(self, node: Node, position: int, kind: Carrier | None = None) -> ir.Value:
        """Return an argument, cast to a carrier if it is carried by another."""
        value, carried = self.compute(node.args[position])
        return value if kind is None or carried is kind else self.cast(value, kind.value)

    def common(self, node: Node, *positions: int) -> Carrier:
        """Return the narrowest carrier that holds these arguments and, if it is a number, the result."""
        kinds = [self.compute(node.args[i])[1] for i in positions]
        if node.dtype is not DType.BOOL:
            kinds.append(self.carrier_of(node))
        return Carrier.INT64 if Carrier.INT64 in kinds else kinds[0]

    # Shapes

    def scalar_shape(self) -> ir.Value:
        """Return the shape of one number a row."""
        lead = self.add("Shape", self.inputs["scores"], end=-1)
        return self.add("Concat", lead, self.constant([1], INT64), axis=0)

    def full(self, node: Node) -> Emitted:
        """Return a value in its full shape, [..., N] or [..., 1]: one that no score is part of may be smaller."""
        value, kind = self.compute(node)
        if node in self._full:
            return value, kind
        shape = self.add("Shape", self.inputs["scores"]) if node.kind is Kind.ROW else self.scalar_shape()
        return self.add("Expand", value, shape), kind


def _is_full(node: Node, full: set[Node]) -> bool:
    if node.op == "input":
        return node.attrs["name"] != "valid"
    if node.op == "scan" or (node.kind is Kind.SCALAR and any(arg.kind is Kind.ROW for arg in node.args)):
        return True
    return any(arg.kind is node.kind and arg in full for arg in node.args)
