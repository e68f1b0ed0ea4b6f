"""How the codes of a distance from the maximum lie: where each begins (thresholds), and what it weighs.

Distances are in octaves, powers of 2 of the weight. Equal steps have r codes per octave. Of growing ones code c begins
at u_c = ((c - 1/2 + h)^2 - o) / r with o = (h + 1/2)^2 - f r, so that code 1 begins at f octaves and the code of u is
rint(sqrt(max(u r + o, 0)) - h). Why a root: the squared error of a sum of weights is least where steps grow with the
distance, since what lies far weighs little; f and h are what the root alone gets wrong: the width of the maximum's own
interval, and how fast the first steps grow. Of a distance that is rounded to a byte, 1/16 octave a unit, each of the
256 values has its code, and thresholds lie halfway between two of them.
Source: softq; the exact optimum for known densities is the companding of Bennett (Bell Syst. Tech. J. 27, 1948).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeVar

from softq.errors import UsageError
from softq.methods import _steps_numbers as numbers
from softq.methods._options import FITTED_SCOPES, Auto, Options, OptionValue, option
from softq.rowprog.program import Scope

LEAST_R, GREATEST_R = 0.125, 64.0
GREATEST_R_OF_BYTES = 2048.0
LEAST_FIRST, GREATEST_FIRST = 0.25 / GREATEST_R, 4.0
GREATEST_SHIFT = 4.0

PER_OCTAVE = 16
"""Units of a distance in a byte: coarse enough for 16 octaves, too fine for the error of P V to show it."""

GREATEST_BYTE = 255

SHAPE: Mapping[str, str] = {"first": "f", "shift": "h", "slope": "m"}
"""The options that shape growing steps besides r, each with its letter in the structure's name."""

_FITTED_SLOPE_BITS = 2
"""Up to so many bits a slope is fitted; with more it raised SmolLM2's perplexity, though the error of P V fell."""


@dataclass(frozen=True)
class Code:
    """A code of b bits as two tables; its last value is an exact zero.

    Attributes:
        thresholds: The octaves at which the codes from 1 to 2^b - 1 begin, rising.
        weights: What each code weighs, from 1 for the code 0 to 0 for the last.
    """

    thresholds: tuple[float, ...]
    weights: tuple[float, ...]

    def find(self, octaves: float) -> int:
        """Return the code of a distance."""
        return bisect_right(self.thresholds, octaves)

    def of_bytes(self) -> bytes:
        """Return the code of each distance that a byte holds."""
        return bytes(self.find(unit / PER_OCTAVE) for unit in range(GREATEST_BYTE + 1))

    def to_integers(self, one: int) -> list[int]:
        """Return the weights as unsigned integers, with a given one for 1."""
        return [round(float(one) * weight) for weight in self.weights]


def exact_integers(one: int) -> list[int]:
    """Return what each distance in a byte weighs with no code, as unsigned integers; the last one is an exact zero."""
    return [*(round(one * 2.0 ** (-unit / PER_OCTAVE)) for unit in range(GREATEST_BYTE)), 0]


def equal_steps(top: int, r: float) -> Code:
    """Return the code with r values per octave; each weighs what the middle of its interval does."""
    thresholds = ((code - 0.5) / r for code in range(1, top + 1))
    return Code(tuple(thresholds), (*(2.0 ** (-code / r) for code in range(top)), 0.0))


@dataclass(frozen=True)
class Growth:
    """How steps grow, and by how much the elements of a row become more per octave: by a factor of 2^slope."""

    r: float
    first: float
    shift: float
    slope: float

    @property
    def offset(self) -> float:
        """What makes code 1 begin at `first` octaves."""
        # 1 / r * r is not always 1, and rounded roots have nothing to add.
        if self.shift == 0 and self.first == rounded_roots(self.r)["first"]:
            return 0.0
        return (0.5 + self.shift) ** 2 - self.first * self.r

    def steps(self, top: int, *, of_bytes: bool = False) -> Code:
        """Return the code, of distances in bytes if asked for; each value weighs the mean over its interval."""
        thresholds = tuple(((code - 0.5 + self.shift) ** 2 - self.offset) / self.r for code in range(1, top + 1))
        thresholds = _between_bytes(thresholds) if of_bytes else thresholds
        means = (_mean(low, high, self.slope) for low, high in pairwise(thresholds))
        return Code(thresholds, (1.0, *means, 0.0))


def _between_bytes(thresholds: Sequence[float]) -> tuple[float, ...]:
    """Return the nearest thresholds that lie between two bytes; each code has one byte at least, the last one 255."""
    byte, found = 0, list[float]()
    for left, threshold in zip(reversed(range(len(thresholds))), thresholds, strict=True):
        byte = min(max(math.ceil(threshold * PER_OCTAVE), byte + 1), GREATEST_BYTE - left)
        found.append((byte - 0.5) / PER_OCTAVE)
    return tuple(found)


def _mean(low: float, high: float, slope: float) -> float:
    """Return the mean of 2^-u over [low, high], where the density grows as 2^(slope u)."""
    return 2.0**-low * _integral(slope - 1, high - low) / _integral(slope, high - low)


def _integral(rate: float, width: float) -> float:
    """Return the integral of 2^(rate u) over [0, width]."""
    return math.expm1(rate * math.log(2) * width) / (rate * math.log(2)) if rate else width


R_EQUAL = {2: 0.5, 3: 0.75, **{bits: 2.0 ** (bits - 4) for bits in range(4, 9)}}
"""r of equal steps by bits, without calibration data: a range of 16 octaves from 4 bits on; below, finer steps are
worth more than the far end of the range."""


def rounded_roots(r: float) -> dict[str, float]:
    """Return the shape whose codes are the rounded roots themselves."""
    return {"first": 0.25 / r, "shift": 0.0, "slope": 0.0}


def shape_beside(bits: int, r: OptionValue) -> Mapping[str, OptionValue]:
    """Return the shape that goes with r if nothing else is said: fitted with it, or for a number rounded roots."""
    if isinstance(r, str):
        return {"first": r, "shift": r, "slope": r if bits <= _FITTED_SLOPE_BITS else 0.0}
    roots = rounded_roots(float(r))
    # Of distances in bytes r is so great that the least `first` is above that of the roots, and both below a byte.
    return roots | {"first": max(roots["first"], LEAST_FIRST)}


@dataclass(frozen=True)
class StepOptions(Options):
    """Width of the codes, and how they lie."""

    bits: int = option(4, "bits of a code", low=2, high=8)
    steps: Literal["auto", "equal", "growing"] = option(
        "auto", "how the codes lie; growing is for 2 to 7 bits, of a distance as a float for 2 to 4; auto: growing "
        "up to 7 bits where r is no number or first, shift or slope is given above 0; else equal"
    )  # fmt: skip
    distance: Literal["auto", "float", "byte"] = option(
        "auto", "what a code is found by: the distance from the maximum as a float, or, with growing steps, rounded to "
        "1/16 octave in a byte, with up to 7 bits then, and a table of 256 codes in the place of the root; auto: byte "
        "with growing steps where r is no number, or that are growing for first, shift or slope, or have more than 4 "
        "bits; else float"
    )  # fmt: skip
    r: float | Auto | Scope = option(
        "auto", "codes per octave (factor of 2 of the weight; their square with growing steps), or fit one per site or "
        "head; auto: fitted per site where there are calibration data, else with equal steps 1 at 4 bits, doubled by "
        "each further bit, 0.75 at 3 bits and 0.5 at 2, with growing steps what suits the width",
        low=LEAST_R, high=GREATEST_R_OF_BYTES,
    )  # fmt: skip
    first: float | Auto | Scope = option(
        "auto", "with growing steps: octaves below the maximum at which code 1 begins, or fit it per site or head; "
        "auto: fitted where r is; 1 / (4 r) where r is a number; else what suits the width",
        low=LEAST_FIRST, high=GREATEST_FIRST,
    )  # fmt: skip
    shift: float | Auto | Scope = option(
        "auto", "with growing steps: what is taken off the root, so that the first steps differ less; or fit it per "
        "site or head; auto: fitted where r is; 0 where r is a number; else what suits the width",
        low=0.0, high=GREATEST_SHIFT,
    )  # fmt: skip
    slope: float | Auto | Scope = option(
        "auto", "with growing steps: octaves by which the elements of a row become more per octave, or fit it per site "
        "or head; auto: fitted where r is at 2 bits; else what suits the width without calibration data, and 0",
        low=0.0, high=2.0,
    )  # fmt: skip

    @property
    def top(self) -> int:
        """The greatest code, that of exact zero."""
        return 2**self.bits - 1

    @property
    def shape(self) -> dict[str, float | str]:
        """First, shift and slope."""
        return {"first": self.first, "shift": self.shift, "slope": self.slope}

    @property
    def is_shaped(self) -> bool:
        """Whether something is said that growing steps alone have: 0 says nothing, equal steps have neither."""
        return any(value not in ("auto", 0.0) for value in self.shape.values())

    @property
    def of_bytes(self) -> bool:
        """Whether codes are found by a distance in a byte."""
        return self.distance == "byte"

    @property
    def greatest_r(self) -> float:
        """The greatest r that the program is for."""
        return GREATEST_R_OF_BYTES if self.of_bytes else GREATEST_R

    @property
    def built_in(self) -> numbers.Numbers:
        """The numbers of growing steps without calibration data, by bits."""
        return numbers.OF_BYTES if self.of_bytes else numbers.OF_FLOATS

    def growth(self, fitted: Mapping[str, float]) -> Growth:
        """Return how steps grow, fitted numbers in place of the options; rounded roots where neither says anything."""
        r = float(fitted.get("r", self.r))
        given = {name: float(value) for name, value in self.shape.items() if not isinstance(value, str)}
        return Growth(r, **{**rounded_roots(r), **given, **{name: fitted[name] for name in SHAPE if name in fitted}})

    def code(self, fitted: Mapping[str, float]) -> Code:
        """Return where the codes begin and what they weigh, fitted numbers in place of the options."""
        r = float(fitted.get("r", self.r))
        if r > self.greatest_r:
            where = "but for distance=byte" if self.steps == "growing" else "with equal steps, more with steps=growing"
            raise UsageError(f"deferred-log: r is {r:g}; allowed is up to {self.greatest_r:g} {where}")
        if self.steps == "growing":
            return self.growth(fitted).steps(self.top, of_bytes=self.of_bytes)
        return equal_steps(self.top, r)


S = TypeVar("S", bound=StepOptions)


def resolve_steps(options: S, calibrated: bool) -> S:
    """Return the options with what is usual, or what is fitted, in place of each "auto"."""
    if options.steps == "auto":
        widths = numbers.OF_FLOATS if options.distance == "float" else numbers.OF_BYTES
        said = options.is_shaped or isinstance(options.r, str)
        grow = options.distance == "byte" or (said and options.bits in widths)
        # What only growing steps have is said to name the steps that are usual, which are of bytes.
        of_bytes = options.distance == "byte" or (grow and options.distance == "auto")
        options = replace(options, steps="growing" if grow else "equal", distance="byte" if of_bytes else "float")
    if options.distance == "auto":
        only_bytes = options.bits not in numbers.OF_FLOATS or isinstance(options.r, str)
        bytes_do = options.steps == "growing" and options.bits in numbers.OF_BYTES and only_bytes
        options = replace(options, distance="byte" if bytes_do else "float")
    check_steps(options)
    r = "site" if options.r == "auto" and calibrated else options.r
    if options.steps == "equal":
        return replace(options, r=R_EQUAL[options.bits] if r == "auto" else r)
    usual = options.built_in[options.bits] if r == "auto" else {"r": r, **shape_beside(options.bits, r)}
    return replace(options, r=usual["r"], **{name: usual[name] for name, v in options.shape.items() if v == "auto"})


LEAST_REACH = 2.0
"""Octaves down to the last code above zero, below which no fit of equal steps looks (`softq.methods._steps_fit`)."""


def doubt_reach(options: StepOptions) -> str:
    """Return what there is to say of equal steps that end near the maximum; empty of all others."""
    if options.steps == "growing" or isinstance(options.r, str):
        return ""
    most, reach = (options.top - 1) / LEAST_REACH, (options.top - 1) / options.r
    if reach >= LEAST_REACH:
        return ""
    return (
        f"r is {options.r:g} with equal steps of {options.bits} bits: their last weight lies {reach:.2g} octaves below "
        f"the maximum, and all beyond it is 0; fits of equal steps take at most r={most:g}"
    )


def check_steps(options: StepOptions) -> None:
    """Refuse options that do not go with their steps, which are equal where they are auto."""
    growing, widths = options.steps == "growing", options.built_in
    if growing and options.bits not in widths:
        raise UsageError(
            f"deferred-log: steps is growing with {options.bits} bits; growing steps are for {min(widths)} to "
            f"{max(widths)} bits{' of a distance in a byte' * options.of_bytes}"
        )
    if options.of_bytes and not growing:
        raise UsageError("deferred-log: distance is byte with equal steps; it is for growing ones")
    for name, value in options.shape.items() if not growing else ():
        if value not in ("auto", 0.0):
            raise UsageError(f"deferred-log: {name} is {value} with equal steps; it is for growing ones")


def check_traceable(options: StepOptions) -> None:
    """Refuse options that leave open what a program needs; a number for r alone settles the steps, equal."""
    fitted = options.r in FITTED_SCOPES
    if options.r == "auto" or (options.steps == "auto" and (fitted or options.is_shaped)):
        raise UsageError("deferred-log: steps or r is auto; resolve() the options first")
    check_steps(options)
    for name, value in options.shape.items():
        if value == "auto" and options.steps == "growing" and fitted:
            raise UsageError(f"deferred-log: {name} is auto; resolve() the options first")
        if value in FITTED_SCOPES and not fitted:
            raise UsageError(f"deferred-log: {name} is fitted for a {value} and r is not; fit both")
