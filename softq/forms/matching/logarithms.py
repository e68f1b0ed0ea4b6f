"""Scores less the logarithm of the sum of their exponentials, in all spellings: the logarithm of a softmax."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.forms.matching.exponentials import without_maximum
from softq.forms.matching.facts import Facts
from softq.forms.matching.layout_ops import Moved, follow, is_plain, same
from softq.forms.matching.quotients import OVERFLOW
from softq.forms.matching.reductions import Reduced, fits, reduction_of
from softq.graph.queries import is_op, operand, producer

_SUMS = ("ReduceSum", "ReduceL1")


@dataclass(frozen=True, eq=False)
class LogQuotient:
    """The logarithm of a softmax, written as a difference.

    Attributes:
        scores: The scores, without the maximum that is subtracted from them.
        axes: The axes of a row, counted from the end; None if not known.
        moved: The scores with the path on which they come.
        refusal: Why it is not to be converted; empty if it can.
        note: What is worth telling.
    """

    scores: ir.Value
    axes: tuple[int, ...] | None
    moved: Moved
    refusal: str = ""
    note: str = ""


def find_log_quotient(difference: ir.Node | None, facts: Facts) -> LogQuotient | None:
    """Return the logarithm of a softmax that a Sub is, None if it is something else."""
    if difference is None or not is_op(difference, "Sub"):
        return None
    above, below, result = operand(difference, 0), operand(difference, 1), difference.outputs[0]
    if above is None or below is None:
        return None
    moved = follow(above, facts)
    reductions = _logarithm_of_sum(below, moved.source, facts)
    if reductions is None and moved.path:
        # What is summed may be the scores as they are read here.
        moved = Moved(above, ())
        reductions = _logarithm_of_sum(below, above, facts)
    if reductions is None:
        return None
    exposed = len(reductions) == 1 and is_op(reductions[0].node, *_SUMS) and producer(moved.source, "Sub") is None
    axes = reductions[0].axes
    if axes is None or any(r.axes != axes for r in reductions):
        why = "the axes that it sums over are not constant, or the rank of its scores is not known"
        return LogQuotient(moved.source, None, moved, why)
    if not all(fits(moved, reduced, result, facts) for reduced in reductions):
        return LogQuotient(moved.source, axes, moved, "it is not proved that every score meets the sum of its own row")
    return LogQuotient(without_maximum(moved.source, axes, facts), axes, moved, note=OVERFLOW if exposed else "")


def _logarithm_of_sum(value: ir.Value, scores: ir.Value, facts: Facts) -> list[Reduced] | None:
    """Return the reductions, as they are read, of log(sum(exp(scores))); that of the scores themselves."""
    behind = follow(value, facts)
    direct = reduction_of(behind.source, behind.path, ["ReduceLogSumExp"], facts)
    if direct is not None:
        return [direct] if same(direct.source, scores) else None
    added = producer(behind.source, "Add")
    if added is None:
        found = _logarithm(behind.source, behind.path, facts)
        return None if found is None or not same(found[1], scores) else [_over(found[0], scores)]
    # max + log(sum(exp(x - max)))
    for index in (0, 1):
        greatest, inner = operand(added, index), operand(added, 1 - index)
        if greatest is None or inner is None:
            continue
        first, second = follow(greatest, facts), follow(inner, facts)
        path = (added, *behind.path)
        maximum = reduction_of(first.source, (*first.path, *path), ["ReduceMax"], facts)
        found = _logarithm(second.source, (*second.path, *path), facts)
        if maximum is None or found is None or not same(maximum.source, scores):
            continue
        difference = producer(found[1], "Sub")
        subtracted = None if difference is None else operand(difference, 1)
        stripped = found[1] if maximum.axes is None else without_maximum(found[1], maximum.axes, facts)
        # What is subtracted inside has to be what is added outside.
        equal = subtracted is not None and same(follow(subtracted, facts).source, first.source, 6)
        if equal and stripped is not found[1] and same(_plain_source(stripped, facts), scores):
            return [_over(found[0], scores), maximum]
    return None


def _logarithm(value: ir.Value, path: tuple[ir.Node, ...], facts: Facts) -> tuple[Reduced, ir.Value] | None:
    """Return the sum in log(sum(exp(y))) as read at the end of `path`, and y."""
    node = producer(value, "Log")
    inside = None if node is None else operand(node, 0)
    if node is None or inside is None:
        return None
    behind = follow(inside, facts)
    total = reduction_of(behind.source, (*behind.path, node, *path), _SUMS, facts)
    exponential = None if total is None else producer(total.source, "Exp")
    exponent = None if exponential is None else operand(exponential, 0)
    if total is None or exponent is None:
        return None
    return total, _plain_source(exponent, facts)


def _plain_source(value: ir.Value, facts: Facts) -> ir.Value:
    """Return what a value was before casts, the value itself if axes were moved as well."""
    behind = follow(value, facts)
    return behind.source if is_plain(behind.path) else value


def _over(total: Reduced, scores: ir.Value) -> Reduced:
    """Return a sum of exponentials as a reduction of what they are of, which has the same axes."""
    return Reduced(total.node, scores, total.axes, total.layout, total.spreads, total.simple)
