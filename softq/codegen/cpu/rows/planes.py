"""Lookup tables at positions in bytes: each byte of the entries is a table of bytes, looked up by permutes of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows import mve
from softq.codegen.cpu.rows.processor import Processor
from softq.codegen.cpu.rows.tables import Table, entry_bits
from softq.codegen.cpu.rows.tir import Local, bits_of, cast, const, intrinsic, reinterpret, shuffle, vector_of
from softq.rowprog.program import Node, Number, param_of, table_of

U8 = "uint8"
_GROUP = 16
"""Bytes that one permute within 16 bytes looks at."""

_TOGETHER = 4
"""Registers of 16 that Arm's permute reads at once."""

_OF_REGISTER, _OF_STAIR = 4, 2
"""Instructions of x86 for 16 entries where permutes stay within 16 bytes, and for a place where entries rise by one."""


def are_possible(table: Node, processor: Processor) -> bool:
    """Say whether a table is looked up in vectors of bytes: one that is known, or a short one of the caller's."""
    if processor.has_mve:
        return mve.is_possible(table)
    if table.op == "table":
        return len(_distinct(table_of(table))) <= processor.byte_entries
    param = param_of(table)
    assert param.size is not None
    if param.dtype.bits == 8:
        return param.size % processor.machine.vector_bytes == 0 and param.size <= processor.byte_entries
    return param.size <= _GROUP <= processor.byte_entries and param.dtype.bits == 32


def look_up(table: Table, at: Expr, lanes: int, count: int, name: str, processor: Processor) -> list[Expr]:
    """Return the bytes of the entries at positions of uint8, the low ones first.

    Args:
        table: The table.
        at: The positions; used more than once.
        lanes: Number of positions.
        count: Bytes of an entry that are not all zero.
        name: Type of the entries.
        processor: What it is for.
    """
    if processor.has_mve:
        return mve.look_up(table.values, at, lanes, count)
    if table.registers:
        return [_of_registers([r.get() for r in plane], at, lanes, processor) for plane in table.registers[:count]]
    if not table.values and bits_of(table.memory.name) == 8:
        (held,) = registers(table, 1, processor)
        return [_of_registers([r.get() for r in held], at, lanes, processor)]
    if not table.values:
        return [_permuted([_given(table, plane, lanes)], at, lanes, processor) for plane in range(count)]
    values = _distinct(table.values)
    if processor.has_wide_permutes and len(values) > 2 * lanes:
        values = table.values
    if len(values) < table.size:
        last = const(len(values) - 1, U8, lanes)
        at = Local.of(tirx.Select(tirx.LT(at, last), at, last), U8, lanes).get()
    held = entry_bits(values, name)
    found: list[Expr] = []
    for plane in range(count):
        entries = [(value >> (8 * plane)) & 0xFF for value in held]
        found.append(_look_up(entries, at, lanes, processor))
    return found


def registers(table: Table, count: int, processor: Processor) -> tuple[tuple[Local, ...], ...]:
    """Return the bytes of a table's entries in vectors, plane by plane: whole ones, or 16 entries in all groups."""
    lanes, each = processor.machine.vector_bytes, bits_of(table.memory.name) // 8
    step = lanes if processor.has_wide_permutes else _GROUP
    found: list[tuple[Local, ...]] = []
    for plane in range(count):
        part: list[Local] = []
        for first in range(0, table.size, step):
            at = tirx.Add(table.start, tirx.const(first, table.memory.index))
            whole = reinterpret(table.memory.load(at, step), U8, step * each)
            order = [i % step * each + plane for i in range(lanes)]
            # TVM wants no more indices than there are elements to choose from.
            part.append(Local.of(shuffle([whole] * max(1, lanes // (step * each)), order), U8, lanes))
        found.append(tuple(part))
    return tuple(found)


def _distinct(values: Sequence[Number]) -> Sequence[Number]:
    """Return the entries up to the first of those that are all alike at the end."""
    size = len(values)
    while size > 1 and values[size - 2] == values[-1] and type(values[size - 2]) is type(values[-1]):
        size -= 1
    return values[:size]


def _given(table: Table, plane: int, lanes: int) -> Expr:
    """Return one byte of each of a caller's entries, again in each group of a vector."""
    whole = reinterpret(table.memory.load(table.start, _GROUP), U8, _GROUP * 4)
    at = [(i % _GROUP) * 4 + plane for i in range(lanes)]
    return Local.of(shuffle([whole], at), U8, lanes).get()


def _look_up(entries: Sequence[int], at: Expr, lanes: int, processor: Processor) -> Expr:
    if len(set(entries)) == 1:
        return const(entries[0], U8, lanes)
    step = lanes if processor.has_wide_permutes else _GROUP
    kept = _distinct(entries)
    if processor.has_wide_permutes and len(kept) <= 2 * lanes < len(entries):
        # The high bytes of weights that fall are all alike from somewhere on.
        kept = [*entries[: len(kept)], *(entries[-1],) * (2 * lanes - len(kept))]
        last = const(2 * lanes - 1, U8, lanes)
        return _wide([_register(kept[k : k + lanes], lanes, lanes) for k in (0, lanes)],
                     tirx.Select(tirx.LT(at, last), at, last), lanes)  # fmt: skip
    if not processor.has_wide_permutes and not kept[-1]:
        # Each of several registers gives 0 for what is not its own.
        entries = entries[: max(len(kept), 2 * _GROUP)]
    stairs = _find_stairs(kept)
    cost = _OF_REGISTER * (len(entries) // _GROUP) if processor.is_x86 and not processor.has_wide_permutes else 0
    if stairs is not None and _OF_STAIR * len(stairs) < cost:
        return _climbed(stairs, entries[0], at, lanes)
    parts = [_register(entries[k : k + step], step, lanes) for k in range(0, len(entries), step)]
    return _of_registers(parts, at, lanes, processor)


def _find_stairs(entries: Sequence[int]) -> list[int] | None:
    """Return the positions at which entries rise by one; None if they do anything else."""
    rises = [high - low for low, high in pairwise(entries)]
    return [at for at, rise in enumerate(rises, 1) if rise] if set(rises) <= {0, 1} else None


def _climbed(stairs: Sequence[int], first: int, at: Expr, lanes: int) -> Expr:
    """Return the first entry and how many stairs lie at a position or below: x86 compares signed bytes."""
    low = const(0x80, U8, lanes)
    position = Local.of(reinterpret(script.bitwise_xor(at, low), "int8", lanes), "int8", lanes).get()
    count = const(first, U8, lanes)
    for stair in stairs:
        above = tirx.LT(const(stair - 1 - 0x80, "int8", lanes), position)
        # All bits of a comparison's result are set: -1.
        count = tirx.Sub(count, tirx.Select(above, const(0xFF, U8, lanes), const(0, U8, lanes)))
    return count


def _of_registers(parts: Sequence[Expr], at: Expr, lanes: int, processor: Processor) -> Expr:
    return _wide(parts, at, lanes) if processor.has_wide_permutes else _permuted(parts, at, lanes, processor)


def _register(entries: Sequence[int], size: int, lanes: int) -> Expr:
    padded = [*entries, *(0,) * size][:size]
    # As signed numbers: TVM's simplification takes the difference of neighbours, and refuses a negative unsigned one.
    signed = vector_of([value - 256 if value > 127 else value for value in padded] * (lanes // size), "int8")
    return reinterpret(signed, U8, lanes)


def _wide(registers: Sequence[Expr], at: Expr, lanes: int) -> Expr:
    """Return the entries by permutes across the whole vector, of one register or two."""

    def pair(k: int) -> Expr:
        if k + 1 == len(registers):
            return intrinsic("llvm.x86.avx512.permvar.qi.512", U8, lanes, registers[k], at)
        return intrinsic("llvm.x86.avx512.vpermi2var.qi.512", U8, lanes, registers[k], at, registers[k + 1])

    if len(registers) <= 2:
        return pair(0)
    return tirx.Select(tirx.LT(at, const(2 * lanes, U8, lanes)), pair(0), pair(2))


def _permuted(registers: Sequence[Expr], at: Expr, lanes: int, processor: Processor) -> Expr:
    """Return the entries of several registers of 16: each gives 0 for the positions of the others."""
    found: Expr | None = None
    together = 1 if processor.is_x86 else _TOGETHER
    for number in range(0, len(registers), together):
        near = at
        if len(registers) > together:
            near = tirx.Sub(at, const(number * _GROUP, U8, lanes)) if number else at
            if processor.is_x86:
                # The permute gives 0 where the top bit is set: for all that this brings to 128 or more.
                near = intrinsic("llvm.uadd.sat", U8, lanes, near, const(0x80 - _GROUP, U8, lanes))
        part = registers[number : number + together]
        x = intrinsic(processor.shuffle.format(len(part)), U8, lanes, *part, near)
        found = x if found is None else script.bitwise_or(found, x)
    assert found is not None
    return found


def pack(parts: Sequence[Expr], name: str, result: str, processor: Processor) -> Expr:
    """Return the integers of several vectors as one vector of bytes, which hold them."""
    bits = bits_of(name)
    lanes = processor.machine.vector_bytes * 8 // bits
    if len(parts) == 1:
        return cast(parts[0], name, result, lanes)
    if not processor.is_x86 or bits == 64:
        return cast(shuffle(parts, range(lanes * len(parts))), name, result, lanes * len(parts))
    # Packing works within 16 bytes: the elements of a vector end up 16 bytes apart, to be put together at the end.
    words = list(parts)
    if bits == 32:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        words = [_packed("packssdw", a, b, "int16", lanes * 2, processor) for a, b in pairs]
        lanes *= 2
    kind = "packuswb" if result == U8 else "packsswb"
    x = Local.of(_packed(kind, words[0], words[1], result, lanes * 2, processor), result, lanes * 2).get()
    size, groups, pieces = bits_of(result) * lanes * 2, lanes * 2 // 16, len(parts)
    if groups == 1:
        return x
    unit = 128 // pieces
    order = [pieces * group + part for part in range(pieces) for group in range(groups)]
    moved = shuffle([reinterpret(x, f"int{unit}", size // unit)], order)
    return reinterpret(moved, result, lanes * 2)


def _packed(kind: str, a: Expr, b: Expr, result: str, lanes: int, processor: Processor) -> Expr:
    family = {16: "sse2.{}.128", 32: "avx2.{}", 64: "avx512.{}.512"}[processor.machine.vector_bytes].format(kind)
    return intrinsic(f"llvm.x86.{family}", result, lanes, a, b)


def spread(found: Sequence[Expr], bits: int, lanes: int) -> list[Expr]:
    """Return the entries of planes as vectors of unsigned integers of 16 or 32 bits, in their order.

    Args:
        found: The planes, the low ones first; used more than once.
        bits: Width of the integers.
        lanes: Number of elements of a plane.
    """
    zero = const(0, U8, lanes)
    columns = [[plane] for plane in [*found, *(zero,) * (bits // 8)][: bits // 8]]
    width = 8
    while width < bits:
        columns = [
            [_interleaved(a, b, upper, width, lanes) for a, b in zip(low, high, strict=True) for upper in (False, True)]
            for low, high in zip(columns[::2], columns[1::2], strict=True)
        ]
        width, lanes = width * 2, lanes // 2
    return columns[0]


def _interleaved(low: Expr, high: Expr, upper: bool, width: int, lanes: int) -> Expr:
    """Return one half of the numbers whose low and high parts are these."""
    first = lanes // 2 if upper else 0
    order = [first + i // 2 + lanes * (i % 2) for i in range(lanes)]
    x = shuffle([low, high], order)
    name = f"uint{2 * width}"
    return Local.of(reinterpret(x, name, lanes // 2), name, lanes // 2).get()


def sums(x: Expr, lanes: int, processor: Processor) -> Expr:
    """Return sums of neighbouring bytes: of 8 as uint64 on x86, else of 4 as uint32."""
    if processor.is_x86:
        name = {16: "sse2.psad.bw", 32: "avx2.psad.bw", 64: "avx512.psad.bw.512"}[lanes]
        return intrinsic(f"llvm.x86.{name}", "uint64", lanes // 8, x, const(0, U8, lanes))
    pairs = intrinsic("llvm.aarch64.neon.uaddlp", "uint16", lanes // 2, x)
    return intrinsic("llvm.aarch64.neon.uaddlp", "uint32", lanes // 4, pairs)


def add_up(total: Expr, x: Expr, lanes: int) -> Expr:
    """Return sums of 4 neighbouring bytes added to a total of int32; for processors that multiply and add them."""
    ones = const(1, "int8", lanes)
    return intrinsic("llvm.x86.avx512.vpdpbusd.512", "int32", lanes // 4, total, x, ones)


def sum_type(processor: Processor) -> str:
    """Return the type of the sums of `sums`."""
    return "uint64" if processor.is_x86 else "uint32"
