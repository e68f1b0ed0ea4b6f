"""A block: elements of the row that are computed at once, in vectors of bytes and of one wider type.

A value is computed in the width that was found for it, and goes to the other where it is asked for there. Vectors
of one width are computed side by side, an operator after the other, so that none waits for the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tvm import tirx
from tvm.ir import Expr

from softq.codegen.cpu.rows import floats, mve, planes
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.lane_widths import LaneWidths
from softq.codegen.cpu.rows.load_store import RowMemory, load
from softq.codegen.cpu.rows.tir import (  # fmt: skip
    BOOL,
    F32,
    Local,
    bits_of,
    broadcast,
    cast,
    half,
    lane_numbers,
    reinterpret,
    shuffle,
)
from softq.rowprog.program import Node
from softq.rowprog.types import DType


class Block:
    """Elements of the row from a position on.

    Args:
        kernel: What the whole kernel shares.
        scalars: Where the row's scalars are.
        widths: The widths.
        row: The memory of the row.
        loads: The values that are read.
        at: Position of the first element.
        vectors: Number of vectors of bytes, or of the wide type where there are none of bytes.
        rest: If not None, so many elements of the row are left, at most as many as the vectors have lanes: those of a
            masked block stand in the first lanes, those of a block that overlaps in the last ones.
        least: Of a masked block, the number of elements that are surely there.
        parts: Of a masked block, the number of wide vectors that may hold elements; by default all.
    """

    def __init__(
        self,
        kernel: KernelContext,
        scalars: Emission,
        widths: LaneWidths,
        row: RowMemory,
        loads: Sequence[Node],
        at: Expr,
        *,
        vectors: int = 1,
        rest: Expr | None = None,
        least: int = 0,
        parts: int | None = None,
    ) -> None:
        self._kernel, self._widths, self._row, self._loads = kernel, widths, row, frozenset(loads)
        self._found: dict[tuple[Node, int], list[Expr]] = {}
        self.narrow: list[Emission] = []
        self.wide: list[Emission] = []
        index, predicates = kernel.index, kernel.processor.predicates
        masks = kernel.processor.masks or predicates

        def place(first: int, lanes: int, bits: int) -> Emission:
            here = Local.of(tirx.Add(at, tirx.const(first, index)), index, 1).get() if first else at
            counted = left = None
            if rest is not None and predicates:
                left = Local.of(tirx.Sub(rest, tirx.const(first, index)), index, 1).get()
                counted = Local.of(mve.predicate(left, lanes), BOOL, lanes)
            elif rest is not None and first + lanes > least:
                limit = rest if masks else tirx.Sub(tirx.const(vectors * widths.size, index), rest)
                bound = broadcast(cast(tirx.Sub(limit, tirx.const(first, index)), index, "int32", 1), lanes)
                lane = lane_numbers(tirx.const(0, "int32"), "int32", lanes)
                counted = Local.of(tirx.LT(lane, bound) if masks else tirx.LE(bound, lane), BOOL, lanes)
            return Emission(
                kernel, scalars, lanes=lanes, bits=bits, at=here, counted=counted, left=left,
                masked=masks and counted is not None, elsewhere=self._elsewhere,
            )  # fmt: skip

        if widths.in_bytes:
            self.narrow = [place(i * widths.vector_bytes, widths.vector_bytes, 8) for i in range(vectors)]
        if widths.bits:
            count = vectors * widths.ratio if parts is None else parts
            self.wide = [place(i * widths.wide_lanes, widths.wide_lanes, widths.bits) for i in range(count)]

    def compute(self, rows: Iterable[Node]) -> None:
        """Emit values whose operands are there."""
        for node in rows:
            looked_up = self._kernel.looked_up(node) is not None
            if node in self._widths.planes or (looked_up and node in self._widths.narrow):
                for i in range(len(self.narrow)):
                    self.planes_of(node, i)
                continue
            for e in self.narrow if node in self._widths.narrow else self.wide:
                e.compute(node)

    def planes_of(self, node: Node, number: int) -> list[Expr]:
        """Return the bytes of a value in one vector of bytes, the low ones first."""
        key = node, number
        if key not in self._found:
            e = self.narrow[number]
            looked_up = self._kernel.looked_up(node) is not None
            if node in self._widths.planes and not looked_up:
                return self.planes_of(node.args[0], number)  # a cast: the same bytes
            if not looked_up or e.has(node):
                x = e.value(node)
                self._found[key] = [reinterpret(x, "uint8", e.lanes)]
            else:
                self._found[key] = self._look_up(e, node)
        return self._found[key]

    def summed(self, node: Node, number: int) -> list[Expr]:
        """Return the bytes of what a sum takes in, in one vector of bytes."""
        fixed, arg = self._widths.fixed.get(node), node.args[0]
        if fixed is None:
            return self.planes_of(arg, number)
        e = self.narrow[number]
        table = replace(self._kernel.tables[arg.args[0]], values=fixed.values)
        position = e.share(e.arg(arg.args[1], "uint8"), "uint8")
        found = planes.look_up(table, position, e.lanes, self._widths.planes[arg], "uint32", self._kernel.processor)
        return [e.share(x, "uint8") for x in found]

    def _look_up(self, e: Emission, node: Node) -> list[Expr]:
        looked_up = self._kernel.looked_up(node)
        assert looked_up is not None
        table, at = looked_up
        count = self._widths.planes.get(node, 1)
        name = str(node.dtype.numpy) if node.dtype is not DType.BOOL else "uint8"
        position = e.share(e.arg(at, "uint8"), "uint8")
        found = planes.look_up(table, position, e.lanes, count, name, self._kernel.processor)
        shared = [e.share(x, "uint8") for x in found]
        if node in self._widths.narrow:
            x = shared[0]
            held = e.type_of(node)
            e.keep(node, tirx.NE(x, e.const(0, "uint8")) if held == BOOL else reinterpret(x, held, e.lanes))
        return shared

    def _elsewhere(self, e: Emission, node: Node) -> Expr:
        """Return a value at a place that has not got it."""
        in_bytes = e.bits == 8 and e in self.narrow
        if node in self._loads and (not in_bytes or node in self._widths.narrow):
            return load(e, node, self._row)
        if in_bytes:
            return self._packed(e, node)
        number = self.wide.index(e)
        if node in self._widths.planes:
            return self._widened(e, node, number)
        assert node in self._widths.narrow, node
        source = self.narrow[number // self._widths.ratio]
        held = source.type_of(node)
        x = source.value(node)
        first = number % self._widths.ratio * e.lanes
        order = range(first, first + e.lanes)
        if held == BOOL:
            ones = tirx.Select(x, source.const(1, "int8"), source.const(0, "int8"))
            return tirx.NE(shuffle([source.share(ones, "int8")], order), e.const(0, "int8"))
        return cast(shuffle([x], order), held, e.type_of(node), e.lanes)

    def _packed(self, e: Emission, node: Node) -> Expr:
        """Return a value of the wide vectors in bytes; vectors without elements repeat the last one."""
        ratio = self._widths.ratio
        first = self.narrow.index(e) * ratio
        places = [self.wide[min(first + i, len(self.wide) - 1)] for i in range(ratio)]
        name, held = places[0].type_of(node), e.type_of(node)
        raw = [floats.for_saturation(p, node) for p in places] if name == "int32" else []
        saturated = [x for x in raw if x is not None]
        if saturated and len(saturated) == ratio:
            return reinterpret(planes.pack(saturated, name, planes.U8, self._kernel.processor), held, e.lanes)
        values = [p.value(node) for p in places]
        if name != BOOL:
            return planes.pack(values, name, held, self._kernel.processor)
        name = f"int{self._widths.bits}"
        ones = [p.share(tirx.Select(x, p.const(1, name), p.const(0, name)), name)
                for p, x in zip(places, values, strict=True)]  # fmt: skip
        return tirx.NE(planes.pack(ones, name, "uint8", self._kernel.processor), e.const(0, "uint8"))

    def _widened(self, e: Emission, node: Node, number: int) -> Expr:
        """Return the entries of a look-up in one wide vector, made for all of them at once."""
        ratio, bits = self._widths.ratio, min(self._widths.bits, 32)
        group = number // ratio
        source = self.narrow[group]
        vectors = planes.spread(self.planes_of(node, group), bits, source.lanes)
        if self._widths.bits == 64:
            vectors = [half(v, source.lanes // 4, upper) for v in vectors for upper in (False, True)]
        name, held = f"uint{bits}", e.type_of(node)
        same = held == F32 or bits_of(held) == bits
        typed = [reinterpret(x, held, e.lanes) if same else cast(x, name, held, e.lanes) for x in vectors]
        for k, x in enumerate(typed, group * ratio):
            if k < len(self.wide) and k != number and not self.wide[k].has(node):
                self.wide[k].keep(node, x)
        return typed[number % ratio]
