"""Reading the table of weights off a runtime whose softmax of 8-bit scores depends on (maximum - score) alone.

Let the result be w[d] / sum(w), with d = maximum - score. A row with a elements at the maximum and b elements at the
distance d has p = 1 / (a + b r) at the maximum, with r = w[d] / w[0]. The runtime rounds p to 8 bits, so its result
gives an interval for p, and that gives one for r. Rows with many combinations of a and b make the interval narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from softq.audit.subject import Reals, Subject
from softq.audit.task import Array

_ELEMENTS = 1024
_SLACK = 1e-9
WEIGHT_BITS = 15


@dataclass(frozen=True)
class Table:
    """The weight of each distance.

    Attributes:
        weights: f64 [256], of the distances from 0 on; the first is 1.
        low: Lower bounds of the weights.
        high: Upper bounds.
        rounding: How results are rounded: nearest or down.
        equal: The share of elements, in other rows, for which the table gives the runtime's result.
        greatest: The greatest difference in these rows, in units of the result.
    """

    weights: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    rounding: str
    equal: float
    greatest: float


def extract(subject: Subject, answered: Sequence[tuple[Array, Array]], longest: int) -> Table | str:
    """Return the table of a runtime, or a sentence that says why there is none.

    Args:
        subject: A softmax of 8-bit scores.
        answered: Rows of scores with the runtime's results, on which the table is checked.
        longest: Length of the longest row that the runtime takes.

    Raises:
        FailureError: the runtime gives no result for a row of up to `longest` elements.
    """
    assert subject.scores is not None, "integers"
    shift = _find_shift(subject)
    if shift:
        return shift
    rounding = _find_rounding(subject, longest)
    if rounding is None:
        return "rows of equal scores do not give 1 / N, neither rounded to the nearest nor down"
    low, high = _bound(subject, rounding, longest)
    broken = np.flatnonzero(low > high * (1 + 1e-6) + _SLACK)
    if broken.size:
        return f"no single weight explains the results at distance {broken[0]}, so there is no table of weights"
    weights = np.clip((low + high) / 2, 0.0, 1.0)
    equal, greatest = _hold(subject, weights, rounding, answered)
    return Table(_plain(weights), _plain(low), _plain(high), rounding, equal, greatest)


def _plain(values: Reals) -> tuple[float, ...]:
    return tuple(map(float, values))


def _find_shift(subject: Subject) -> str:
    """Return a sentence if adding a number to all scores changes the results; empty if not."""
    low, high = int(subject.lowest), int(subject.highest)
    top, d = np.meshgrid(np.arange(low, high + 1), np.arange(high - low + 1), indexing="ij")
    there = top - d >= low
    x = np.stack([top[there], (top - d)[there]], 1).astype(subject.dtype)
    found = subject.to_units(subject.compute(x))
    of_top = np.zeros((high - low + 1, 2))
    at_high = top[there] == high
    of_top[d[there][at_high]] = found[at_high]
    different = np.flatnonzero(np.any(found != of_top[d[there]], -1))
    if different.size == 0:
        return ""
    first = x[different[0]]
    return f"scores {first.tolist()} have another result than scores that are {high - int(first[0])} higher"


def _find_rounding(subject: Subject, longest: int) -> str | None:
    """Return how 1 / N is rounded for rows of N equal scores."""
    candidates = {"nearest", "down"}
    for n in range(1, min(longest, 64) + 1):
        x = np.full((1, n), subject.highest).astype(subject.dtype)
        found = subject.to_units(subject.compute(x))[0, 0]
        exact = float(subject.exact(x)[0, 0])
        if found not in (np.rint(exact), np.floor(exact + 0.5)):
            candidates.discard("nearest")
        if found != np.floor(exact):
            candidates.discard("down")
    return "nearest" if "nearest" in candidates else "down" if candidates else None


def _bound(subject: Subject, rounding: str, longest: int) -> tuple[Reals, Reals]:
    """Return lower and upper bounds of the weight of each distance."""
    result = subject.result
    assert result is not None, "integers"
    span = int(subject.highest - subject.lowest)
    d = np.arange(span + 1)
    low, high = np.zeros(span + 1), np.full(span + 1, np.inf)
    below, above = (0.5, 0.5) if rounding == "nearest" else (0.0, 1.0)
    most = min(longest, _ELEMENTS)
    for a in (1, 2, 3, 5, 8, 13):
        for b in np.unique(np.geomspace(1, max(most - a, 1), 40).astype(np.int64)):
            if a + b > most:
                continue
            x = np.where(np.arange(a + b) < a, subject.highest, subject.highest - d[:, None]).astype(subject.dtype)
            units = subject.to_units(subject.compute(x))[:, 0]
            # A saturated result gives a lower bound of p only.
            least = np.where(units >= result.high, result.high - below, units - below)
            greatest = np.where(units >= result.high, np.inf, units + above)
            least_p, greatest_p = ((side - result.zero_point) * result.scale for side in (least, greatest))
            with np.errstate(divide="ignore"):
                low = np.maximum(low, (1 / greatest_p - a) / b)
                high = np.minimum(high, np.where(least_p > 0, (1 / least_p - a) / b, np.inf))
    low[0] = high[0] = 1.0
    # Where no row gives an upper bound, 1 is one: no weight is above that of the maximum.
    return np.maximum(low, 0.0), np.minimum(high, 1.0)


def _hold(
    subject: Subject, weights: Reals, rounding: str, answered: Sequence[tuple[Array, Array]]
) -> tuple[float, float]:
    """Return for which share of elements the table gives the runtime's result, and the greatest difference in units."""
    assert subject.result is not None, "integers"
    offs: list[Reals] = []
    for x, found in answered:
        d = np.max(x.astype(np.int64), -1, keepdims=True) - x
        w = weights[d]
        units = subject.result.encode(w / np.sum(w, -1, keepdims=True))
        offs.append(np.abs((np.rint(units) if rounding == "nearest" else np.floor(units)) - found).ravel())
    off = np.concatenate(offs)
    return float(np.mean(off == 0)), float(np.max(off))


def to_method(table: Table, name: str, step: float, source: str) -> str:
    """Return the text of a method file with these weights, which `--method FILE` takes.

    Args:
        table: The table.
        name: The method's name, which the file has with underscores.
        step: Scale of the scores.
        source: Where the table comes from, in words.
    """
    entries = [round(weight * 2**WEIGHT_BITS) for weight in table.weights]
    rows = [", ".join(map(str, entries[start : start + 16])) for start in range(0, len(entries), 16)]
    text = ",\n    ".join(rows)
    return f'''"""Weights of a table that was read off {source}.

    w[d] / sum(w) of the distances d = maximum - score of 8-bit scores; w in units of 2^-{WEIGHT_BITS}

Found by `softq audit`: each entry is the middle of the interval that the results allow. Accumulator: 64 bits, which
hold {2**WEIGHT_BITS} for each of 2^31 elements.
"""

from dataclasses import dataclass

from softq.methods import Method, Options, Outputs, option
from softq.rowprog import DType, Trace
from softq.rowprog.library import integer_distance

_WEIGHTS = [
    {text},
]


@dataclass(frozen=True)
class TableOptions(Options):
    """Scale of the scores."""

    step: float = option({step!r}, "what one unit of integer scores is", low=2.0**-16, high=65536.0)


def _trace(t: Trace, options: TableOptions) -> Outputs:
    d = integer_distance(t, options.step, 255, options.step)
    weights = d.weigh(t.lut(t.table(_WEIGHTS, DType.I32), d.row))
    total = t.row_sum(t.cast(weights, DType.I64))
    return {{"weights": weights, "normalizer": d.normalizer(total)}}


METHOD = Method(
    name="{name}",
    summary="Weights that were read off {source}.",
    source="softq audit",
    options=TableOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
'''
