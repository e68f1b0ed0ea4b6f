"""The row's memory: how chunks of scores and masks are read, and how chunks of results are written."""

from __future__ import annotations

from dataclasses import dataclass

from softq.codegen.gpu.dialect.text import BOOL, F32, HALVES, U32, U64, Text, bits_of, converted
from softq.codegen.gpu.rows.emission import Emission
from softq.codegen.gpu.rows.tiling import Tiling
from softq.rowprog.program import Node

_WORD = 32
"""Bits of a word."""


STRIDES = ("valid_outer", "valid_head", "valid_query", "valid_element")
"""A kernel's last numbers where there is a mask: how far apart its elements lie."""


def bytes_of(stored: str) -> int:
    """Return the size of an element as it stands in memory."""
    return bits_of(stored) // 8


@dataclass(frozen=True)
class Scores:
    """The scores of a row.

    Attributes:
        stored: Their type in memory.
        tiling: How they are read.
    """

    stored: str
    tiling: Tiling

    @property
    def word(self) -> str:
        """Type of the words that hold scores in registers."""
        return "u64" if bytes_of(self.stored) == 8 else "u32"

    @property
    def words(self) -> int:
        """Words that a chunk takes in registers."""
        return self.tiling.chunk * bytes_of(self.stored) // 4 if self.tiling.aligned else self.tiling.chunk

    @property
    def shared_bytes(self) -> int:
        """Bytes of a block's shared memory that hold scores."""
        return self.tiling.shared * self.tiling.threads * self.words * (8 if self.word == "u64" else 4)

    def read(self, text: Text, into: str) -> None:
        """Read the chunk at `at`."""
        if self.tiling.aligned:
            read_words(text, "scores + first + at", into, self.words)
            return
        for e in range(self.tiling.chunk):
            x = f"scores[first + at + {e}]"
            bits = f"BITS({x})" if self.stored == F32 else f"({self.word}){x}"
            inside = f"at + {e} < length ? {bits} : 0u"
            text.line(f"{into}[{e}] = {inside};")

    def keep(self, text: Text, v: str) -> None:
        """Read the chunk at `at` into the thread's part of shared memory."""
        if self.tiling.aligned and self.words == 4:
            text.line(f"COPY_16({self._kept(v)}, scores + first + at, true);")
            return
        text.line(f"{self.word} words[{self.words}];")
        self.read(text, "words")
        for i in range(self.words):
            text.line(f"({self._kept(v)})[{i}] = words[{i}];")

    def take(self, text: Text, v: str, into: str) -> None:
        """Declare the words of a chunk in shared memory."""
        text.line(f"{self.word} {into}[{self.words}];")
        read_words(text, self._kept(v), into, self.words, "LOCAL")

    def _kept(self, v: str) -> str:
        """Return where a chunk is: those of neighbouring threads side by side, so that they are in different banks."""
        return f"kept + (({v} - {self.tiling.registers}) * {self.tiling.threads} + THREAD) * {self.words}"

    def element(self, chunk: str) -> tuple[str, str]:
        """Return element `e` of a chunk's words and its type."""
        per = 4 // bytes_of(self.stored) if self.tiling.aligned else 1
        word = f"{chunk}[e / {per}]" if per > 1 else f"{chunk}[e]"
        x = f"({word} >> (e % {per} * {32 // per}))" if per > 1 else word
        if self.stored == F32:
            return f"FLOAT({x})", F32
        if self.stored in HALVES:
            return f"from_{self.stored}({x})", F32
        return f"({self.stored}){x}", self.stored


def mask_type(tiling: Tiling) -> str:
    """Return the type that holds the bits of a thread's part of a mask; loops that are not unrolled shift them, too."""
    return U64 if tiling.chunks * tiling.chunk > _WORD else U32


def mask_bit(tiling: Tiling, v: str) -> str:
    """Return the bit of element `e` of chunk `v`."""
    return f"((open >> ({v} * {tiling.chunk} + e) & 1u) != 0u)"


def read_mask(text: Text, tiling: Tiling, v: str) -> None:
    """Add the mask of the chunk at `at` to the bits of `open`, which are 0."""
    shift = f"({v} * {tiling.chunk})"
    everything = (1 << tiling.chunk) - 1
    if not tiling.aligned:
        parts = [f"(at + {e} < length && valid[mask + (at + {e}) * valid_element] != 0 ? {1 << e}u : 0u)"
                 for e in range(tiling.chunk)]  # fmt: skip
        text.line(f"open |= ({mask_type(tiling)})({' | '.join(parts)}) << {shift};")
        return
    text.line(f"u32 seen = valid_element == 0 && valid[mask] != 0 ? {everything}u : 0u;")
    with text.block("if (valid_element != 0)"):
        words = tiling.chunk // 4
        text.line(f"u32 marks[{words}];")
        read_words(text, "valid + mask + at", "marks", words)
        text.each("seen |= (u32)((marks[e / 4] >> (e % 4 * 8) & 255u) != 0u) << e;", e=tiling.chunk)
    text.line(f"open |= ({mask_type(tiling)})seen << {shift};")


def read_words(text: Text, pointer: str, into: str, words: int, space: str = "GLOBAL") -> None:
    """Read so many words from aligned memory, 16 bytes at once as far as there are."""
    if words == 1:
        text.line(f"{into}[0] = *(const {space} u32 *)({pointer});")
    for start in range(0, words if words > 1 else 0, 4):
        count = min(words - start, 4)
        name = text.define(f"uint{count}", f"((const {space} uint{count} *)({pointer}))[{start // 4}]", "read")
        for i, part in enumerate("xyzw"[:count]):
            text.line(f"{into}[{start + i}] = {name}.{part};")


@dataclass(frozen=True)
class Output:
    """An output row.

    Attributes:
        name: Its name.
        node: The value.
        stored: Its type in memory.
        nibbles: Whether two elements stand in a byte, the first one low.
    """

    name: str
    node: Node
    stored: str
    nibbles: bool

    @property
    def held(self) -> str:
        """The type of an element before it is packed."""
        if self.stored in (*HALVES, F32):
            return F32
        return self.stored if bytes_of(self.stored) == 8 else "i32" if self.stored[0] == "i" else "u32"

    def value(self, place: Emission) -> str:
        """Return the element of a place as `held`."""
        x, name = place.arg(self.node), place.kernel.type_of(self.node)
        return f"{x} ? 1u : 0u" if name == BOOL and self.held != F32 else converted(x, name, self.held)


def write(text: Text, out: Output, tiling: Tiling, live: str) -> None:
    """Write the chunk at `at` from `out_NAME`; elements behind the row's end are not there."""
    name, pointer = f"out_{out.name}", f"output_{out.name}"
    bits = 4 if out.nibbles else bytes_of(out.stored) * 8
    count = tiling.chunk * bits // 8
    with text.block(f"if ({live})") if live else text.block(""):
        if out.nibbles and not tiling.aligned:
            assert tiling.chunk == 2, tiling
            text.line(f"{pointer}[row * ((length + 1) / 2) + at / 2] = (u8)({name}[0] | {name}[1] << 4);")
            return
        if not tiling.aligned or bits == 64:
            for e in range(tiling.chunk):
                inside = "" if tiling.aligned or tiling.chunk == 1 else f"if (at + {e} < length) "
                text.line(f"{inside}{pointer}[first + at + {e}] = {as_stored(out, f'{name}[{e}]')};")
            return
        _words(text, out, name, count, bits, tiling)
        start = f"{pointer} + {'(first + at) / 2' if out.nibbles else 'first + at'}"
        if count < 4:
            text.line(f"*(GLOBAL u{count * 8} *)({start}) = (u{count * 8})words[0];")
        elif count == 4:
            text.line(f"*(GLOBAL u32 *)({start}) = words[0];")
        elif count == 8:
            text.line(f"*(GLOBAL uint2 *)({start}) = TWO(words[0], words[1]);")
        else:
            for i in range(count // 16):
                four = ", ".join(f"words[{4 * i + k}]" for k in range(4))
                text.line(f"((GLOBAL uint4 *)({start}))[{i}] = FOUR({four});")


def _words(text: Text, out: Output, name: str, count: int, bits: int, tiling: Tiling) -> None:
    """Pack a chunk into words of 32 bits."""
    per, words = min(32 // bits, tiling.chunk), max(count // 4, 1)
    text.line(f"u32 words[{words}];")
    with text.loops(w=words):
        if out.stored == F32:
            text.line(f"words[w] = BITS({name}[w]);")
        elif out.stored in HALVES:
            text.line(f"words[w] = two_{out.stored}({name}[2 * w], {name}[2 * w + 1]);")
        elif per == 1:
            text.line(f"words[w] = (u32){name}[w];")
        else:
            text.line("words[w] = 0u;")
            # Numbers that may be negative have bits beyond their own.
            mask = f" & {(1 << bits) - 1}u" if out.held[0] == "i" else ""
            text.each(f"words[w] += ((u32){name}[w * {per} + k]{mask}) << (k * {bits});", k=per)


def as_stored(out: Output, x: str) -> str:
    """Return an element as it stands in memory."""
    if out.stored in HALVES:
        return f"(u16)to_{out.stored}({x})"
    return x if out.stored == F32 else f"({out.stored}){x}"
