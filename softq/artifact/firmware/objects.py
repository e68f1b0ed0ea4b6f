"""What an object file brings into flash: its sections and symbols, of ELF files of either word size."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from softq.errors import InputError

# Of the ELF specification.
_ALLOCATED, _EXECUTABLE, _NO_BITS, _SYMBOLS = 2, 4, 8, 2
_GLOBAL = 1


@dataclass(frozen=True)
class ObjectFile:
    """An object file.

    Attributes:
        code: Bytes of instructions.
        data: Bytes of constants, and of what variables begin with.
        defined: Global symbols that it has.
        needed: Symbols that it has not.
    """

    code: int
    data: int
    defined: frozenset[str]
    needed: frozenset[str]


@dataclass(frozen=True)
class _Section:
    kind: int
    flags: int
    start: int
    bytes: int
    link: int


def read_object(data: bytes, name: str) -> ObjectFile:
    """Return what is in an object file.

    Args:
        data: Its bytes.
        name: What messages call it.

    Raises:
        InputError: it is no ELF file of a little-endian processor.
    """
    if data[:4] != b"\x7fELF" or data[4:5] not in (b"\1", b"\2") or data[5:6] != b"\1":
        raise InputError(f"{name}: is no ELF file of a little-endian processor")
    wide = data[4] == 2
    try:
        sections = list(_sections(data, wide))
        symbols = [symbol for section in sections if section.kind == _SYMBOLS
                   for symbol in _symbols(data, wide, section, sections[section.link])]  # fmt: skip
    except (struct.error, IndexError, ValueError) as error:
        raise InputError(f"{name}: is a broken ELF file") from error
    held = [s for s in sections if s.flags & _ALLOCATED and s.kind != _NO_BITS]
    code = sum(s.bytes for s in held if s.flags & _EXECUTABLE)
    return ObjectFile(
        code,
        sum(s.bytes for s in held) - code,
        frozenset(symbol for symbol, is_here in symbols if is_here),
        frozenset(symbol for symbol, is_here in symbols if not is_here),
    )


def _sections(data: bytes, wide: bool) -> Iterator[_Section]:
    (start,) = struct.unpack_from("<Q" if wide else "<I", data, 40 if wide else 32)
    each, count, _ = struct.unpack_from("<3H", data, 58 if wide else 46)
    for number in range(count):
        fields = struct.unpack_from("<IIQQQQI" if wide else "<7I", data, start + number * each)
        _, kind, flags, _, at, size, link = fields
        yield _Section(kind, flags, at, size, link)


def _symbols(data: bytes, wide: bool, table: _Section, names: _Section) -> Iterator[tuple[str, bool]]:
    """Yield the global symbols, and whether the file has what they name."""
    form = "<IBBHQQ" if wide else "<IIIBBH"
    for at in range(table.start, table.start + table.bytes, struct.calcsize(form)):
        fields = struct.unpack_from(form, data, at)
        info, where = (fields[1], fields[3]) if wide else (fields[3], fields[5])
        if info >> 4 >= _GLOBAL:
            begin = names.start + fields[0]
            yield data[begin : data.index(b"\0", begin)].decode("ascii", "replace"), where != 0
