"""Scans: a state that goes from element to element, in registers, and the clocks that its loop takes.

What a step computes without the state stands before the loop, and what it gives behind it: these are values of an
element like all others. In the loop is what the next state takes the state for. States that follow from each other
close one loop; the others have loops of their own, each of which finds the states before it ready. A loop that is short
enough closes in one clock; another takes several, and so long the pass waits before it takes the next element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.pipeline import LAST, LEVELS, SHARED, VALID, Pipeline, Time
from softq.codegen.verilog.plan import CorePlan
from softq.codegen.verilog.reductions import Reduced
from softq.codegen.verilog.rules import RULES
from softq.codegen.verilog.signals import Signal, constant, literal, shape
from softq.rowprog.program import Node, ScanBody, body_of, number_of, result_of, walk
from softq.rowprog.types import Kind

LOOP_LEVELS = 4.75
"""Levels of a loop of one clock: a choice and a sum of 44 bits. It holds no register that is only on the way, so that
it may be longer than what stands between two stages."""


def write_scans(module: Module, pipeline: Pipeline, plan: CorePlan, nodes: Sequence[Node], name: str) -> int:
    """Write the scans of a pass; return the clocks from one element to the next.

    Args:
        module: Where they are written.
        pipeline: The pass.
        plan: The core.
        nodes: Results of scans, arguments first.
        name: What names begin with.
    """
    for node in nodes:
        if node.kind is Kind.ROW:
            body = body_of(node)
            pipeline.rename(node, body.outputs[result_of(node) - len(body.states)])
    interval = 1
    for number, (body, args) in enumerate({body_of(node): node.args for node in nodes}.items()):
        rows = args[len(body.states) :]
        for holder, row in zip(body.elements, rows, strict=False):
            pipeline.rename(holder, row)
        for at, positions in enumerate(_loops(body, args)):
            states, after = ([nodes[i] for i in positions] for nodes in (body.states, body.next))
            init = [int(number_of(args[i])) for i in positions]
            loop = _Loop(pipeline, plan, states, after, args)
            interval = max(interval, loop.write(module, f"{name}{number}_{at}", init))
    return interval


def find_last_state(pipeline: Pipeline, node: Node) -> Reduced:
    """Return a state of a scan as what it is behind each element."""
    after = body_of(node).next[result_of(node)]
    # A register stands right behind it, whatever the way to it.
    return Reduced(node, (after, 0), Time(pipeline.time(after, 0).stage))


def _loops(body: ScanBody, args: Sequence[Node]) -> Iterable[Sequence[int]]:
    """Return the positions of states that follow from each other; those that they follow from come first."""
    states = range(len(body.states))
    reach = [{at, *(i for i in states if body.states[i] in walk([body.next[at]], args))} for at in states]
    for _ in states:
        reach = [direct.union(*(reach[other] for other in direct)) for direct in reach]
    loops: dict[frozenset[int], list[int]] = {}
    for at in sorted(states, key=lambda at: len(reach[at])):
        loops.setdefault(frozenset(reach[at]), []).append(at)
    return loops.values()


class _Loop:
    """States that follow from each other.

    Args:
        pipeline: The pass.
        plan: The core.
        states: Their placeholders.
        after: What follows them.
        outside: What the step is given.
    """

    def __init__(
        self, pipeline: Pipeline, plan: CorePlan, states: Sequence[Node], after: Sequence[Node], outside: Sequence[Node]
    ) -> None:
        self._pipeline = pipeline
        self._simplified = plan.simplified
        self._states = states
        self._after = after
        follows: set[Node] = set(states)
        self._inside: list[Node] = []
        operands: list[Node] = []
        for node in walk(after, outside):
            if not follows.isdisjoint(node.args):
                follows.add(node)
                self._inside.append(node)
                operands += (arg for arg in node.args if arg.kind is not Kind.TABLE)
        ready = [pipeline.time(node, 0) for node in (*operands, *after) if node not in follows]
        self.begin = max((time.stage + (time.level > 0) for time in ready), default=0)

    def is_short(self) -> bool:
        """Say whether it closes in one clock."""
        levels: dict[Node, float] = {}
        for node in self._inside:
            args = [arg for arg in node.args if arg.kind is not Kind.TABLE]
            if node.op not in RULES:
                return False
            width, _ = shape(self._simplified.intervals[node])
            own = RULES[node.op].levels([self._signal(arg) for arg in args], width)
            levels[node] = max(levels.get(arg, 0) for arg in args) + own
        return max(levels.values(), default=0) <= LOOP_LEVELS

    def _signal(self, node: Node) -> Signal:
        fixed = self._simplified.constant(node)
        return Signal("", *shape(self._simplified.intervals[node])) if fixed is None else constant(fixed)

    def write(self, module: Module, name: str, init: Sequence[int]) -> int:
        """Write it; return its clocks."""
        pipeline, signals = self._pipeline, list[Signal]()
        for at, (state, start) in enumerate(zip(self._states, init, strict=True)):
            width, signed = shape(self._simplified.intervals[state])
            signals.append(module.register(f"{name}_state{at}", width, start=start, signed=signed))
            pipeline.put(state, SHARED, signals[-1], Time(self.begin))
        limit = LOOP_LEVELS if self.is_short() else LEVELS
        with pipeline.limit_levels(limit):
            end = max((pipeline.time(node, 0).stage for node in self._after), default=0)
        end = max(end, self.begin)
        valid, last = (pipeline.at(flag, SHARED, end).name for flag in (VALID, LAST))
        for signal, after, start in zip(signals, self._after, init, strict=True):
            # The next row finds what a row begins with: no choice stands in the loop.
            module.clocked(signal.name, pipeline.at(after, 0, end).to_width(signal.width), when=valid)
            module.clocked(signal.name, literal(start, signal.width), when=f"{valid} & {last}")
        return end - self.begin + 1
