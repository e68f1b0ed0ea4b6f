"""What the methods that quantize the probabilities share: the exact softmax of a row, not yet divided."""

from __future__ import annotations

import math
from dataclasses import dataclass

from softq.rowprog import Trace, Value
from softq.rowprog.library import Distance, distance, exp_minus


@dataclass(frozen=True)
class Softmax:
    """The exact softmax of a row: p = exponentials / total.

    Attributes:
        distance: The distance of each score from the row's maximum.
        exponentials: e^-distance, row of f32 in [0, 1]; 0 for masked elements.
        total: Their sum, scalar; 0 for a fully masked row, else at least 1.
        divisor: The sum, or 1 for a fully masked row.
    """

    distance: Distance
    exponentials: Value
    total: Value
    divisor: Value

    def scale(self, t: Trace, steps: Value) -> Value:
        """Return p * steps, row of f32: one product instead of a division per element; 0 in a fully masked row."""
        return self.exponentials * t.divide(steps, self.divisor)

    def from_zero(self, t: Trace) -> Value:
        """Return the distances without NaN: 0 for scores of +inf and in a row that holds a NaN; +inf where masked."""
        return t.max(self.distance.row, 0.0)

    def normalizer(self, t: Trace, one: Value) -> Value:
        """Return `one`, the weight that stands for p = 1; 0 for a fully masked row, NaN for one that holds a NaN."""
        return t.select(self.distance.is_nan, math.nan, t.select(self.total <= 0.0, 0.0, one))


def softmax(t: Trace) -> Softmax:
    """Return the exact softmax of the f32 scores of the trace."""
    d = distance(t)
    e = exp_minus(t, d.row)
    total = t.row_sum(e)
    return Softmax(d, e, total, t.max(total, 1.0))
