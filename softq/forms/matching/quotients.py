"""Exponentials over their own sum, in all spellings, and scores less the logarithm of that sum."""

from __future__ import annotations

import math
from dataclasses import replace

import onnx_ir as ir

from softq.forms.matching.changed_sums import NEGLIGIBLE, Changes, find_shifted, is_maximum
from softq.forms.matching.exponentials import Decomposed, find_exponential, read_number, without_maximum
from softq.forms.matching.layout_ops import Moved, are_same, follow, is_plain, move_layout, own_layout
from softq.forms.matching.reductions import Reduced, find_reduction, fits
from softq.graph.facts import Facts
from softq.graph.patterns import match, matches
from softq.graph.queries import is_op, operand, producer

SUMS = ("ReduceSum", "ReduceL1")
"""Sums of exponentials, which are not negative."""

OVERFLOW = "no maximum is subtracted, so its exponentials can overflow; after the conversion they cannot"
"""What is worth telling where no maximum is subtracted."""


def find_quotient(above: Moved, below: Moved, result: ir.Value, facts: Facts) -> Decomposed | None:
    """Return the softmax that exponentials over their sum are, None if it is something else.

    Args:
        above: The exponentials.
        below: Their sum, with the path on which it, or its inverse, comes.
        result: The quotient.
        facts: Shapes of the model.
    """
    total = _find_sum(below, Changes(), facts)
    if total is None or not are_same(above.source, total[0].source):
        return None
    return _find_over(above, *total, result, facts)


def find_inverted(inverse: ir.Value, facts: Facts) -> Moved | None:
    """Return what a value is one over, as it is read; None if it is something else."""
    behind = follow(inverse, facts)
    found = match(behind.source, "Reciprocal(total) | Div(one, total) | Pow(total, minus_one)")
    numbers = () if found is None else ((name, 1 if name == "one" else -1) for name in found if name != "total")
    if found is None or any(read_number(found[name]) != number for name, number in numbers):
        return None
    return follow(found["total"], facts, path=behind.path)


def find_normalized(node: ir.Node, facts: Facts) -> Decomposed | None:
    """Return the softmax that exponentials are whose absolute values an LpNormalization makes sum to 1."""
    axis, given = node.attributes.get("axis"), operand(node, 0)
    if given is None or (axis is not None and axis.is_ref()):
        return None
    above = follow(given, facts)
    layout = move_layout(own_layout(above.source, facts), above.path, facts)
    place = -1 if axis is None else axis.as_int()
    if layout is None or not -len(layout) <= place < len(layout):
        return None
    label = layout[place]
    left = tuple(None if i == place % len(layout) else other for i, other in enumerate(layout))
    reduced = Reduced(node, above.source, None if label is None else (label,), left, spreads=False, simple=False)
    return _find_over(above, reduced, Changes(), node.outputs[0], facts)


def _find_over(above: Moved, reduced: Reduced, changes: Changes, result: ir.Value, facts: Facts) -> Decomposed | None:
    """Return the softmax that values over their sum are, None if they are no exponentials."""
    exponential = find_exponential(above.source, facts)
    if exponential is None:
        reshape = match(above.source, "Reshape(x)")
        reshaped = None if reshape is None else find_exponential(follow(reshape["x"], facts).source, facts)
        why = "its exponentials are reshaped before they are summed, which cuts or joins axes"
        return None if reshaped is None else Decomposed(reshaped.exponent, None, above, why, "", reshaped)
    exponent, axes = exponential.exponent, reduced.axes
    if axes is None:
        why = "the axes that it sums over are not constant, or the rank of its scores is not known"
        return Decomposed(exponent, None, above, why, "", exponential)
    if not fits(above, reduced, result, facts):
        why = "the shapes do not prove that every exponential is divided by the sum of its own row"
        return Decomposed(exponent, axes, above, why, "", exponential)
    # Where some are struck out, the maximum is over all of them, and a NaN among them reaches the others.
    stripped = without_maximum(exponent, axes, facts) if exponential.is_plain else exponent
    stable = stripped is not exponent
    added, refusal = changes.added, exponential.refusal or changes.refusal
    if changes.shift is not None:
        # e^(x - m) / (sum + e^(c - m)) is e^x / (sum of e^x + e^c), whatever m is in a row.
        shifted = find_shifted(exponent, changes.shift, axes, facts)
        if shifted is None:
            why = "an exponential is added to its sum that is not e^(c - m) where the scores are less m"
            refusal = refusal or why
        exponent = exponent if shifted is None else shifted
        stable = exponential.is_plain and is_maximum(changes.shift, exponent, axes, changes.score, facts)
    if stable and 0 <= added <= NEGLIGIBLE.get(facts.dtype(reduced.node.outputs[0]) or ir.DataType.DOUBLE, 0):
        added = 0.0
    refusal = refusal or changes.refuse_bounds(stable, axes, exponent, facts)
    if changes.shift is not None:
        refusal = refusal or (f"{added:g} and an exponential are added to its sum" if added else "")
        added = math.exp(changes.score)
    refusal = refusal or _refuse_addend(added, axes)
    note = "" if stable or changes.shift is not None or producer(stripped, "Sub") is not None else OVERFLOW
    # With a constant in the sum, subtracting the maximum changes the result.
    scores = exponent if added or refusal else stripped
    return Decomposed(scores, axes, above, refusal, note, exponential, added)


def _refuse_addend(added: float, axes: tuple[int, ...]) -> str:
    """Return why a constant in the sum is not the exponential of one more score; empty if it is."""
    if added < 0:
        return f"{added:g} is added to its sum, which is negative, as no exponential is"
    several = f"{added:g} is added to its sum, which would be one more score, but a row has several axes"
    return several if added and len(axes) != 1 else ""


def _find_sum(moved: Moved, changes: Changes, facts: Facts, depth: int = 3) -> tuple[Reduced, Changes] | None:
    """Return the sum behind at most `depth` constants, and what these do to it."""
    reduced = find_reduction(moved, SUMS, facts)
    if reduced is not None:
        return reduced, changes
    node = producer(moved.source, "Add", "Max", "Min", "Clip", "Where")
    if node is None or depth == 0 or (len(node.inputs) > 2 and node.op_type not in {"Clip", "Where"}):
        return None
    # The sum may be either operand of the outermost node, and the first one of those inside.
    inputs = node.inputs[1:] if node.op_type == "Where" else node.inputs[: 2 if depth == 3 else 1]
    for inside in inputs[:1] if node.op_type == "Clip" else inputs:
        # In a layout, such a node counts as one that hands its elements on.
        found = inside and _find_sum(
            follow(inside, facts, path=(node, *moved.path)), changes.apply(node, inside, facts), facts, depth - 1
        )
        if found:
            return found
    return None


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
        why = "the shapes do not prove that each score is less the logarithm of its own row"
        return Decomposed(moved.source, axes, moved, why)
    return Decomposed(without_maximum(moved.source, axes, facts), axes, moved, note=OVERFLOW if exposed else "")


def _find_reductions(logarithm: Moved, scores: ir.Value, facts: Facts) -> list[Reduced] | None:
    """Return the reductions, as they are read, of log(sum(exp(scores))); that of the scores themselves."""
    direct = find_reduction(logarithm, ["ReduceLogSumExp"], facts)
    if direct is not None:
        return [direct] if are_same(direct.source, scores) else None
    if (total := _find_log_sum(logarithm, facts)) is not None:
        return [total] if are_same(total.source, scores) else None
    # max + log(sum(exp(x - max)))
    for terms in matches(logarithm.source, "Add(maximum, rest) | Add(rest, maximum)"):
        first, second = (_above(logarithm, terms[name], facts) for name in ("maximum", "rest"))
        maximum, total = find_reduction(first, ["ReduceMax"], facts), _find_log_sum(second, facts)
        if maximum is None or maximum.axes is None or total is None or not are_same(maximum.source, scores):
            continue
        inner = match(total.source, "Sub(x, maximum)")
        stripped = without_maximum(total.source, maximum.axes, facts)
        # What is subtracted inside has to be what is added outside.
        equal = inner is not None and are_same(follow(inner["maximum"], facts).source, first.source, 6)
        if equal and stripped is not total.source and are_same(_plain_source(stripped, facts), scores):
            return [replace(total, source=scores), maximum]
    return None


def _find_log_sum(logarithm: Moved, facts: Facts) -> Reduced | None:
    """Return the sum in log(sum(exp(y))) as a reduction of y, which has the same axes."""
    found = match(logarithm.source, "Log(x)")
    if found is None:
        total = find_reduction(logarithm, ["ReduceLogSum"], facts)
    else:
        total = find_reduction(_above(logarithm, found["x"], facts), SUMS, facts)
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
