"""Vectors to numbers: the lanes of one vector to one number, those of several rows' vectors to numbers side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm.ir import Expr

from softq.codegen.cpu.rows.tir import Local, half, shuffle

Combine = Callable[[Expr, Expr], Expr]
"""What is made of an accumulator and a value."""


def reduce_parts(parts: Sequence[Local], combine: Combine) -> Local:
    """Return the reduction of vectors, in the first of them."""
    while len(parts) > 1:
        half_count = (len(parts) + 1) // 2
        for i in range(len(parts) - half_count):
            parts[i].set(combine(parts[i].get(), parts[half_count + i].get()))
        parts = parts[:half_count]
    return parts[0]


def reduce_lanes(vector: Local, combine: Combine) -> Expr:
    """Return the reduction of a vector's lanes."""
    x = halve(vector, combine, 2)
    return combine(shuffle([x], [0]), shuffle([x], [1])) if vector.lanes > 1 else x


def halve(vector: Local, combine: Combine, most: int) -> Expr:
    """Return the reduction of a vector's lanes to at most so many."""
    x, lanes = vector.get(), vector.lanes
    while lanes > most:
        lower, upper = half(x, lanes, False), half(x, lanes, True)
        lanes //= 2
        x = Local.of(combine(lower, upper), vector.name, lanes).get()
    return x


def reduce_rows(vectors: Sequence[Local], combine: Combine) -> Expr:
    """Return the reduction of each vector's lanes, side by side, in the order of `reduce_lanes`.

    The halves of two rows' vectors fit into one: so many operations as one row takes do for several.

    Args:
        vectors: As many as a power of two, of at least as many lanes.
        combine: The reduction.
    """
    name, lanes, count = vectors[0].name, vectors[0].lanes, len(vectors)
    width = lanes
    while len(vectors) > 1:
        width //= 2
        # Each vector holds lanes / (2 width) rows.
        lower = [first + i for first in range(0, 2 * lanes, 2 * width) for i in range(width)]
        merged: list[Local] = []
        for a, b in zip(vectors[::2], vectors[1::2], strict=True):
            both = [a.get(), b.get()]
            merged.append(
                Local.of(combine(shuffle(both, lower), shuffle(both, [i + width for i in lower])), name, lanes)
            )
        vectors = merged
    whole = vectors[0]
    while width > 1:
        width //= 2
        other = Local.of(shuffle([whole.get()], [i ^ width for i in range(lanes)]), name, lanes)
        whole = Local.of(combine(whole.get(), other.get()), name, lanes)
    return shuffle([whole.get()], range(0, lanes, lanes // count))
