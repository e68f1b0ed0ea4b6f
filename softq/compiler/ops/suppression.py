"""Non-maximum suppression of boxes, with its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.compiler.backend import Lowering
from softq.compiler.steps.builder import StepCall, Value
from softq.compiler.steps.tir_kernels import PREFIX
from softq.compiler.tir.kernel_function import kernel_function

_ZERO = tirx.IntImm("int64", 0)


@dataclass(frozen=True)
class SuppressOp:
    """The boxes that stay: those that overlap none of a better score that stays.

    Arguments are boxes [B, N, 4], scores [B, C, N], the boxes in the order of their scores (int64 [B x C, N]), and, of
    one element each, the greatest number that stays (int64), the greatest overlap (float32, intersection over union)
    and the score that boxes must be above (float32). The result is int64 [B x C, N]: boxes that stay, best first, then
    -1.

    Attributes:
        centers: Whether boxes are (x, y, width, height) of their centre, and not two opposite corners.
        above: Whether scores must be above one.
    """

    centers: bool
    above: bool

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the boxes that stay."""
        builder, tensors = lowering.builder, [lowering.value(x) for x in arguments]
        out = builder.new(result)
        lines, number = out.dims
        symbol = f"{PREFIX}suppress" + "_centers" * self.centers + "_above" * self.above
        kernel = builder.tir.add(symbol, lambda: _suppress_kernel(symbol, self))
        builder.append(StepCall(kernel, [*tensors, out], [tensors[1].dims[1], number], lines, out.elements))
        return out


def _edges(box: Sequence[Any], centers: bool) -> list[Any]:
    """Return the least and the greatest coordinate of a box along its two axes."""
    if centers:
        half = tirx.FloatImm("float32", 0.5)
        return [e for c, size in ((0, 2), (1, 3)) for e in (box[c] - box[size] * half, box[c] + box[size] * half)]
    return [f(box[a], box[b]) for a, b in ((1, 3), (0, 2)) for f in (tirx.min, tirx.max)]


def _overlaps(one: Sequence[Any], other: Sequence[Any], most: Any) -> Any:
    """Return whether two boxes, by their edges, overlap more than `most`, common area by both; empty ones never do."""
    nothing = tirx.FloatImm("float32", 0.0)
    width = tirx.min(one[1], other[1]) - tirx.max(one[0], other[0])
    height = tirx.min(one[3], other[3]) - tirx.max(one[2], other[2])
    areas = [(box[1] - box[0]) * (box[3] - box[2]) for box in (one, other)]
    common = width * height
    union = areas[0] + areas[1] - common
    sound = [width > nothing, height > nothing, common > nothing, *(area > nothing for area in areas), union > nothing]
    return tirx.all(*sound, common / union > most)


def _suppress_kernel(symbol: str, op: SuppressOp) -> tirx.PrimFunc:
    """Return `symbol(boxes, scores, order, count, overlap, least, out, classes, number, begin, end)`.

    A work item is a class of an image.
    """
    floats = dict.fromkeys(("boxes", "scores", "overlap", "least"), "float32")
    integers = dict.fromkeys(("order", "count", "out"), "int64")
    both = floats | integers
    pointers = {name: both[name] for name in ("boxes", "scores", "order", "count", "overlap", "least", "out")}
    given = ("boxes", "scores", "count", "overlap", "least")
    with kernel_function(symbol, pointers, ("classes", "number"), unaligned=given) as made:
        boxes, scores, order, most, overlap, least, out = made.memory.values()
        classes, number, begin, end = made.sizes.values()
        kept, stays = T.alloc_buffer((1,), "int64", scope="local"), T.alloc_buffer((1,), "int32", scope="local")
        edges = T.alloc_buffer((4,), "float32", scope="local")
        yes, no = tirx.IntImm("int32", 1), tirx.IntImm("int32", 0)
        with T.serial(begin, end) as item:
            line, image = item * number, tirx.floordiv(item, classes) * number

            def corners(box: Any, image: Any = image) -> list[Any]:
                return [boxes[(image + box) * 4 + i] for i in range(4)]

            T.buffer_store(kept, _ZERO, [_ZERO])
            with T.serial(_ZERO, number) as rank:
                T.buffer_store(out, tirx.IntImm("int64", -1), [line + rank])
            with T.serial(_ZERO, number) as rank:
                box = order[line + rank]
                allowed = kept[_ZERO] < most[_ZERO]
                if op.above:
                    allowed = tirx.And(allowed, scores[line + box] > least[_ZERO])
                with T.If(allowed), T.Then():
                    T.buffer_store(stays, yes, [_ZERO])
                    for i, edge in enumerate(_edges(corners(box), op.centers)):
                        T.buffer_store(edges, edge, [tirx.IntImm("int64", i)])
                    with T.serial(_ZERO, kept[_ZERO]) as before:
                        better = _edges(corners(out[line + before]), op.centers)
                        here = [edges[tirx.IntImm("int64", i)] for i in range(4)]
                        with T.If(_overlaps(here, better, overlap[_ZERO])), T.Then():
                            T.buffer_store(stays, no, [_ZERO])
                    with T.If(stays[_ZERO] == yes), T.Then():
                        T.buffer_store(out, box, [line + kept[_ZERO]])
                        T.buffer_store(kept, kept[_ZERO] + 1, [_ZERO])
    return made.function
