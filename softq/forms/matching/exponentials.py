"""Softmaxes written out: which scores their exponentials are of, and what is done to these before they are summed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from softq.forms.matching.layout_ops import Moved, follow, is_plain
from softq.forms.matching.reductions import find_reduction, fits
from softq.forms.matching.value_sets import BITS, ZERO, find_values
from softq.graph.facts import Facts
from softq.graph.patterns import match, matches
from softq.graph.queries import MOVES_ONLY, chain_above, constant, constant_tensor, is_op


@dataclass(frozen=True, eq=False)
class Exponential:
    """The exponential of some scores, some of them perhaps struck out.

    Attributes:
        exponent: What the exponential is taken of, as the graph has it.
        factor: What the exponent has to be multiplied by if the base is not e.
        mask: A value that is 1 (or true) where an exponential counts and 0 (or false) elsewhere; None if all do.
        counts_when: The value of `mask` where an exponential counts.
        keeps_nan: Whether an exponential that is NaN counts though it is struck out, as a product with 0 is NaN.
        refusal: Why it cannot be told what is struck out; empty if it can.
    """

    exponent: ir.Value
    factor: float = 1.0
    mask: ir.Value | None = None
    counts_when: bool = True
    keeps_nan: bool = False
    refusal: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it is the exponential of the exponent alone."""
        return self.factor == 1 and self.mask is None


@dataclass(frozen=True, eq=False)
class Decomposed:
    """A softmax, or the logarithm of one, that is written out.

    Attributes:
        scores: What it is taken of, without the maximum that is subtracted from them where that is the same.
        axes: The axes of a row, counted from the end of the scores; None if not known.
        moved: What meets the sum, with the path on which it comes.
        refusal: Why it is not to be converted; empty if it can.
        note: What is worth telling.
        exponential: What is done to the exponentials; None if they are those of the scores.
        added: A constant that is added to the sum.
    """

    scores: ir.Value
    axes: tuple[int, ...] | None
    moved: Moved
    refusal: str = ""
    note: str = ""
    exponential: Exponential | None = None
    added: float = 0.0


def find_exponential(value: ir.Value, facts: Facts) -> Exponential | None:
    """Return the exponential that `value` is, None if it is none."""
    bare = _find_bare(value)
    if bare is not None:
        return bare
    for found in matches(value, "Mul(e, mask) | Mul(mask, e)"):
        bare = _find_bare(found["e"])
        if bare is not None:
            return _strike_out(bare, found["mask"], facts)
    for pattern, counts_when in (("Where(condition, e, other)", True), ("Where(condition, other, e)", False)):
        for found in matches(value, pattern):
            bare = _find_bare(found["e"])
            if bare is not None and find_values(found["other"], facts) == ZERO:
                return replace(bare, mask=found["condition"], counts_when=counts_when)
    return None


def _find_bare(value: ir.Value) -> Exponential | None:
    """Return an exponential of which none are struck out."""
    if (found := match(value, "Exp(x)")) is not None:
        return Exponential(found["x"])
    found = match(value, "Pow(base, x)")
    base = None if found is None else read_number(found["base"])
    return Exponential(found["x"], math.log(base)) if found is not None and base is not None and base > 0 else None


def _strike_out(bare: Exponential, mask: ir.Value, facts: Facts) -> Exponential:
    found, cast = find_values(mask, facts), match(mask, "Cast(x)")
    if found is None or not set(found.values) <= set(BITS.values):
        why = f"its exponentials are multiplied by {mask.name!r}, which is not proved to be 0 or 1 everywhere"
        *_, source = chain_above(mask, *MOVES_ONLY - {"Concat"}, "Identity", "Cast")
        integer = (dtype := facts.dtype(source)) is not None and dtype.is_integer()
        why += f"; if {source.name!r} is 1 where a position takes part, say --mask {source.name}" if integer else ""
        return replace(bare, refusal=why)
    is_boolean = cast is not None and facts.dtype(cast["x"]) == ir.DataType.BOOL
    return replace(bare, mask=cast["x"] if cast is not None and is_boolean else mask, keeps_nan=True)


def read_number(value: ir.Value | None) -> float | None:
    """Return the number that a constant of one element is, None if it is no such constant."""
    held = constant_tensor(value)
    # The size first: to read a large constant for each of its readers would take for ever.
    tensor = None if held is None or held.size != 1 else constant(value)
    if tensor is None or tensor.dtype == np.bool_:
        return None
    found = float(tensor.reshape(-1)[0])
    return found if math.isfinite(found) else None


def without_maximum(exponent: ir.Value, axes: tuple[int, ...], facts: Facts) -> ir.Value:
    """Return the scores from which their maximum over at least `axes` was subtracted, else the exponent itself."""
    behind = follow(exponent, facts)
    difference = match(behind.source, "Sub(x, maximum)")
    # The difference in float16 and its exponential in float32 are more exact than a softmax in float16.
    if difference is None or not is_plain(behind.path) or any(is_op(node, "Cast") for node in behind.path):
        return exponent
    maximum = find_reduction(follow(difference["maximum"], facts), ["ReduceMax"], facts)
    moved = follow(difference["x"], facts)
    # Behind other moves, the axes of the maximum are counted in another layout than that of the exponent.
    if maximum is None or maximum.axes is None or not set(axes) <= set(maximum.axes) or not is_plain(moved.path):
        return exponent
    return difference["x"] if fits(moved, maximum, behind.source, facts) else exponent
