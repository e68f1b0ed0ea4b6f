"""Determinants and remainders of floats, with their kernels."""

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
class DetOp:
    """Determinants: the argument is a tensor [N, n, n] of float32 or float64, the result [N]."""

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the steps and return the result."""
        builder = lowering.builder
        work, out = builder.copy(lowering.value(arguments[0])), builder.new(result)
        symbol = f"{PREFIX}det_{work.dtype}"
        kernel = builder.tir.add(symbol, lambda: _det_kernel(symbol, work.dtype))
        builder.append(StepCall(kernel, [work, out], [work.dims[1]], work.dims[0], work.elements))
        return out


@dataclass(frozen=True)
class RemainderOp:
    """C's fmod, which is exact: arguments are two tensors of float64 and of one shape."""

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the result."""
        builder, (a, b) = lowering.builder, (lowering.value(x) for x in arguments)
        out, symbol = builder.new(result), f"{PREFIX}remainder"
        kernel = builder.tir.add(symbol, lambda: _remainder_kernel(symbol))
        builder.append(StepCall(kernel, [a, b, out], [], out.elements, out.elements))
        return out


def _det_kernel(symbol: str, dtype: str) -> tirx.PrimFunc:
    """Return `symbol(work, out, n, begin, end)`: elimination with the greatest pivot of a column, in place."""
    with kernel_function(symbol, {"work": dtype, "out": dtype}, ("n",)) as made:
        (work, out), (n, begin, end) = made.memory.values(), made.sizes.values()
        best, value = T.alloc_buffer((1,), "int64", scope="local"), T.alloc_buffer((2,), dtype, scope="local")
        nothing = tirx.const(0, dtype)
        with T.serial(begin, end) as item:
            first = item * n * n
            T.buffer_store(value, tirx.const(1, dtype), [_ZERO])
            with T.serial(_ZERO, n) as k:
                T.buffer_store(best, k, [_ZERO])
                with T.serial(k + 1, n) as i:
                    here, there = work[first + i * n + k], work[first + best[_ZERO] * n + k]
                    with T.If(tirx.Max(here, nothing - here) > tirx.Max(there, nothing - there)), T.Then():
                        T.buffer_store(best, i, [_ZERO])
                with T.If(best[_ZERO] != k), T.Then():
                    T.buffer_store(value, nothing - value[_ZERO], [_ZERO])
                    with T.serial(k, n) as j:
                        T.buffer_store(value, work[first + k * n + j], [_ONE])
                        T.buffer_store(work, work[first + best[_ZERO] * n + j], [first + k * n + j])
                        T.buffer_store(work, value[_ONE], [first + best[_ZERO] * n + j])
                T.buffer_store(value, value[_ZERO] * work[first + k * n + k], [_ZERO])
                with T.If(work[first + k * n + k] != nothing), T.Then(), T.serial(k + 1, n) as i:
                    T.buffer_store(value, work[first + i * n + k] / work[first + k * n + k], [_ONE])
                    with T.serial(k, n) as j:
                        less = work[first + i * n + j] - value[_ONE] * work[first + k * n + j]
                        T.buffer_store(work, less, [first + i * n + j])
            T.buffer_store(out, value[_ZERO], [item])
    return made.function


def _remainder_kernel(symbol: str) -> tirx.PrimFunc:
    """Return `symbol(a, b, out, begin, end)`: long division of the mantissas, a bit of the quotient at a time."""
    pointers = dict.fromkeys(("a", "b", "out"), "float64")
    with kernel_function(symbol, pointers, (), unaligned=("a", "b")) as made:
        (a, b, out), (begin, end) = made.memory.values(), made.sizes.values()
        state = T.alloc_buffer((2,), "int64", scope="local")
        inner, implied = tirx.IntImm("int64", (1 << 52) - 1), tirx.IntImm("int64", 1 << 52)
        infinite = tirx.IntImm("int64", 0x7FF << 52)

        def bits(x: Any) -> Any:
            return tirx.reinterpret("int64", x) & tirx.IntImm("int64", (1 << 63) - 1)

        def exponent(x: Any) -> Any:
            return tirx.max(bits(x) >> 52, _ONE)

        def mantissa(x: Any) -> Any:
            return tirx.Select(bits(x) > inner, (bits(x) & inner) | implied, bits(x))

        def power(e: Any) -> Any:
            """Return 2^e for a normal exponent."""
            return tirx.reinterpret("float64", (e + 1023) << 52)

        with T.serial(begin, end) as i:
            x, y = a[i], b[i]
            wrong = tirx.Or(tirx.Or(bits(x) >= infinite, bits(y) > infinite), bits(y) == 0)
            with T.If(wrong):
                with T.Then():
                    T.buffer_store(out, tirx.const(float("nan"), "float64"), [i])
                with T.Else(), T.If(bits(x) < bits(y)):
                    with T.Then():
                        T.buffer_store(out, x, [i])
                    with T.Else():
                        T.buffer_store(state, mantissa(x) % mantissa(y), [_ZERO])
                        with T.serial(_ZERO, exponent(x) - exponent(y)):
                            doubled = state[_ZERO] * 2
                            less = tirx.Select(doubled >= mantissa(y), doubled - mantissa(y), doubled)
                            T.buffer_store(state, less, [_ZERO])
                        # As a multiple of the least number, which is exact; then its exponent, in two normal powers.
                        raised = exponent(y) - 1
                        value = tirx.Cast("float64", state[_ZERO]) * power(tirx.IntImm("int64", -537))
                        value = value * power(tirx.IntImm("int64", -537)) * power(raised >> 1)
                        value = value * power(raised - (raised >> 1))
                        sign = tirx.reinterpret("int64", x) & tirx.IntImm("int64", -(1 << 63))
                        T.buffer_store(out, tirx.reinterpret("float64", tirx.reinterpret("int64", value) | sign), [i])
    return made.function
