"""The stack of functions in an object file of 32-bit ARM, which no compiler tells: read off their instructions.

Code of LLVM's moves the stack pointer at the beginning of a function by constants, and restores it at the end. What is
added up is every instruction that lowers it ("ARM Architecture Reference Manual", ARMv8-M), so that it is a bound
however functions are arranged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from softq.artifact.firmware.elf_object import Part, Symbol, read_parts

_FUNCTION, _SP = 2, 13
_CALL, _JUMP = 10, 30
"""Relocations of BL and B.W: R_ARM_THM_CALL and R_ARM_THM_JUMP24."""

_STACK_ALIGNMENT = 8


@dataclass(frozen=True)
class FunctionStack:
    """A function.

    Attributes:
        bytes: Of stack that it takes itself; None if an instruction lowers it by what no constant says.
        calls: The functions of the file that it calls.
    """

    bytes: int | None
    calls: tuple[str, ...]


def read_stacks(data: bytes) -> Mapping[str, FunctionStack]:
    """Return the functions of an object file by their names."""
    parts, symbols, relocations = read_parts(data)
    functions = [s for s in symbols if s.info & 0xF == _FUNCTION and s.section in range(1, len(parts))]
    starts = {(s.section, s.value & ~1): s.name for s in functions}
    found: dict[str, FunctionStack] = {}
    for function in functions:
        code = list(_instructions(parts[function.section], function, symbols))
        begin, end = function.value & ~1, (function.value & ~1) + function.size
        called = {symbols[at].name for where, at, kind in relocations.get(function.section, ())
                  if kind in (_CALL, _JUMP) and begin <= where < end}  # fmt: skip
        called |= {starts.get((function.section, at + 4 + offset), "") for at, first, second in code
                   if (offset := _branch(first, second)) is not None}  # fmt: skip
        called &= {s.name for s in functions}
        found[function.name] = FunctionStack(_lowered(code), tuple(sorted(called - {function.name})))
    return found


def _instructions(part: Part, function: Symbol, symbols: Sequence[Symbol]) -> Iterator[tuple[int, int, int]]:
    """Yield the place of each instruction, and its two halves; the second one is 0 of a short instruction."""
    marks = sorted((s.value, s.name) for s in symbols if s.section == function.section and s.name[:2] in ("$d", "$t"))
    at, end = function.value & ~1, (function.value & ~1) + function.size
    while at + 2 <= end:
        begun = [name for place, name in marks if place <= at]
        if begun and begun[-1].startswith("$d"):
            at += 2  # literals
            continue
        first = int.from_bytes(part.data[at : at + 2], "little")
        is_long = first >> 11 in (0b11101, 0b11110, 0b11111)
        yield at, first, int.from_bytes(part.data[at + 2 : at + 4], "little") if is_long else 0
        at += 4 if is_long else 2


def _lowered(code: Sequence[tuple[int, int, int]]) -> int | None:
    """Return by how many bytes instructions lower the stack pointer."""
    total = 0
    for number, (_, first, second) in enumerate(code):
        following = code[number + 1][1] if number + 1 < len(code) else 0
        size = _pushed(first, second)
        if size is None:
            size = _subtracted(first, second)
        if size is None and _is_aligned(first, second, following):
            size = max((2 << (second & 0x1F)) - _STACK_ALIGNMENT, 0)
        takes_register = first & 0xFF87 == 0x4485 or (first == 0xEBAD and second >> 8 & 0xF == _SP)
        if takes_register:
            return None  # ADD or SUB
        total += size or 0
    return total


def _pushed(first: int, second: int) -> int | None:
    """Return the bytes that an instruction stores below the stack pointer and takes; None if it does nothing of it."""
    if first & 0xFE00 == 0xB400:  # PUSH
        return 4 * (first & 0x1FF).bit_count()
    if first == 0xE92D:  # STMDB SP!
        return 4 * second.bit_count()
    if first & 0xFFBF == 0xED2D and second & 0x0E00 == 0x0A00:  # VPUSH
        return 4 * (second & 0xFF)
    if first == 0xF84D and second & 0x0F00 == 0x0D00:  # STR with SP lowered before
        return second & 0xFF
    return 4 * (second & 0xFF) if first == 0xE96D else None  # STRD, likewise


def _subtracted(first: int, second: int) -> int | None:
    """Return the constant that an instruction subtracts from the stack pointer; None if it is none."""
    if first & 0xFF80 == 0xB080:
        return 4 * (first & 0x7F)
    if second & 0x8F00 != _SP << 8:
        return None
    constant = (first >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | (second & 0xFF)
    if first & 0xFBFF == 0xF2AD:  # SUBW
        return constant
    return _expanded(constant) if first & 0xFBEF == 0xF1AD else None


def _expanded(constant: int) -> int:
    """Return what the 12 bits of a modified immediate constant stand for."""
    low = constant & 0xFF
    if constant >> 10 == 0:
        return (low, low * 0x00010001, low * 0x01000100, low * 0x01010101)[constant >> 8]
    turn, whole = constant >> 7, 0x80 | (constant & 0x7F)
    return (whole >> turn | whole << (32 - turn)) & 0xFFFFFFFF


def _is_aligned(first: int, second: int, following: int) -> bool:
    """Say whether low bits of a register are cleared (BFC) that becomes the stack pointer (MOV)."""
    clears = first == 0xF36F and second & 0x70C0 == 0
    return clears and following & 0xFF87 == 0x4685 and following >> 3 & 0xF == second >> 8 & 0xF


def _branch(first: int, second: int) -> int | None:
    """Return how far behind a BL or B.W lies what it goes to; None if it is neither."""
    if first >> 11 != 0b11110 or second & 0x9000 != 0x9000:
        return None
    sign, one, two = first >> 10 & 1, second >> 13 & 1, second >> 11 & 1
    low = (1 - (one ^ sign)) << 23 | (1 - (two ^ sign)) << 22 | (first & 0x3FF) << 12 | (second & 0x7FF) << 1
    return low - (sign << 24)
