"""What a core is tried with in its testbench: rows, and between them accesses to its registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from softq.codegen.verilog.driver import Access, Kind
from softq.codegen.verilog.plan import CorePlan
from softq.codegen.verilog.registers import STATUS, WORD, WORD_BITS, WritableTable, address_bits
from softq.rtl.beats import Beats, add_rows, beats, initial_tables
from softq.vectors.rows import Row

Array = NDArray[np.generic]


def rehearse(plan: CorePlan, rows: Sequence[Row], seed: int) -> Beats:
    """Return rows and what they come to.

    Of a core with registers: rows with what its tables hold at first, then, when they have left, tables of random
    entries and the rows again. With more heads than one, the tables of the last are then written while rows of the
    others go through, and rows of all follow.

    Args:
        plan: The core.
        rows: The rows; the heads take turns.
        seed: Seed of the entries.
    """
    found, tables = beats(plan, rows), initial_tables(plan)
    if not plan.registers:
        return found
    heads = plan.settings.heads
    turns = [at % heads for at in range(len(rows))]
    rng = np.random.default_rng(seed)
    now = len(found.scores)
    found.accesses.append(Access(Kind.WAIT, STATUS, 0, now, now))
    tables = {table.name: _draw(table, tables[table.name], range(heads), rng) for table in plan.registers}
    found.accesses += _write(plan, tables, range(heads), now, now)
    found.accesses += _refused(plan, tables, now)
    add_rows(found, plan, rows, turns, tables)
    if (at := _within_a_row(plan, rows)) is not None:
        found.accesses.append(Access(Kind.READ, STATUS, 1, now + at, now + at))
    if heads == 1:
        return found
    last, now = heads - 1, len(found.scores)
    found.accesses.append(Access(Kind.WAIT, STATUS, 0, now, now))
    add_rows(found, plan, rows, [head % last for head in turns], tables)
    tables = {table.name: _draw(table, tables[table.name], [last], rng) for table in plan.registers}
    found.accesses += _write(plan, tables, [last], now + 1, len(found.scores))
    add_rows(found, plan, rows, turns, tables)
    return found


def _within_a_row(plan: CorePlan, rows: Sequence[Row]) -> int | None:
    """Return how many beats there are up to the first one of the first row of several, if there is one."""
    for before, row in enumerate(rows):
        if row.scores.size > plan.settings.lanes:
            return before + 1
    return None


def _draw(table: WritableTable, held: Array, heads: Sequence[int], rng: np.random.Generator) -> Array:
    """Return a table with other entries for some heads: the least and the greatest among them."""
    drawn = np.array(held)
    for head in heads:
        entries = rng.integers(table.low, table.high, table.size, endpoint=True)
        entries[rng.permutation(table.size)[:2]] = table.low, table.high
        drawn[head] = entries.astype(held.dtype)
    return drawn


def _write(
    plan: CorePlan, tables: Mapping[str, Array], heads: Sequence[int], first: int, last: int
) -> Iterator[Access]:
    """Yield the accesses that write tables of some heads, and then read them back."""
    for kind in (Kind.WRITE, Kind.READ):
        for table in plan.registers:
            for head in heads:
                for entry, value in enumerate(tables[table.name][head].tolist()):
                    yield Access(kind, table.at(head, entry), value, first, last)


def _refused(plan: CorePlan, tables: Mapping[str, Array], now: int) -> Iterator[Access]:
    """Yield accesses that change nothing: where nothing is, of parts of a word, of entries outside their interval."""

    def write(address: int, data: int, strobes: int = 0b1111) -> Access:
        return Access(Kind.WRITE, address, data, now, now, refused=True, bytes=strobes)

    yield write(STATUS, 1)
    yield Access(Kind.READ, STATUS, 0, now, now)
    for table in plan.registers:
        head, entry = plan.settings.heads - 1, table.size - 1
        address, held = table.at(head, entry), int(tables[table.name][head, entry])
        other = table.low if held != table.low else table.high
        for strobes in (0b0000, 0b0001, 0b0111, 0b1110):
            yield write(address, other, strobes)
        yield write(address + 1, other)
        word = 1 << WORD_BITS
        for value in {(table.high + 1) % word, (table.low - 1) % word, (table.high + word // 2) % word}:
            if not table.low <= (value - word * (table.signed and value >= word // 2)) <= table.high:
                yield write(address, value)
        yield Access(Kind.READ, address, held, now, now)
    for address in _free(plan):
        yield write(address, 0)
        yield Access(Kind.READ, address, 0, now, now, refused=True)


def _free(plan: CorePlan) -> list[int]:
    """Return addresses at which nothing is: those beside what is there, and within a word."""
    taken, beside = {STATUS}, {STATUS + 1, STATUS + WORD}
    for table in plan.registers:
        for head in range(table.heads):
            first, last = table.at(head, 0), table.at(head, table.size - 1)
            taken |= set(range(first, last + WORD, WORD))
            beside |= {first - WORD, last + 1, last + 2, last + WORD}
    return sorted(address for address in beside - taken if address < 1 << address_bits(plan.registers))
