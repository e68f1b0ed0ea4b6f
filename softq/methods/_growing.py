"""Steps that grow with the distance from the maximum: the curve of the codes, their weights, and the curve's fit.

With u the distance in octaves (powers of 2 of the weight) the code is c = rint(sqrt(max(u r + o, 0)) - h), where
o = (h + 1/2)^2 - f r makes code 1 begin at f octaves. Why a root: the squared error of a sum of weights is least where
steps grow with the distance, since what lies far weighs little; f and h are what the root alone gets wrong: the width
of the maximum's own interval, and how fast the first steps grow.
Source: softq; the exact optimum for known densities is the companding of Bennett (Bell Syst. Tech. J. 27, 1948).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from softq.methods._contract import FITTED_SCOPES, Error, OptionSpec, OptionValue

SHAPE: Mapping[str, str] = {"first": "f", "shift": "h", "slope": "m"}
"""The options that shape growing steps besides r, each with its letter in the structure's name."""

_SLOPE_BITS = 2
"""Up to so many bits a slope is fitted; with more it raised SmolLM2's perplexity, though the error of P V fell."""


@dataclass(frozen=True)
class Curve:
    """Where codes begin, in octaves, and what they weigh: elements become more by 2^slope an octave."""

    r: float
    first: float
    shift: float
    slope: float

    @property
    def offset(self) -> float:
        """What makes code 1 begin at `first` octaves."""
        # 1 / r * r is not always 1, and rounded roots have nothing to add.
        if self.shift == 0 and self.first == plain(self.r)["first"]:
            return 0.0
        return (0.5 + self.shift) ** 2 - self.first * self.r

    def start(self, code: int) -> float:
        """Return the octaves at which a code from 1 on begins."""
        return ((code - 0.5 + self.shift) ** 2 - self.offset) / self.r

    def code(self, octaves: float) -> int:
        """Return the code of a distance, which no greatest one limits."""
        return max(math.floor(math.sqrt(max(octaves * self.r + self.offset, 0.0)) - self.shift + 0.5), 0)

    def weights(self, codes: int) -> list[float]:
        """Return the weights of so many codes: 1, then each the mean over its interval."""
        return [1.0, *(_mean(self.start(code), self.start(code + 1), self.slope) for code in range(1, codes))]


USUAL = {2: Curve(1.3, 0.8, 0.2, 0.2), 3: Curve(6.5, 0.4, 0.8, 0.0), 4: Curve(23.0, 0.17, 0.7, 0.0)}
"""By bits, without calibration data: middle of what the sites of SmolLM2-135M and models/wikipedia_lm are fitted to."""


def plain(r: float) -> dict[str, float]:
    """Return the shape whose codes are the rounded roots themselves."""
    return {"first": 0.25 / r, "shift": 0.0, "slope": 0.0}


def beside(bits: int, r: OptionValue) -> Mapping[str, OptionValue]:
    """Return the shape that goes with r if nothing else is said: fitted with it, or for a number the plain one."""
    if isinstance(r, str):
        return {"first": r, "shift": r, "slope": r if bits <= _SLOPE_BITS else 0.0}
    return plain(float(r))


def curve(options: Mapping[str, OptionValue], fitted: Mapping[str, float]) -> Curve:
    """Return the curve; a shape that neither the options nor what is fitted say is the plain one."""
    names = ("r", *SHAPE)
    numbers = {name: float(options[name]) for name in names if not isinstance(options[name], str)}
    numbers |= {name: float(fitted[name]) for name in names if name in fitted}
    return Curve(**{**plain(numbers["r"]), **numbers})


_MOVES = {"end": 0.12, "first": 0.4, "shift": 0.4, "slope": 0.3}
"""The search's first steps; those of end and first are factors' logarithms."""

_FINEST = 1 / 8
"""The last steps of the search, of the first ones."""


def fit(
    bits: int,
    options: Mapping[str, OptionValue],
    rates: Sequence[float],
    limits: Mapping[str, OptionSpec],
    error: Error,
) -> Mapping[str, float]:
    """Return r, and the shape's numbers that are to be fitted, with the least error that is found.

    Along one axis after the other, with steps that are halved when none of them leads down any more. Instead of r goes
    the distance at which the code of zero begins: with r itself, a move of the shift would move that end as well, and
    the search would creep along a bent valley.

    Args:
        bits: Bits of a code.
        options: The method's options; those that are words of a scope are fitted.
        rates: Numbers for r to begin with, the best of which is taken.
        limits: What the options allow.
        error: The squared error of P V.
    """
    top = 2**bits - 1
    free = ["end", *(name for name in SHAPE if options[name] in FITTED_SCOPES)]
    known: dict[tuple[float, ...], float] = {}

    def limited(name: str, value: float) -> float:
        return min(max(value, limits[name].low), limits[name].high)

    def numbers(at: Mapping[str, float]) -> dict[str, float]:
        rise = (top - 0.5 + at["shift"]) ** 2 - (0.5 + at["shift"]) ** 2
        found = {"r": limited("r", rise / (at["end"] - at["first"]))}
        return found | {name: at[name] for name in free if name != "end"}

    def loss(at: Mapping[str, float]) -> float:
        key = tuple(at.values())
        if key not in known:
            known[key] = error(numbers(at))
        return known[key]

    def moved(at: Mapping[str, float], name: str, by: float) -> dict[str, float]:
        by *= _MOVES[name]
        value = at[name] + by if name in ("shift", "slope") else at[name] * math.exp(by)
        if name == "end":
            return {**at, name: max(value, 2 * at["first"])}
        return {**at, name: min(limited(name, value), at["end"] / 2) if name == "first" else limited(name, value)}

    usual = asdict(USUAL[bits])
    begin = curve(options, {name: usual[name] for name in ("r", *free) if name != "end"})
    shape = {name: getattr(begin, name) for name in SHAPE}
    best = min(({"end": replace(begin, r=r).start(top), **shape} for r in rates), key=loss)
    size = 1.0
    while size >= _FINEST:
        before = best
        for name in free:
            for sign in (1, -1):
                while loss(at := moved(best, name, sign * size)) < loss(best):
                    best = at
        if best == before:
            size /= 2
    return numbers(best)


def _mean(low: float, high: float, slope: float) -> float:
    """Return the mean of 2^-u over [low, high], where the density grows as 2^(slope u)."""
    return 2.0**-low * _integral(slope - 1, high - low) / _integral(slope, high - low)


def _integral(rate: float, width: float) -> float:
    """Return the integral of 2^(rate u) over [0, width]."""
    return math.expm1(rate * math.log(2) * width) / (rate * math.log(2)) if rate else width
