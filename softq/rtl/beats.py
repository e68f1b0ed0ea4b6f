"""Rows as the beats of streams, and what a core is to give for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from softq.codegen.verilog.driver import Access
from softq.codegen.verilog.plan import CorePlan, Field
from softq.rowprog import Program, run
from softq.rowprog.program import param_of
from softq.vectors.rows import Row

Array = NDArray[np.generic]


@dataclass
class Beats:
    """The words of three streams; each is data, bits of the lanes, the head, the end of the row, from the lowest on.

    Attributes:
        scores: What goes in.
        results: What comes back; lanes without an element hold zeros.
        numbers: The numbers of the rows.
        accesses: Accesses to registers between the beats of scores.
    """

    scores: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)

    @property
    def words(self) -> dict[str, list[int]]:
        """The words of the files that the testbench reads, by what their names end with."""
        return {
            "scores": self.scores,
            "results": self.results,
            "numbers": self.numbers,
            "registers": [access.word for access in self.accesses],
        }


def beats(plan: CorePlan, rows: Sequence[Row]) -> Beats:
    """Return the beats of rows and what they come to, the heads in turn, with what the core's tables hold at first."""
    found = Beats()
    add_rows(found, plan, rows, [at % plan.settings.heads for at in range(len(rows))], initial_tables(plan))
    return found


def initial_tables(plan: CorePlan) -> dict[str, Array]:
    """Return what the tables behind a core's register port hold at first, [heads, entries] each, by name."""
    types = {param_of(node).name: node.dtype for node in plan.source.nodes() if node.op == "param"}
    return {table.name: np.array(table.initial, types[table.name].numpy) for table in plan.registers}


def add_rows(
    found: Beats, plan: CorePlan, rows: Sequence[Row], heads: Sequence[int], tables: Mapping[str, Array]
) -> None:
    """Add the beats of rows, and what the interpreter of the program makes of them.

    Args:
        found: What they are added to.
        plan: The core.
        rows: The rows.
        heads: The head of each.
        tables: What the core's tables hold, [heads, entries] each, by name.
    """
    numbers = [plan.field(node) for node in plan.numbers.values()]
    taken = [_cut(plan, row) for row in rows]
    for row, cut, head, values in zip(rows, taken, heads, run_rows(plan.source, taken, heads, tables), strict=True):
        found.scores += pack_scores(plan, row, head)
        found.results += _pack_results(plan, values[plan.row_name], head, is_cut=cut is not row)
        if numbers:
            found.numbers.append(_join([values[name].item() for name in plan.numbers], numbers))


def pack_scores(plan: CorePlan, row: Row, head: int) -> Iterator[int]:
    """Yield the words of the scores of a row."""
    lanes = plan.settings.lanes
    valid = _parts(row.valid, lanes) if "valid" in plan.inputs else None
    for part, last in _parts(row.scores, lanes):
        word = _Word()
        word.add_fields(part, plan.score_field.width, lanes)
        if lanes > 1:
            word.add((1 << len(part)) - 1, lanes)
        if valid is not None:
            word.add_fields(next(valid)[0], 1, lanes)
        yield word.end(plan, head, last)


def run_rows(
    program: Program, rows: Sequence[Row], heads: Sequence[int], tables: Mapping[str, Array]
) -> Iterator[Mapping[str, Array]]:
    """Yield what each row comes to; rows of one length are computed together."""
    by_length: dict[int, list[int]] = {}
    for at, row in enumerate(rows):
        by_length.setdefault(row.scores.size, []).append(at)
    found: dict[int, Mapping[str, Array]] = {}
    for places in by_length.values():
        scores = np.stack([rows[at].scores for at in places])
        valid = np.stack([rows[at].valid for at in places]) if program.masked else None
        of_heads = [heads[at] for at in places]
        out = run(program, scores, valid=valid, params={name: each[of_heads] for name, each in tables.items()})
        for position, at in enumerate(places):
            found[at] = {name: values[position] for name, values in out.items()}
    for at in range(len(rows)):
        yield found[at]


def _cut(plan: CorePlan, row: Row) -> Row:
    """Return what a core takes of a row."""
    most = plan.settings.elements
    return row if row.scores.size <= most else Row(row.kind, row.scores[:most], row.valid[:most])


def _pack_results(plan: CorePlan, values: Array, head: int, *, is_cut: bool) -> Iterator[int]:
    """Yield the words of the results of a row."""
    elements = plan.settings.lanes * plan.gathered
    for part, last in _parts(values, elements):
        word = _Word()
        word.add_fields(part, plan.result_bits, elements)
        if plan.results_end_early:
            word.add((1 << -(-len(part) * plan.result_bits // 8)) - 1, plan.result_bytes)
        if plan.cut is not None:
            word.add(is_cut and last, 1)
        yield word.end(plan, head, last)


@dataclass
class _Word:
    """A word of a stream, from the lowest bit on."""

    value: int = 0
    bits: int = 0

    def add(self, value: int, bits: int) -> None:
        self.value |= (value & ((1 << bits) - 1)) << self.bits
        self.bits += bits

    def add_fields(self, values: Sequence[int], bits: int, count: int) -> None:
        for value in (*values, *[0] * (count - len(values))):
            self.add(value, bits)

    def end(self, plan: CorePlan, head: int, last: bool) -> int:
        if plan.head is not None:
            self.add(head, plan.field(plan.head).width)
        self.add(last, 1)
        return self.value


def _parts(values: Array, size: int) -> Iterator[tuple[list[int], bool]]:
    for start in range(0, values.size, size):
        yield [int(value) for value in values[start : start + size].tolist()], start + size >= values.size


def _join(values: Sequence[int], fields: Sequence[Field]) -> int:
    word = _Word()
    for value, each in zip(values, fields, strict=True):
        word.add(value, each.padded)
    return word.value
