"""A core: all passes of a row program over a stream of rows, one beat of elements at each clock.

Between two passes stands a memory for the longest row twice: while a pass reads one row, the pass before writes the
next, so that rows come and go without a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from softq.codegen.verilog.axi_lite import write_registers
from softq.codegen.verilog.cells import Cells, count_cells
from softq.codegen.verilog.description import describe_tables, describe_values
from softq.codegen.verilog.estimate import Resources, describe_estimate, estimate
from softq.codegen.verilog.module import Module
from softq.codegen.verilog.passes import Pass, PassClocks
from softq.codegen.verilog.plan import CorePlan
from softq.codegen.verilog.registers import STATUS
from softq.codegen.verilog.tables import Tables
from softq.codegen.verilog.units import Units
from softq.rowprog.text import to_text

_LENGTHS = (1, 16, 64, 197, 256, 1024, 4096)
"""Elements of rows for which clocks are told, beside the longest."""


@dataclass(frozen=True)
class Core:
    """A core.

    Attributes:
        plan: What it is made of.
        name: The module's name.
        text: The module.
        clocks: When its passes do what.
        module: What the text was written from.
    """

    plan: CorePlan
    name: str
    text: str
    clocks: tuple[PassClocks, ...]
    module: Module = field(repr=False, compare=False)

    @cached_property
    def cells(self) -> tuple[Cells, ...]:
        """What its module is made of."""
        return (count_cells(self.module, self.plan.ports),)

    @cached_property
    def resources(self) -> Resources:
        """What it takes, before synthesis: an estimate."""
        return estimate(self.cells)

    @property
    def longest(self) -> int:
        """Elements of the longest row."""
        return self.plan.settings.length

    def latency(self, length: int) -> int:
        """Return the clocks of one row from its first beat taken to its last result given, both counted, if nothing
        outside makes it wait."""
        beats = -(-length // self.plan.settings.lanes)
        entered = sum((beats - 1) * clocks.interval for clocks in self.clocks)
        for number, clocks in enumerate(self.clocks[:-1]):
            # One clock each: registers before the first stage, the end of the row, and the numbers taken.
            entered += clocks.joined + 2 + (number == 0) + (0 if clocks.numbers is None else clocks.numbers + 1)
        return entered + self.clocks[-1].results + 2 + (len(self.clocks) == 1) + (self.plan.gathered > 1)

    @property
    def passes(self) -> int:
        """How many passes over a row there are."""
        return len(self.clocks)

    def interval(self, length: int) -> float:
        """Return the clocks from one row to the next, on average, if rows of a length come without a gap and nothing
        outside makes them wait."""
        beats = -(-length // self.plan.settings.lanes)
        found = [float(beats * max(clocks.interval for clocks in self.clocks)), float(self._in_turns(beats))]
        for number, clocks in enumerate(self.clocks):
            if not self.plan.has_numbers(number):
                continue
            computed = 0 if clocks.numbers is None else clocks.numbers + 1
            last = number + 1 == len(self.clocks)
            # Two rows may be in a pass; one leaves it when the next pass, or the reader, has taken its numbers.
            until = clocks.joined + computed + 2 + (not last) + (number == 0)
            found.append(((beats - 1) * clocks.interval + 1 + until) / 2)
            room = self.plan.room - beats
            if not last and beats > room and until > room + 1:
                # What does not fit behind the row that waits comes only when the next pass reads that.
                found.append(beats * clocks.interval + until - room)
            if clocks.numbers is not None:
                found.append(clocks.numbers + 2)
        return max(found)

    def _in_turns(self, beats: int) -> int:
        """Return the clocks for which a row has the units that passes share, one after the other."""
        elements = sum(beats * clocks.interval for clocks in self.clocks if clocks.steps)
        # One clock each until an element is done, until the numbers are, and until elements may enter again.
        return elements + sum(clocks.numbers + 3 for clocks in self.clocks if clocks.shared and clocks.numbers)

    def describe(self) -> dict[str, object]:
        """Return what the core is, as plain values."""
        plan, longest = self.plan, self.plan.settings.length
        lengths = sorted({*(n for n in _LENGTHS if n < longest), longest})
        numbers = {name: plan.field(node) for name, node in plan.numbers.items()}
        registers = {"status": STATUS, "tables": [table.describe() for table in plan.registers]}
        return {
            "ports": [
                {"name": port.name, "width": port.width, "output": port.output, "meaning": port.meaning}
                for port in plan.ports
            ],
            "outputs": {
                name: {"bits": field.width, "signed": field.signed, "field": taken}
                for name, field, taken in (
                    (plan.row_name, plan.field(plan.row), plan.result_bits),
                    *((name, field, field.padded) for name, field in numbers.items()),
                )
            },
            "constants": plan.constants,
            **({"registers": registers} if plan.registers else {}),
            "passes": self.passes,
            "element_interval": max(clocks.interval for clocks in self.clocks),
            "latency": {str(length): self.latency(length) for length in lengths},
            "interval": {str(length): self.interval(length) for length in lengths},
            "estimate": describe_estimate(self.resources, self.latency(longest), self.interval(longest)),
            "values": describe_values(plan),
            "tables": describe_tables(plan),
        }


def write_core(plan: CorePlan, name: str, head: Sequence[str] = ()) -> Core:
    """Return a core; the same plan always gives the same text.

    Args:
        plan: What it is made of.
        name: The module's name.
        head: Lines of comment before it.
    """
    module = Module(name, reset=plan.settings.reset)
    tables = Tables(module, {table.name: table for table in plan.registers})
    units = Units(module, plan.simplified, plan.phases) if plan.settings.is_serial else None
    clocks = tuple(Pass(plan, module, tables, number, units).write() for number in range(len(plan.phases)))
    if units is not None:
        units.write()
    if plan.registers:
        leaves = ["m_axis_tvalid & m_axis_tready & m_axis_tlast"]
        leaves += ["n_axis_tvalid & n_axis_tready"] * bool(plan.numbers)
        # Two rows are in a pass at most, or else as many as there are words of results, which twice cover their way.
        most = 2 * len(clocks) + 4 * (clocks[-1].results + 8)
        write_registers(module, plan.registers, "p0_enter_first", leaves, most)
    program = ["The program:", "", *to_text(plan.source).splitlines()]
    return Core(plan, name, module.text(plan.ports, [*head, *program]), clocks, module)
