"""Scores less the logarithm of the sum of their exponentials, in all spellings: the logarithm of a softmax."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from softq.forms.matching.exponentials import Decomposed, without_maximum
from softq.forms.matching.layout_ops import Moved, are_same, follow, is_plain
from softq.forms.matching.quotients import OVERFLOW, SUMS
from softq.forms.matching.reductions import Reduced, find_reduction, fits
from softq.graph.facts import Facts
from softq.graph.patterns import match, matches
from softq.graph.queries import is_op, producer


def find_log_quotient(difference: ir.Value, facts: Facts) -> Decomposed | None:
    """Return the logarithm of a softmax that a value is, None if it is something else."""
    found = match(difference, "Sub(scores, logarithm)")
    if found is None:
        return None
    below, moved = follow(found["logarithm"], facts), follow(found["scores"], facts)
    reductions = _find_reductions(below, moved.source, facts)
    if reductions is None and moved.path:
        # What is summed may be the scores as they are read here.
        moved = Moved(found["scores"], ())
        reductions = _find_reductions(below, moved.source, facts)
    if reductions is None:
        return None
    exposed = len(reductions) == 1 and is_op(reductions[0].node, *SUMS) and producer(moved.source, "Sub") is None
    axes = reductions[0].axes
    if axes is None or any(r.axes != axes for r in reductions):
        why = "the axes that it sums over are not constant, or the rank of its scores is not known"
        return Decomposed(moved.source, None, moved, why)
    if not all(fits(moved, reduced, difference, facts) for reduced in reductions):
        return Decomposed(moved.source, axes, moved, "it is not proved that every score meets the sum of its own row")
    return Decomposed(without_maximum(moved.source, axes, facts), axes, moved, note=OVERFLOW if exposed else "")


def _find_reductions(logarithm: Moved, scores: ir.Value, facts: Facts) -> list[Reduced] | None:
    """Return the reductions, as they are read, of log(sum(exp(scores))); that of the scores themselves."""
    direct = find_reduction(logarithm, ["ReduceLogSumExp"], facts)
    if direct is not None:
        return [direct] if are_same(direct.source, scores) else None
    if (total := _find_sum(logarithm, facts)) is not None:
        return [total] if are_same(total.source, scores) else None
    # max + log(sum(exp(x - max)))
    for terms in matches(logarithm.source, "Add(maximum, rest) | Add(rest, maximum)"):
        first, second = (_above(logarithm, terms[name], facts) for name in ("maximum", "rest"))
        maximum, total = find_reduction(first, ["ReduceMax"], facts), _find_sum(second, facts)
        if maximum is None or maximum.axes is None or total is None or not are_same(maximum.source, scores):
            continue
        inner = match(total.source, "Sub(x, maximum)")
        stripped = without_maximum(total.source, maximum.axes, facts)
        # What is subtracted inside has to be what is added outside.
        equal = inner is not None and are_same(follow(inner["maximum"], facts).source, first.source, 6)
        if equal and stripped is not total.source and are_same(_plain_source(stripped, facts), scores):
            return [replace(total, source=scores), maximum]
    return None


def _find_sum(logarithm: Moved, facts: Facts) -> Reduced | None:
    """Return the sum in log(sum(exp(y))) as a reduction of y, which has the same axes."""
    found = match(logarithm.source, "Log(x)")
    total = None if found is None else find_reduction(_above(logarithm, found["x"], facts), SUMS, facts)
    exponent = None if total is None else match(total.source, "Exp(x)")
    if total is None or exponent is None:
        return None
    return replace(total, source=_plain_source(exponent["x"], facts))


def _above(moved: Moved, operand: ir.Value, facts: Facts) -> Moved:
    """Return where an operand comes from of the node whose result is moved."""
    node = moved.source.producer()
    assert node is not None, "what has an operand is a node"
    return follow(operand, facts, path=(node, *moved.path))


def _plain_source(value: ir.Value, facts: Facts) -> ir.Value:
    """Return what a value was before casts, the value itself if axes were moved as well."""
    behind = follow(value, facts)
    return behind.source if is_plain(behind.path) else value
