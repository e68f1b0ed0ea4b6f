"""How far windows reach along an axis, from the scalars of a kernel."""

from __future__ import annotations

from collections.abc import Mapping

from softq.artifact.program import Size
from softq.compiler.tir.symbolic import computed, multiplied


def window_reach(sizes: Mapping[str, Size], axis: str) -> Size:
    """Return how many elements the last one of a window stands behind its first."""
    return multiplied([computed("sub", sizes[f"kernel_{axis}"], 1), sizes[f"dilation_{axis}"]])


def windows_span(sizes: Mapping[str, Size], axis: str) -> Size:
    """Return how many elements of an axis all windows cover."""
    steps = multiplied([computed("sub", sizes[axis], 1), sizes[f"stride_{axis}"]])
    return computed("add", computed("add", steps, window_reach(sizes, axis)), 1)
