"""In which width each row value of a pass is computed: in bytes where they are enough, else in one wider type.

A vector of bytes holds as many elements as several vectors of the wider type; together they are a block of the row
(`blocks.Block`). A value changes its width where it goes from one to the other: at a code made of a float, at an entry
of a table that is wider than a byte. Look-ups at bytes stay in bytes whatever the entries are: each byte of theirs is a
plane of its own, and sums take the planes as they are, those of floats as whole numbers where that is exact enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from softq.codegen.common import carriers
from softq.codegen.common.patterns import marked
from softq.codegen.cpu.rows import planes
from softq.codegen.cpu.rows.emission import KernelContext
from softq.codegen.cpu.rows.tir import F32, bits_of
from softq.rowprog.program import Node, table_of
from softq.rowprog.types import DType, Kind

_LONGEST_SUM = (1 << 32) // 255
"""Elements up to which the sum of one plane stays within 32 bits."""

_FIXED_BITS = 32


@dataclass(frozen=True)
class FixedPoint:
    """A table of floats as whole numbers, the greatest of which every row holds.

    Entries are rounded once to 32 bits below the greatest one, and then summed exactly: to 2^-33 of it for each
    element, which is nearer to the exact sum than a float sum of as many elements in any order is sure to be, since the
    sum is no less than the entry that the row holds.

    Attributes:
        values: The entries, below 2^32.
        scale: What one unit is, a power of two.
    """

    values: tuple[int, ...]
    scale: float


@dataclass(frozen=True)
class LaneWidths:
    """The widths of a pass.

    Attributes:
        vector_bytes: Bytes of a vector, which are its lanes where it is one of bytes.
        bits: Width of the wide lanes; 0 if nothing is wide.
        narrow: Values that are computed in bytes.
        planes: Look-ups in bytes whose entries are wider, with the number of their bytes.
        reduced: Reductions that take in bytes.
        fixed: Those of them that sum floats as whole numbers.
        in_bytes: Whether there are vectors of bytes.
    """

    vector_bytes: int
    bits: int
    narrow: frozenset[Node] = frozenset()
    planes: Mapping[Node, int] = field(default_factory=dict)
    reduced: frozenset[Node] = frozenset()
    fixed: Mapping[Node, FixedPoint] = field(default_factory=dict)
    in_bytes: bool = False

    @property
    def ratio(self) -> int:
        """How many wide vectors hold the elements of one vector of bytes; 1 without those."""
        return self.bits // 8 if self.in_bytes else 1

    @property
    def wide_lanes(self) -> int:
        """Lanes of a wide vector."""
        return self.vector_bytes * 8 // (self.bits or 8)

    @property
    def size(self) -> int:
        """Elements of a block of one vector: of bytes, or of the wide type where there are none of bytes."""
        return self.vector_bytes if self.in_bytes else self.wide_lanes

    def adds_floats(self, reduced: Iterable[Node]) -> bool:
        """Say whether one of some reductions is a sum of floats, which hangs on their order."""
        return any(n.op == "row_sum" and n.dtype.is_float and n not in self.fixed for n in reduced)


def find_widths(
    kernel: KernelContext,
    loads: Mapping[Node, str],
    rows: Sequence[Node],
    reductions: Sequence[Node],
    writes: Iterable[tuple[Node, str]],
) -> LaneWidths:
    """Return the widths of a pass.

    Args:
        kernel: What the whole kernel shares.
        loads: The values that are read, with the types of their memory.
        rows: The values that are computed, arguments first.
        reductions: What is reduced.
        writes: The values that are written, with the types of their memory.
    """
    writes, proof, vector_bytes = list(writes), kernel.proof, kernel.processor.machine.vector_bytes
    plain = LaneWidths(vector_bytes, carriers.width((*loads, *rows, *(node for node, _ in writes)), reductions, proof))
    processor = kernel.processor
    if not (processor.packs or processor.has_mve) or kernel.longest > _LONGEST_SUM:
        return plain
    found = _Narrow(kernel, loads)
    for node in rows:
        found.take(node)
    packed = [node for node, name in writes if bits_of(name) == 8 and fits(node, kernel)]
    if not (found.narrow or found.planes or packed):
        return plain
    wide = [node for node in rows if node not in found.narrow and node not in found.planes]
    in_bytes = frozenset(node for node in reductions if found.reduces(node))
    used = [*(node for node, _ in writes), *(arg for node in (*rows, *reductions) for arg in node.args)]
    fixed = {node: whole for node in in_bytes if (whole := _as_fixed(node)) and used.count(node.args[0]) == 1}
    in_bytes = frozenset(node for node in in_bytes if node in fixed or not node.dtype.is_float)
    reduced = [node for node in reductions if node not in in_bytes]
    needed = [carriers.width(wide, reduced, proof)] if wide or reduced else []
    needed += [32 if name == F32 else carriers.bits(node, proof) for node, name in writes if node not in packed]
    bits = next(w for w in (8, 16, 32, 64) if w >= max(needed)) if needed else 0
    if processor.has_mve and bits > 8:
        return plain  # Bytes do not come together from wider vectors there.
    return LaneWidths(vector_bytes, bits, frozenset(found.narrow), found.planes, in_bytes, fixed, True)


class _Narrow:
    """The values that bytes are enough for."""

    def __init__(self, kernel: KernelContext, loads: Mapping[Node, str]) -> None:
        self._kernel = kernel
        self.planes: dict[Node, int] = {}
        self.narrow = {node for node, name in loads.items() if bits_of(name) == 8 and fits(node, kernel)}

    def take(self, node: Node) -> None:
        """Take in a value whose operands were taken in."""
        if node in self._kernel.row_tables:
            self._enter(node)
        elif node.op == "lut":
            self._look_up(node)
        elif node.op == "cast" and node.args[0] in self.planes and node.dtype.is_integer:
            # The same bytes: the type is one that holds the value.
            if node.args[0].dtype.is_integer:
                self.planes[node] = self.planes[node.args[0]]
        elif fits(node, self._kernel) and self._operands_are_narrow(node):
            integers = node.args[-1].dtype.is_integer
            plain = node.op in ("and", "or", "not") or (node.op in ("add", "sub", "cast", "assume") and integers)
            same_type = node.op in ("min", "max", "select", "lt", "le", "eq") and integers
            if plain or (same_type and _in_a_byte(*carriers.common(node, self._kernel.proof))):
                self.narrow.add(node)

    def reduces(self, node: Node) -> bool:
        """Say whether a reduction takes in bytes: extremes of them, and sums of numbers that are not negative."""
        arg = marked(node) or node.args[0]
        if node.op != "row_sum":
            return arg in self.narrow
        if arg.dtype.is_float:
            return arg in self.planes
        return carriers.interval(arg, self._kernel.proof)[0] >= 0 and (arg in self.narrow or arg in self.planes)

    def _operands_are_narrow(self, node: Node) -> bool:
        rows = [arg for arg in node.args if arg.kind is Kind.ROW]
        return bool(rows) and all(
            arg in self.narrow if arg.kind is Kind.ROW else fits(arg, self._kernel) for arg in node.args
        )

    def _look_up(self, node: Node) -> None:
        table, at = node.args
        low, high = carriers.interval(at, self._kernel.proof)
        if at.kind is not Kind.ROW or not 0 <= low <= high <= 255:
            return
        if planes.are_possible(table, self._kernel.processor):
            self._enter(node)

    def _enter(self, node: Node) -> None:
        """Take in a look-up at a byte."""
        size = bytes_of_entry(node, self._kernel)
        if size == 1:
            self.narrow.add(node)
        elif size:
            self.planes[node] = size


def fits(node: Node, kernel: KernelContext) -> bool:
    """Say whether a value is a boolean, or an integer that a byte holds."""
    if node.dtype is DType.BOOL:
        return True
    return node.dtype.is_integer and _in_a_byte(*carriers.interval(node, kernel.proof))


def bytes_of_entry(node: Node, kernel: KernelContext) -> int:
    """Return the bytes of a table's entries that are this value; 0 if it can be none."""
    if fits(node, kernel):
        return 1
    if node.dtype is DType.F32:
        return 4
    low, high = carriers.interval(node, kernel.proof) if node.dtype.is_integer else (-1, 0)
    return (high.bit_length() + 7) // 8 if 0 <= low <= high < 1 << 32 else 0


def _in_a_byte(low: int, high: int) -> bool:
    return (0 <= low and high <= 255) or (-128 <= low and high <= 127)


def _as_fixed(node: Node) -> FixedPoint | None:
    """Return the entries that a sum takes in as whole numbers; None if it is no such sum."""
    arg = node.args[0]
    if node.op != "row_sum" or arg.dtype is not DType.F32 or arg.op != "lut" or arg.args[0].op != "table":
        return None
    values = [float(v) for v in table_of(arg.args[0])]
    if not all(0 <= v < math.inf for v in values) or not 2.0**-60 <= max(values) <= 2.0**60:
        return None
    if values[0] != max(values) or not _begins(arg.args[1]):
        return None
    places = _FIXED_BITS - math.frexp(max(values))[1]
    return FixedPoint(tuple(round(math.ldexp(v, places)) for v in values), math.ldexp(1.0, -places))


def _begins(at: Node) -> bool:
    """Say whether each row has an element at position 0: the distance from the row's own maximum."""
    at = _plain(at)
    if at.op != "sub":
        return False
    greatest, x = _plain(at.args[0]), _plain(at.args[1])
    return greatest.op == "row_max" and _plain(greatest.args[0]) is x


def _plain(node: Node) -> Node:
    while node.op == "cast" and node.dtype.is_integer and node.args[0].dtype.is_integer:
        node = node.args[0]
    return node
