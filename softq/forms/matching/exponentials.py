"""Exponentials as graphs write them: which scores they are of, and what is done to them before they are summed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from softq.forms.matching.facts import Facts
from softq.forms.matching.layout_ops import follow, is_plain
from softq.forms.matching.reductions import find_reduction, fits
from softq.forms.matching.value_sets import BITS, ZERO, levels
from softq.graph.queries import constant, is_op, operand, producer


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


def find_exponential(value: ir.Value, facts: Facts) -> Exponential | None:
    """Return the exponential that `value` is, None if it is none."""
    node = producer(value, "Exp", "Pow", "Mul", "Where")
    if node is None:
        return None
    if is_op(node, "Exp"):
        exponent = operand(node, 0)
        return None if exponent is None else Exponential(exponent)
    if is_op(node, "Pow"):
        base, exponent = number(operand(node, 0)), operand(node, 1)
        return Exponential(exponent, math.log(base)) if exponent is not None and base is not None and base > 0 else None
    if is_op(node, "Mul"):
        for index in (0, 1):
            inner = _inner(operand(node, index), facts)
            mask = operand(node, 1 - index)
            if inner is not None and mask is not None:
                return _struck_out(inner, mask, node, facts)
    if is_op(node, "Where"):
        for index in (1, 2):
            inner, other = _inner(operand(node, index), facts), operand(node, 3 - index)
            condition = operand(node, 0)
            if inner is not None and condition is not None and levels(other, facts) == ZERO:
                return Exponential(inner.exponent, inner.factor, condition, index == 1)
    return None


def _inner(value: ir.Value | None, facts: Facts) -> Exponential | None:
    if value is None or producer(value, "Exp", "Pow") is None:
        return None
    return find_exponential(value, facts)


def _struck_out(inner: Exponential, mask: ir.Value, node: ir.Node, facts: Facts) -> Exponential:
    found = levels(mask, facts)
    if found is None or not set(found.values) <= set(BITS.values):
        why = f"its exponentials are multiplied by {mask.name!r}, which is not proved to be 0 or 1 everywhere"
        return Exponential(inner.exponent, inner.factor, refusal=why)
    cast = producer(mask, "Cast")
    inside = None if cast is None else operand(cast, 0)
    boolean = inside if inside is not None and facts.dtype(inside) == ir.DataType.BOOL else mask
    return Exponential(inner.exponent, inner.factor, boolean, keeps_nan=True)


def number(value: ir.Value | None) -> float | None:
    """Return the number that a constant of one element is, None if it is no such constant."""
    tensor = constant(value)
    if tensor is None or tensor.size != 1 or tensor.dtype == np.bool_:
        return None
    found = float(tensor.reshape(-1)[0])
    return found if math.isfinite(found) else None


def without_maximum(exponent: ir.Value, axes: tuple[int, ...], facts: Facts) -> ir.Value:
    """Return the scores from which their maximum over at least `axes` was subtracted, else the exponent itself."""
    behind = follow(exponent, facts)
    difference = producer(behind.source, "Sub")
    scores = None if difference is None else operand(difference, 0)
    if difference is None or scores is None or not is_plain(behind.path) or _casts(behind.path):
        return exponent
    greatest = find_reduction(operand(difference, 1), ["ReduceMax"], facts)
    if greatest is None or greatest.axes is None or not set(axes) <= set(greatest.axes):
        return exponent
    moved = follow(scores, facts)
    if not is_plain(moved.path):
        # The axes of the maximum are counted in another layout than that of the exponent.
        return exponent
    return scores if fits(moved, greatest, difference.outputs[0], facts) else exponent


def _casts(path: tuple[ir.Node, ...]) -> bool:
    # The difference in float16 and its exponential in float32 are more exact than a softmax in float16.
    return any(is_op(node, "Cast") for node in path)
