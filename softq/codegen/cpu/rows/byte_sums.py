"""The sums of values that stand in bytes, by their planes."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows import mve, planes
from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.lanes import reduce_lanes, reduce_parts, reduce_rows
from softq.codegen.cpu.rows.processor import Processor
from softq.codegen.cpu.rows.tir import F32, Local, bits_of, cast, const, reinterpret, type_name
from softq.rowprog.program import Node


class ByteSums:
    """The accumulators of the sum of a value that stands in bytes: sums of its planes.

    Args:
        node: The sum.
        processor: What it is for.
        bytes_each: Number of planes.
        count: Number of accumulators of a plane.
        scale: If the planes are those of whole numbers in the place of floats, what one unit of them is.
        wide: Whether 32 bits do not hold the sum.
        short: Whether each accumulator takes in one vector only.
    """

    def __init__(
        self,
        node: Node,
        processor: Processor,
        bytes_each: int,
        count: int,
        scale: float | None = None,
        wide: bool = True,
        short: bool = False,
    ) -> None:
        self.node = node
        self._processor, self._scale, self._wide = processor, scale, wide
        self._dots = processor.has_dots and not short
        self._whole = processor.has_mve
        self._name = "int32" if self._dots else planes.sum_type(processor)
        self._lanes = 1 if self._whole else processor.machine.vector_bytes * 8 // bits_of(self._name)
        zero = const(0, self._name, self._lanes)
        # Several planes keep the processor busy by themselves, and registers are few.
        count = max(1, count // bytes_each)
        self._parts = [[Local.of(zero, self._name, self._lanes) for _ in range(count)] for _ in range(bytes_each)]

    def add(self, found: Sequence[Sequence[Expr]], places: Sequence[Emission], first: bool = False) -> None:
        """Take in the planes of the vectors at places; `first` says that nothing was taken in before."""
        for i, (e, bytes_of) in enumerate(zip(places, found, strict=True)):
            for parts, x in zip(self._parts, bytes_of, strict=True):
                y = x if e.counted is None else tirx.Select(e.counted.get(), x, e.const(0, planes.U8))
                part = parts[i % len(parts)]
                if self._whole:
                    part.set(mve.add_up(part.get(), y, e.lanes))
                    continue
                if self._dots:
                    part.set(planes.add_up(part.get(), y, e.lanes))
                    continue
                sums = planes.sums(y, e.lanes, self._processor)
                part.set(sums if first and i < len(parts) else tirx.Add(part.get(), sums))

    def result(self) -> Expr:
        """Return the sum in the type that the program names, which holds it."""
        whole = self.whole()
        return self._typed(reduce_lanes(whole, tirx.Add), whole.name, 1)

    def results(self, wholes: Sequence[Local]) -> Expr:
        """Return the sums of several rows side by side, of the vectors that are `whole` there."""
        return self._typed(reduce_rows(wholes, tirx.Add), wholes[0].name, len(wholes))

    def whole(self) -> Local:
        """Return all accumulators of all planes in one vector."""
        whole = [reduce_parts(parts, tirx.Add) for parts in self._parts]
        if self._is_doubled:
            whole = [self._doubled(part) for part in whole]
        name, lanes = whole[0].name, whole[0].lanes
        for plane, part in enumerate(whole[1:], 1):
            # Where lanes have 32 bits, the sum fits them: what shifts lose on the way does no harm.
            shift = const(8 * plane, name, lanes)
            whole[0].set(tirx.Add(whole[0].get(), script.shift_left(part.get(), shift)))
        return whole[0]

    @property
    def _is_doubled(self) -> bool:
        return self._wide and bits_of(self._name) == 32 and not self._whole

    def _typed(self, total: Expr, name: str, count: int) -> Expr:
        unsigned = f"uint{bits_of(name)}"
        total = cast(total, name, unsigned, count)
        if self._scale is None:
            return cast(total, unsigned, type_name(self.node.dtype), count)
        return tirx.Mul(cast(total, unsigned, F32, count), const(self._scale, F32, count))

    def _doubled(self, part: Local) -> Local:
        """Return the sums of neighbouring lanes, which are unsigned, in lanes of twice the width."""
        name, lanes = "uint64", part.lanes // 2
        pairs = Local.of(reinterpret(part.get(), name, lanes), name, lanes).get()
        low = script.bitwise_and(pairs, const((1 << 32) - 1, name, lanes))
        return Local.of(tirx.Add(low, script.shift_right(pairs, const(32, name, lanes))), name, lanes)
