"""The search for the steps with the least error of P V."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from softq.methods._contract import Error
from softq.methods._options import FITTED_SCOPES
from softq.methods._steps import LEAST_R, LEAST_REACH, SHAPE, StepOptions

_MOVES = {"end": 0.12, "first": 0.4, "shift": 0.4, "slope": 0.3}
"""The search's first steps; those of end and first are factors' logarithms."""

_FINEST = 1 / 8
"""The last steps of the search, of the first ones."""


def rates_to_try(options: StepOptions) -> list[float]:
    """Return numbers for r, rising: the last code but one lies 16 to 2 octaves down; beyond these nothing wins."""
    span = (options.top - 1) ** (2 if options.steps == "growing" else 1)
    return [float(x) for x in np.geomspace(max(span / 16, LEAST_R), min(span / LEAST_REACH, options.greatest_r), 29)]


def fit_steps(options: StepOptions, error: Error) -> Mapping[str, float]:
    """Return r, and the shape's numbers that are to be fitted, with the least error that is found."""
    rates = rates_to_try(options)
    if options.steps == "growing":
        return _search(options, rates[::3], error)
    return min(({"r": r} for r in rates), key=error)


def _search(options: StepOptions, rates: Sequence[float], error: Error) -> Mapping[str, float]:
    """Search along one axis after the other, with steps that are halved when none of them leads down any more.

    Instead of r goes the distance at which the code of zero begins: with r itself, a move of the shift would move that
    end as well, and the search would creep along a bent valley.
    """
    top, limits = options.top, options.specs()
    free = ["end", *(name for name, value in options.shape.items() if value in FITTED_SCOPES)]
    known: dict[tuple[float, ...], float] = {}

    def limit(name: str, value: float) -> float:
        high = options.greatest_r if name == "r" else limits[name].high
        return min(max(value, limits[name].low), high)

    def numbers(at: Mapping[str, float]) -> dict[str, float]:
        rise = (top - 0.5 + at["shift"]) ** 2 - (0.5 + at["shift"]) ** 2
        found = {"r": limit("r", rise / (at["end"] - at["first"]))}
        return found | {name: at[name] for name in free if name != "end"}

    def loss(at: Mapping[str, float]) -> float:
        key = tuple(at.values())
        if key not in known:
            known[key] = error(numbers(at))
        return known[key]

    def move(at: Mapping[str, float], name: str, by: float) -> dict[str, float]:
        by *= _MOVES[name]
        value = at[name] + by if name in ("shift", "slope") else at[name] * math.exp(by)
        if name == "end":
            return {**at, name: max(value, 2 * at["first"])}
        return {**at, name: min(limit(name, value), at["end"] / 2) if name == "first" else limit(name, value)}

    usual = options.built_in[options.bits]
    begin = options.growth({name: usual[name] for name in ("r", *free) if name != "end"})
    shape = {name: getattr(begin, name) for name in SHAPE}
    best = min(({"end": replace(begin, r=r).steps(top).thresholds[-1], **shape} for r in rates), key=loss)
    size = 1.0
    while size >= _FINEST:
        before = best
        for name in free:
            for sign in (1, -1):
                while loss(at := move(best, name, sign * size)) < loss(best):
                    best = at
        if best == before:
            size /= 2
    return numbers(best)
