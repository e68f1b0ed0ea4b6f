"""Which of softq's methods a runtime computes: to the bit, or the nearest.

Each method that takes scores of the type is run with each combination of its words and numbers of bits, for the scale
of the scores at hand, on rows that the runtime has answered. What it gives (weights over their normalizer) is brought
into the type of the result: integers by rounding to the nearest, or down.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from softq.audit.subject import Reals, Subject
from softq.audit.task import Array
from softq.errors import SoftqError
from softq.methods import METHODS, Method, Options, OptionValue
from softq.rowprog import DType, Program, run

_MOST_CHOICES = 256
"""Combinations of options of one method."""
_MOST_NUMBERS = 32
"""Numbers of an option of whole numbers (bits, above all) that are all tried."""
_SCREENED = 192
"""Rows on which all candidates are tried; those that do best get all rows."""
_OF_A_METHOD = 3
_KEPT = 6
_RANDOM, _TELLING = 2048, 512
"""Random rows among which those are looked for that tell equal candidates apart, and how many of these are tried."""
_ROUNDINGS: Mapping[str, Callable[[Reals], Reals]] = {"nearest": np.rint, "down": np.floor}
_SCALE = "step"
"""The option that says what one unit of integer scores is."""


@dataclass(frozen=True)
class Candidate:
    """A method with options, and how far its results are from the runtime's.

    Attributes:
        method: Its name.
        options: Those that are not as they usually are.
        rounding: How its values become integers: nearest, or down; empty for floats.
        equal: The share of elements whose result is the same.
        greatest: The greatest difference, in units of the result.
        mean: The mean difference.
    """

    method: str
    options: Mapping[str, OptionValue]
    rounding: str
    equal: float
    greatest: float
    mean: float

    @property
    def is_equal(self) -> bool:
        """Whether all results are the same."""
        return self.equal == 1.0


@dataclass(frozen=True)
class _Tried:
    candidate: Candidate
    program: Program


def identify(
    subject: Subject, answered: Sequence[tuple[Array, Array]], rng: np.random.Generator | None
) -> tuple[Candidate, ...]:
    """Return the methods that are nearest to what a runtime gave, the nearest first.

    Those that are equal are tried further, on rows that tell them from each other.

    Args:
        subject: The runtime's softmax.
        answered: Rows of finite scores [R, N], and what the runtime gave.
        rng: Where random rows come from; None where the runtime cannot be asked.

    Raises:
        FailureError: the runtime gives no result for such rows.
    """
    some = [(x[_spread(len(x))], found[_spread(len(x))]) for x, found in answered]
    tried = [one for method in METHODS.entries().values() for one in _best(_try(subject, method, some))]
    tried.sort(key=_rank)
    # Equal ones all go on: some rows are too few to tell them apart.
    kept = [one for number, one in enumerate(tried) if number < _KEPT or one.candidate.is_equal]
    whole = sorted((again for one in kept for again in _compare(subject, one, answered)), key=_rank)
    equal = [one for one in whole if one.candidate.is_equal]
    if len(equal) > 1 and rng is not None and not subject.is_float:
        whole = _separate(subject, equal, answered, rng) or equal
    first = {one.candidate.method: one.candidate for one in reversed(whole)}
    return tuple(sorted(first.values(), key=_rank_candidate))[:_KEPT]


def _separate(
    subject: Subject, equal: Sequence[_Tried], answered: Sequence[tuple[Array, Array]], rng: np.random.Generator
) -> list[_Tried]:
    """Return those of some equal candidates that are equal on rows on which they differ from each other, too."""
    length = answered[-1][0].shape[1]
    x = np.concatenate([_random_rows(subject, length, rng), _random_rows(subject, min(length, 3), rng, length)])
    units = [_round(subject, one.candidate.rounding, compute(subject, one.program, x)) for one in equal]
    differ = np.any(np.stack(units) != units[0], axis=(0, -1))
    if not np.any(differ):
        return []
    telling = x[differ][:_TELLING]
    found = subject.compute(telling)
    more = [*answered, (telling, found)]
    return sorted((one for old in equal for one in _compare(subject, old, more)), key=_rank)


def _random_rows(subject: Subject, length: int, rng: np.random.Generator, width: int | None = None) -> Array:
    """Return random integer scores of several spreads; beyond `length` elements the least score."""
    assert subject.scores is not None, "integers"
    spread = rng.choice([0.5, 1.0, 2.0, 4.0], (_RANDOM, 1)) / subject.scores.scale
    x = np.rint(rng.normal(size=(_RANDOM, length)) * spread + (subject.lowest + subject.highest + 1) / 2)
    rows = np.full((_RANDOM, width or length), subject.lowest)
    rows[:, :length] = np.clip(x, subject.lowest, subject.highest)
    return rows.astype(subject.dtype)


def _best(tried: Iterable[_Tried]) -> list[_Tried]:
    return sorted(tried, key=_rank)[:_OF_A_METHOD]


def _rank(one: _Tried) -> tuple[bool, float, float, int]:
    return _rank_candidate(one.candidate)


def _rank_candidate(found: Candidate) -> tuple[bool, float, float, int]:
    # Among equally near ones, the one with the fewest options comes first.
    return (not found.is_equal, found.mean, found.greatest, len(found.options))


def _spread(count: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, count - 1, _SCREENED).astype(np.intp))


def _try(subject: Subject, method: Method, answered: Sequence[tuple[Array, Array]]) -> Iterator[_Tried]:
    """Yield a method's candidates, each with how near it is; options with the same program only once."""
    scores = DType.F32 if subject.is_float else DType.named(subject.dtype)
    if scores is None or not (scores.is_float or method.integer_scores):
        return
    seen: set[Options] = set()
    for settings in itertools.islice(_settings(subject, method), _MOST_CHOICES):
        try:
            options = method.resolve(method.configure(settings), False)
            if options in seen or options.fitted:
                continue
            seen.add(options)
            program = method.program(options, scores=scores)
        except SoftqError:
            continue  # Options that do not go together, or not with such scores.
        for rounding in _ROUNDINGS if subject.result is not None else ("",):
            candidate = Candidate(method.name, settings, rounding, 0.0, math.inf, math.inf)
            yield from _compare(subject, _Tried(candidate, program), answered)


def _settings(subject: Subject, method: Method) -> Iterator[Mapping[str, OptionValue]]:
    """Yield the combinations of an option's words and whole numbers, where these are few; the usual ones come first."""
    choices: dict[str, Sequence[OptionValue]] = {}
    for name, spec in method.options.specs().items():
        if subject.scores is not None and name == _SCALE:
            choices[name] = (subject.scores.scale,)
        elif spec.number is int and spec.high - spec.low < _MOST_NUMBERS:
            choices[name] = range(int(spec.low), int(spec.high) + 1)
        elif spec.number is None:
            choices[name] = spec.words
    usual = {one.name: cast("OptionValue", one.default) for one in fields(method.options)}
    ordered = {
        name: [value for value in dict.fromkeys((usual[name], *values)) if value in values]
        for name, values in choices.items()
    }
    for values in itertools.product(*ordered.values()):
        yield {name: value for name, value in zip(ordered, values, strict=True) if value != usual[name]}


def _compare(subject: Subject, tried: _Tried, answered: Sequence[tuple[Array, Array]]) -> Iterator[_Tried]:
    """Yield a candidate with how near it is on these rows; nothing where its program takes no such rows."""
    parts: list[Reals] = []
    for x, found in answered:
        try:
            units = _round(subject, tried.candidate.rounding, compute(subject, tried.program, x))
        except SoftqError:
            return
        parts.append(subject.errors(found, units).ravel())
    off = np.concatenate(parts)
    near = {"equal": float(np.mean(off == 0)), "greatest": float(np.max(off)), "mean": float(np.mean(off))}
    yield _Tried(replace(tried.candidate, **near), tried.program)


def _round(subject: Subject, rounding: str, units: Reals) -> Reals:
    return _ROUNDINGS[rounding](units) if subject.result is not None else units


def compute(subject: Subject, program: Program, x: Array) -> Reals:
    """Return what a program gives, in units of the result, of integers not rounded."""
    given = x.astype(np.float32) if subject.scores is None else x
    out = run(program, given)
    values = out.get("probabilities")
    if values is None:
        with np.errstate(all="ignore"):
            # Floats are divided as a kernel of their type does it.
            kind = np.float32 if subject.is_float else np.float64
            values = out["weights"].astype(kind) / out["normalizer"].astype(kind)
    if subject.result is None:
        with np.errstate(over="ignore"):
            return subject.to_units(values.astype(subject.dtype))
    return subject.result.encode(values.astype(np.float64))
