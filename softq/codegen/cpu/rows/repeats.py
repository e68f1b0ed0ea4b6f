"""Numbers of a row that one formula gives of the number before, several times over: a loop where code is to be short.

The turns of a loop compute in the same types, which hold the intervals of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.tir import Local, hidden_count, keep_rolled
from softq.rowprog.program import Node, Program, walk
from softq.rowprog.ranges import Interval

_LEAST_NODES, _LEAST_TURNS = 4, 2


@dataclass(frozen=True)
class Repeat:
    """A formula that is applied to its own result.

    Attributes:
        first: What it is applied to.
        turns: For each turn its nodes in one order, the result last.
    """

    first: Node
    turns: Sequence[Sequence[Node]]

    @property
    def last(self) -> Node:
        """The result of the last turn."""
        return self.turns[-1][-1]

    def emit(self, e: Emission) -> None:
        """Emit the loop; its last result is a value of the place then."""
        proof = e.kernel.proof
        proof = replace(proof, intervals=self._joined(proof.intervals), filled=self._joined(proof.filled))
        inside = replace(e.kernel, proof=proof)
        state = Local.empty(Emission(inside, bits=e.bits).type_of(self.first), 1)
        state.set(e.arg(self.first, state.name))
        count = tirx.const(len(self.turns), "int32")
        with script.serial(count if e.processor.machine.in_c else hidden_count(count)):
            if not e.processor.machine.in_c:
                keep_rolled()
            turn = Emission(inside, e, bits=e.bits)
            turn.bind(self.first, state)
            turn.compute(*self.turns[0])
            state.set(turn.arg(self.turns[0][-1], state.name))
        e.bind(self.last, state)

    def _joined(self, intervals: Mapping[Node, Interval]) -> Mapping[Node, Interval]:
        """Return intervals in which the nodes of the first turn, and what it is applied to, lie in all turns."""
        results = [self.first, *(turn[-1] for turn in self.turns)]
        alike = {nodes[0]: nodes for nodes in zip(*self.turns, strict=True)}
        hulls = {node: _hull([intervals[n] for n in nodes]) for node, nodes in alike.items() if node in intervals}
        # The result is stored in the place of what the formula was applied to.
        hulls[self.first] = hulls[self.turns[0][-1]] = _hull([intervals[n] for n in results])
        return {**intervals, **hulls}


def _hull(intervals: Sequence[Interval]) -> Interval:
    return Interval(min(i.low for i in intervals), max(i.high for i in intervals), any(i.nan for i in intervals))


def roll_up(nodes: Sequence[Node], program: Program) -> Iterator[Node | Repeat]:
    """Yield numbers of a row, and repeats of formulas in their place, what they are made of first.

    Args:
        nodes: The numbers, arguments first.
        program: What uses them.
    """
    users: dict[Node, set[Node | None]] = {node: {None} for node in program.outputs.values()}
    for node in program.nodes():
        for arg in node.args:
            users.setdefault(arg, set()).add(node)
    left = dict.fromkeys(nodes)
    repeats: dict[Node, Repeat] = {}
    for last in reversed(nodes):
        found = _find(last, left, users) if last in left else None
        if found is not None:
            repeats[found.turns[0][-1]] = found
            for node in (node for turn in found.turns for node in turn):
                del left[node]
    for node in nodes:
        if node in repeats:
            yield repeats[node]
        elif node in left:
            yield node


def _find(last: Node, among: Mapping[Node, None], users: Mapping[Node, set[Node | None]]) -> Repeat | None:
    """Return the repeat of the shortest formula that ends with a number; None if there is none."""
    alike = [node for node in walk([last]) if node in among and node.op == last.op and node is not last]
    for before in reversed(alike):
        turns = [_turn(before, last, among)]
        while (first := _same(turns[0][-1], before, before, turns[0])) is not None:
            earlier = _turn(first, before, among)
            if first.op == "const" or len(earlier) != len(turns[0]):
                break
            turns.insert(0, earlier)
            before = first
        if len(turns[0]) >= _LEAST_NODES and len(turns) >= _LEAST_TURNS and _is_alone(turns, users):
            return Repeat(before, turns)
    return None


def _turn(first: Node, last: Node, among: Mapping[Node, None]) -> list[Node]:
    """Return the numbers between two that hang on the first one, in an order that the formula alone decides."""
    hang = {first}
    nodes: list[Node] = []
    for node in walk([last], {first}):
        if any(arg in hang for arg in node.args):
            hang.add(node)
            nodes.append(node)
    return nodes if all(node in among for node in nodes) else []


def _same(new: Node, old: Node, first: Node, turn: Sequence[Node]) -> Node | None:
    """Return what stands in an older result in the place of `first`, if it is made by the same formula; else None."""
    formula = {*turn}
    pairs: dict[Node, Node] = {}

    def alike(a: Node, b: Node) -> bool:
        if a is not first and a not in formula:
            return a is b
        if a not in pairs:
            pairs[a] = b
            same = (a.op, a.dtype, a.kind, a.attrs) == (b.op, b.dtype, b.kind, b.attrs) and len(a.args) == len(b.args)
            return a is first or (same and all(map(alike, a.args, b.args)))
        return pairs[a] is b

    return pairs[first] if turn and alike(new, old) else None


def _is_alone(turns: Sequence[Sequence[Node]], users: Mapping[Node, set[Node | None]]) -> bool:
    """Say whether nothing but the formula uses what it computes on the way."""
    inside: set[Node | None] = {node for turn in turns for node in turn}
    return all(users[node] <= inside for turn in turns for node in turn if node is not turns[-1][-1])
