"""Operators that move numbers, with their kernels, which are the same on every device: sizes, sums along an axis,
positions, scatters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.program import Size
from softq.compiler.backend import Lowering
from softq.compiler.legalize import min_max
from softq.compiler.ops.control_kernels import sizes_kernel
from softq.compiler.steps.builder import StepCall, Value
from softq.compiler.steps.tir_kernels import PREFIX
from softq.compiler.tir.kernel_function import kernel_function
from softq.compiler.tir.symbolic import computed, multiplied, size


@dataclass(frozen=True)
class SizesOp:
    """Sizes as a tensor: the argument is a shape, the result holds its numbers."""

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the result."""
        builder = lowering.builder
        out, numbers = builder.new(result), [size(d) for d in arguments[0].values]
        symbol = f"{PREFIX}sizes_{len(numbers)}"
        kernel = builder.tir.add(symbol, lambda: sizes_kernel(symbol, len(numbers)))
        builder.append(StepCall(kernel, [out], numbers, 1, len(numbers)))
        return out


@dataclass(frozen=True)
class CumulativeOp:
    """Sums or products along an axis: the argument is a tensor [outer, length, inner], and so is the result.

    Attributes:
        exclusive: Whether an element's sum is without itself.
        reverse: Whether sums go from the last element to the first.
        multiplies: Whether they are products.
    """

    exclusive: bool
    reverse: bool
    multiplies: bool = False

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the result."""
        builder = lowering.builder
        x, out = lowering.value(arguments[0]), builder.new(result)
        outer, length, inner = x.dims
        name = "cumprod" if self.multiplies else "cumsum"
        symbol = f"{PREFIX}{name}_{x.dtype}" + "_exclusive" * self.exclusive + "_reverse" * self.reverse
        kernel = builder.tir.add(symbol, lambda: _cumulative_kernel(symbol, x.dtype, self))
        builder.append(StepCall(kernel, [x, out], [length, inner], multiplied([outer, inner]), x.elements))
        return out


@dataclass(frozen=True)
class JoinOp:
    """Images one behind the other along their channels: arguments are tensors [batch, C, H, W], float32."""

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the steps and return the result."""
        builder = lowering.builder
        out, symbol = builder.new(result), f"{PREFIX}join"
        before: Size = 0
        kernel = builder.tir.add(symbol, lambda: _join_kernel(symbol))
        for x in map(lowering.value, arguments):
            sizes: list[Size] = [x.dims[1], out.dims[1], before, multiplied(x.dims[2:])]
            builder.append(StepCall(kernel, [x, out], sizes, multiplied(x.dims[:2]), x.elements))
            before = computed("add", before, x.dims[1])
        return out


@dataclass(frozen=True)
class PositionsOp:
    """Indices counted from the front: arguments are int64 indices [..., D] and the extents of the D axes.

    The result is the indices with their axis' extent added where they are negative. One outside its axis ends the run.

    Attributes:
        message: What the user is told then.
    """

    message: str

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the result."""
        builder = lowering.builder
        given, extents = lowering.value(arguments[0]), [size(d) for d in arguments[1].values]
        flag, out = builder.allocated((1,), "int32"), builder.new(result)
        symbol = f"{PREFIX}positions_{len(extents)}"
        kernel = builder.tir.add(symbol, lambda: positions_kernel(symbol, len(extents)))
        # All items that write the flag write the same value.
        items = computed("floordiv", given.elements, len(extents))
        builder.append(StepCall(kernel, [flag, given, out], extents, items, given.elements, error=self.message))
        return out


@dataclass(frozen=True)
class ScatterOp:
    """A tensor with some elements replaced: arguments are data, checked positions [..., D] and updates.

    Attributes:
        depth: D, how many of the leading axes of the data a position has.
        reduction: How an update is joined with what is there: ONNX's none, add, mul, max or min.
    """

    depth: int
    reduction: str

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the steps and return the result."""
        builder = lowering.builder
        data, at, updates = (lowering.value(x) for x in arguments)
        out = builder.copy(data)
        extents, inner = list(data.dims[: self.depth]), multiplied(data.dims[self.depth :])
        symbol = f"{PREFIX}scatter_{data.dtype}_{self.depth}_{self.reduction}"
        kernel = builder.tir.add(symbol, lambda: _scatter_kernel(symbol, data.dtype, self))
        # One work item: updates may meet in one place, and the last one stays.
        scalars = [*extents, multiplied(at.dims[:-1]), inner]
        builder.append(StepCall(kernel, [at, updates, out], scalars, 1, updates.elements))
        return out


def _join_kernel(symbol: str) -> tirx.PrimFunc:
    """Return `symbol(x, out, channels, all, before, plane, begin, end)`: a work item is a channel of an image."""
    with kernel_function(symbol, {"x": "float32", "out": "float32"}, ("channels", "all", "before", "plane")) as made:
        (x, out), (channels, total, before, plane, begin, end) = made.memory.values(), made.sizes.values()
        with T.serial(begin, end) as item, T.serial(tirx.IntImm("int64", 0), plane) as i:
            channel = tirx.truncdiv(item, channels) * total + before + tirx.truncmod(item, channels)
            T.buffer_store(out, x[item * plane + i], [channel * plane + i])
    return made.function


def _cumulative_kernel(symbol: str, dtype: str, op: CumulativeOp) -> tirx.PrimFunc:
    """Return `symbol(x, out, length, inner, begin, end)`: a work item is a line of the axis."""
    pointers = {"x": dtype, "out": dtype}
    with kernel_function(symbol, pointers, ("length", "inner"), unaligned=tuple(pointers)) as made:
        (x, out), (length, inner, begin, end) = made.memory.values(), made.sizes.values()
        total = T.alloc_buffer((1,), dtype, scope="local")
        zero = tirx.IntImm("int64", 0)
        with T.serial(begin, end) as item:
            first = tirx.truncdiv(item, inner) * length * inner + tirx.truncmod(item, inner)
            T.buffer_store(total, tirx.const(int(op.multiplies), dtype), [zero])
            with T.serial(zero, length) as step:
                at = first + (length - 1 - step if op.reverse else step) * inner
                if op.exclusive:
                    T.buffer_store(out, total[zero], [at])
                joined = total[zero] * x[at] if op.multiplies else total[zero] + x[at]
                T.buffer_store(total, joined, [zero])
                if not op.exclusive:
                    T.buffer_store(out, total[zero], [at])
    return made.function


def positions_kernel(symbol: str, axes: int) -> tirx.PrimFunc:
    """Return `symbol(flag, given, out, extents..., begin, end)`: indices from the front, one of each axis an item."""
    pointers = {"flag": "int32", "given": "int64", "out": "int64"}
    with kernel_function(symbol, pointers, [f"extent{i}" for i in range(axes)]) as made:
        (flag, given, out), (*extents, begin, end) = made.memory.values(), made.sizes.values()
        zero = tirx.IntImm("int64", 0)
        with T.serial(begin, end) as item:
            for axis, extent in enumerate(extents):
                at = item * axes + axis
                index = given[at] + tirx.Select(given[at] < 0, extent, zero)
                inside = tirx.And(index >= 0, index < extent)
                # A device looks at the flag when all is done: what reads in between stays inside its array.
                T.buffer_store(out, tirx.Select(inside, index, zero), [at])
                with T.If(tirx.Not(inside)), T.Then():
                    T.buffer_store(flag, tirx.IntImm("int32", 1), [zero])
    return made.function


_JOIN: Mapping[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": min_max.greater,
    "min": min_max.lesser,
}


def _scatter_kernel(symbol: str, dtype: str, op: ScatterOp) -> tirx.PrimFunc:
    """Return `symbol(at, updates, out, extents..., count, inner, begin, end)`, which writes updates in their order."""
    pointers = {"at": "int64", "updates": dtype, "out": dtype}
    names = [*(f"extent{i}" for i in range(op.depth)), "count", "inner"]
    with kernel_function(symbol, pointers, names, unaligned=("updates", "out")) as made:
        (at, updates, out), (*extents, count, inner, begin, end) = made.memory.values(), made.sizes.values()
        zero = tirx.IntImm("int64", 0)
        with T.serial(begin, end), T.serial(zero, count) as item, T.serial(zero, inner) as j:
            place: Any = zero
            for axis, extent in enumerate(extents):
                place = place * extent + at[item * op.depth + axis]
            place = place * inner + j
            T.buffer_store(out, _JOIN[op.reduction](out[place], updates[item * inner + j]), [place])
    return made.function
