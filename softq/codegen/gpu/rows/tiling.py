"""The shape of a kernel: how many threads a row has, how it is read, and what stays in registers."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32

_BLOCK = 128
"""Threads of a block that has several rows."""


@dataclass(frozen=True)
class Tiling:
    """The shape of a kernel of a row program.

    Attributes:
        group: Threads per row, a power of two: at most a warp for short rows, a block for long ones, 1 where elements
            follow one another.
        chunk: Elements that a thread takes side by side.
        chunks: How many of these it holds in registers, scores read once; 0: rows of any length, read in each pass.
        aligned: Whether a chunk is one access: the row's length is a multiple of it and memory aligned for it; else
            elements are read one by one.
        holds: Whether values for later passes stay in registers, too; else they are computed again.
        shared: How many of `chunks` a thread holds in shared memory instead, the last ones.
    """

    group: int
    chunk: int
    chunks: int
    aligned: bool
    holds: bool = False
    shared: int = 0

    @property
    def registers(self) -> int:
        """Chunks of a thread in registers."""
        return self.chunks - self.shared

    @property
    def threads(self) -> int:
        """Threads of a block: where several warps have a row, no others, as what they tell each other stands once."""
        return self.group if self.group > WARP else _BLOCK

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.threads // self.group

    @property
    def longest(self) -> int | None:
        """Elements of the longest row, None if there is no limit."""
        return self.group * self.chunk * self.chunks or None

    @property
    def name(self) -> str:
        """Suffix of symbols."""
        held = f"{self.registers}{'h' if self.holds else 'r'}" if self.chunks else "s"
        held += f"{self.shared}m" if self.shared else ""
        return f"g{self.group}_c{self.chunk}{'a' if self.aligned else 'u'}_{held}"

    def fits(self, length: int) -> bool:
        """Say whether rows of this length can be computed."""
        if self.aligned and length % self.chunk:
            return False
        return self.longest is None or length <= self.longest


_SHORT = 1024
"""Elements up to which a row has one warp."""

_HELD = 32
"""Elements a thread keeps at most, with values for later passes beside them; twice as many halves without those."""

_HELD_SINGLY = 24
"""The same for rows that are read element by element by the most threads, which leaves 64 registers for each: of 32
elements some are spilled."""

_BESIDE_BYTES = 16 << 10
"""What is left of a block's shared memory for tables and for what its threads exchange."""

_ACCESS_BYTES = 16
_LEAST_GROUP, _STREAMED_GROUP, _GREATEST_GROUP = 4, 512, 1024


def choose_tiling(
    length: int,
    score_bytes: int,
    *,
    aligned: bool = True,
    in_order: bool = False,
    even: bool = False,
    shared_bytes: int = 0,
) -> Tiling:
    """Return the tiling for rows of a length.

    Args:
        length: Elements of a row.
        score_bytes: Size of a score in memory.
        aligned: Whether all rows' memory is aligned for accesses of 16 bytes if the length is.
        in_order: Whether elements follow one another (a scan).
        even: Whether chunks must be even, for results of four bits.
        shared_bytes: The shared memory that a block may have.
    """
    single = 2 if even else 1
    if in_order:
        return Tiling(1, single, 0, False)
    chunk = _ACCESS_BYTES // score_bytes
    aligned = aligned and score_bytes <= 4 and length % chunk == 0
    chunk = chunk if aligned else single
    pieces = max(-(-length // chunk), 1)
    if length <= _SHORT:
        group = min(max(_power(pieces), _LEAST_GROUP), WARP)
    else:
        # Half of what a thread may keep: more threads have more accesses on their way.
        group = min(max(_power(-(-length // (_HELD // 2))), 2 * WARP), _GREATEST_GROUP)
    chunks = _power(-(-pieces // group))
    held = _HELD if aligned or group < _GREATEST_GROUP else _HELD_SINGLY
    if chunks * chunk <= held:
        return Tiling(group, chunk, chunks, aligned, True)
    if chunks * chunk <= 2 * _HELD:
        if aligned and score_bytes < 4:
            return Tiling(group, chunk, chunks, True)
        words = chunk * score_bytes // 4 if aligned else chunk
        shared = chunks - held // words
        if score_bytes <= 4 and shared * words * 4 * group + _BESIDE_BYTES <= shared_bytes:
            return Tiling(group, chunk, chunks, aligned, shared=shared)
    return Tiling(_STREAMED_GROUP, chunk, 0, aligned)


def _power(n: int) -> int:
    """Return the least power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def list_tilings(length: int, score_bytes: int, *, even: bool = False, shared_bytes: int = 0) -> list[Tiling]:
    """Return every tiling that takes aligned rows of a length: for finding out which one is the fastest on a device."""
    chunk = _ACCESS_BYTES // score_bytes
    if length % chunk:
        return [choose_tiling(length, score_bytes, even=even, shared_bytes=shared_bytes)]
    chosen = choose_tiling(length, score_bytes, even=even, shared_bytes=shared_bytes)
    found = [chosen] if chosen.shared else []
    for group in (1 << k for k in range(_LEAST_GROUP.bit_length() - 1, _GREATEST_GROUP.bit_length())):
        chunks = _power(-(-(length // chunk) // group))
        if chunks * chunk <= 2 * _HELD and group <= _power(length // chunk):
            found += [Tiling(group, chunk, chunks, True, True), Tiling(group, chunk, chunks, True)]
        if group >= 4 * WARP and length >= group * chunk:
            found.append(Tiling(group, chunk, 0, True))
    return found
