"""How masked positions get into the scores, what a fully masked row then is, and whether the mask can be lifted.

What is masked is written as -inf, or as a finite value so low that its exponential is zero beside any real score. The
three ways differ in what a row without any unmasked element becomes, with c the value written or added:

* -inf: every score is -inf, the softmax is NaN.
* Where(condition, x, c), c finite: every score is c, the softmax is uniform.
* x + c, c finite: the scores keep their differences, the softmax is that of x itself. Unless c *absorbs* x: in float32
  the neighbours of c = -1e30 are 2^76 apart, so x + c = c for every |x| < 2^75, and the row is uniform again. Nothing
  overflows, -3.4e38 included: x + c rounds to c, not to -inf, as long as |x| < 2^103. bfloat16 has the same exponents
  and fewer digits, so it absorbs more. float16's least value -65504 absorbs only |x| < 16, and x <= -16 makes it -inf:
  there the row is the softmax of whatever scores come out.

Lifting a mask (the softmax then sees x and a boolean beside it) keeps the meaning for every finite x if c is -inf; if c
is finite, for every row with an unmasked element above c + 104 (what float32's exponential needs to be zero); and for c
that absorbs, for |x| < 2^75. An addition of any other finite c is not lifted: a fully masked row would lose the scores
it still has. Nor is a finite mask over scores that may hold -inf from another mask. Where x may have fewer elements
than the masked scores, because the mask broadcasts it, the boolean is set beside the masked scores.

Masks of -inf add up: of several in a row each is lifted, and what is done to the scores between them and behind them
(a cast, a positive factor, the addition of a bias) is done to the scores without them.

A tensor that the user says is a mask is lifted by comparison whatever its fully masked rows are: these rows count as
not masked, and the scores keep it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import onnx_ir as ir

from softq.forms.matching.mask_sources import Lift, Source, Step, find_source, is_declared, is_far_below, split_bias
from softq.forms.matching.value_sets import MASKED, ValueSet, cast, find_values
from softq.graph.facts import Dims, Facts
from softq.graph.queries import MOVES_ONLY, cast_target, is_constant, is_passthrough, operand
from softq.site import MaskedRow, MaskKind

ABSORBING = -1e30
"""From here down an addend swallows a float32 or bfloat16 score: see the module's text."""


@dataclass(frozen=True, eq=False)
class FoundMask:
    """The mask in front of a softmax; `lift` is None if it has to stay in the scores, and `why` says why."""

    kind: MaskKind
    masked_row: MaskedRow
    lift: Lift | None = None
    why: str = ""


NO_MASK = FoundMask("none", "nan")
"""Without a mask a row of nothing but -inf scores gives NaN."""


def find_mask(scores: ir.Value, facts: Facts, depth: int = 6) -> FoundMask:
    """Return the masks among the nodes that lead to `scores`, looking through at most `depth` of them."""
    value, steps, moved = scores, list[Step](), ""
    for _ in range(depth):
        node = value.producer()
        if node is None or node.domain:
            break
        if node.op_type == "Cast" and facts.dtype(value) is not None:
            steps.insert(0, Step(node, 0))
        elif node.op_type in {"Where", "Add"}:
            match_node = _match_where if node.op_type == "Where" else _match_add
            found = match_node(node, tuple(steps), facts, depth - 1)
            return replace(found, lift=None, why=moved) if moved and found.lift is not None else found
        elif node.op_type in {"Mul", "Div"} and _is_positive(operand(node, 1), facts):
            steps.insert(0, Step(node, 0))
        elif node.op_type in MOVES_ONLY - {"Concat"} or (
            node.op_type in {"Mul", "Div"} and is_constant(operand(node, 1))
        ):
            moved = f"{node.op_type} changes the masked scores before the softmax"
        elif not is_passthrough(node, facts.view.container_of(node).opset):
            break
        below = operand(node, 0)
        if below is None:
            break
        value = below
    return NO_MASK


def _is_positive(value: ir.Value | None, facts: Facts) -> bool:
    found = find_values(value, facts)
    return found is not None and found.low > 0 and math.isfinite(found.values[-1])


def _match_where(node: ir.Node, steps: tuple[Step, ...], facts: Facts, depth: int) -> FoundMask:
    condition, first, second = (operand(node, i) for i in range(3))
    if condition is None or first is None or second is None:
        return NO_MASK
    sides = [(second, first, True), (first, second, False)]
    for constant_side, scores, valid_when in sides:
        written = find_values(constant_side, facts)
        if written is None or written.values[-1] > MASKED:
            continue
        row = _row_of_written(written, steps)
        lift = Lift(scores, steps, (Source(condition, valid_when),))
        return _decide_lift("where", row, lift, (condition, constant_side), node.outputs[0], facts, depth)
    if any(is_far_below(side, facts) for side, _, _ in sides):
        return FoundMask("where", "uniform", why="what it writes is computed from the scores")
    if any(find_values(side, facts) is not None for side, _, _ in sides):
        return NO_MASK
    return FoundMask("unproven", "nan", why="both sides of the Where in front of the softmax are computed at run time")


def _match_add(node: ir.Node, steps: tuple[Step, ...], facts: Facts, depth: int) -> FoundMask:
    first, second = operand(node, 0), operand(node, 1)
    if first is None or second is None:
        return NO_MASK
    proven = False
    for addend, scores in ((second, first), (first, second)):
        if is_declared(addend, facts):
            return _match_declared(addend, scores, facts, depth)
        added = find_values(addend, facts)
        proven = proven or added is not None
        if added is None or added.low > MASKED:
            continue
        masked = ValueSet(tuple(v for v in added.values if v <= MASKED), added.few)
        row = _row_of_added(masked, steps, facts.dtype(node.outputs[0]))
        if not added.few or any(v != 0 for v in added.values if v > MASKED):
            why = "what is added has values that mask and others that do not, as a bias"
            return FoundMask("additive", "nan" if math.isinf(added.low) else "scores", why=why)
        if row == "scores":
            return FoundMask("additive", row, why="a finite mask is added, and a fully masked row keeps its scores")
        lift = Lift(scores, steps, (find_source(addend, facts),))
        return _decide_lift("additive", row, lift, (addend,), node.outputs[0], facts, depth)
    # What is added is a bias, or a float tensor about which nothing is proved; a mask may still be further in.
    inner = [find_mask(side, facts, depth - 1) for side in (first, second)] if depth > 0 else []
    for index, found in enumerate(inner):
        if found.lift is not None and found.lift.total:
            return found
        if found.lift is not None and found.masked_row == "nan" and found.lift.scores is not None:
            return replace(found, lift=replace(found.lift, steps=(*found.lift.steps, Step(node, index), *steps)))
    for addend, scores, index in ((second, first, 0), (first, second, 1)):
        for source, bias in split_bias(addend, facts):
            lift = Lift(scores, (Step(node, index, bias), *steps), (source,))
            return _decide_lift("additive", "nan", lift, (source.value,), node.outputs[0], facts, depth)
    for found in inner:
        if found.kind in {"where", "additive"}:
            row: MaskedRow = "scores" if found.masked_row == "uniform" else found.masked_row
            return replace(found, masked_row=row, lift=None, why="another tensor is added after the mask")
    if proven and not any(found.kind == "unproven" for found in inner):
        return NO_MASK
    return FoundMask("unproven", "nan", why="a tensor that may be a mask is added to the scores (--mask NAME says so)")


def _match_declared(addend: ir.Value, scores: ir.Value, facts: Facts, depth: int) -> FoundMask:
    """Return the mask that the caller declares, with those under it.

    A row that they hide only together keeps its scores: so they count as one, or not at all, and an addition of which
    nothing is proved may be a mask.
    """
    below = find_mask(scores, facts, depth)
    if below.lift is None and below.kind != "none" and not is_declared(scores, facts):
        why = "another that stays in the scores" if below.kind != "unproven" else "an addition that may be another"
        return FoundMask("additive", "scores", why=f"before the mask that --mask names there is {why}")
    sources = () if below.lift is None else below.lift.sources
    if is_declared(scores, facts):  # the sum of two masks
        sources = (Source(scores, None),)
    return FoundMask("additive", "scores", Lift(None, (), (*sources, Source(addend, None)), total=True))


def _row_of_written(written: ValueSet, steps: tuple[Step, ...]) -> MaskedRow:
    after = _apply_steps(written, steps)
    if after is None:
        return "scores"
    if math.isinf(after.low):
        # Of several values some may be finite, but only a row of nothing but -inf has no softmax of its own.
        return "nan"
    return "uniform" if after.few and len(after.values) == 1 else "scores"


def _row_of_added(masked: ValueSet, steps: tuple[Step, ...], dtype: ir.DataType | None) -> MaskedRow:
    absorbs = dtype in {ir.DataType.FLOAT, ir.DataType.BFLOAT16} and masked.values[-1] <= ABSORBING
    if absorbs or masked.values == (-math.inf,):
        return _row_of_written(masked, steps)
    # Halved: the sum with any score smaller than the other half is this low.
    after = _apply_steps(ValueSet(tuple(v / 2 for v in masked.values), masked.few), steps)
    if after is not None and after.values[-1] == -math.inf:
        return "nan"
    return "nan" if math.isinf(masked.low) else "scores"


def _apply_steps(written: ValueSet | None, steps: tuple[Step, ...]) -> ValueSet | None:
    for step in steps:
        # A positive factor leaves finite what is finite, unless it is a great one.
        if written is not None and step.node.op_type == "Cast":
            written = cast(written, cast_target(step.node))
    return written


def _decide_lift(
    kind: MaskKind,
    row: MaskedRow,
    lift: Lift,
    operands: tuple[ir.Value, ...],
    masked_scores: ir.Value,
    facts: Facts,
    depth: int,
) -> FoundMask:
    written = find_values(operands[-1], facts)
    masked = {v for v in (written.values if written is not None else ()) if v <= MASKED}
    factor = next((step.node.op_type for step in lift.steps if step.node.op_type != "Cast"), None)
    below = None if lift.scores is None else find_mask(lift.scores, facts, depth - 1)
    why = ""
    if row == "scores" or written is None or not written.few or len(masked) > 1:
        why = "the masked positions may have several values"
    elif row == "uniform" and below is not None and below.kind != "none":
        why = "the scores before this finite mask may be masked themselves"
    elif row == "uniform" and factor is not None:
        why = f"{factor} between the mask and the softmax changes the number that masks"
    shape = facts.shape(lift.scores)
    same = shape is not None and None not in shape and facts.shape(masked_scores) == shape
    if not same and not all(keeps_shape(shape, facts.shape(operand)) for operand in operands):
        lift = replace(lift, scores=None, steps=())
    elif row == "nan" and not why and below is not None and below.lift is not None and below.masked_row == "nan":
        inner = below.lift
        if inner.scores is not None:
            lift = Lift(inner.scores, (*inner.steps, *lift.steps), (*inner.sources, *lift.sources))
    return FoundMask(kind, row, None if why else lift, why)


def keeps_shape(scores: Dims | None, other: Dims | None) -> bool:
    """Whether an operand of shape `other` is proved to broadcast to `scores` and not the other way round."""
    if scores is None or other is None or len(other) > len(scores):
        return False
    pairs = zip(reversed(scores), reversed(other), strict=False)
    return all(o == 1 or (s == o and s is not None) or (isinstance(s, int) and s != 1) for s, o in pairs)
