"""Tables at bytes by arithmetic, for MVE: its permutes do not look up, and a gather takes a cycle for each element.

Two kinds of tables have such a form: codes that rise in equal steps, by products in 16 bits; and shifts of one number,
byte by byte, since MVE's shift by a vector goes to the right where its amount is negative, and gives 0 for what is
shifted out on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.common.patterns import as_shift
from softq.codegen.cpu.rows.tir import (
    BOOL,
    F32,
    Local,
    Memory,
    bits_of,
    cast,
    const,
    intrinsic,
    is_signed,
    reinterpret,
    vector,
)
from softq.rowprog.program import Node, Number, table_of

BITS = 128
"""Of a vector."""

_U8, _U16 = "uint8", "uint16"
_MOST_FACTORS = 4096


@dataclass(frozen=True)
class Line:
    """A table of bytes that rise in equal steps: entry[d] = min((min(d, last) * factor + added) >> shift, most).

    The sum has 16 bits.

    Attributes:
        last: The first position of the last entry.
        factor: How far positions are apart.
        added: What is added.
        shift: By how many bits the sum is shifted.
        most: The last entry.
    """

    last: int
    factor: int
    added: int
    shift: int
    most: int


@lru_cache(maxsize=256)
def as_line(values: tuple[Number, ...]) -> Line | None:
    """Return the line that gives every entry exactly, or None."""
    if len(values) > 256 or any(isinstance(v, (bool, float)) or not 0 <= v <= 255 for v in values):
        return None
    wanted = np.array(values, np.int64)
    if values[-1] == values[0] or np.any(np.diff(wanted) < 0):
        return None
    last = int(np.argmax(wanted == wanted[-1]))
    factors = np.arange(1, min(0xFFFF // last, _MOST_FACTORS) + 1)[:, None]
    products = np.minimum(np.arange(len(values)), last) * factors
    for shift in range(15, 0, -1):
        # For each factor the numbers that may be added, so that all sums are within their steps and 16 bits.
        least = np.maximum(((wanted << shift) - products).max(axis=1), 0)
        above = ((wanted[:last] + 1) << shift) - 1 - products[:, :last]
        most = np.minimum(above.min(axis=1), min(0xFFFF, (256 << shift) - 1) - products.max(axis=1))
        exact = np.flatnonzero(least <= most)
        if len(exact):
            at = int(exact[0])
            return Line(last, int(factors[at, 0]), int(least[at]), shift, int(wanted[-1]))
    return None


def predicate(left: Expr, lanes: int) -> Expr:
    """Return a mask of the first lanes: so many as there are elements left, or all."""
    return intrinsic(f"llvm.arm.mve.vctp{BITS // lanes}", BOOL, lanes, left)


def gather(memory: Memory, start: Expr, at: Expr, counted: Expr, result: str, lanes: int) -> Expr:
    """Return the elements of memory at positions, those that are counted.

    Args:
        memory: It, whose elements are no wider than the result.
        start: Position of its first element.
        at: The positions behind it, in lanes of the width of the result.
        counted: Which lanes are counted; for the others nothing is read.
        result: Type of the result.
        lanes: Number of positions.
    """
    bits = bits_of(memory.name)
    kind = f"{'int' if memory.name == F32 or is_signed(memory.name) else 'uint'}{BITS // lanes}"
    numbers = (bits, (bits // 8).bit_length() - 1, int(kind.startswith("u")))
    x = script.call_llvm_intrin(
        vector(kind, lanes), "llvm.arm.mve.vldr.gather.offset.predicated", memory.address(start), at,
        *(tirx.const(number, "int32") for number in numbers), counted,
    )  # fmt: skip
    return reinterpret(x, result, lanes) if F32 in (memory.name, result) else cast(x, kind, result, lanes)


def is_possible(table: Node) -> bool:
    """Say whether a table is known and has one of the forms."""
    if table.op != "table" or not table.dtype.is_integer:
        return False
    values = tuple(table_of(table))
    return _as_whole_shift(values) is not None or as_line(values) is not None


def _as_whole_shift(values: Sequence[Number]) -> int | None:
    shift = as_shift(values)
    return shift.first if shift is not None and shift.scale == 1.0 else None


def look_up(values: Sequence[Number], at: Expr, lanes: int, count: int) -> list[Expr]:
    """Return the bytes of the entries at positions of uint8, the low ones first.

    Args:
        values: The table, of which `is_possible` says that it is.
        at: The positions; used more than once.
        lanes: Number of positions.
        count: Bytes of an entry that are not all zero.
    """
    first = _as_whole_shift(values)
    if first is not None:
        return [_shifted(first, plane, at, lanes) for plane in range(count)]
    line = as_line(tuple(values))
    assert line is not None
    last = const(line.last, _U8, lanes)
    x = Local.of(tirx.Select(tirx.LT(at, last), at, last), _U8, lanes).get()
    low, high = (_of_line(line, x, lanes, top) for top in (0, 1))
    both = script.bitwise_or(low, script.shift_left(high, const(8, _U16, lanes // 2)))
    found, most = Local.of(reinterpret(both, _U8, lanes), _U8, lanes).get(), const(line.most, _U8, lanes)
    return [tirx.Select(tirx.LT(found, most), found, most)]


def _of_line(line: Line, x: Expr, lanes: int, top: int) -> Expr:
    """Return the entries at the lower, or upper, bytes of each two, in 16 bits."""
    one = const(1, _U8, lanes)
    wide = intrinsic("llvm.arm.mve.vmull", _U16, lanes // 2, x, one, tirx.const(1, "int32"), tirx.const(top, "int32"))
    factor, added, shift = (const(n, _U16, lanes // 2) for n in (line.factor, line.added, line.shift))
    return Local.of(script.shift_right(tirx.Add(tirx.Mul(wide, factor), added), shift), _U16, lanes // 2).get()


def _shifted(first: int, plane: int, at: Expr, lanes: int) -> Expr:
    """Return one byte of `first >> at`: of each bit that is set, what the byte has of it."""
    found: Expr | None = None
    for bit in (bit for bit in range(first.bit_length()) if first >> bit & 1):
        # Bit 7 of a byte is moved by `bit - 8 * plane - 7 - at`; MVE's amounts are bytes.
        amount = tirx.Sub(const(bit - 8 * plane - 7, "int8", lanes), reinterpret(at, "int8", lanes))
        zeros = (tirx.const(0, "int32"), tirx.const(0, "int32"), tirx.const(1, "int32"))
        x = intrinsic("llvm.arm.mve.vshl.vector", _U8, lanes, const(0x80, _U8, lanes), amount, *zeros)
        found = x if found is None else script.bitwise_or(found, x)
    assert found is not None
    return found


def add_up(total: Expr, x: Expr, lanes: int) -> Expr:
    """Return a total of uint32 with all bytes of a vector added: an instruction."""
    wide = cast(x, _U8, "uint32", lanes)
    return tirx.Add(total, intrinsic("llvm.vector.reduce.add", "uint32", 1, wide))
