"""What is done to a run of a result's elements while they are in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.gemm.tiles import Tile, ceil_divide, number, positions
from softq.compiler.steps.product import Apply, Epilogue
from softq.compiler.tir.kernel_function import KernelFunction

LINE = 16
"""Numbers of a line of a cache."""


def pointers_of(
    epilogue: Epilogue | None, sizes: Sequence[str]
) -> tuple[dict[str, str], Sequence[str], tuple[str, ...]]:
    """Return the pointers of a convolution's kernel, its numbers, and which pointers may be odd.

    What the epilogue reads stands between the result and the thread's memory.
    """
    operands = () if epilogue is None else epilogue.operands
    read = {f"operand{i}": operand.dtype for i, operand in enumerate(operands)}
    own = dict.fromkeys(("x", "w", "bias", "y"), "float32")
    return {**own, **read, "scratch": "uint8"}, sizes, tuple(read)


def applied(epilogue: Epilogue | None, made: KernelFunction) -> Apply | None:
    """Return what applies an epilogue in a kernel with these pointers."""
    if epilogue is None:
        return None
    return epilogue.on([made.memory[f"operand{i}"] for i in range(len(epilogue.operands))])


def same(value: Any, at: Any, channel: Any) -> Any:
    """Return the element: what is done without an epilogue."""
    return value


def finish_run(
    tile: Tile,
    apply: Callable[..., Any],
    source: tuple[Any, Any],
    target: tuple[Any, Any],
    length: Any,
    *,
    short: bool = True,
) -> None:
    """Emit the way of consecutive elements from one place to another, which is not the same.

    The last vector may begin within the one before it: elements are computed twice rather than one by one.

    Args:
        tile: Whose lanes vectors have.
        apply: Gives the result of an element and its place in the target.
        source: A buffer, and where the run begins in it.
        target: The same of where it goes.
        length: How many elements.
        short: Whether there may be fewer than a vector has.
    """
    lanes, zero = tile.lanes, number(0)
    (read, start), (written, to) = source, target

    def move(at: Any) -> None:
        T.buffer_store(written, apply(read[start + at], to + at), [to + at])

    def one_by_one(begin: Any) -> None:
        with positions(begin, length) as at:
            move(at)

    def by_vectors() -> None:
        with T.serial(zero, ceil_divide(length, lanes)) as v:
            first = tirx.min(v * number(lanes), length - number(lanes))
            with T.vectorized(zero, number(lanes)) as lane:
                move(first + lane)

    if lanes == 1:
        one_by_one(zero)
        return
    if not short:
        by_vectors()
        return
    with T.If(length >= number(lanes)):
        with T.Then():
            by_vectors()
        with T.Else():
            one_by_one(zero)


def announce_run(target: tuple[Any, Any], length: Any) -> None:
    """Emit hints that consecutive elements will be written, for results that no cache holds.

    Args:
        target: A buffer, and where the run will begin in it.
        length: How many elements.
    """
    buffer, to = target
    with T.serial(number(0), ceil_divide(length, LINE)) as i:
        ask_for((buffer, to + i * number(LINE)), written=True)


def ask_for(place: tuple[Any, Any], *, written: bool) -> None:
    """Emit the hint that an element of a buffer will be read, or that it will be written."""
    buffer, at = place
    numbers = (tirx.const(n, "int32") for n in (int(written), 3, 1))  # All caches, and data.
    T.evaluate(T.call_llvm_intrin("void", "llvm.prefetch.p0", T.address_of(buffer[at]), *numbers))
