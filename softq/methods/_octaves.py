"""Distances as whole octaves and what is left of them, for exponentials that are powers of two."""

from __future__ import annotations

from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E, Distance

OCTAVES = 125.0
"""Beyond, weights are 0: 2^-125 times the least value of a polynomial, 0.97, is no subnormal number."""


def split_octaves(t: Trace, d: Distance) -> tuple[Value, Value, Value]:
    """Return (u, n, f), rows of f32: u octaves of distance, and up to `OCTAVES` e^-d = 2^-n 2^f with f in [0, 1)."""
    octaves = t.max(d.row, 0.0) * t.const(LOG2_E, DType.F32)
    near = t.min(octaves, OCTAVES)
    nearest = t.rint(near)
    below = t.select(nearest < near, nearest + 1.0, nearest)
    return octaves, below, below - near
