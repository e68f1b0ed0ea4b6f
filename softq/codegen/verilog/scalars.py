"""The numbers of a row that follow from its reductions: computed one after the other between two passes.

All operands stay as they are until the last number is there, so a value that has been computed stays too. Products,
divisions and normalizations are serial and share one unit each; these belong to the sequence, or to the whole core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.pipeline import LEVELS, Time, position_in, table_for
from softq.codegen.verilog.rules import RULES
from softq.codegen.verilog.serial import Job
from softq.codegen.verilog.signals import Signal, constant, shape
from softq.codegen.verilog.simplification import Simplified
from softq.codegen.verilog.tables import Tables
from softq.codegen.verilog.units import SERIAL, Units, clocks_of, write_unit
from softq.rowprog.program import Node
from softq.rowprog.types import Kind


class Scalars:
    """The numbers that follow one pass, or the values of an element of a pass with products.

    Args:
        module: Where they are written.
        tables: Its tables.
        prefix: What names begin with.
        simplified: The program.
        busy: The condition that they are computed: a step passes at each clock.
        given: What is there when they begin.
        nodes: The numbers, arguments first.
        units: The units of the whole core, where it has one of each kind.
    """

    def __init__(
        self,
        module: Module,
        tables: Tables,
        prefix: str,
        simplified: Simplified,
        busy: str,
        given: Mapping[Node, Signal],
        nodes: Sequence[Node],
        units: Units | None = None,
    ) -> None:
        self._module = module
        self._tables = tables
        self._prefix = prefix
        self._simplified = simplified
        self._busy = busy
        self._nodes = nodes
        self._units = units
        self._signals = dict(given)
        self._later: dict[Node, Signal] = {}
        self._times = {node: Time(0) for node in given}
        self._names: dict[Node, str] = {}
        self._jobs: dict[str, list[Job]] = {}
        self._free: dict[str, int] = {}
        self._reached: dict[int, str] = {}
        longest = sum(max(shape(simplified.intervals[n])[0], 32) + 3 for n in nodes)
        if units is not None:
            longest = sum(2 + units.clocks.get(n.op, 1) for n in nodes) + 2
        self.step = module.register(f"{prefix}_step", max(longest.bit_length(), 1), start=0)

    def is_step(self, step: int) -> str:
        """Return the condition that this is the step."""
        return f"({self.step.name} == {self.step.width}'d{step})"

    def reach(self, step: int) -> str:
        """Return the condition that this is the step, of one behind the first from a register: it loads a unit."""
        if step == 0:
            return self.is_step(0) if self._units is None else f"({self._busy} & {self.is_step(0)})"
        if step not in self._reached:
            name = f"{self._prefix}_reached_{step}"
            self._reached[step] = self._module.register(name, 1, f"{self._busy} & {self.is_step(step - 1)}").name
        return self._reached[step]

    def compute(self) -> int:
        """Write the logic of these values; return the step in which all are there."""
        for node in self._nodes:
            if self._simplified.constant(node) is None and node not in self._times:
                self._compute(node)
        if self._units is not None:
            self._units.add(self._jobs, self.reach)
        else:
            for op, jobs in self._jobs.items():
                write_unit(self._module, f"{self._prefix}_{op}", op, jobs, self._clocks(op), self.reach)
        found = [self._times[node] for node in self._nodes if node in self._times]
        return max((time.stage + (time.level > 0) for time in found), default=0)

    def at(self, node: Node, step: int) -> Signal:
        """Return a value in a step, not before it is there."""
        if (fixed := self._simplified.constant(node)) is not None:
            return constant(fixed)
        time, signal = self._times[node], self._signals[node]
        if step == time.stage or time.level == 0:
            return signal
        if node not in self._later:
            self._later[node] = self._module.register(
                f"{self._name(node)}_kept", signal.width, signal.name, signed=signal.signed
            )
        return self._later[node]

    def _name(self, node: Node) -> str:
        return f"{self._prefix}_{self._names.setdefault(node, f's{len(self._names)}_{node.op}')}"

    def _compute(self, node: Node) -> None:
        args = [arg for arg in node.args if arg.kind is not Kind.TABLE]
        ready = max((self._times.get(arg, Time(0)) for arg in args), default=Time(0))
        width, signed = shape(self._simplified.intervals[node])
        if node.op in SERIAL:
            self._serial(node, ready)
        elif node.op == "lut":
            table = table_for(node, self._simplified, self._tables.writable)
            if table.in_memory:
                begin = ready.within(LEVELS)
                place = position_in(table, [self.at(arg, begin.stage) for arg in args])
                raw = self._tables.read(table, place, self._name(node))
                # What a block of memory gives comes late in its clock: a register behind it.
                self._put(node, Signal(raw.base, width, signed, whole=raw.width), Time(begin.stage + 1, LEVELS))
            else:
                self._cheap(
                    node, ready, table.levels, lambda given: self._tables.look_up(table, position_in(table, given))
                )
        else:
            rule = RULES[node.op]
            levels = rule.levels([self.at(arg, ready.stage) for arg in args], width)
            self._cheap(node, ready, levels, lambda given: rule.expression(given, width))

    def _cheap(self, node: Node, ready: Time, levels: float, expression: Callable[[Sequence[Signal]], str]) -> None:
        begin = ready.within(levels)
        given = [self.at(arg, begin.stage) for arg in node.args if arg.kind is not Kind.TABLE]
        width, signed = shape(self._simplified.intervals[node])
        wire = self._module.wire(self._name(node), width, expression(given), signed=signed)
        self._put(node, wire, Time(begin.stage, begin.level + levels))

    def _put(self, node: Node, signal: Signal, time: Time) -> None:
        self._signals[node], self._times[node] = signal, time

    def _serial(self, node: Node, ready: Time) -> None:
        begin = max(ready.stage + (ready.level > 0), self._free.get(node.op, 0))
        clocks = self._clocks(node.op)
        width, signed = shape(self._simplified.intervals[node])
        result = self._module.register(self._name(node), width, signed=signed)
        operands = tuple(self.at(arg, begin) for arg in node.args)
        self._jobs.setdefault(node.op, []).append(Job(begin, operands, result, str(node.attrs.get("part", ""))))
        self._free[node.op] = begin + clocks
        self._put(node, result, Time(begin + clocks + 1))

    def _clocks(self, op: str) -> int:
        return clocks_of(op, self._nodes, self._simplified) if self._units is None else self._units.clocks[op]
