"""Operators that put elements into an order or pick some of them, with their kernels."""

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

_ZERO, _ONE = tirx.IntImm("int64", 0), tirx.IntImm("int64", 1)


@dataclass(frozen=True)
class SortOp:
    """The order of entries: the argument is a tensor [lines, length, width], the result int64 [lines, length].

    An entry is a row of `width` numbers, and the first that differ decide; NaN is greater than every number, and equal
    to NaN. Of equal entries the first stays first, in either direction.

    Attributes:
        descending: Whether the greatest comes first.
    """

    descending: bool = False

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the positions in their order."""
        builder, x = lowering.builder, lowering.value(arguments[0])
        out = builder.new(result)
        spare = builder.allocated(out.dims, "int64")
        lines, length, width = x.dims
        symbol = f"{PREFIX}sort_{x.dtype}" + "_descending" * self.descending + "_rows" * (width != 1)
        kernel = builder.tir.add(symbol, lambda: _sort_kernel(symbol, x.dtype, self.descending, width != 1))
        builder.append(StepCall(kernel, [x, out, spare], [length, width], lines, x.elements))
        return out


@dataclass(frozen=True)
class ChosenOp:
    """Where a tensor holds: arguments are a bool tensor [N] and a shape [n], its number of true elements.

    The result is int64 [n], the positions of these.
    """

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the positions."""
        builder, mask = lowering.builder, lowering.value(arguments[0])
        out, symbol = builder.new(result), f"{PREFIX}chosen"
        kernel = builder.tir.add(symbol, lambda: _chosen_kernel(symbol))
        builder.append(StepCall(kernel, [mask, out], [mask.elements], 1, mask.elements))
        return out


def _comes_before(a: Any, b: Any, descending: bool) -> Any:
    """Return whether an element stands before another that is not equal to it; NaN is the greatest."""
    before = a > b if descending else a < b
    if not str(a.ty).startswith("float"):
        return before
    only = (a, b) if descending else (b, a)
    return tirx.Or(before, tirx.And(tirx.isnan(only[0]), tirx.Not(tirx.isnan(only[1]))))


def _sort_kernel(symbol: str, dtype: str, descending: bool, rows: bool) -> tirx.PrimFunc:
    """Return `symbol(x, out, spare, length, width, begin, end)`: a merge sort of each line's positions.

    Runs are merged from `out` into `spare` and copied back, from runs of one entry on.
    """
    pointers = {"x": dtype, "out": "int64", "spare": "int64"}
    with kernel_function(symbol, pointers, ("length", "width"), unaligned=("x",)) as made:
        (x, out, spare), (length, width, begin, end) = made.memory.values(), made.sizes.values()
        run, left, right = (T.alloc_buffer((1,), "int64", scope="local") for _ in range(3))
        later, at = T.alloc_buffer((1,), "int32", scope="local"), T.alloc_buffer((1,), "int64", scope="local")
        yes, no = tirx.IntImm("int32", 1), tirx.IntImm("int32", 0)
        with T.serial(begin, end) as line:
            first = line * length
            with T.serial(_ZERO, length) as i:
                T.buffer_store(out, i, [first + i])
            T.buffer_store(run, _ONE, [_ZERO])
            with T.While(run[_ZERO] < length):
                with T.serial(_ZERO, tirx.floordiv(length + run[_ZERO] * 2 - 1, run[_ZERO] * 2)) as pair:
                    start = pair * run[_ZERO] * 2
                    middle = tirx.min(start + run[_ZERO], length)
                    stop = tirx.min(start + run[_ZERO] * 2, length)
                    T.buffer_store(left, start, [_ZERO])
                    T.buffer_store(right, middle, [_ZERO])
                    with T.serial(start, stop) as k:
                        # Whether the right run's entry comes next: only if it is before the left one's.
                        T.buffer_store(later, tirx.Cast("int32", left[_ZERO] >= middle), [_ZERO])
                        with T.If(tirx.And(left[_ZERO] < middle, right[_ZERO] < stop)), T.Then():
                            one = (first + out[first + left[_ZERO]]) * width
                            other = (first + out[first + right[_ZERO]]) * width
                            if not rows:
                                before = _comes_before(x[other], x[one], descending)
                                T.buffer_store(later, tirx.Cast("int32", before), [_ZERO])
                            else:
                                T.buffer_store(at, _ZERO, [_ZERO])
                                with T.While(at[_ZERO] < width):
                                    a, b = x[other + at[_ZERO]], x[one + at[_ZERO]]
                                    with T.If(_comes_before(a, b, descending)):
                                        with T.Then():
                                            T.buffer_store(later, yes, [_ZERO])
                                            T.buffer_store(at, width, [_ZERO])
                                        with T.Else():
                                            decided = _comes_before(b, a, descending)
                                            step = tirx.Select(decided, width, at[_ZERO] + 1)
                                            T.buffer_store(at, step, [_ZERO])
                        with T.If(later[_ZERO] == no):
                            with T.Then():
                                T.buffer_store(spare, out[first + left[_ZERO]], [first + k])
                                T.buffer_store(left, left[_ZERO] + 1, [_ZERO])
                            with T.Else():
                                T.buffer_store(spare, out[first + right[_ZERO]], [first + k])
                                T.buffer_store(right, right[_ZERO] + 1, [_ZERO])
                with T.serial(_ZERO, length) as i:
                    T.buffer_store(out, spare[first + i], [first + i])
                T.buffer_store(run, run[_ZERO] * 2, [_ZERO])
    return made.function


def _chosen_kernel(symbol: str) -> tirx.PrimFunc:
    """Return `symbol(mask, out, count, begin, end)`, which writes the positions of what is not 0."""
    with kernel_function(symbol, {"mask": "uint8", "out": "int64"}, ("count",)) as made:
        (mask, out), (count, begin, end) = made.memory.values(), made.sizes.values()
        place = T.alloc_buffer((1,), "int64", scope="local")
        with T.serial(begin, end):
            T.buffer_store(place, _ZERO, [_ZERO])
            with T.serial(_ZERO, count) as i, T.If(mask[i] != tirx.IntImm("uint8", 0)), T.Then():
                T.buffer_store(out, i, [place[_ZERO]])
                T.buffer_store(place, place[_ZERO] + 1, [_ZERO])
    return made.function
