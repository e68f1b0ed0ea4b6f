"""Lines of a kernel, and how numbers and types are spelled in both languages."""

from __future__ import annotations

import collections
import contextlib
import math
import re
import struct
from collections.abc import Generator

from softq.rowprog.program import Number

I32, U32, I64, U64, F32, BOOL = "i32", "u32", "i64", "u64", "f32", "bool"

HALVES = ("f16", "bf16")
"""Floats of 16 bits: computed in f32, in memory as their bits."""

_INDENT = "    "


class Text:
    """The lines of a kernel while it is written."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._names: dict[str, int] = {}

    def line(self, *texts: str) -> None:
        """Append lines."""
        self._lines += [_INDENT * self._depth + text for text in texts]

    @contextlib.contextmanager
    def block(self, head: str, *, unroll: str = "") -> Generator[None]:
        """Append a head and what is written inside, in braces; `unroll` stands before a loop."""
        if unroll:
            self.line(unroll)
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextlib.contextmanager
    def loops(self, **extents: int) -> Generator[None]:
        """Append nested unrolled loops around what is written inside, one per variable, from 0 up to its extent."""
        with contextlib.ExitStack() as nest:
            for name, extent in extents.items():
                nest.enter_context(self.block(f"for (i32 {name} = 0; {name} < {extent}; {name}++)", unroll="UNROLL"))
            yield

    def each(self, *statements: str, **extents: int) -> None:
        """Append statements in such loops."""
        with self.loops(**extents):
            self.line(*statements)

    def name(self, stem: str) -> str:
        """Return a name that no other value of the kernel has."""
        number = self._names.get(stem, 0)
        self._names[stem] = number + 1
        return f"{stem}{number}"

    def define(self, type_name: str, expression: str, stem: str = "v") -> str:
        """Append a constant and return its name."""
        name = self.name(stem)
        self.line(f"const {type_name} {name} = {expression};")
        return name

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def bits_of(name: str) -> int:
    """Return the width of a type."""
    return 1 if name == BOOL else int(name.lstrip("bfiu"))


def word_type(stored: str) -> str:
    """Return the type of memory that holds elements of a type."""
    return "u16" if stored in HALVES else stored


def unsigned(name: str) -> str:
    """Return the type of the same width that wraps."""
    return f"u{bits_of(name)}"


def literal(value: Number, name: str) -> str:
    """Return a number as a literal of a type."""
    if name == F32:
        x = float(value)
        if math.isnan(x) or math.isinf(x):
            return f"FLOAT({struct.unpack('<I', struct.pack('<f', x))[0]:#x}u)"
        return f"{x.hex()}f"
    if name == BOOL:
        return "true" if value else "false"
    whole = int(value)
    if name == I64:
        return "((i64)-9223372036854775807L - 1)" if whole == -(1 << 63) else f"((i64){whole}L)"
    if name == U64:
        return f"((u64){whole}UL)"
    if name == U32:
        return f"{whole}u"
    return "(-2147483647 - 1)" if whole == -(1 << 31) else str(whole)


def converted(text: str, old: str, new: str) -> str:
    """Return a value in another type; integers wrap."""
    return text if old == new else f"({new})({text})"


_CONSTANT = re.compile(r"\s*const \w+ (\w+) = .*;")


def pruned(text: str) -> str:
    """Return a kernel without the constants that nothing uses: compilers warn of those."""
    lines = text.splitlines()
    while True:
        used = collections.Counter(re.findall(r"\w+", "\n".join(lines)))
        kept = [line for line in lines if not ((m := _CONSTANT.fullmatch(line)) and used[m[1]] == 1)]
        if len(kept) == len(lines):
            return "\n".join(lines) + "\n"
        lines = kept
