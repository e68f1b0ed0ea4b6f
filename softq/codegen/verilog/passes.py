"""One pass of a core: what enters, its reductions, and what leaves.

Nothing stops a beat that has entered; so a pass takes one only where what is behind has room, and what is on its way
counts as taken. At most two rows are between the first beat of a pass and the next pass: one whose numbers wait in
`hold`, and one whose reductions are under way, or stay where they are until `hold` is free.
"""

from __future__ import annotations

from dataclasses import dataclass

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.pipeline import FIRST, FROM_MEMORY, LAST, LEVELS, SHARED, VALID, Pipeline, Time
from softq.codegen.verilog.plan import CorePlan
from softq.codegen.verilog.reductions import KEEP, accumulate, count_elements, join_lanes
from softq.codegen.verilog.results import give_numbers, give_results
from softq.codegen.verilog.scalars import Scalars
from softq.codegen.verilog.scans import find_last_state, write_scans
from softq.codegen.verilog.signals import Signal
from softq.codegen.verilog.steps import Steps, write_steps
from softq.codegen.verilog.stream import take_stream
from softq.codegen.verilog.tables import Tables
from softq.codegen.verilog.units import Units, has_products, needs_units
from softq.rowprog.program import Node

LOAD = 2
"""Stage of a pass behind a memory in which its elements and the numbers of the row are there."""

_LEAST_RESULTS = 16
"""Words of the smallest memory of results: distributed memory comes in pieces of 16."""


@dataclass(frozen=True)
class PassClocks:
    """When a pass does what, in clocks from the one in which a beat enters.

    Attributes:
        joined: The stage in which a beat is joined with those before it.
        numbers: Clocks that the numbers behind the pass take beside; None if there are none to compute.
        results: The stage in which the last pass has its results, else 0.
        interval: Clocks from one beat to the next: more than one where a scan's loop, or serial products, take them.
        steps: Whether an element is computed step by step, by units that the whole core shares.
        shared: Whether the numbers are, too.
    """

    joined: int
    numbers: int | None
    results: int
    interval: int
    steps: bool = False
    shared: bool = False


class Pass:
    """A pass that is being written.

    Args:
        plan: The core.
        module: Where it is written.
        tables: The module's tables.
        number: The number of the pass.
        units: What computes products bit by bit for the whole core; None where elements have multipliers.
    """

    def __init__(self, plan: CorePlan, module: Module, tables: Tables, number: int, units: Units | None = None) -> None:
        self._plan, self._module, self._tables = plan, module, tables
        self._phase = plan.phases[number]
        self._number = number
        self._lanes = plan.settings.lanes
        self._pipeline = self._front = Pipeline(module, tables, f"p{number}", plan.simplified)
        self._units = units
        self._has_steps = units is not None and has_products(self._phase)
        self._steps: Steps | None = None
        self._asks = ""
        self._shares_numbers = False
        self._has_numbers = plan.has_numbers(number)
        self._is_last = plan.is_last(number)
        self._results = _LEAST_RESULTS
        self._clocks: int | None = None
        self._interval = 1

    def write(self) -> PassClocks:
        """Write it."""
        module = self._module
        module.part(f"Pass {self._number}: beats that enter")
        for name in ("enter", "enter_first", "room", "left", *(["may_begin", "taken"] if self._has_numbers else [])):
            module.undriven(self._name(name), 1)
        if self._number == 0:
            take_stream(module, self._pipeline, self._plan, self._may_begin(), stays=self._has_steps)
        else:
            self._take_memory()
        module.part(f"Pass {self._number}: elements")
        if self._units is not None and self._has_steps:
            self._run_steps(self._units)
        stage = self._reduce()
        given = self._find_results() if self._is_last else 0
        if not self._has_steps:  # With steps one element is under way at a time.
            self._results = max(_LEAST_RESULTS, 1 << (4 * (given + 5) // 3).bit_length())
        self._write_room()
        if self._has_numbers:
            self._finish(stage)
        if self._is_last:
            left = give_results(module, self._pipeline, self._plan, given, self._results)
            module.assign(self._name("left"), left)
        else:
            self._keep(stage)
        return PassClocks(stage, self._clocks, given, self._interval, self._has_steps, self._shares_numbers)

    def _name(self, name: str, before: int = 0) -> str:
        return f"p{self._number - before}_{name}"

    def _run_steps(self, units: Units) -> None:
        """Write what computes an element step by step; the pipeline is that behind it from here on."""
        module, load = self._module, LOAD if self._number else 0
        self._steps = write_steps(module, self._tables, self._plan, units, self._number, self._front, load)
        self._pipeline, self._interval = self._steps.pipeline, self._steps.stage

    # Beats that enter

    def _write_room(self) -> None:
        """Write whether another beat, and another row, may enter."""
        module = self._module
        module.part(f"Pass {self._number}: room for beats and rows")
        width = self._results.bit_length() if self._is_last else self._plan.address_bits + 1
        # What comes and goes is counted a clock later, so that the way to the counter is short; no more than three
        # quarters of a memory, which is seen in three bits, are filled. Between passes that is more than a row.
        beats, entered = self._name("beats"), self._front.at(VALID, SHARED, min(self._number, 1)).name
        self._count(beats, width, entered, self._name("left"))
        full = f"{beats}[{width - 1}] | ({beats}[{width - 2}] & {beats}[{width - 3}])"
        rested = ""
        if self._units is not None and self._steps is not None:
            granted = module.undriven(self._name("granted"), 1).name
            wants, rested = f"~({full}) & {self._asks}", f" & {granted}"
            self._units.take_turns(
                wants, self._steps.uses, self._steps.done, granted, elements=True, number=self._number
            )
        elif self._interval > 1:
            waits, bits = self._name("interval"), (self._interval - 1).bit_length()
            module.register(waits, bits, f"{waits} - ({waits} != {bits}'d0)", start=0)
            module.clocked(waits, f"{bits}'d{self._interval - 1}", when=self._name("enter"))
            rested = f" & {waits} == {bits}'d0"
        module.assign(self._name("room"), f"~({full}){rested}")
        if self._has_numbers:
            # A stream may begin a row at each clock, a pass behind a memory only when the row before is counted.
            begun = self._front.at(FIRST, SHARED, 1).name if self._number else self._name("enter_first")
            self._count(self._name("rows"), 2, begun, self._name("taken"))
            module.assign(self._name("may_begin"), f"~{self._name('rows')}[1]")

    def _count(self, name: str, width: int, more: str, less: str) -> None:
        # One adder: of 1, or of -1, which is all ones.
        down = f"{{{width - 1}{{{less}}}}}"
        self._module.register(name, width, f"{name} + {{{down}, 1'b1}}", when=f"{more} ^ {less}", start=0)

    def _may_begin(self) -> str:
        return self._name("may_begin") if self._has_numbers else "1'b1"

    def _take_memory(self) -> None:
        module, pipe, address = self._module, self._pipeline, self._plan.address_bits
        read, end, more, enter, first = (self._name(n) for n in ("read", "end", "more", "enter", "enter_first"))
        ahead, hold = self._name("ahead"), self._name("hold_end", 1)
        module.register(read, address, ahead, when=enter, start=0)
        module.register(ahead, address, f"{ahead} + {address}'d1", when=enter, start=1)
        module.register(end, address, hold, when=first, start=0)
        begun = module.register(pipe.name(FIRST, SHARED, 1), 1, first, start=0)
        module.register(more, 1, f"{ahead} != ({more} ? {end} : {hold})", when=enter, start=0)
        # The numbers in `hold` are taken one clock after a row begins: until then they are not of the next row.
        begins = f"{self._name('hold_full', 1)} & ~{begun.name} & {self._may_begin()}"
        self._asks = f"({more} | ({begins}))"
        module.assign(enter, f"{self._name('room')} & {self._asks}")
        module.assign(first, f"{enter} & ~{more}")
        module.assign(self._name("taken", 1), begun.name)
        pipe.put(VALID, SHARED, Signal(enter, 1, False), Time(0))
        module.assign(self._name("left", 1), pipe.at(VALID, SHARED, 1).name)
        pipe.put(FIRST, SHARED, begun, Time(1))
        ended = module.wire(self._name("ended"), 1, f"~{more}")
        pipe.put(LAST, SHARED, ended, Time(1))
        word = self._word(self._number)
        raw, whole, low = self._name("word"), sum(part[2] for part in word), 0
        module.register(raw, whole, f"{self._name('memory', 1)}[{read}]")
        for value, lane, width, signed in word:
            # What a block of memory gives comes late in its clock: a register behind it.
            pipe.put(value, lane, Signal(raw, width, signed, None, low, whole), Time(LOAD, FROM_MEMORY), before=1)
            low += width
        for position, field in enumerate(self._plan.carried(self._number)):
            name = pipe.name(field.node, SHARED, LOAD)
            held = self._name(f"hold_{position}", 1)
            number = module.register(name, field.width, held, when=begun.name, signed=field.signed)
            pipe.put(field.node, SHARED, number, Time(LOAD))

    def _word(self, number: int) -> list[tuple[Node | str, int, int, bool]]:
        """Return what a word of the memory before a pass holds: values, lanes, bits, and whether they have a sign."""
        word: list[tuple[Node | str, int, int, bool]] = []
        for lane in range(self._lanes):
            word += [(field.node, lane, field.width, field.signed) for field in self._plan.kept(number)]
            if lane:
                word.append((KEEP, lane, 1, False))
        return word

    # Reductions, and the numbers of a row

    def _reduce(self) -> int:
        """Write the reductions; return the stage in which beats are joined."""
        pipe, plan = self._pipeline, self._plan
        here = {*self._phase.rows, *self._phase.reductions}
        scans = [node for node in plan.program.nodes() if node.op == "scan" and node in here]
        self._interval = max(self._interval, write_scans(self._module, pipe, plan, scans, f"p{self._number}_scan"))
        reduced = [
            find_last_state(pipe, node) if node.op == "scan" else join_lanes(self._module, pipe, plan, node, f"r{at}")
            for at, node in enumerate(self._phase.reductions)
        ]
        times = [part.time for part in reduced]
        if not self._is_last:
            times += [pipe.time(f.node, lane) for f in plan.kept(self._number + 1) for lane in range(self._lanes)]
        least = self._steps.stage if self._steps else LOAD if self._number else 0
        stage = max((least, *(time.stage + (time.level > LEVELS - 1) for time in times)))
        self._totals: dict[Node, Signal] = {}
        if self._has_numbers:
            self._totals = accumulate(self._module, pipe, plan, reduced, stage)
            for node in plan.lengths(self._phase):
                self._totals[node] = count_elements(self._module, pipe, plan, node, stage)
        return stage

    def _finish(self, stage: int) -> None:
        """Write what follows the last beat of a row: its numbers, until the next pass or the reader takes them."""
        module, pipe, plan = self._module, self._pipeline, self._plan
        module.part(f"Pass {self._number}: the row's numbers")
        wanted = [field.node for field in plan.carried(self._number + 1)]
        computed = [node for node in self._phase.scalars if plan.simplified.constant(node) is None]
        used = {*wanted, *(arg for node in computed for arg in node.args)}
        given = {node: total for node, total in self._totals.items() if node in used}
        before = [field.node for field in plan.carried(self._number)]
        if self._number == 0:
            before += plan.beside
        for node in before:
            if node in used:
                given[node] = pipe.at(node, SHARED, stage + 1)
        valid, last = (pipe.at(flag, SHARED, stage).name for flag in (VALID, LAST))
        done, waits, pending, full, go = (self._name(n) for n in ("done", "waits", "pending", "hold_full", "go"))
        module.register(done, 1, f"{valid} & {last}", start=0)
        module.register(waits, 1, start=0)
        module.wire(pending, 1, f"{done} | {waits}")
        module.undriven(go, 1)
        module.register(full, 1, f"{go} | ({full} & ~{self._name('taken')})", start=0)
        free = f"(~{full} | {self._name('taken')})"
        end = self._name("write")
        if computed:
            given, end = self._compute(given, computed, wanted, free)
        else:
            module.assign(go, f"{pending} & {free}")
            module.clocked(waits, f"{pending} & ~{go}")
        if not self._is_last:
            module.register(self._name("hold_end"), plan.address_bits, end, when=go)
        for position, node in enumerate(wanted):
            held = given[node]
            module.register(self._name(f"hold_{position}"), held.width, held.name, when=go, signed=held.signed)
        if self._is_last:
            give_numbers(module, plan, f"p{self._number}", wanted)

    def _compute(
        self, given: dict[Node, Signal], computed: list[Node], wanted: list[Node], free: str
    ) -> tuple[dict[Node, Signal], str]:
        """Write the numbers that follow from others, and return those that are wanted and where the row ends."""
        module = self._module
        start, busy, go, pending = (self._name(n) for n in ("start", "busy", "go", "pending"))
        units = self._units if needs_units(computed, self._plan.simplified) else None
        module.wire(start, 1, f"{pending} & ~{busy}")
        module.register(busy, 1, f"{start} | ({busy} & ~{go})", start=0)
        module.clocked(self._name("waits"), f"{pending} & ~{start}")
        caught = {
            node: module.register(self._name(f"given_{at}"), s.width, s.name, when=start, signed=s.signed)
            for at, (node, s) in enumerate(given.items())
        }
        end = self._name("given_end")
        if not self._is_last:
            module.register(end, self._plan.address_bits, self._name("write"), when=start)
        runs = busy if units is None else self._name("uses")
        prefix, simplified = f"p{self._number}", self._plan.simplified
        scalars = Scalars(module, self._tables, prefix, simplified, runs, caught, computed, units)
        self._clocks = scalars.compute()
        step, last = scalars.step, scalars.is_step(self._clocks)
        if units is not None:
            self._await_units(units, start, runs, scalars.reach(self._clocks))
        module.assign(go, f"{busy} & {last} & {free}")
        module.clocked(step.name, f"{step.name} + {step.width}'d1", when=f"{runs} & ~{last}")
        module.clocked(step.name, f"{step.width}'d0", when=f"~{busy}")
        return {node: scalars.at(node, self._clocks) for node in wanted}, end

    def _await_units(self, units: Units, start: str, uses: str, done: str) -> None:
        """Write when the steps of a row's numbers run, which others may have to end before."""
        module = self._module
        wants, asks, granted = (self._name(f"numbers_{name}") for name in ("want", "wait", "granted"))
        module.register(asks, 1, start=0)
        module.wire(wants, 1, f"{start} | {asks}")
        module.undriven(granted, 1)
        module.clocked(asks, f"{wants} & ~{granted}")
        module.register(uses, 1, f"({wants} & {granted}) | ({uses} & ~{done})", start=0)
        units.take_turns(wants, uses, done, granted, elements=False, number=self._number)
        self._shares_numbers = True

    # What leaves

    def _keep(self, stage: int) -> None:
        module, pipe, address = self._module, self._pipeline, self._plan.address_bits
        module.part(f"Pass {self._number}: the memory behind it")
        word = self._word(self._number + 1)
        memory, write = self._name("memory"), self._name("write")
        module.memory(memory, sum(part[2] for part in word), 1 << address, 'ram_style = "block", no_rw_check')
        valid = pipe.at(VALID, SHARED, stage).name
        module.register(write, address, f"{write} + {address}'d1", when=valid, start=0)
        parts = ", ".join(pipe.at(value, lane, stage).name for value, lane, _, _ in reversed(word))
        module.clocked(f"{memory}[{write}]", f"{{{parts}}}", when=valid)

    def _find_results(self) -> int:
        """Return the stage in which results are there."""
        times = [self._pipeline.time(self._plan.row, lane) for lane in range(self._lanes)]
        return max(time.stage + (time.level > 0) for time in times)
