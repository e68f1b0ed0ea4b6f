"""A proved integer program as hardware sees it: types are gone, what is always the same is a constant.

A value has the bits that its proved interval needs, whatever type the program gives it; so a cast, an assumption, or a
minimum that never takes the other side is the value itself, and two tables with the same entries are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from softq.errors import RefusalError
from softq.rowprog.program import Node, Program, ScanBody, body_of, number_of, param_of, walk
from softq.rowprog.ranges import Proof
from softq.rowprog.ranges.interval import Interval
from softq.rowprog.text import node_to_text
from softq.rowprog.types import DType, Kind

_ALIASES = ("cast", "assume")


@dataclass(frozen=True)
class Simplified:
    """A program whose values are bits.

    Attributes:
        program: The program; types of its nodes mean nothing any more.
        intervals: What each value lies in, in rows of at least one element.
    """

    program: Program
    intervals: Mapping[Node, Interval]

    def constant(self, node: Node) -> int | None:
        """Return the value of a number that is the same in every row, else None."""
        if node.op == "const":
            return int(number_of(node))
        return None


def simplify(program: Program, proof: Proof, head: Node | None = None) -> Simplified:
    """Return a program without what is nothing in hardware.

    A shift by at least so many bits becomes one by these, which is nothing in hardware, and one by the rest.

    Args:
        program: The program.
        proof: That nothing in it overflows.
        head: The head of a row, a parameter: what is looked up in tables that are parameters follows from it, too.

    Raises:
        RefusalError: a value is a float; the message names it.
    """
    return _Simplification(program, proof, head).run()


class _Simplification:
    def __init__(self, program: Program, proof: Proof, head: Node | None) -> None:
        self._program = program
        self._proof = proof
        self._new: dict[Node, Node] = {}
        self._known: dict[object, Node] = {}
        self._bodies: dict[ScanBody, ScanBody] = {}
        self.intervals: dict[Node, Interval] = {}
        self._head = head
        if head is not None:
            self.intervals[head] = Interval(param_of(head).low, param_of(head).high)

    def run(self) -> Simplified:
        outputs = dict(zip(self._program.outputs, self._take(self._program.outputs.values()), strict=True))
        return Simplified(replace(self._program, outputs=outputs), self.intervals)

    def _take(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        nodes = tuple(nodes)
        for node in walk(nodes, self._new):
            self._new[node] = self._simplify(node)
        return tuple(self._new[node] for node in nodes)

    def _simplify(self, node: Node) -> Node:
        if node.dtype.is_float:
            raise RefusalError(
                f"program {self._program.name}: {node_to_text(self._program, node)} is a float; a core computes with "
                "integers alone"
            )
        if node.kind is Kind.TABLE:
            return self._node(node, ())
        interval = self._proof.filled[node]
        if interval.low == interval.high and node.kind is Kind.SCALAR:
            return self._constant(int(interval.low))
        args = self._take(node.args)
        if self._head is not None and node.op == "lut" and args[0].op == "param":
            args = (*args, self._head)
        if node.op in _ALIASES:
            return self._narrow(args[0], interval)
        if node.op in ("min", "max"):
            for taken, other in (args, args[::-1]):
                a, b = self.intervals[taken], self.intervals[other]
                if (a.high <= b.low) if node.op == "min" else (a.low >= b.high):
                    return self._narrow(taken, interval)
        if node.op == "scan":
            return self._narrow(self._node(replace_body(node, self._body(body_of(node))), args), interval)
        if node.op in ("shl", "shr") and args[1].op != "const":
            least = int(self.intervals[args[1]].low)
            if least > 0:
                return self._split_shift(node, args[0], args[1], least, interval)
        return self._narrow(self._node(node, args), interval)

    def _split_shift(self, node: Node, value: Node, by: Node, least: int, interval: Interval) -> Node:
        """Return a shift by `by` as one by `least` and one by the rest, which a narrower value takes."""
        always, most = self._constant(least), int(self.intervals[by].high)
        rest = self._narrow(self._add(by, -least), Interval(0, most - least))
        if node.op == "shr":
            given = self.intervals[value]
            first = self._node(replace(node, kind=value.kind), (value, always))
            self._narrow(first, Interval(int(given.low) >> least, int(given.high) >> least))
            return self._narrow(self._node(node, (first, rest)), interval)
        first = self._node(node, (value, rest))
        self._narrow(first, Interval(int(interval.low) >> least, int(interval.high) >> least))
        return self._narrow(self._node(node, (first, always)), interval)

    def _add(self, node: Node, amount: int) -> Node:
        """Return a value and a constant, where what is added to it already counts as well."""
        if node.op in ("add", "sub") and node.args[1].op == "const":
            sign = 1 if node.op == "add" else -1
            return self._add(node.args[0], amount + sign * int(number_of(node.args[1])))
        if amount == 0:
            return node
        known, op = self.intervals[node], "add" if amount > 0 else "sub"
        made = Node(op, (node, self._constant(abs(amount))), node.dtype, node.kind, {})
        return self._narrow(self._node(made, made.args), Interval(known.low + amount, known.high + amount))

    def _body(self, body: ScanBody) -> ScanBody:
        if body not in self._bodies:
            for holder in (*body.states, *body.elements):
                self._new[holder] = self._narrow(self._node(holder, ()), self._proof.filled[holder])
            self._bodies[body] = replace(
                body,
                states=tuple(self._new[n] for n in body.states),
                elements=tuple(self._new[n] for n in body.elements),
                next=self._take(body.next),
                outputs=self._take(body.outputs),
            )
        return self._bodies[body]

    def _constant(self, value: int) -> Node:
        node = Node("const", (), DType.I64, Kind.SCALAR, {"value": value})
        return self._narrow(self._known.setdefault(("const", value), node), Interval(value, value))

    def _node(self, node: Node, args: tuple[Node, ...]) -> Node:
        if node.op == "input" and node.attrs.get("name") not in ("scores", "valid"):
            return Node(node.op, args, node.dtype, node.kind, node.attrs)  # A placeholder of a scan's step.
        attrs = tuple(sorted((name, value) for name, value in node.attrs.items()))
        key = (node.op, args, node.kind, attrs)
        return self._known.setdefault(key, Node(node.op, args, node.dtype, node.kind, node.attrs))

    def _narrow(self, node: Node, interval: Interval) -> Node:
        """Note that a value lies in an interval, too."""
        known = self.intervals.get(node, interval)
        self.intervals[node] = Interval(max(known.low, interval.low), min(known.high, interval.high))
        return node


def replace_body(node: Node, body: ScanBody) -> Node:
    """Return a scan with another step."""
    return Node(node.op, node.args, node.dtype, node.kind, {**node.attrs, "body": body})
