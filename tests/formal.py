"""Properties of a core's streams, written into its module, for tools that prove what holds in every run.

What is promised of the ports is not enough for a proof by induction, which begins in any state: invariants say where in
the core beats and rows are. They are proved with the promises, so a wrong one is found, and proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from softq.codegen.verilog.core import Core
from softq.codegen.verilog.passes import LOAD

_BITS = 8
"""Of the counters beside a core: more than is ever in it."""


def with_properties(core: Core, *, patience: int) -> str:
    """Return a core's module with counters of what is in it, with what is promised of its streams, and with invariants.

    Rows are assumed to be no longer than what the core is built for. All else outside is free: what is offered and
    when, when results are taken, and when there is a reset.

    Args:
        core: The core; it has a reset.
        patience: Clocks within which something leaves, or is taken, while all that leaves is taken.
    """
    head, end, _ = core.text.rpartition("endmodule")
    passes = [_Pass(core, number) for number in range(len(core.plan.phases))]
    return "".join([head, _outside(core, patience), _inside(core, passes), end, "\n"])


def _outside(core: Core, patience: int) -> str:
    """Return the counters of beats and rows, and the promises."""
    plan, top = core.plan, _BITS - 1
    lanes = plan.settings.lanes
    number, number_data = ("(n_axis_tvalid & n_axis_tready)", "n_axis_tdata") if plan.numbers else ("1'b0", "1'b0")
    is_number, open_number = ("n_axis_tvalid", "n_axis_tready") if plan.numbers else ("1'b0", "1'b1")
    given, back = ("{s_axis_tlast}", "{m_axis_tlast}") if lanes == 1 else (
        f"{{s_axis_tlast, s_axis_tkeep[{lanes - 1}:1]}}", f"{{m_axis_tlast, m_axis_tkeep[{lanes - 1}:1]}}"
    )  # fmt: skip
    # Where a reduction comes first, the beats of a row that has not ended stay until it has.
    complete = "f_beats != f_row" if len(plan.phases) > 1 else "f_beats != 0"
    return f"""
    // Properties: what is in the core
    wire f_in = s_axis_tvalid & s_axis_tready;
    wire f_out = m_axis_tvalid & m_axis_tready;
    wire f_open = m_axis_tready & {open_number};
    reg [{top}:0] f_beats = 0, f_due = 0, f_row = 0, f_quiet = 0, f_deaf = 0;
    reg f_waits = 0, f_number_waits = 0;
    reg [{plan.field(plan.row).padded * lanes - 1}:0] f_data;
    reg [{lanes - 1}:0] f_back;
    reg [{max(sum(plan.field(node).padded for node in plan.numbers.values()), 1) - 1}:0] f_number_data;
    // Any one beat is followed: how many are before it, and what stood beside its scores.
    (* anyseq *) reg f_choose;
    reg f_followed = 0;
    reg [{top}:0] f_before = 0;
    reg [{lanes - 1}:0] f_marks;
    always @(posedge aclk) begin
        f_beats <= f_beats + f_in - f_out;
        f_due <= f_due + (f_in & s_axis_tlast) - {number};
        if (f_in) f_row <= s_axis_tlast ? 0 : f_row + 1;
        f_quiet <= f_open & ({complete} | f_due != 0) & ~f_out & ~{number} ? f_quiet + 1 : 0;
        f_deaf <= f_open & ~s_axis_tready ? f_deaf + 1 : 0;
        f_waits <= m_axis_tvalid & ~m_axis_tready;
        f_data <= m_axis_tdata;
        f_back <= {back};
        f_number_waits <= {is_number} & ~{open_number};
        f_number_data <= {number_data};
        if (f_in & f_choose & ~f_followed) begin
            f_followed <= 1;
            f_before <= f_beats - f_out;
            f_marks <= {given};
        end else if (f_out & f_followed) begin
            f_followed <= f_before != 0;
            f_before <= f_before - 1;
        end
        if (!aresetn) begin
            f_beats <= 0; f_due <= 0; f_row <= 0; f_quiet <= 0; f_deaf <= 0;
            f_waits <= 0; f_number_waits <= 0; f_followed <= 0;
        end
    end
    always @* begin
        assume (f_row != {plan.settings.beats - 1} | s_axis_tlast);
        // Of a core that moves.
        live: assert (f_quiet < {patience} & f_deaf < {patience});
        // Nothing is lost, doubled, or made; beats keep their order and what stands beside their data.
        assert (~m_axis_tvalid | f_beats != 0);
        assert (~f_followed | f_before < f_beats);
        assert (~(m_axis_tvalid & f_followed & f_before == 0) | {back} == f_marks);
        assert (~{is_number} | f_due != 0);
        // What is offered stays until it is taken.
        assert (~f_waits | (m_axis_tvalid & {{f_data, f_back}} == {{m_axis_tdata, {back}}}));
        assert (~f_number_waits | ({is_number} & f_number_data == {number_data}));
    end
"""


@dataclass(frozen=True)
class _Place:
    """Where a beat can be.

    Attributes:
        there: The condition that one is.
        before: Beats that leave before it.
        marks: What stands beside its data: the end of its row, and its lanes.
    """

    there: str
    before: str
    marks: str


def _inside(core: Core, passes: Sequence[_Pass]) -> str:
    """Return the invariants: where beats and rows are."""
    declared: list[str] = []
    asserted: list[str] = []
    behind = f"{_BITS}'d0"
    for each in reversed(passes):
        declared += each.declared()
        asserted += each.invariants()
        for place in each.places(behind):
            asserted.append(f"~({place.there} & f_followed & f_before == {place.before}) | {place.marks} == f_marks")
        declared.append(f"wire [{_BITS - 1}:0] f_{each.name}_beats = {each.beats(behind)};")
        behind = f"f_{each.name}_beats"
    asserted.append(f"f_beats == {behind}")
    if core.plan.numbers:
        asserted.append(f"f_due + !p0_begins == {' + '.join(f'{each.name}_rows' for each in passes)}")
    asserted += passes[0].open_row()
    turns = [name for each in passes for name in each.turns()]
    if turns:
        asserted.append(f"5'd0 + {' + '.join(turns)} <= 1")
    lines = [*declared, "always @* begin", *(f"    assert ({text});" for text in asserted), "end"]
    return "\n".join(["", "    // Properties: where it is", *(f"    {line}" for line in lines), ""])


class _Pass:
    """A pass, and the memory behind it."""

    def __init__(self, core: Core, number: int) -> None:
        plan = core.plan
        self.number = number
        self.name = f"p{number}"
        self._plan = plan
        self._is_last = plan.is_last(number)
        self._clocks = core.clocks[number]
        self._next = f"p{number + 1}"
        self._open = f"{self.name}_more" if number else "!p0_begins"
        self._kept = f"f_{self.name}_kept"
        if self._is_last:
            self._write, self._read, self._left = "results_write", "results_read", "results_left"
            self._words = _words_of_results(core)
        else:
            self._write, self._read, self._left = f"{self.name}_write", f"{self._next}_read", f"{self._next}_valid_1"
            self._words = 1 << plan.address_bits
        self._first = min(number, 1)
        last = self._clocks.results if self._is_last else self._clocks.joined
        self._stages = range(self._first, last + 1)
        # What a memory gives is kept one clock later than in a pipeline; the first step follows.
        self._steps_to_last = last - (LOAD + 1 if number else 0)
        self._done = f"{self.name}_e_done"

    def declared(self) -> Iterator[str]:
        """Yield a count of what is in the memory, and where the rows in it end, from the word that is read next."""
        leave = "results_leave" if self._is_last else f"{self._next}_enter"
        more = f"{self._kept} + {self._done if self._clocks.steps else self._valid(self._stages[-1])} - {leave}"
        yield f"reg [{_BITS - 1}:0] {self._kept} = 0;"
        yield f"always @(posedge aclk) {self._kept} <= aresetn ? {more} : 0;"
        bits, before = self._plan.address_bits, "0"
        for name, there, end in self._ends():
            yield f"wire [{bits - 1}:0] {name} = {there} ? {end} - {self._read} : {before};"
            before = name

    def beats(self, behind: str) -> str:
        """Return how many beats are in this pass and behind it."""
        on_way = [self._uses] if self._clocks.steps else map(self._valid, self._stages)
        return " + ".join([behind, self._kept, *on_way])

    def places(self, behind: str) -> Iterator[_Place]:
        """Yield where beats can be; behind this pass are so many."""
        for word in range(self._words):
            at = f"((8'd{word} - {self._read}) & 8'd{self._words - 1})"
            yield _Place(f"({at} < {self._kept})", f"{behind} + {at}", self._marks_in_memory(word, at))
        if self._clocks.steps:
            yield _Place(self._uses, f"{behind} + {self._kept}", self._marks(self._first))
            return
        for stage in self._stages:
            before = [behind, self._kept, *(self._valid(later) for later in self._stages if later > stage)]
            yield _Place(self._valid(stage), " + ".join(before), self._marks(stage))

    def invariants(self) -> Iterator[str]:
        """Yield what counters, positions and flags have to do with each other."""
        on_way = [self._valid(stage) for stage in self._stages[1:]]
        if self._clocks.steps:
            on_way = [f"({self._uses} & ~{self._valid(self._first)})"]
            yield from self._steps()
        mask = 2 * self._words - 1 if self._is_last else self._words - 1
        yield f"{self._kept} < {self._words}"
        yield f"(({self._kept} ^ ({self._write} - {self._read})) & {mask}) == 0"
        yield f"{self.name}_beats == {' + '.join([self._kept, self._left, *on_way])}"
        yield f"{self.name}_beats + {self._valid(self._first)} <= {self._words * 3 // 4 + 1}"
        if self._plan.has_numbers(self.number):
            yield from self._rows()
        if not self._is_last:
            before = "0"
            yield f"{self._next}_ahead == (({self._read} + 1) & {self._words - 1})"
            for name, there, _ in self._ends():
                yield f"~{there} | ({name} > {before} & {name} <= {self._kept})"
                before = name
            yield f"~{self._pending} | {self._kept} > {before}"

    def turns(self) -> Iterator[str]:
        """Yield the conditions under which it has the units that passes share."""
        if self._clocks.steps:
            yield self._uses
        if self._clocks.shared:
            yield f"{self.name}_uses"

    @property
    def _uses(self) -> str:
        return f"{self.name}_e_uses"

    def _steps(self) -> Iterator[str]:
        """Yield where an element is that is computed step by step: in one place, until its last step."""
        name = self.name
        before = [self._valid(stage) for stage in range(self._first, LOAD + 1 if self.number else 0)]
        places = [*before, f"{name}_e_busy"]
        yield f"5'd0 + {self._uses} == {' + '.join(places)}"
        yield f"~{self._done} | ({name}_e_busy & {name}_e_step == {self._steps_to_last})"
        if before:
            yield f"~{before[-1]} | {name}_e_step == 0"

    def open_row(self) -> Iterator[str]:
        """Yield how many beats of the row that has not ended are where."""
        yield "(f_row != 0) == !p0_begins"
        yield f"f_row < {self._plan.settings.beats}"
        if not self._is_last:
            whole = self._ends()[-1][0]
            count = f"{self._pending} ? 0 : {self._kept} - {whole}"
            for stage in reversed(self._stages):
                count = f"{self._valid(stage)} & {self._last(stage)} ? 0 : {self._valid(stage)} + ({count})"
            yield f"f_row == ({count})"

    def _rows(self) -> Iterator[str]:
        """Yield where the rows are that have begun and that nobody has taken."""
        name, stages = self.name, range(self._first, self._clocks.joined + 1)
        there = [(self._valid(stage), self._last(stage)) for stage in stages]
        if self._clocks.steps:
            there = [(self._uses, self._last(self._first))]
        lasts = [f"({valid} & {last})" for valid, last in there]
        counted = f"{name}_rows + {name}_first_1" if self.number else f"{name}_rows"
        busy = [f"{name}_busy"] if self._is_serial else []
        where = [self._open, *lasts, f"{name}_done", f"{name}_waits", *busy, f"{name}_hold_full"]
        yield f"5'd0 + {counted} == {' + '.join(where)}"
        yield f"5'd0 + {counted} <= 2"
        yield f"~{name}_waits | {' | '.join([*busy, f'{name}_hold_full'])}"
        for at, (valid, last) in enumerate(there):
            yield f"~{valid} | {' | '.join([last, self._open, *lasts[:at]])}"

    @property
    def _is_serial(self) -> bool:
        return self._clocks.numbers is not None

    @property
    def _pending(self) -> str:
        return f"({self.name}_done | {self.name}_waits)"

    def _ends(self) -> list[tuple[str, str, str]]:
        """Return rows in the memory that have ended: names, conditions that there is one, and where."""
        if self._is_last:
            return []
        name, read = self.name, f"{self._next}_more"
        found = [
            (f"f_{name}_end", read, f"{self._next}_end"),
            (f"f_{name}_hold", f"({name}_hold_full & ~{self._next}_first_1)", f"{name}_hold_end"),
        ]
        return [*found, (f"f_{name}_given", f"{name}_busy", f"{name}_given_end")] if self._is_serial else found

    def _valid(self, stage: int) -> str:
        return f"{self.name}_valid_{stage}"

    def _last(self, stage: int) -> str:
        return f"{self.name}_ended" if self.number and stage == 1 else f"{self.name}_last_{stage}"

    def _marks(self, stage: int) -> str:
        lanes = reversed(range(1, self._plan.settings.lanes))
        if self.number and stage == 1:
            keeps = [f"{self.name}_word[{self._bit(self.number, lane)}]" for lane in lanes]
        else:
            keeps = [f"{self.name}_keep_{lane}_{stage}" for lane in lanes]
        return f"{{{', '.join([self._last(stage), *keeps])}}}"

    def _marks_in_memory(self, word: int, at: str) -> str:
        lanes = self._plan.settings.lanes
        if self._is_last:
            low = self._plan.field(self._plan.row).width * lanes
            return f"results[{word}][{low + lanes - 1}:{low}]"
        ends = [f"({there} & {at} + 1 == {name})" for name, there, _ in self._ends()]
        last = " | ".join([*ends, f"({self._pending} & {at} + 1 == {self._kept})"])
        keeps = [
            f"{self.name}_memory[{word}][{self._bit(self.number + 1, lane)}]" for lane in reversed(range(1, lanes))
        ]
        return f"{{{', '.join([last, *keeps])}}}"

    def _bit(self, number: int, lane: int) -> int:
        """Return where the bit of a lane is in a word of the memory before a pass."""
        return sum(field.width for field in self._plan.kept(number)) * (lane + 1) + lane - 1


def _words_of_results(core: Core) -> int:
    found = re.search(r" results \[0:(\d+)\];", core.text)
    assert found is not None
    return int(found[1]) + 1
