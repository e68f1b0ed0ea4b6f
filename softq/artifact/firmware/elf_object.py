"""Object files of LLVM's as a project links them: code and constants that are reached, and no symbol of another's.

LLVM adds debugging information, tables for unwinding, and functions of TVM's that other objects of TVM's define, too.
What is kept is what the symbols that begin with the model's name reach; it stands in the order in which it stood.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from softq.errors import SoftqError

_HEADER = struct.Struct("<16sHHIIIIIHHHHHH")
_SECTION = struct.Struct("<10I")
_SYMBOL = struct.Struct("<IIIBBH")
_RELOCATION = struct.Struct("<II")
# Of the ELF specification, and of "ELF for the Arm Architecture".
_SYMTAB, _STRTAB, _NOBITS, _REL, _ATTRIBUTES = 2, 3, 8, 9, 0x70000003
_ALLOCATED = 2
_UNDEFINED, _RESERVED = 0, 0xFF00
_GLOBAL = 1

NEEDED = re.compile(r"mem(cpy|set|move)|sqrtf|fmaf|__aeabi_\w+")
"""What an object may ask of the project: every compiler's library for the processor has these."""


@dataclass(frozen=True)
class Part:
    """A section of an object file, as the ELF specification has it."""

    name: str
    type: int
    flags: int
    link: int
    info: int
    alignment: int
    entry: int
    data: bytes
    size: int


@dataclass(frozen=True)
class Symbol:
    """A symbol of an object file, as the ELF specification has it."""

    name: str
    value: int
    size: int
    info: int
    other: int
    section: int

    @property
    def is_local(self) -> bool:
        """Whether a linker keeps it to the file."""
        return self.info >> 4 < _GLOBAL


def trim_object(data: bytes, name: str) -> bytes:
    """Return an object file of 32-bit ARM with nothing but what a project needs.

    Args:
        data: The object as LLVM writes it; relocations stand without addends.
        name: What the symbols of its functions begin with.

    Raises:
        SoftqError: it needs what `NEEDED` does not name.
    """
    header = _HEADER.unpack_from(data)
    sections, symbols, relocations = read_parts(data)
    wanted = {at for s in symbols if s.name.startswith(f"{name}_") and 0 < (at := s.section) < _RESERVED}
    while True:
        used = {symbol for at in wanted for _, symbol, _ in relocations.get(at, ())}
        more = wanted | {symbols[i].section for i in used if 0 < symbols[i].section < _RESERVED}
        if more == wanted:
            break
        wanted = more
    needed = sorted(symbols[i].name for i in used if symbols[i].section == _UNDEFINED)
    strange = [symbol for symbol in needed if not NEEDED.fullmatch(symbol)]
    if strange:
        raise SoftqError(f"the kernels of {name} need {', '.join(strange)}, which projects do not have")
    kept = [at for at, s in enumerate(sections) if at in wanted or s.type == _ATTRIBUTES]
    chosen = [i for i, s in enumerate(symbols) if i in used or (s.section in wanted and (s.is_local or _own(s, name)))]
    chosen.sort(key=lambda i: not symbols[i].is_local)
    place = {at: number for number, at in enumerate(kept, 1)}
    number_of = {i: number for number, i in enumerate(chosen, 1)}
    new = [replace(_renamed(symbols[i], name), section=place.get(symbols[i].section, symbols[i].section))
           for i in chosen]  # fmt: skip
    return _write(header, [sections[at] for at in kept], new,
                  {place[at]: [(where, number_of[i], kind) for where, i, kind in relocations[at]]
                   for at in kept if at in relocations})  # fmt: skip


def _own(symbol: Symbol, name: str) -> bool:
    return symbol.name.startswith(f"{name}_")


def _renamed(symbol: Symbol, name: str) -> Symbol:
    """Return a symbol whose name is of the model, if others would see it."""
    others = symbol.is_local or symbol.section == _UNDEFINED or _own(symbol, name)
    return symbol if others else replace(symbol, name=f"{name}_{symbol.name.lstrip('_')}")


def read_parts(data: bytes) -> tuple[list[Part], list[Symbol], dict[int, list[tuple[int, int, int]]]]:
    """Return the sections of an object file, its symbols, and by the number of a section its relocations.

    Of each of these there is where it is, the number of its symbol, and its kind.
    """
    header = _HEADER.unpack_from(data)
    start, size, count, names = header[6], header[11], header[12], header[13]
    raw = [_SECTION.unpack_from(data, start + size * i) for i in range(count)]
    held = [b"" if r[1] == _NOBITS else data[r[4] : r[4] + r[5]] for r in raw]
    sections = [Part(_text(held[names], r[0]), r[1], r[2], r[6], r[7], r[8], r[9], part, r[5])
                for r, part in zip(raw, held, strict=True)]  # fmt: skip
    table = next(s for s in sections if s.type == _SYMTAB)
    symbols = [Symbol(_text(sections[table.link].data, at), *rest) for at, *rest in _SYMBOL.iter_unpack(table.data)]
    return sections, symbols, {s.info: _relocations(s) for s in sections if s.type == _REL}


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode()


def _relocations(section: Part) -> list[tuple[int, int, int]]:
    """Return where a relocation is, its symbol and its kind."""
    return [(where, info >> 8, info & 0xFF) for where, info in _RELOCATION.iter_unpack(section.data)]


def _write(
    header: tuple[int, ...],
    sections: Sequence[Part],
    symbols: Sequence[Symbol],
    relocations: Mapping[int, Sequence[tuple[int, int, int]]],
) -> bytes:
    names = _Names()
    packed = [_SYMBOL.pack(names.at(s.name), s.value, s.size, s.info, s.other, s.section) for s in symbols]
    table = len(sections) + len(relocations) + 1
    whole = list(sections)
    for at, entries in sorted(relocations.items()):
        held = b"".join(_RELOCATION.pack(where, symbol << 8 | kind) for where, symbol, kind in entries)
        whole.append(_made(f".rel{sections[at - 1].name}", _REL, table, at, 4, _RELOCATION.size, held))
    held, local = _SYMBOL.pack(0, 0, 0, 0, 0, 0) + b"".join(packed), 1 + sum(s.is_local for s in symbols)
    whole.append(_made(".symtab", _SYMTAB, table + 1, local, 4, _SYMBOL.size, held))
    places = [names.at(section.name) for section in (*whole, _made(".strtab", _STRTAB, 0, 0, 1, 0, b""))]
    whole.append(_made(".strtab", _STRTAB, 0, 0, 1, 0, names.data))
    body, rows = bytearray(_HEADER.size), [bytes(_SECTION.size)]
    for section, place in zip(whole, places, strict=True):
        body += bytes(-len(body) % max(section.alignment, 1))
        rows.append(_SECTION.pack(place, section.type, section.flags, 0, len(body), section.size, section.link,
                                  section.info, section.alignment, section.entry))  # fmt: skip
        body += section.data
    body += bytes(-len(body) % 4)
    body[: _HEADER.size] = _HEADER.pack(*header[:6], len(body), *header[7:12], len(rows), len(whole))
    return bytes(body) + b"".join(rows)


def _made(name: str, kind: int, link: int, info: int, alignment: int, entry: int, data: bytes) -> Part:
    return Part(name, kind, 0, link, info, alignment, entry, data, len(data))


class _Names:
    def __init__(self) -> None:
        self.data, self._places = b"\0", {"": 0}

    def at(self, name: str) -> int:
        if name not in self._places:
            self._places[name] = len(self.data)
            self.data += name.encode() + b"\0"
        return self._places[name]
