"""Weights as codes of one byte: where they follow from one byte of each element, that byte and a table say it all.

Who reads codes and a table reads a quarter of what 32-bit weights take, and multiplies by entries that are at hand. A
program has such codes if every way from its weights to its inputs leads through one row of whole numbers in [0, 255],
as the distance from the maximum of 8-bit scores is; beside it there may be one condition (a mask) that makes the weight
a constant. Nothing is declared: the graph of the program and its intervals say it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from softq.errors import RefusalError
from softq.rowprog.interpreter import run
from softq.rowprog.ops import names_of
from softq.rowprog.program import Node, Number, Program, substitute, walk
from softq.rowprog.ranges import Proof, prove
from softq.rowprog.types import DType, Kind

CODES = "codes"
"""Name of the output."""

_GREATEST = 255
_NOT_FOLLOWED = names_of("leaf", "reduction", "group", "loop") - {"const", "table"}


@dataclass(frozen=True)
class Coded:
    """A program that gives its weights as codes, too.

    Attributes:
        program: The program; its output `codes` is a row of u8.
        table: The weight of each code, in the type of the program's weights: weights = table[codes], to the bit.
    """

    program: Program
    table: tuple[Number, ...]


@dataclass(frozen=True)
class _Source:
    """What weights follow from.

    Attributes:
        byte: A row of whole numbers from 0 to `greatest`.
        greatest: Its greatest value.
        condition: A row of bool that they follow from, too, or None.
    """

    byte: Node
    greatest: int
    condition: Node | None

    @property
    def sides(self) -> tuple[bool, ...]:
        """Whether the condition holds or not: both where there is one."""
        return (True,) if self.condition is None else (True, False)


def coded(program: Program, *, max_length: int = 65536) -> Coded:
    """Return the program with its weights as codes of a byte each, beside what it gives already.

    A program that has an output `codes` keeps it, unless one code is of several weights (of masked elements, too).

    Args:
        program: The program; its outputs keep their values.
        max_length: Greatest length of a row for which the byte's interval is proved.

    Raises:
        RefusalError: the weights are bytes themselves, or there are none, or they follow from more than a byte.
        ProofError: the program has no complete proof.
    """
    weights = program.outputs.get("weights")
    if weights is None:
        raise RefusalError(f"program {program.name} gives no weights; only weights have codes")
    proof = prove(program, max_length=max_length)
    if weights.dtype.is_integer and _find_greatest(weights, proof) is not None:
        raise RefusalError(f"program {program.name}: its weights are bytes already")
    if CODES in program.outputs:
        table = _tabulate_codes(program.outputs[CODES], weights, _find_source([weights, program.outputs[CODES]], proof))
        if table is not None:
            return Coded(program, table)
    source = _find_source([weights], proof)
    if source is None:
        raise _refusal(program, "they follow from more than one byte of an element")
    sides = [_evaluate(weights, source, holds) for holds in source.sides]
    entries, codes = sides[0], source.byte
    if source.condition is not None:
        # The side that is a constant, and a code that stands for it: one that has this weight already, or a new one.
        flat = next((i for i in (1, 0) if len(set(map(_to_bits, sides[i]))) == 1), None)
        if flat is None:
            raise _refusal(program, "both sides of a condition differ from element to element")
        entries, constant = sides[1 - flat], sides[flat][0]
        alike = [code for code, entry in enumerate(entries) if _to_bits(entry) == _to_bits(constant)]
        if not alike and len(entries) > _GREATEST:
            # Codes at the end that stand for the same weight may be one.
            if _to_bits(entries[-1]) != _to_bits(entries[-2]):
                raise _refusal(program, "no code is left for masked elements")
            entries.pop()
            last = Node("const", (), codes.dtype, Kind.SCALAR, {"value": len(entries) - 1})
            codes = Node("min", (codes, last), codes.dtype, Kind.ROW)
        entries += [] if alike else [constant]
        code = alike[-1] if alike else len(entries) - 1
        held = Node("const", (), codes.dtype, Kind.SCALAR, {"value": code})
        chosen = (codes, held) if flat else (held, codes)
        codes = Node("select", (source.condition, *chosen), codes.dtype, Kind.ROW)
    outputs = dict(program.outputs)
    if weights.op != "lut" or _strip_casts(weights.args[1]) is not codes:
        table = Node("table", (), weights.dtype, Kind.TABLE, {"values": tuple(entries)})
        looked_up = Node("lut", (table, codes), weights.dtype, Kind.ROW)
        outputs = substitute(outputs, {weights: looked_up}, assumptions=True)
    byte = codes if codes.dtype is DType.U8 else Node("cast", (codes,), DType.U8, Kind.ROW)
    structure = f"{program.structure}_codes".lstrip("_")
    return Coded(replace(program, structure=structure, outputs=outputs | {CODES: byte}), tuple(entries))


def _refusal(program: Program, why: str) -> RefusalError:
    return RefusalError(f"program {program.name}: its weights have no codes of one byte: {why}")


def _find_greatest(node: Node, proof: Proof) -> int | None:
    """Return the greatest value of whole numbers that a byte holds, else None."""
    interval = proof.filled[node]
    return int(interval.high) if 0 <= interval.low <= interval.high <= _GREATEST else None


def _find_source(values: Sequence[Node], proof: Proof) -> _Source | None:
    """Return what values follow from: the fewest conditions, then the fewest codes; None if it is more."""
    found: list[_Source] = []
    for node in walk(values):
        greatest = _find_greatest(node, proof) if node.kind is Kind.ROW and node.dtype.is_integer else None
        conditions = None if greatest is None else _find_conditions(values, node)
        if greatest is not None and conditions is not None and len(conditions) <= 1:
            found.append(_Source(node, greatest, next(iter(conditions), None)))
    return min(found, key=lambda s: (s.condition is not None, s.greatest), default=None)


def _tabulate_codes(codes: Node, weights: Node, source: _Source | None) -> tuple[Number, ...] | None:
    """Return the weight of each of a program's own codes, 0 for those that no element has; None if it has several."""
    if source is None:
        return None
    table: dict[int, Number] = {}
    for holds in source.sides:
        for code, weight in zip(_evaluate(codes, source, holds), _evaluate(weights, source, holds), strict=True):
            assert isinstance(code, int)
            if not 0 <= code <= _GREATEST or _to_bits(table.setdefault(code, weight)) != _to_bits(weight):
                return None
    return tuple(table.get(code, 0) for code in range(max(table) + 1))


def _find_conditions(values: Sequence[Node], byte: Node) -> set[Node] | None:
    """Return the conditions from which values follow beside a byte; None if they follow from anything else, too."""
    rows = [node for node in walk(values) if node.kind is Kind.ROW and node.dtype is DType.BOOL]
    conditions = {node for node in rows if byte not in walk([node])}
    between = list(walk(values, conditions | {byte}))
    if any(node.op in _NOT_FOLLOWED for node in between):
        return None
    return conditions.intersection(values) | conditions.intersection(arg for node in between for arg in node.args)


def _evaluate(value: Node, source: _Source, holds: bool) -> list[Number]:
    """Return a value for all values of the byte, where the condition holds or does not."""
    given = Node("input", (), DType.U8, Kind.ROW, {"name": "scores"})
    known = {source.byte: Node("cast", (given,), source.byte.dtype, Kind.ROW)}
    masked = source.condition is not None
    if source.condition is not None:
        known[source.condition] = Node("input", (), DType.BOOL, Kind.ROW, {"name": "valid"})
    asked = Program(
        "codes", "", DType.U8, masked, substitute({"weights": value}, known, assumptions=False), contract=False
    )
    x = np.arange(source.greatest + 1, dtype=np.uint8)
    return [value.item() for value in run(asked, x, valid=np.full(x.shape, holds) if masked else None)["weights"]]


def _strip_casts(node: Node) -> Node:
    while node.op == "cast":
        node = node.args[0]
    return node


def _to_bits(value: Number) -> object:
    """Return a number so that -0 is none with 0, and NaN equals itself."""
    return np.float64(value).tobytes() if isinstance(value, float) else value
