"""The nodes of a function as they are written, and what carries each value of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike, NDArray

from softq.rowprog.onnx.carriers import Carrier, carrier
from softq.rowprog.program import Node, param_of, walk
from softq.rowprog.ranges import Proof
from softq.rowprog.types import DType, Kind

INT64 = np.dtype(np.int64)
UINT64 = np.dtype(np.uint64)

Emitted = tuple[ir.Value, Carrier]
Rule = Callable[["Walker", Node], Emitted]
Attribute = int | float | str | ir.TensorProtocol | ir.Graph | Sequence[int]


class Walker:
    """Writes nodes, each value of the program once.

    The scalars of all rows are written as one long row, [1, rows], and become [..., 1] where they meet a row:
    onnxruntime takes six times as long for [..., 1] and a number. A parameter is [1] or [heads, 1, 1].

    Args:
        proof: The intervals, which decide the carriers.
        inputs: The function's inputs by name.
        rules: What writes each operator.
        prefix: What the names of nodes and values begin with.
        exposed: Where to leave the program's constants, which become inputs of these names; None leaves them inside.
        opset: The version of the default domain.
    """

    def __init__(
        self,
        proof: Proof,
        inputs: Mapping[str, ir.Value],
        rules: Mapping[str, Rule],
        prefix: str = "v",
        exposed: dict[ir.Value, NDArray[np.generic]] | None = None,
        *,
        opset: int,
    ) -> None:
        self.opset = opset
        self.proof = proof
        self.inputs = inputs
        self._exposed = exposed
        self._nodes: list[ir.Node] = []
        self._rules = rules
        self._prefix = prefix
        self._values: dict[Node, Emitted] = {}
        self._floats: dict[Node, Callable[[], ir.Value]] = {}
        self._reshaped: dict[tuple[ir.Value, str], ir.Value] = {}
        self._column_shape: ir.Value | None = None
        self._full: set[Node] = set()
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], ir.Value] = {}

    def within(self) -> Walker:
        """Return a walker for the body of the node that comes next: it sees these values and keeps its own."""
        inner = Walker(self.proof, self.inputs, self._rules, self.next_name + "s", self._exposed, opset=self.opset)
        inner._values.update(self._values)
        inner._floats.update(self._floats)
        inner._full |= self._full
        inner._column_shape = self._column_shape
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

    def given(self, value: ArrayLike, kind: Carrier) -> ir.Value:
        """Return a number or table that the program names: a constant, or an input if such are exposed."""
        if self._exposed is None:
            return self.constant(value, kind.numpy)
        exposed = ir.Value(name=f"constant_{len(self._exposed)}")
        self._exposed[exposed] = np.asarray(value, dtype=kind.numpy)
        return exposed

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
            wanted.update(values_of(node))
        return kept[::-1]

    # Walking

    def carrier_of(self, node: Node) -> Carrier:
        """Return what carries a value: decided by its type and proven interval."""
        interval = self.proof.interval(node)
        return carrier(node.dtype, interval.low, interval.high)

    def compute(self, root: Node) -> Emitted:
        """Return the ONNX value and carrier of a value of the program, writing what is missing."""
        for node in walk([root], self._values):
            self.keep(node, self._rules[node.op](self, node))
        return self._values[root]

    def keep(self, node: Node, emitted: Emitted) -> None:
        """Remember what was written for a value of the program."""
        self._values[node] = emitted
        if _is_full(node, self._full):
            self._full.add(node)

    def keep_float(self, node: Node, write: Callable[[], ir.Value]) -> None:
        """Remember what writes an integer as the float32 that is equal to it, once that is asked for."""
        self._floats[node] = write

    def is_float(self, node: Node) -> bool:
        """Say whether a value is written as float32 without loss, be it beside an integer."""
        return self.compute(node)[1] is Carrier.FLOAT or node in self._floats

    def arg(self, node: Node, position: int, kind: Carrier | None = None) -> ir.Value:
        """Return an argument in the shape that the node needs, cast to a carrier if it has another."""
        value = self.carried(node.args[position], kind)
        if node.args[position].kind is not Kind.SCALAR:
            return value
        return (
            self.column(node.args[position], value) if node.kind is Kind.ROW else self.flat(node.args[position], value)
        )

    def carried(self, node: Node, kind: Carrier | None) -> ir.Value:
        """Return a value, cast to a carrier if it is carried by another."""
        value, carried = self.compute(node)
        if kind is None or carried is kind:
            return value
        if kind is Carrier.FLOAT and node in self._floats:
            write = self._floats[node]
            value = write()
            self._floats[node] = lambda: value
            return value
        return self.cast(value, kind.value)

    # Shapes of scalars

    def flat(self, node: Node, value: ir.Value) -> ir.Value:
        """Return what was written for a scalar as it meets other scalars: [1, rows], or one number for all rows."""
        if node.op != "param" or param_of(node).scope == "site":
            return value
        return self.flattened(value, self.column_shape())

    def flattened(self, value: ir.Value, shape: ir.Value | None = None) -> ir.Value:
        """Return [..., 1], expanded to a shape if one is given, as [1, rows]."""
        key = (value, "flat")
        if key not in self._reshaped:
            whole = value if shape is None else self.add("Expand", value, shape)
            self._reshaped[key] = self.add("Reshape", whole, self.constant([1, -1], INT64))
        return self._reshaped[key]

    def column(self, node: Node, value: ir.Value) -> ir.Value:
        """Return what was written for a scalar as it meets rows: [..., 1], or one number for all rows."""
        if not self.is_full(node):
            return value
        key = (value, "column")
        if key not in self._reshaped:
            self._reshaped[key] = self.add("Reshape", value, self.column_shape(), allowzero=1)
        return self._reshaped[key]

    def reduced(self, op: str, value: ir.Value) -> ir.Value:
        """Return the reduction of a row as a scalar."""
        column = self.add(op, value, self.last_axis(), keepdims=1)
        if self._column_shape is None:
            # Of rows without elements onnxruntime's reductions keep the empty axis, so only they know the shape.
            self._column_shape = self.add("Shape", column)
        return self.flattened(column)

    def column_shape(self) -> ir.Value:
        """Return the shape that reductions of a row have."""
        if self._column_shape is None:
            self.reduced("ReduceMax", self.cast(self.inputs["scores"], ir.DataType.FLOAT))
        assert self._column_shape is not None
        return self._column_shape

    def common(self, node: Node, *positions: int) -> Carrier:
        """Return the narrowest carrier that holds these arguments and, if it is a number, the result."""
        kinds = [self.compute(node.args[i])[1] for i in positions]
        if node.dtype is not DType.BOOL:
            kinds.append(self.carrier_of(node))
        return Carrier.INT64 if Carrier.INT64 in kinds else kinds[0]

    # Full shapes

    def is_full(self, node: Node) -> bool:
        """Say whether a row was written in the shape of the scores, a scalar as [1, rows].

        A row that no score is part of may be less, and a scalar one number for all rows.
        """
        return node in self._full

    def full(self, node: Node, kind: Carrier | None = None) -> Emitted:
        """Return a value in its full shape, [..., N] or [..., 1]."""
        value, carried = self.carried(node, kind), kind or self.compute(node)[1]
        scores = self.inputs["scores"]
        if self.is_full(node):
            return value if node.kind is Kind.ROW else self.column(node, value), carried
        if node.kind is Kind.ROW:
            return self.add("Expand", value, self.add("Shape", scores)), carried
        shape = self.add("Concat", self.add("Shape", scores, end=-1), self.constant([1], INT64), axis=0)
        return self.add("Expand", value, shape), carried


def values_of(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what a node reads, its body included."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield from (value for inner in attribute.as_graph() for value in inner.inputs if value is not None)


def _is_full(node: Node, full: set[Node]) -> bool:
    if node.op == "input":
        return node.attrs["name"] != "valid"  # a place in the body of a scan is a number per row
    rows = [arg in full for arg in node.args if arg.kind is Kind.ROW]
    if node.kind is Kind.ROW:
        return node.op == "scan" or any(rows)
    heads = any(arg.op == "param" and param_of(arg).scope == "head" for arg in node.args)
    return node.op not in ("param", "const", "table") and (heads or bool(rows) or not full.isdisjoint(node.args))
