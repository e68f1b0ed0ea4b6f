"""What functions of the scores themselves share, where no maximum is subtracted: who takes part, and special values.

A finite mask of -10000 is a number like others to a function that is no softmax: even polynomials would give it nearly
all the weight. So an element counts as masked too if its score is at most `HIDDEN` and `FARTHEST` or more below its
row's greatest: the exact softmax would have given it weight 0. A row of such numbers only is a row of plain scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import FARTHEST, distance

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
    """

    row: Value
    part: Value
    count: Value
    infinite: Value
    is_nan: Value

    def only(self, values: Value, otherwise: float = 0.0) -> Value:
        """Return the values where an element takes part, and `otherwise` elsewhere."""
        return self.row.trace.select(self.part, values, otherwise)

    def pair(self, weights: Value, normalizer: Value, *, always: bool = False) -> dict[str, Value]:
        """Return a method's two outputs with the special values that every method owes.

        Elements without part weigh 0, scores of +inf share 1, the normalizer is 0 where nothing takes part and NaN in
        a row that holds a NaN. If `always`, the normalizer depends on nothing in the row and holds for an empty one.
        """
        t = weights.trace
        ones = t.select(self.infinite, t.const(1.0, DType.F32), 0.0)
        shared = t.row_sum(ones)
        own = normalizer if always else t.select(self.count > 0.0, normalizer, 0.0)
        some = t.select(shared > 0.0, shared, own)
        return {
            "weights": t.select(shared > 0.0, ones, self.only(weights)),
            "normalizer": t.select(self.is_nan, math.nan, some),
        }


def scores(t: Trace) -> Scores:
    """Return the f32 scores of the trace and who takes part."""
    d = distance(t)
    x = t.scores
    # A NaN or +inf is at no distance, and takes part; so does what is not beyond both borders.
    far = (d.row >= FARTHEST) & (x <= HIDDEN)
    part = ~far if t.valid is None else ~far & t.valid
    infinite = part & x.eq(math.inf)
    count = t.row_sum(t.select(part, t.const(1.0, DType.F32), 0.0))
    return Scores(x, part, count, infinite, d.is_nan)
