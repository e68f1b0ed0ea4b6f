"""Which method a function that a graph writes out is: found by its values, on rows that tell functions apart.

A method says with which options it might be the function (`Method.written`); what it then means in real numbers is
compared with what the graph means, element by element, on dense grids, around the function's own constants, on rows of
many spreads, and where a mask stands in front of the scores on masked rows. Nothing is known of how it is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from softq.errors import InputError, SoftqError, UsageError
from softq.forms.substitutes.evaluation import MOST_ANSWERED, Evaluator, Exported, RowLayout, make_layout
from softq.graph.facts import Facts
from softq.graph.reference import Budget
from softq.methods import METHODS, Function, Method, OptionValue, WrittenSettings
from softq.rowprog.interpreter import run_wide
from softq.site import OwnFunction

Rows = NDArray[np.float64]
Masks = Literal["none", "infinite", "any"]
"""What may stand in the scores: no masked positions, those of -inf, or any number that hides."""

TOLERANCE = 4e-6
"""Of an element and of its row's greatest one: f32 rounds the constants of a graph, and bisections end at 2^-20."""

GREATEST = 1e37
"""Elements beyond are not compared: f32 ends near, and methods say themselves where they end."""

LEAST = 1e-30
"""Of a difference: methods say that they lose what is nearly as small as the least f32."""

ORDINARY = 80.0
"""Scores up to here are no cause for an overflow in any spelling of an exponential."""

_LENGTHS = (11, 24)
"""Rows to ask for where the graph gives them any length; longer ones where it takes the greatest of more."""

_LONGEST = 1 << 13
"""Of the rows that are asked for."""

_SHORTEST = 3

_DECIDING, _COMPARING = 8_000_000, 16
"""Cost of comparing a function with all methods, and more for each of its values (measured, in units of 10 ns)."""

_BLOCK = 1 << 17
"""Elements of the rows that are compared at a time."""

_SPREADS = (1e-6, 0.01, 0.1, 0.2, 0.3, 0.45, 0.6, 1.0, 2.0, 4.0, 10.0, 25.0)
_SHIFTS = (-20.0, -3.0, 0.0, 1.0, 20.0)
_MOST_ELEMENTS = 30000
"""Of random rows: what is sorted and cut off shows only in many."""


@dataclass(frozen=True)
class Recognised:
    """What a function is.

    Attributes:
        function: The method and its options.
        zeros: Whether it is 0 throughout a row that a mask inside hides throughout.
        guarded: Whether that holds though the method has no weights there.
    """

    function: OwnFunction
    zeros: bool = False
    guarded: bool = False


def recognise(function: Exported, masks: Masks, facts: Facts, counts_when: bool = True) -> Recognised | None:
    """Return the method and the options that a function is, None if it is none of them for certain.

    Args:
        function: The function.
        masks: What masks may have made of its rows.
        facts: The facts of the model, whose budget pays once for each different function.
        counts_when: Of a function with a mask inside, what that is where a position takes part.

    Raises:
        InputError: the functions of the model take more than `softq.limits` allows.
    """
    key = function, masks, counts_when
    own, cost = _price(*key)
    facts.budget.take(len(function.model) + (0 if key in facts.told else cost))
    facts.told.add(key)
    return own


@lru_cache(maxsize=256)
def _price(function: Exported, masks: Masks, counts_when: bool) -> tuple[Recognised | None, int]:
    budget = Budget()
    return _find(function, masks, counts_when, budget), budget.used


def _find(function: Exported, masks: Masks, counts_when: bool, budget: Budget) -> Recognised | None:
    last = function.shape[-1]
    lengths = (last,) if isinstance(last, int) else _choose_lengths(function)
    if not lengths or min(lengths) < _SHORTEST:
        return None
    try:
        evaluator = Evaluator(function, budget, counts_when)
    except Exception:
        # The evaluator lacks operators and refuses models, each in a way of its own.
        return None
    for is_own in (False, True):
        asked: list[_Asked] = []
        for length in lengths:
            rows = _make_probes(length, function.numbers)
            layout = None if rows is None else make_layout(function, length, len(rows), is_own=is_own)
            if rows is not None and layout is not None:
                asked += filter(None, [_ask(evaluator, layout, rows, function, masks)])
        if len(asked) == len(lengths):
            budget.take(_DECIDING + _COMPARING * sum(answer.values.size for answer in asked))
            found = _decide(asked)
            zeros = bool(function.mask) and not any(np.any(one.masked_values[:, one.hidden]) for one in asked)
            guarded = _decide([replace(one, guarded=True) for one in asked]) if found is None and zeros else None
            own = found or guarded
            if own is not None or not function.laid_out:
                return None if own is None else Recognised(own, zeros, guarded is not None)
    return None


def _choose_lengths(function: Exported) -> tuple[int, ...]:
    """Return lengths that tell a function of rows of any length; none where it takes only longer ones."""
    most = max(function.counts, default=0)
    lengths = _LENGTHS if most < min(_LENGTHS) else (most + 3, 2 * most + 5)
    return lengths if max(lengths) <= _LONGEST else ()


@dataclass(frozen=True)
class _Asked:
    """A function with what it answered, and whether a hidden row counts as zeros where a method has no weights."""

    function: Function
    rows: Rows
    values: Rows
    masked: Rows
    masked_values: Rows
    guarded: bool = False

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """Which masked rows are hidden throughout."""
        return np.all(np.isneginf(self.masked), axis=-1)


def _ask(evaluator: Evaluator, layout: RowLayout, rows: Rows, function: Exported, masks: Masks) -> _Asked | None:
    heads = layout.shape[-3] if layout.has_heads else 1
    numbers = tuple(np.array(n) for n in function.numbers if len(n) in {1, heads})
    length = layout.shape[-1]
    masked = _make_masked_rows(length, masks)
    try:
        values, masked_values = evaluator.rows(rows, layout), evaluator.rows(masked, layout.of(len(masked)))
    except InputError:  # a limit is passed
        raise
    except Exception:
        # Shapes that do not fit, and all that the evaluator lacks.
        return None
    own = Function(length, lambda x: evaluator.rows(x, layout.of(len(x))), numbers)
    return _Asked(own, rows, values, masked, masked_values)


def _decide(asked: Sequence[_Asked]) -> OwnFunction | None:
    if any(not np.any(_find_decided(one.rows, one.values)) for one in asked) or all(map(_is_softmax, asked)):
        return None
    for method in METHODS.entries().values():
        with np.errstate(all="ignore"):
            for settings in _list_settings(method, asked[0].function):
                found = _configure(method, settings)
                if found is not None and all(_is_function(method, found, one) for one in asked):
                    return found
    return None


def _list_settings(method: Method, function: Function) -> Iterator[WrittenSettings]:
    """Yield the settings with which a method might be a function, as far as that has numbers to tell them by."""
    if method.written is not None:
        # Of a function of another kind what is computed may be no number: then it is none of this method's.
        with contextlib.suppress(ValueError, OverflowError, ZeroDivisionError):
            yield from method.written(function)


def _is_softmax(asked: _Asked) -> bool:
    """Whether a function is the softmax, behind a guard perhaps: no method is to claim that it is a case of its own."""
    e = np.exp(asked.rows - asked.rows.max(axis=-1, keepdims=True))
    return _agree(e / e.sum(axis=-1, keepdims=True), asked.values, _find_decided(asked.rows, asked.values))


def _configure(method: Method, settings: WrittenSettings) -> OwnFunction | None:
    several = {name: value for name, value in settings.items() if isinstance(value, tuple)}
    words = {name: "head" if isinstance(value, tuple) else value for name, value in settings.items()}
    try:
        options = method.resolve(method.configure(words), False)
        for name, value in several.items():
            for number in value:
                method.options.specs()[name].parse(name, number)
        method.program(options)
    except UsageError:
        return None
    given: Mapping[str, OptionValue] = options.to_json()
    return OwnFunction(method.name, given, several)


def _is_function(method: Method, found: OwnFunction, asked: _Asked) -> bool:
    options = method.configure(found.options)
    program = method.program(options)
    params = method.parameters(options, found.fitted)

    def values(rows: Rows) -> Rows | None:
        heads = max([len(v) for v in found.fitted.values()], default=1)
        try:
            out = run_wide(program, np.broadcast_to(rows, (heads, *rows.shape)), params=params)
        except SoftqError:
            return None
        return out["probabilities"] if program.is_pair is False else out["weights"] / out["normalizer"]

    counts = _find_decided(asked.rows, asked.values)
    # Most mismatches already show on a few rows.
    step = max(_BLOCK // counts[:, 0].size, 1)
    blocks = [slice(first, first + step) for first in range(0, len(asked.rows), step)]
    for some in (slice(None, None, max(len(asked.rows) // 24, 1)), *blocks):
        got = values(asked.rows[some])
        if got is None or not _agree(got, asked.values[:, some], counts[:, some]):
            return False
    got = values(asked.masked)
    if got is not None and asked.guarded:
        got = np.where(asked.hidden[:, None] & np.isnan(got), 0.0, got)
    return got is not None and _agree(got, asked.masked_values, np.ones(asked.masked_values.shape, np.bool_))


def _find_decided(rows: Rows, values: Rows) -> NDArray[np.bool_]:
    """Return which values of a function count.

    Where a whole row of ordinary scores is undefined, a quotient of zeros, a method may say what it is; but not often.
    """
    undefined = np.all(np.isnan(values), axis=-1, keepdims=True)
    great = np.any(np.abs(rows) > ORDINARY, axis=-1, keepdims=True)
    if np.mean(undefined[:, ~great[:, 0]]) > 1 / 4:
        return np.zeros(values.shape, np.bool_)
    overflown = np.any(np.isnan(values), axis=-1, keepdims=True) & great
    return ~(undefined | overflown | (np.abs(values) > GREATEST))


def _agree(got: Rows, wanted: Rows, counts: NDArray[np.bool_]) -> bool:
    got, wanted, counts = np.broadcast_arrays(got, wanted, counts)
    greatest = np.max(np.where(counts, np.nan_to_num(np.abs(wanted)), 0), axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        near = np.abs(got - wanted) <= LEAST + TOLERANCE * (np.abs(wanted) + greatest)
    return bool(np.all(near | ~counts | (np.isnan(got) & np.isnan(wanted))))


def _make_probes(length: int, numbers: Sequence[Sequence[float]]) -> Rows | None:
    """Return rows without masked positions, [R, length], every number an f32; None if they were too many."""
    if (10 * sum(map(len, numbers)) + 150) * length > MOST_ANSWERED:
        return None
    rng = np.random.default_rng(0)
    small = 10.0 ** np.arange(-7, 0)
    own = np.array([n for one in numbers for n in one if abs(n) < ORDINARY])
    around = (own[:, None] + np.array([-1, -1e-3, 0, 1e-3, 1])).reshape(-1)
    grid = np.unique(np.concatenate([np.linspace(-60, 60, 1201), small, -small, around]))
    grid = np.concatenate([grid, rng.normal(size=-len(grid) % length)])
    count = min(max(_MOST_ELEMENTS // (len(_SPREADS) * len(_SHIFTS) * length), 2), 24)
    spreads = [
        np.clip(rng.normal(size=(count, length)) * spread + shift, -ORDINARY, ORDINARY)
        for spread in _SPREADS
        for shift in _SHIFTS
    ]
    flat = np.full((6, length), np.array([-30, -1, 0, 0.7, 1, 30])[:, None])
    alone = np.zeros((6, length))
    alone[:, 1] = [-9, -1e-3, 1e-6, 0.5, 2, 30]
    # A constant added to a sum, or bounding a divisor, shows where one element is about as small.
    tiny = np.array([n**power for n in own if 0 < n < 1e-3 for power in (1, 0.5)]).reshape(-1, 1)
    beside = np.full((5 * len(tiny), length), -9.0)
    beside[:, -1] = (tiny * np.array([0.1, 0.5, 1, 2, 10])).reshape(-1)
    great = np.clip(rng.normal(size=(6, length)) * 1500, -4500, 4500)
    ties = np.clip(rng.integers(-3, 4, size=(8, length)) * np.array([[1], [0.5]]).repeat(4, axis=0), -3, 3)
    rows = [
        grid.reshape(-1, length), rng.permutation(grid).reshape(-1, length), *spreads, flat, alone, beside, great, ties
    ]  # fmt: skip
    return np.concatenate(rows).astype(np.float32).astype(np.float64)


def _make_masked_rows(length: int, masks: Masks) -> Rows:
    """Return rows with positions that a mask hides, [R, length]; none where there is no mask."""
    rng = np.random.default_rng(1)
    made = [np.zeros((0, length))]
    lows = {"none": (), "infinite": (-np.inf,), "any": (-np.inf, -1e4, -1e9, float(np.finfo(np.float32).min))}[masks]
    for low in lows:
        rows = np.concatenate([rng.normal(size=(6, length)) * 2, rng.normal(size=(6, length)) * 2 - 5])
        hidden = rng.random(rows.shape) < 0.5
        hidden[:, 0], hidden[0] = False, True
        made.append(np.where(hidden, low, rows))
        if np.isfinite(low) and low > -1e6:
            made.append(np.where(hidden, rows + low, rows))
    return np.concatenate(made).astype(np.float32).astype(np.float64)
