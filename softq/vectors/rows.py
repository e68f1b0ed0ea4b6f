"""The rows of golden vectors: chosen to break kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softq.rowprog import DType, Kind, Program, run
from softq.rowprog.library import F32_MAX, FARTHEST

Scores = NDArray[np.generic]
Distances = NDArray[np.float32] | NDArray[np.int64]
_INF, _NAN = np.inf, np.nan
_SPREADS = (0.1, 1.0, 4.0, 16.0, 64.0)
_SHIFTS = (0.0, 100.0, -1000.0)
_SUBNORMAL = 2.0**-149
_MOST_BOUNDARIES = 64
"""Boundaries that are kept, evenly spread over all there are."""
_GRID = 8192


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        kind: What is special about it, a few words.
        scores: [N], of the program's type.
        valid: bool [N]; all true unless the program is masked.
    """

    kind: str
    scores: Scores
    valid: NDArray[np.bool_]


def choose(
    program: Program, params: Mapping[str, ArrayLike], lengths: Sequence[int], count: int, seed: int
) -> list[Row]:
    """Return rows of each length: `count` random ones, and all special ones that a row of that length can be."""
    rng = np.random.default_rng(seed)
    distances = telling_distances(program, params) if max(lengths, default=0) > 1 else np.zeros(0)
    found: list[Row] = []
    for n in lengths:
        for kind, scores in scores_of_length(program.scores, n, count, rng, distances):
            found.append(Row(kind, np.asarray(scores, program.scores.numpy), np.ones(n, np.bool_)))
        if program.masked:
            found += _masked(program.scores, n, rng)
    return found


def scores_of_length(
    kind: DType, n: int, count: int, rng: np.random.Generator, distances: Scores
) -> Iterator[tuple[str, Scores]]:
    """Yield rows of n scores, each with what is special about it: `count` random ones, then those of every kind.

    Args:
        kind: Type of the scores; the values of a row are floats where that is f32, and fit it where it is not.
        n: Elements of a row.
        count: Random rows, of several spreads and shifts in turn.
        rng: Where random numbers come from.
        distances: Distances from the maximum, each of which stands in some row.
    """
    if n == 0:
        yield "no elements", np.zeros(0)
        return
    for i in range(count):
        yield f"random, spread {_spread(kind, i):g}", _random(kind, n, i, rng)
    low, high = (-100.0, 0.0) if kind.is_float else (float(kind.low), float(kind.high))
    far = np.full(n, low)
    far[n // 2] = high
    yield "all equal", np.full(n, 1.5 if kind.is_float else 1)
    yield "all at the top", np.full(n, high)
    yield "all at the bottom", np.full(n, low)
    if n > 1:
        yield "one far above the others", far
        yield "ties", np.floor(rng.uniform(high - 4, high + 1, n))
        yield "rising", np.rint(np.linspace(low, high, n))
        yield "falling", np.rint(np.linspace(high, low, n))
    if kind.is_float:
        yield from _special(n, rng)
    for start in range(0, distances.size if n > 1 else 0, max(n - 1, 1)):
        part = distances[start : start + n - 1].astype(np.float64)
        d = np.concatenate([[0.0], part, np.repeat(part[-1:], n - 1 - part.size)])
        # At either end of the type in turn; of floats the peak 0 keeps the distances as they are.
        from_top = kind.is_float or start // max(n - 1, 1) % 2 == 0
        peak = (0.0 if kind.is_float else high) if from_top else low + float(d.max())
        yield "telling distances", peak - d


def _spread(kind: DType, number: int) -> float:
    spread = _SPREADS[number % len(_SPREADS)]
    return spread if kind.is_float else spread * 2.0 ** (kind.bits - 8)


def _random(kind: DType, n: int, number: int, rng: np.random.Generator) -> Scores:
    x = rng.normal(size=n) * _spread(kind, number)
    if kind.is_float:
        return x + _SHIFTS[number % len(_SHIFTS)]
    middle = 0 if kind.is_signed else 2 ** (kind.bits - 1)
    return np.clip(np.rint(x + middle), kind.low, kind.high)


def _special(n: int, rng: np.random.Generator) -> Iterator[tuple[str, Scores]]:
    """Yield rows of scores that only floats have."""
    x = rng.normal(size=n)
    some = np.arange(n) % 3 == 1
    last, first = np.arange(n) == n - 1, np.arange(n) == 0
    yield "zeros of both signs", np.where(np.arange(n) % 2 == 0, -0.0, 0.0)
    yield "subnormal", np.where(np.arange(n) % 2 == 0, _SUBNORMAL, -_SUBNORMAL)
    yield "greatest finite number, and least", np.where(first, F32_MAX, -F32_MAX)
    yield "only -inf", np.full(n, -_INF)
    yield "-inf but the last", np.where(last, x, -_INF)
    yield "-inf in places", np.where(some, -_INF, x)
    yield "+inf once", np.where(first, _INF, x)
    yield "+inf in places", np.where(last | some, _INF, np.where(first, -_INF, x))
    yield "NaN first", np.where(first, _NAN, x)
    yield "NaN last", np.where(last, _NAN, x)
    if n > 1:
        yield "NaN beside +inf", np.where(first, _NAN, _INF)
        yield "NaN beside -inf", np.where(last, _NAN, -_INF)


def _masked(kind: DType, n: int, rng: np.random.Generator) -> Iterator[Row]:
    """Yield rows with a mask; what stands under it is not to matter."""
    if n == 0:
        return
    scores = np.asarray(_random(kind, n, 2, rng), kind.numpy)
    peak = np.arange(n) == int(np.argmax(scores))
    last = np.arange(n) == n - 1
    hidden = np.array(scores)
    hidden[::2] = _NAN if kind.is_float else kind.high
    if kind.is_float:
        hidden[::4] = _INF
    yield Row("masked at random", scores, rng.random(n) < 0.6)
    yield Row("fully masked", scores, np.zeros(n, np.bool_))
    yield Row("masked but the last", scores, last)
    yield Row("the greatest one masked", scores, ~peak)
    yield Row("NaN and +inf masked" if kind.is_float else "greatest numbers masked", hidden, np.arange(n) % 2 == 1)


def telling_distances(program: Program, params: Mapping[str, ArrayLike]) -> Distances:
    """Return distances of a score from its row's maximum, both sides of each boundary; all 256 of 8-bit scores.

    A boundary is where what comes out changes: found by running the program on rows of two elements, so that it is
    right for every method and every option.
    """
    if program.scores.is_float:
        return _find_boundaries(program, params)
    all_of_them = np.arange(2**program.scores.bits, dtype=np.int64)
    if program.scores.bits == 8:
        return all_of_them
    at = _find_changes(program, params, all_of_them)
    return np.unique(np.concatenate([at, at + 1, all_of_them[[0, -1]]]))


def _find_boundaries(program: Program, params: Mapping[str, ArrayLike]) -> Distances:
    grid = np.linspace(0, FARTHEST * 1.01, _GRID).astype(np.float32)
    at = _find_changes(program, params, grid)
    # The numbers from 0 on have the order of their bits, so that halving ends at two neighbours.
    low, high = grid[at].view(np.int32), grid[at + 1].view(np.int32)
    while np.any(high - low > 1):
        middle = low + (high - low) // 2
        before, between = (_outputs(program, params, bits.view(np.float32)) for bits in (low, middle))
        same = np.all(before == between, axis=1)
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.unique(np.concatenate([low, high]).view(np.float32))


def _find_changes(program: Program, params: Mapping[str, ArrayLike], distances: Distances) -> NDArray[np.intp]:
    """Return where the next distance gives something else, at most so many places, evenly spread."""
    outputs = _outputs(program, params, distances)
    at = np.flatnonzero(np.any(outputs[1:] != outputs[:-1], axis=1))
    if at.size <= _MOST_BOUNDARIES:
        return at
    return at[np.unique(np.linspace(0, at.size - 1, _MOST_BOUNDARIES).astype(np.intp))]


def _outputs(program: Program, params: Mapping[str, ArrayLike], distances: Distances) -> NDArray[np.generic]:
    """Return what the program gives for the farther of two elements, each output a column."""
    top = np.zeros_like(distances) if program.scores.is_float else np.full_like(distances, program.scores.high)
    x = np.stack([top, top - distances], axis=1).astype(program.scores.numpy)
    out = run(program, x, valid=np.ones(x.shape, np.bool_) if program.masked else None, params=params)
    rows = [out[name][:, 1] for name, node in program.outputs.items() if node.kind is Kind.ROW]
    return np.stack([row.view(np.uint32) if row.dtype == np.float32 else row.astype(np.int64) for row in rows], axis=1)
