"""Programs: what tracing builds and every backend walks."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from softq.rowprog.ops import OPS
from softq.rowprog.signature import Demand
from softq.rowprog.types import DType, Kind, Number

Scope = Literal["site", "head"]


@dataclass(frozen=True, eq=False)
class Node:
    """One value of a program. Nodes are compared by identity; tracing makes equal expressions the same node.

    Attributes:
        op: Name in `softq.rowprog.ops.OPS`.
        args: What it is computed from.
        dtype: Element type.
        kind: Row, scalar or table.
        attrs: What the operator needs beside its arguments:
            `input`: `name`. `param`: `param`, a `Param`. `const`: `value`. `table`: `values`. `normalize`: `part`
            ("mantissa" or "shift"). `round_to`: `format`, a name. `group_max`: `size`. `assume`: `low`, `high`,
            `because`. `scan`: `body`, a `ScanBody`, and `result`, the position in the body's states
            (`result < len(states)`) or outputs (the rest).
    """

    op: str
    # A value that is used twice would be printed twice, and what it is made of four times, and so on.
    args: tuple[Node, ...] = field(repr=False)
    dtype: DType
    kind: Kind
    attrs: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Param:
    """A number or table that is known only at run time.

    Attributes:
        name: Its name in the function's interface.
        scope: `site`: one for all rows; `head`: one for each attention head.
        dtype: Element type.
        low: Least value allowed.
        high: Greatest value allowed.
        size: Number of entries of a table; None for a number.
        meaning: What it is, with its unit.
    """

    name: str
    scope: Scope
    dtype: DType
    low: Number
    high: Number
    size: int | None
    meaning: str


@dataclass(frozen=True, eq=False)
class ScanBody:
    """The step of a scan: placeholders (op `input`) for states and elements, and what follows from them.

    Attributes:
        states: Placeholders of the states before the step, scalars.
        elements: Placeholders of the current elements, scalars.
        next: The states after the step.
        outputs: One value each for the output rows.
        invariants: Declared interval of each state; range analysis proves that init and step keep it.
    """

    states: tuple[Node, ...]
    elements: tuple[Node, ...]
    next: tuple[Node, ...]
    outputs: tuple[Node, ...]
    invariants: tuple[tuple[Number, Number], ...]


@dataclass(frozen=True)
class Program:
    """A traced row program.

    Attributes:
        name: Name of the method.
        structure: What distinguishes this program from others of the method, as a suffix of names: `b4_r1`.
        scores: Element type of the scores: f32 or an integer type.
        masked: Whether there is an input `valid`.
        outputs: The results by name: `probabilities`, or `weights` and `normalizer`; further ones (`codes`) may stand
            beside them.
        contract: Whether a backend may fuse a multiplication and an addition into one rounding.
    """

    name: str
    structure: str
    scores: DType
    masked: bool
    outputs: Mapping[str, Node]
    contract: bool

    @property
    def is_pair(self) -> bool:
        """Whether the program returns weights and their normalizer instead of probabilities."""
        return "normalizer" in self.outputs

    def nodes(self, outputs: Iterable[str] | None = None) -> tuple[Node, ...]:
        """Return every node that the outputs (default: all) need, arguments first, in an order that tracing fixes."""
        return self._every_node if outputs is None else tuple(walk(self.outputs[name] for name in outputs))

    @cached_property
    def _every_node(self) -> tuple[Node, ...]:
        return tuple(walk(self.outputs.values()))

    @property
    def params(self) -> tuple[Param, ...]:
        """The run-time parameters in order of first use."""
        return tuple(param_of(node) for node in self.nodes() if node.op == "param")


def walk(
    roots: Iterable[Node],
    known: Container[Node] = (),
    operands: Callable[[Node], Sequence[Node]] = lambda node: node.args,
) -> Iterator[Node]:
    """Yield every node under the roots once, arguments before their users; not known ones nor what only they need.

    Args:
        roots: Where to begin.
        known: Nodes that are not entered.
        operands: Of a node, the arguments that are followed.
    """
    done: set[Node] = set()
    stack = [(root, False) for root in reversed(tuple(roots))]
    while stack:
        node, ready = stack.pop()
        if node in done or node in known:
            continue
        if ready:
            done.add(node)
            yield node
        else:
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(operands(node)))


def substitute(outputs: Mapping[str, Node], known: Mapping[Node, Node], *, assumptions: bool) -> dict[str, Node]:
    """Return outputs with other nodes in the place of some; without `assumptions`, what was assumed is left out."""
    made: dict[Node, Node] = {}
    # What stands under a replaced node may be used elsewhere.
    for node in walk(outputs.values()):
        args = tuple(made[arg] for arg in node.args)
        if node in known:
            made[node] = known[node]
        elif node.op == "assume" and not assumptions:
            made[node] = args[0]
        else:
            changed = any(new is not old for new, old in zip(args, node.args, strict=True))
            made[node] = replace(node, args=args) if changed else node
    return {name: made[node] for name, node in outputs.items()}


def quotient(program: Program) -> Program:
    """Return a program that gives the probabilities instead of weights and their normalizer.

    They are within two roundings of the quotient, 2^-23 relatively: one division per row, one product per element.
    Where the normalizer is 0 or NaN they are NaN, as the quotient of a weight of 0 is; a program without a pair stays.
    """
    if not program.is_pair:
        return program
    weights, normalizer = (_float(program.outputs[name]) for name in ("weights", "normalizer"))
    one = Node("const", (), DType.F32, Kind.SCALAR, {"value": 1.0})
    inverse = Node("divide", (one, normalizer), DType.F32, Kind.SCALAR)
    probabilities = Node("mul", (weights, inverse), DType.F32, Kind.ROW)
    structure = f"{program.structure}_quotient".lstrip("_")
    return replace(program, structure=structure, outputs={"probabilities": probabilities})


def _float(node: Node) -> Node:
    return node if node.dtype is DType.F32 else Node("cast", (node,), DType.F32, node.kind)


def param_of(node: Node) -> Param:
    """Return the parameter that a `param` node stands for."""
    param = node.attrs["param"]
    assert isinstance(param, Param)
    return param


def body_of(node: Node) -> ScanBody:
    """Return the step of a `scan` node."""
    body = node.attrs["body"]
    assert isinstance(body, ScanBody)
    return body


def result_of(node: Node) -> int:
    """Return which result of its step a `scan` node is: a position in the states, then in the outputs."""
    position = node.attrs["result"]
    assert isinstance(position, int)
    return position


def number_of(node: Node, attr: str = "value") -> Number:
    """Return a numeric attribute of a node: the value of a `const`, the `low` of an `assume`."""
    value = node.attrs[attr]
    assert isinstance(value, (int, float, bool))
    return value


def size_of(node: Node) -> int:
    """Return how many elements a group of a `group_max` node has."""
    return int(number_of(node, "size"))


def table_of(node: Node) -> tuple[Number, ...]:
    """Return the entries of a `table` node."""
    values = node.attrs["values"]
    assert isinstance(values, tuple)
    return values


def table_size(node: Node) -> int:
    """Return the number of entries of a table, be it constant or a parameter."""
    size = len(table_of(node)) if node.op == "table" else param_of(node).size
    assert size is not None, node
    return size


def demands_of(node: Node) -> Iterator[tuple[Demand, tuple[float, float]]]:
    """Yield the intervals that are demanded of a node's operands and of its result."""
    size = table_size(node.args[0]) if node.op == "lut" else 0
    for demand in OPS[node.op].demands:
        if demand.interval is not None and (node.dtype.is_integer or not demand.integers):
            yield demand, demand.interval(node.dtype, size)
