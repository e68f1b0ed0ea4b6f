"""A core: all passes of a row program over a stream of rows, one beat of elements at each clock.

Between two passes stand a memory that keeps the elements, twice as long as the longest row, and a place for the numbers
of one row (`hold`). A pass takes a beat where the memory behind it has room, and then nothing stops it; so what is on
its way counts as taken. At most two rows are between the first beat of a pass and the next pass: one that waits in
`hold`, one whose reductions are under way or stay where they are until `hold` is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softq.codegen.verilog.module import Module, Port
from softq.codegen.verilog.pipeline import FIRST, LAST, LEVELS, SHARED, VALID, Pipeline, Time
from softq.codegen.verilog.reductions import KEEP, accumulate, join_lanes
from softq.codegen.verilog.scalars import Scalars
from softq.codegen.verilog.signals import Signal, shape
from softq.codegen.verilog.simplification import Simplified
from softq.codegen.verilog.tables import Tables
from softq.rowprog.phases import Phase, is_reduction, phases
from softq.rowprog.program import Node, walk
from softq.rowprog.types import Kind

_LOAD = 2
"""Stage of a pass behind a memory in which elements and numbers of the row are there."""

_LEAST_OUTPUTS = 16
"""Words of the smallest memory of results: one of distributed memory has 16 words anyway."""


@dataclass(frozen=True)
class Settings:
    """What a core is built for.

    Attributes:
        length: Elements of the longest row.
        lanes: Elements of a beat.
        reset: Whether there is a synchronous reset.
    """

    length: int
    lanes: int = 1
    reset: bool = True

    @property
    def beats(self) -> int:
        """Beats of the longest row."""
        return -(-self.length // self.lanes)


class Core:
    """A core that is being written.

    Args:
        simplified: The program, with one row among its outputs.
        settings: What it is built for.
        name: The module's name.
    """

    def __init__(self, simplified: Simplified, settings: Settings, name: str) -> None:
        self._simplified = simplified
        self._program = simplified.program
        self._settings = settings
        self._lanes = settings.lanes
        self.module = Module(name, reset=settings.reset)
        self._tables = Tables(self.module)
        self._phases = phases(self._program, streamed=True)
        self.rows = {n: v for n, v in self._program.outputs.items() if v.kind is Kind.ROW}
        self.numbers = {n: v for n, v in self._program.outputs.items() if v.kind is not Kind.ROW}
        self.ports: list[Port] = []
        self._address = max((settings.beats - 1).bit_length(), 2) + 1

    def text(self, head: Sequence[str] = ()) -> str:
        """Write it."""
        for phase in self._phases:
            _Pass(self, phase).write()
        return self.module.text(self.ports, head)

    def lengths(self, phase: Phase) -> list[Node]:
        """Return the length of a row, which the first pass finishes, where the program asks for it."""
        nodes = walk(self._program.outputs.values())
        return [node for node in nodes if node.op == "length"] if phase.number == 0 else []

    # What crosses from one pass to the next

    def fields(self, number: int) -> list[Node]:
        """Return the row values that the memory before a pass keeps."""
        wanted = {load for phase in self._phases[number:] for load in phase.loads}
        kept = [n for n in walk(self._program.outputs.values()) if n.op == "input"]
        kept += [n for phase in self._phases[:number] for n in phase.stored]
        return [n for n in dict.fromkeys(kept) if n in wanted]

    def carried(self, number: int) -> list[Node]:
        """Return the numbers of a row that are known before a pass and that it or what follows needs."""
        known: dict[Node, None] = {}
        for phase in self._phases[:number]:
            known.update(dict.fromkeys((*self.lengths(phase), *phase.reductions, *phase.scalars)))
        needed: list[Node] = list(self.numbers.values())
        for phase in self._phases[number:]:
            rows = walk([*phase.rows, *phase.reductions], known)
            needed += [arg for node in rows for arg in node.args]
            needed += [arg for node in phase.scalars for arg in node.args]
        return [node for node in known if node in needed]


class _Pass:
    def __init__(self, core: Core, phase: Phase) -> None:
        self._core, self._phase = core, phase
        self._module, self._lanes = core.module, core._lanes
        self._simplified = core._simplified
        self._at = phase.number
        self._is_last = phase.number + 1 == len(core._phases)
        self._pipeline = Pipeline(core.module, core._tables, f"p{phase.number}", core._simplified)
        self._token = bool(core.carried(self._at + 1)) or not self._is_last
        self._outputs = _LEAST_OUTPUTS

    def write(self) -> None:
        module, at = self._module, self._at
        module.part(f"Pass {at}: what it takes")
        module.undriven(f"p{at}_taken", 1)  # the numbers behind this pass are taken over
        module.undriven(f"p{at}_pop", 1)  # the memory behind this pass loses a beat
        module.undriven(f"p{at}_enter", 1)
        module.undriven(f"p{at}_enter_first", 1)
        module.undriven(f"p{at}_room", 1)
        if self._token:
            module.undriven(f"p{at}_may_begin", 1)
        if at == 0:
            self._take_stream()
        else:
            self._take_memory()
        module.part(f"Pass {at}: elements")
        stage = self._reduce()
        given = self._output_stage() if self._is_last else 0
        self._outputs = max(_LEAST_OUTPUTS, 1 << (given + 3).bit_length())
        self._room()
        if self._token:
            self._finish(stage)
        if not self._is_last:
            self._keep(stage)
        else:
            self._give(given)

    def _output_stage(self) -> int:
        """Return the stage in which results are there."""
        (row,) = self._core.rows.values()
        times = [self._pipeline.time(row, lane) for lane in range(self._lanes)]
        return max(time.stage + (time.level > 0) for time in times)

    def _room(self) -> None:
        """Write what says whether another beat, and another row, may enter."""
        module, at = self._module, self._at
        module.part(f"Pass {at}: room for beats and rows")
        width = self._core._address + 1 if not self._is_last else self._outputs.bit_length()
        beats = f"p{at}_beats"
        module.register(beats, width, start=0)
        module.clocked(beats, f"{beats} + {width}'d1", when=f"p{at}_enter & ~p{at}_pop")
        module.clocked(beats, f"{beats} - {width}'d1", when=f"p{at}_pop & ~p{at}_enter")
        if self._is_last:
            room = f"~{beats}[{width - 1}]"
        else:
            room = f"~({beats}[{width - 1}] | ({beats}[{width - 2}] & {beats}[{width - 3}]))"
        module.line(f"assign p{at}_room = {room};")
        if self._token:
            rows = f"p{at}_rows"
            module.register(rows, 2, start=0)
            module.clocked(rows, f"{rows} + 2'd1", when=f"p{at}_enter_first & ~p{at}_taken")
            module.clocked(rows, f"{rows} - 2'd1", when=f"p{at}_taken & ~p{at}_enter_first")
            module.line(f"assign p{at}_may_begin = ~{rows}[1];")

    def _may_begin(self) -> str:
        return f"p{self._at}_may_begin" if self._token else "1'b1"

    def _take_stream(self) -> None:
        module, lanes = self._module, self._lanes
        loads = {str(n.attrs["name"]): n for n in walk(self._core._program.outputs.values()) if n.op == "input"}
        scores = loads["scores"]
        width, signed = shape(self._simplified.intervals[scores])
        core = self._core
        core.ports += [
            Port("s_axis_tdata", width * lanes, False, "scores"),
            Port("s_axis_tvalid", 1, False, ""),
            Port("s_axis_tready", 1, True, ""),
            Port("s_axis_tlast", 1, False, "the row ends"),
        ]
        if lanes > 1:
            core.ports.append(Port("s_axis_tkeep", lanes, False, "lanes that hold an element"))
        if "valid" in loads:
            core.ports.append(Port("s_axis_tuser", lanes, False, "elements that take part"))
        begins = module.register("p0_begins", 1, "s_axis_tlast", when="p0_enter", start=1)
        module.line(f"assign s_axis_tready = p0_room & (~p0_begins | {self._may_begin()});")
        module.line("assign p0_enter = s_axis_tvalid & s_axis_tready;")
        module.line("assign p0_enter_first = p0_enter & p0_begins;")
        pipe, zero = self._pipeline, Time(0)
        pipe.put(VALID, SHARED, module.register("p0_valid_0", 1, "p0_enter", start=0), zero)
        pipe.put(FIRST, SHARED, module.register("p0_first_0", 1, begins.name), zero)
        pipe.put(LAST, SHARED, module.register("p0_last_0", 1, "s_axis_tlast"), zero)
        for lane in range(lanes):
            name = pipe.name(scores, lane, 0)
            part = f"s_axis_tdata[{width * (lane + 1) - 1}:{width * lane}]"
            pipe.put(scores, lane, module.register(name, width, part, signed=signed), zero)
            if "valid" in loads:
                bit = f"s_axis_tuser[{lane}]" if lanes > 1 else "s_axis_tuser"
                pipe.put(loads["valid"], lane, module.register(f"p0_mask_{lane}_0", 1, bit), zero)
            if lane:
                pipe.put(KEEP, lane, module.register(f"p0_keep_{lane}_0", 1, f"s_axis_tkeep[{lane}]"), zero)

    def _word(self, number: int) -> list[tuple[Node | str, int, int, bool]]:
        """Return what a word of the memory before a pass holds: values, lanes, bits, and whether they have a sign."""
        word: list[tuple[Node | str, int, int, bool]] = []
        for lane in range(self._lanes):
            for node in self._core.fields(number):
                word.append((node, lane, *shape(self._simplified.intervals[node])))
            if lane:
                word.append((KEEP, lane, 1, False))
        return word

    def _take_memory(self) -> None:
        module, at, address = self._module, self._at, self._core._address
        pipe = self._pipeline
        before = f"p{at - 1}"
        rd, end = f"p{at}_read", f"p{at}_end"
        module.register(rd, address, f"{rd} + {address}'d1", when=f"p{at}_enter", start=0)
        module.register(end, address, f"{before}_hold_end", when=f"p{at}_enter_first", start=0)
        module.wire(f"p{at}_more", 1, f"{rd} != {end}")
        module.wire(
            f"p{at}_may_enter", 1,
            f"p{at}_more | ({before}_hold_full & ~p{at}_first_1 & {self._may_begin()})",
        )  # fmt: skip
        module.line(f"assign p{at}_enter = p{at}_room & p{at}_may_enter;")
        module.line(f"assign p{at}_enter_first = p{at}_enter & ~p{at}_more;")
        module.line(f"assign {before}_pop = p{at}_enter;")
        pipe.put(VALID, SHARED, Signal(f"p{at}_enter", 1, False), Time(0))
        first = module.register(f"p{at}_first_1", 1, f"p{at}_enter_first", start=0)
        pipe.put(FIRST, SHARED, first, Time(1))
        pipe.put(LAST, SHARED, Signal(f"(~p{at}_more)", 1, False), Time(1, LEVELS - 1))
        module.line(f"assign {before}_taken = p{at}_first_1;")
        word = self._word(at)
        raw = f"p{at}_word"
        module.register(raw, sum(part[2] for part in word), f"{before}_memory[{rd}]")
        whole, low = sum(part[2] for part in word), 0
        for value, lane, width, signed in word:
            pipe.put(value, lane, Signal(raw, width, signed, None, low, whole), Time(1, LEVELS))
            low += width
        for node in self._core.carried(at):
            width, signed = shape(self._simplified.intervals[node])
            name = pipe.name(node, SHARED, _LOAD)
            held = f"{before}_hold_{self._core.carried(at).index(node)}"
            pipe.put(node, SHARED, module.register(name, width, held, when=first.name, signed=signed), Time(_LOAD))

    def _reduce(self) -> int:
        """Write the reductions; return the stage in which beats are joined."""
        self._reduced = [
            join_lanes(self._module, self._pipeline, self._simplified, node, self._lanes, f"r{at}")
            for at, node in enumerate(self._phase.reductions)
        ]
        times = [r.time.within(LEVELS - 1) for r in self._reduced]
        if not self._is_last:
            for lane in range(self._lanes):
                times += [self._pipeline.time(n, lane) for n in self._core.fields(self._at + 1)]
        stage = max((time.stage + (time.level > LEVELS - 1) for time in times), default=_LOAD if self._at else 0)
        stage = max(stage, _LOAD if self._at else 0)
        if self._token:
            self._totals = accumulate(
                self._module, self._pipeline, self._simplified, self._reduced, self._lanes, stage
            )
            for node in self._core.lengths(self._phase):
                self._totals[node] = self._count(node, stage)
        return stage

    def _count(self, node: Node, stage: int) -> Signal:
        """Write the number of elements of the row."""
        pipe = self._pipeline
        width, _ = shape(self._simplified.intervals[node])
        name = pipe.name(node, SHARED, stage + 1)
        keeps = [pipe.at(KEEP, lane, stage).to_width(width) for lane in range(1, self._lanes)]
        first, valid = pipe.at(FIRST, SHARED, stage), pipe.at(VALID, SHARED, stage)
        count = self._module.register(name, width)
        more = " + ".join([f"({first.name} ? {width}'d0 : {name})", f"{width}'d1", *keeps])
        self._module.clocked(name, more, when=valid.name)
        return count

    def _finish(self, stage: int) -> None:
        """Write what follows the last beat of a row: its numbers, until the next pass or the reader takes them."""
        module, at, pipe, core = self._module, self._at, self._pipeline, self._core
        module.part(f"Pass {at}: the row's numbers")
        ended = f"{pipe.at(VALID, SHARED, stage).name} & {pipe.at(LAST, SHARED, stage).name}"
        module.register(f"p{at}_done", 1, ended, start=0)
        wanted = core.carried(at + 1)
        computed = [n for n in self._phase.scalars if self._simplified.constant(n) is None]
        used = {*wanted, *(arg for node in computed for arg in node.args)}
        given: dict[Node, Signal] = {node: total for node, total in self._totals.items() if node in used}
        for node in core.carried(at):
            if node in used:
                given[node] = pipe.at(node, SHARED, stage + 1)
        taken, full, go = f"p{at}_taken", f"p{at}_hold_full", f"p{at}_go"
        module.undriven(go, 1)
        module.register(full, 1, f"{go} | ({full} & ~{taken})", start=0)
        free = f"(~{full} | {taken})"
        module.register(f"p{at}_waits", 1, start=0)
        module.wire(f"p{at}_pending", 1, f"p{at}_done | p{at}_waits")
        if not computed:
            module.line(f"assign {go} = p{at}_pending & {free};")
            module.clocked(f"p{at}_waits", f"p{at}_pending & ~{go}")
            results = given
            end = f"p{at}_write"
        else:
            results, end = self._compute(given, computed, free)
        if not self._is_last:
            module.register(f"p{at}_hold_end", core._address, end, when=go)
        for position, node in enumerate(wanted):
            signal = results[node]
            module.register(f"p{at}_hold_{position}", signal.width, signal.name, when=go, signed=signal.signed)
        if self._is_last:
            self._give_numbers(wanted)

    def _compute(self, given: dict[Node, Signal], computed: list[Node], free: str) -> tuple[dict[Node, Signal], str]:
        module, at, core = self._module, self._at, self._core
        start, busy, go = f"p{at}_start", f"p{at}_busy", f"p{at}_go"
        module.register(busy, 1, start=0)
        module.wire(start, 1, f"p{at}_pending & ~{busy}")
        module.clocked(f"p{at}_waits", f"p{at}_pending & ~{start}")
        module.clocked(busy, f"{start} | ({busy} & ~{go})")
        caught = {
            node: module.register(
                f"p{at}_given_{position}", signal.width, signal.name, when=start, signed=signal.signed
            )
            for position, (node, signal) in enumerate(given.items())
        }
        if not self._is_last:
            module.register(f"p{at}_given_end", core._address, f"p{at}_write", when=start)
        scalars = Scalars(module, core._tables, f"p{at}", self._simplified, caught, computed)
        clocks = scalars.compute()
        step, last = scalars.step, scalars.is_step(clocks)
        module.line(f"assign {go} = {busy} & {last} & {free};")
        module.clocked(step.name, f"{step.name} + {step.width}'d1", when=f"{busy} & ~{last}")
        module.clocked(step.name, f"{step.width}'d0", when=f"~{busy}")
        self.clocks = clocks
        return {node: scalars.at(node, clocks) for node in core.carried(at + 1)}, f"p{at}_given_end"

    def _keep(self, stage: int) -> None:
        module, at, pipe, address = self._module, self._at, self._pipeline, self._core._address
        module.part(f"Pass {at}: the memory behind it")
        word = self._word(at + 1)
        module.memory(f"p{at}_memory", sum(part[2] for part in word), 1 << address, 'ram_style = "block", no_rw_check')
        valid = pipe.at(VALID, SHARED, stage).name
        write = f"p{at}_write"
        module.register(write, address, f"{write} + {address}'d1", when=valid, start=0)
        parts = ", ".join(pipe.at(value, lane, stage).name for value, lane, _, _ in reversed(word))
        module.clocked(f"p{at}_memory[{write}]", f"{{{parts}}}", when=valid)

    def _give(self, stage: int) -> None:
        module, at, pipe, core, lanes = self._module, self._at, self._pipeline, self._core, self._lanes
        (row,) = core.rows.values()
        module.part("Results: elements")
        width, signed = shape(self._simplified.intervals[row])
        parts = [pipe.at(row, lane, stage).name for lane in range(lanes)]
        parts += [pipe.at(KEEP, lane, stage).name for lane in range(1, lanes)]
        parts.append(pipe.at(LAST, SHARED, stage).name)
        whole, bits = width * lanes + lanes, (self._outputs - 1).bit_length()
        valid = pipe.at(VALID, SHARED, stage).name
        module.memory("results", whole, self._outputs, 'ram_style = "distributed"')
        module.register("results_write", bits, f"results_write + {bits}'d1", when=valid, start=0)
        module.clocked("results[results_write]", f"{{{', '.join(reversed(parts))}}}", when=valid)
        module.register("results_read", bits, f"results_read + {bits}'d1", when=f"p{at}_pop", start=0)
        module.register("results_held", bits + 1, start=0)
        module.clocked("results_held", f"results_held + {bits + 1}'d1", when=f"{valid} & ~p{at}_pop")
        module.clocked("results_held", f"results_held - {bits + 1}'d1", when=f"p{at}_pop & ~{valid}")
        module.wire("results_beat", whole, "results[results_read]")
        module.line("assign m_axis_tvalid = |results_held;")
        module.line(f"assign p{at}_pop = m_axis_tvalid & m_axis_tready;")
        field = -(-width // 8) * 8
        fields = []
        for lane in reversed(range(lanes)):
            fields.append(Signal("results_beat", width, signed, None, width * lane, whole).to_width(field))
        module.line(f"assign m_axis_tdata = {{{', '.join(fields)}}};")
        module.line(f"assign m_axis_tlast = results_beat[{whole - 1}];")
        core.ports += [
            Port("m_axis_tdata", field * lanes, True, "results"),
            Port("m_axis_tvalid", 1, True, ""),
            Port("m_axis_tready", 1, False, ""),
            Port("m_axis_tlast", 1, True, "the row ends"),
        ]
        if lanes > 1:
            kept = ", ".join(f"results_beat[{width * lanes + lane - 1}]" for lane in reversed(range(1, lanes)))
            module.line(f"assign m_axis_tkeep = {{{kept}, 1'b1}};")
            core.ports.append(Port("m_axis_tkeep", lanes, True, "lanes that hold an element"))

    def _give_numbers(self, wanted: Sequence[Node]) -> None:
        module, at, core = self._module, self._at, self._core
        parts, total = [], 0
        for node in core.numbers.values():
            width, signed = shape(self._simplified.intervals[node])
            field = -(-width // 8) * 8
            total += field
            name = f"p{at}_hold_{list(wanted).index(node)}"
            parts.append(Signal(name, width, signed).to_width(field))
        module.line(f"assign n_axis_tdata = {{{', '.join(reversed(parts))}}};")
        module.line(f"assign n_axis_tvalid = p{at}_hold_full;")
        module.line(f"assign p{at}_taken = n_axis_tvalid & n_axis_tready;")
        core.ports += [
            Port("n_axis_tdata", total, True, ", ".join(core.numbers)),
            Port("n_axis_tvalid", 1, True, ""),
            Port("n_axis_tready", 1, False, ""),
        ]


__all__ = ["Core", "Settings", "is_reduction"]
