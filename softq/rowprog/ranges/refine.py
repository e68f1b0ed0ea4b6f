"""What a condition says of the values that it compares: `select(a < b, a, c)` takes a only where it is below b."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from softq.rowprog.program import Node
from softq.rowprog.ranges.bounds import NEVER, Array, Bounds, either

Get = Callable[[Node], Bounds]


def comparisons(condition: Node, truth: bool) -> Iterator[tuple[Node, bool]]:
    """Yield the comparisons that are known to be true or false where the condition is."""
    if condition.op in ("lt", "le", "eq"):
        yield condition, truth
    elif condition.op == "not":
        yield from comparisons(condition.args[0], not truth)
    elif condition.op == ("and" if truth else "or"):
        for arg in condition.args:
            yield from comparisons(arg, truth)


def reads(select: Node) -> Iterator[Node]:
    """Yield the nodes whose bounds `choose` asks for beside its operands'."""
    for value, truth in ((select.args[1], True), (select.args[2], False)):
        for comparison, _ in comparisons(select.args[0], truth):
            if value in comparison.args:
                yield from comparison.args


def choose(select: Node, get: Get) -> Bounds:
    """Return the bounds of a select."""
    condition = select.args[0]
    may = get(condition)
    a, b = (_branch(condition, truth, value, get) for truth, value in zip((True, False), select.args[1:], strict=True))
    return either(
        np.logical_and(np.greater(may.high, 0), a.possible), a, np.logical_and(np.less(may.low, 1), b.possible), b
    )


def _branch(condition: Node, truth: bool, value: Node, get: Get) -> Bounds:
    """Return the bounds of a value where the condition is true (or false)."""
    bounds = get(value)
    for comparison, holds in comparisons(condition, truth):
        a, b = comparison.args
        if a is b is value:
            bounds = _compared_with_itself(comparison.op, holds, bounds)
        elif value is a:
            bounds = _narrow(bounds, get(b), comparison.op, holds, below=True)
        elif value is b:
            bounds = _narrow(bounds, get(a), comparison.op, holds, below=False)
    return bounds


def _compared_with_itself(op: str, holds: bool, x: Bounds) -> Bounds:
    if op == "lt":
        return x
    if holds:
        return Bounds(x.low, x.high, NEVER)
    # x = x is false of a NaN only.
    if x.low.dtype == np.float32:
        none = np.full_like(x.low, np.nan)
        return Bounds(none, none, x.nan)
    return Bounds(x.low, np.subtract(x.low, 1))


def _narrow(x: Bounds, other: Bounds, op: str, holds: bool, *, below: bool) -> Bounds:
    """Narrow x, which stands on the lower (left) side of the comparison or on the upper (right) one."""
    if op == "eq" and not holds:
        return x
    low, high = x.low, x.high
    # Where a comparison is false because the other side is NaN, it says nothing of x.
    silent = np.logical_and(other.nan, not holds)
    above_limit = op == "eq" or below != holds
    below_limit = op == "eq" or below == holds
    strict = (op == "lt") if holds else (op == "le")
    if above_limit:
        limit = _next(other.low, up=True) if strict else other.low
        low = np.where(silent, low, np.fmax(low, limit))
    if below_limit:
        limit = _next(other.high, up=False) if strict else other.high
        high = np.where(silent, high, np.fmin(high, limit))
    nan = NEVER if holds else x.nan
    if x.low.dtype == np.float32:
        none = np.logical_or(np.isnan(x.low), np.less(high, low))
        low, high = (np.where(none, np.float32(np.nan), v) for v in (low, high))
    return Bounds(low, high, np.asarray(nan))


def _next(limit: Array, *, up: bool) -> Array:
    if limit.dtype == np.float32:
        return np.nextafter(limit, np.float32(np.inf if up else -np.inf))
    return np.add(limit, 1 if up else -1)
