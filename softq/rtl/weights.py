"""Which row of a program says how much an element weighs, in the fewest bits, and the weight of each of its values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from softq.codegen.verilog.plan import CorePlan, Settings
from softq.errors import RefusalError
from softq.rowprog import DType, Kind, Program
from softq.rowprog.program import Node, table_of
from softq.rowprog.ranges import prove

_SHORT = 64
"""Weights at most that are looked up behind the core of the weights: a table in logic."""


@dataclass(frozen=True)
class Weights:
    """The weights of a program, as a core gives them.

    Attributes:
        program: The program whose one row is them, or the places in a table of them; its number is the normalizer.
        entries: That table; None where the row is the weights.
        is_sum: Whether the normalizer is the sum of the weights.
    """

    program: Program
    entries: tuple[int, ...] | None
    is_sum: bool


def find_weights(program: Program, settings: Settings, with_normalizer: bool) -> Weights:
    """Return the weights of a program.

    Args:
        program: The program, in tables where it can be.
        settings: What the core is for.
        with_normalizer: Whether the normalizer is wanted.

    Raises:
        RefusalError: it has no row of weights, or no normalizer, or a core cannot compute them.
    """
    rows = [name for name in ("weights", "probabilities") if name in program.outputs]
    if not rows:
        raise RefusalError(f"program {program.name} gives no weights, which a product with V takes")
    wanted = [rows[0], *(["normalizer"] if with_normalizer else [])]
    if missing := [name for name in wanted if name not in program.outputs]:
        raise RefusalError(f"program {program.name} gives no {missing[0]}")
    plan = CorePlan(replace(program, outputs={name: program.outputs[name] for name in wanted}), settings)
    total = plan.numbers.get("normalizer")
    is_sum = total is not None and total.op == "row_sum" and total.args[0] is plan.row
    found = _find_position(program, program.outputs[rows[0]], settings.length)
    position, entries = (program.outputs[rows[0]], None) if found is None else found
    outputs = {"weights" if found is None else "codes": position}
    outputs |= {name: program.outputs[name] for name in wanted[1:]}
    return Weights(replace(program, outputs=outputs), entries, is_sum)


def _find_position(program: Program, weights: Node, length: int) -> tuple[Node, tuple[int, ...]] | None:
    """Return the place of each element in a short table of weights, and that table; None if there is none."""
    while weights.op == "cast":
        weights = weights.args[0]
    if weights.op != "lut" or weights.args[0].op != "table":
        return None
    table, position = weights.args
    greatest = int(prove(program, max_length=length).filled[position].high)
    entries = tuple(int(entry) for entry in table_of(table))[: greatest + 1]
    if len(entries) <= _SHORT:
        return position, entries
    distinct = sorted(set(entries))
    if len(distinct) > _SHORT or any(entry & (entry - 1) for entry in distinct):
        return None
    # Powers of two are given by their number: a shift takes less than a product with a weight.
    numbers = tuple(distinct.index(entry) for entry in entries)
    short = Node("table", (), DType.U8, Kind.TABLE, {"values": numbers})
    return Node("lut", (short, position), DType.U8, Kind.ROW), tuple(distinct)
