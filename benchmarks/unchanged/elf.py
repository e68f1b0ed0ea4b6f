"""What of an object file is code: two that differ in the names of variables for debuggers alone are equal."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_ALLOCATED = 2
_RELA, _NOBITS, _REL, _SYMTAB = 4, 8, 9, 2


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    target: int
    data: bytes


def code(data: bytes) -> str:
    """Return the sections that a process loads, what is relocated in them, and the symbols, as text.

    Args:
        data: An object file, ELF of 32 or 64 bits, little-endian.
    """
    wide = data[4] == 2
    sections = list(_sections(data, wide))
    symbols = next((list(_symbols(s, sections, wide)) for s in sections if s.kind == _SYMTAB), [])
    lines: list[str] = []
    for section in sections:
        if section.flags & _ALLOCATED:
            lines.append(f"{section.name} {section.flags:x} {len(section.data)} bytes: {section.data.hex()}")
        if section.kind in (_RELA, _REL) and sections[section.target].flags & _ALLOCATED:
            lines += [f"{sections[section.target].name} {line}" for line in _relocations(section, symbols, wide)]
    loaded = {section.name for section in sections if section.flags & _ALLOCATED}
    lines += sorted(symbol for symbol in symbols if symbol.split()[-1] in loaded)
    return "\n".join(lines) + "\n"


def _sections(data: bytes, wide: bool) -> Iterator[_Section]:
    at, size, count, names = (
        struct.unpack_from(form, data, place)[0]
        for form, place in (
            (("<Q", 0x28), ("<H", 0x3A), ("<H", 0x3C), ("<H", 0x3E))
            if wide
            else (("<I", 0x20), ("<H", 0x2E), ("<H", 0x30), ("<H", 0x32))
        )
    )
    headers = [struct.unpack_from("<IIQQQQIIQQ" if wide else "<10I", data, at + i * size) for i in range(count)]
    table = headers[names][4]
    for name, kind, flags, _, offset, length, _, info, _, _ in headers:
        content = b"" if kind == _NOBITS else data[offset : offset + length]
        yield _Section(_text(data, table + name), kind, flags, info, content)


def _symbols(section: _Section, sections: list[_Section], wide: bool) -> Iterator[str]:
    """Yield each symbol: its name or that of its section, its value, size and kind, and where it is."""
    strings = next(s for s in sections if s.name == ".strtab").data
    for entry in struct.iter_unpack("<IBBHQQ" if wide else "<IIIBBH", section.data):
        name, info, _, where, value, size = entry if wide else (entry[0], entry[3], 0, entry[5], entry[1], entry[2])
        home = sections[where].name if where < len(sections) else "absolute"
        yield f"symbol {_text(strings, name)} {value:x} {size:x} {info:x} {home or 'undefined'}"


def _relocations(section: _Section, symbols: list[str], wide: bool) -> Iterator[str]:
    form = ("<QQq" if section.kind == _RELA else "<QQ") if wide else ("<IIi" if section.kind == _RELA else "<II")
    shift = 32 if wide else 8
    for offset, info, *addend in struct.iter_unpack(form, section.data):
        yield f"{offset:x} {info & (1 << shift) - 1:x} {addend} {symbols[info >> shift]}"


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
