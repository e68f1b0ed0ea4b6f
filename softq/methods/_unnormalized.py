"""What functions of the scores themselves share, where no maximum is subtracted: who takes part, and special values.

Float scores (`scores`): a finite mask of -10000 is a number like others to a function that is no softmax: even
polynomials would give it nearly all the weight. So an element counts as masked too if its score is at most `HIDDEN` and
`FARTHEST` or more below its row's greatest: the exact softmax would have given it weight 0. A row of such numbers only
is a row of plain scores.

8-bit integer scores (`units`): a table of 256 weights, and no floats. It matters which integer stands for 0. Every
weight is a whole number of W bits, round(f(x) * scale); that of the greatest of all 256 scores just fits, and a row of
small ones has fewer bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from softq.errors import UsageError
from softq.methods._options import OptionValue, option
from softq.methods._scale import integer_step
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import FARTHEST, exact_distance, in_type

HIDDEN = -5000.0
"""Half of -10000, the least mask that counts as one: what is left of it when the scores themselves were added."""


@dataclass(frozen=True)
class Scores:
    """The scores of a row as numbers, and who takes part.

    Attributes:
        row: The scores, row of f32; whatever stands there where an element takes no part.
        part: Where an element takes part, row of bool; scores of NaN and +inf do.
        count: How many do, scalar of f32.
        infinite: Where a score is +inf, row of bool.
        is_nan: Whether an element that takes part is NaN, scalar of bool.
        trace: The trace.
    """

    row: Value
    part: Value
    count: Value
    infinite: Value
    is_nan: Value
    trace: Trace

    def only(self, values: Value, otherwise: float = 0.0) -> Value:
        """Return the values where an element takes part, and `otherwise` elsewhere."""
        return self.trace.select(self.part, values, otherwise)

    def pair(self, weights: Value, normalizer: Value, *, always: bool = False) -> dict[str, Value]:
        """Return a method's two outputs with the special values that every method owes.

        Elements without part weigh 0, scores of +inf share 1, the normalizer is 0 where nothing takes part and NaN in
        a row that holds a NaN. If `always`, the normalizer depends on nothing in the row and holds for an empty one.
        """
        t = self.trace
        ones = t.select(self.infinite, t.const(1.0, DType.F32), 0.0)
        shared = t.row_sum(ones)
        own = normalizer if always else t.select(self.count > 0.0, normalizer, 0.0)
        some = t.select(shared > 0.0, shared, own)
        return {
            "weights": in_type(t, "product", t.select(shared > 0.0, ones, self.only(weights))),
            "normalizer": t.select(self.is_nan, math.nan, some),
        }


def scores(t: Trace) -> Scores:
    """Return the f32 scores of the trace and who takes part."""
    d = exact_distance(t)
    x = t.scores
    # A NaN or +inf is at no distance, and takes part; so does what is not beyond both borders.
    far = (d.row >= FARTHEST) & (x <= HIDDEN)
    part = ~far if t.valid is None else ~far & t.valid
    infinite = part & x.eq(math.inf)
    count = t.row_sum(t.select(part, t.const(1.0, DType.F32), 0.0))
    return Scores(x, part, count, infinite, d.is_nan, t)


WEIGHT_BITS = 15


def step_option() -> float:
    """Return the field for the step of integer scores."""
    return integer_step(16.0)


def zero_option() -> int:
    """Return the field for the integer that stands for 0."""
    return option(0, "8-bit integer scores only: the integer that stands for 0", low=-128, high=255)


def weight_bits_option() -> int:
    """Return the field for the width of weights."""
    return option(WEIGHT_BITS, "8-bit integer scores only: bits of an unsigned weight", low=8, high=24)


FLOATS: Mapping[str, OptionValue] = {"step": 0.0, "zero": 0, "weight_bits": WEIGHT_BITS}
"""What these options are where scores are floats: `Options.unnamed`."""


@dataclass(frozen=True)
class Units:
    """8-bit scores as real numbers.

    Attributes:
        trace: The trace.
        values: The real number that each score is, from the least score on.
        bits: Bits of a weight.
    """

    trace: Trace
    values: tuple[float, ...]
    bits: int

    def weigh(self, weight: Callable[[float], float], most: int) -> tuple[Value, int]:
        """Return the weights, row of u32, and 2^F, what stands for 1: each weight fits W bits; at most 2^most.

        Raises:
            UsageError: the weights are so great that 1 is less than a unit.
        """
        greatest = max(map(weight, self.values))
        fraction = min(self.bits - math.frexp(greatest)[1], most)
        if fraction < 0:
            raise UsageError(
                f"{self.trace.scores.dtype.value} scores with this step have weights up to {greatest:.3g}, of which "
                f"{self.bits} bits hold no fraction of 1: a smaller step, or more weight_bits"
            )
        return self.look_up(weight, 2**fraction), 2**fraction

    def share(self, weight: Callable[[float], float]) -> tuple[Value, float]:
        """Return the weights, row of u32, where only ratios count, and what stands for 1: the greatest is 2^W - 1."""
        scale = (2**self.bits - 1) / (max(map(weight, self.values)) or 1.0)
        return self.look_up(weight, scale), scale

    def look_up(self, weight: Callable[[float], float], scale: float) -> Value:
        """Return round(scale * weight) of each score, row of u32, 0 where an element takes no part."""
        t = self.trace
        entries = [math.floor(weight(x) * scale + 0.5) for x in self.values]
        at = t.cast(t.scores, DType.I32) - t.scores.dtype.low
        return self.only(t.lut(t.table(entries, DType.U32), at))

    def only(self, values: Value) -> Value:
        """Return the values where an element takes part, else 0."""
        t = self.trace
        return values if t.valid is None else t.select(t.valid, values, 0)

    def count(self) -> Value:
        """Return how many elements take part, scalar of u32."""
        t = self.trace
        return t.cast(t.length(), DType.U32) if t.valid is None else t.row_sum(self.only(t.const(1, DType.U32)))

    def divisor(self, value: float, one: int) -> Value:
        """Return a number that weights are divided by, scalar of u32.

        Raises:
            UsageError: whole numbers of 32 bits do not hold it.
        """
        if not 2**6 <= value * one < 2**32:
            raise UsageError(
                f"{self.trace.scores.dtype.value} scores with this step have weights over {value:g}, which integers of "
                "32 bits do not hold"
            )
        return self.trace.const(round(value * one), DType.U32)

    def where_any(self, normalizer: Value) -> Value:
        """Return the normalizer, 0 where no element takes part."""
        return self.trace.select(self.count() > 0, normalizer, 0)


def units(t: Trace, step: float, zero: int, weight_bits: int) -> Units:
    """Return the integer scores of the trace as real numbers, for weights of so many bits.

    Raises:
        UsageError: they are not of 8 bits, or have no step.
    """
    scores = t.scores.dtype
    if scores.bits != 8 or not step > 0:
        raise UsageError(f"{scores.value} scores with step={step:g}: integer scores are of 8 bits, with a step above 0")
    values = tuple(step * (i - zero) for i in range(scores.low, scores.high + 1))
    return Units(t, values, weight_bits)
