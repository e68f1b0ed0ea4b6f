"""Changes of the sum of exponentials in a quotient: added constants, guards, and the exponential of one more score."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import onnx_ir as ir

from softq.forms.matching.exponentials import read_number
from softq.forms.matching.layout_ops import are_same, follow, is_plain
from softq.forms.matching.reductions import find_reduction
from softq.graph.facts import Facts
from softq.graph.patterns import match, matches
from softq.graph.queries import full_label, is_op, operand, producer

NEGLIGIBLE = {ir.DataType.FLOAT: 2.0**-25, ir.DataType.FLOAT16: 2.0**-12, ir.DataType.BFLOAT16: 2.0**-9}
"""Half a unit in the last place of 1, and half of that: added to a sum of at least 1, it is rounded away."""

_ABOVE = {"Equal": (False, True), "Less": (False, False), "LessOrEqual": (False, True), "Greater": (True, True),
          "GreaterOrEqual": (True, False)}  # fmt: skip
"""Of a comparison with a number: its result for all larger numbers, and whether that for the number itself differs."""

_SWAPPED = {"Less": "Greater", "LessOrEqual": "GreaterOrEqual", "Greater": "Less", "GreaterOrEqual": "LessOrEqual"}


@dataclass(frozen=True, eq=False)
class Changes:
    """Changes of a sum: added constants, bounds, and exp(score - shift), the exponential of one more score."""

    added: float = 0.0
    least: float = 0.0
    most: float = math.inf
    shift: ir.Value | None = None
    score: float = 0.0
    refusal: str = ""

    def apply(self, node: ir.Node, inside: ir.Value, facts: Facts) -> Changes:
        """Return the changes if `node`, which reads the sum `inside`, comes before these."""
        refusal = f"{full_label(node)} changes its sum, and not by a constant or a bound"
        return self._apply_node(node, inside, facts) or replace(self, refusal=self.refusal or refusal)

    def _apply_node(self, node: ir.Node, inside: ir.Value, facts: Facts) -> Changes | None:
        if node.op_type == "Clip":
            return self._narrow(*(_read_end(node, place, facts) for place in (1, 2)))
        operands = node.inputs[1:] if node.op_type == "Where" else node.inputs
        other = next((value for value in operands if value is not inside), None)
        known, own, mine = read_number(other), facts.shape(other), facts.shape(inside)
        if own is None or (own != mine and own and (mine is None or len(own) > max(1, len(mine)) or set(own) != {1})):
            return None  # an operand with more axes would change the layout
        if node.op_type == "Where":
            return self._narrow(_find_bound(operand(node, 0), inside, taken=operand(node, 1) is inside), math.inf)
        if node.op_type == "Add" and known is not None:
            return replace(self, added=self.added + known)
        if node.op_type == "Add":
            return self._apply_addend(other, inside, facts)
        return self._narrow(known, math.inf) if node.op_type == "Max" else self._narrow(-math.inf, known)

    def _apply_addend(self, other: ir.Value | None, inside: ir.Value, facts: Facts) -> Changes | None:
        """Return the changes if a value that is no constant is added to the sum `inside`."""
        cast = match(other, "Cast(condition)")
        bound = None if cast is None else _find_bound(cast["condition"], inside, taken=False)
        exponential = match(_find_ordered(other, facts), "Exp(x)")
        exponent = None if exponential is None else _find_ordered(exponential["x"], facts)
        for sink in matches(exponent, "Neg(shift) | Sub(c, shift) | Mul(shift, n) | Mul(n, shift)"):
            score = read_number(sink["c"]) if "c" in sink else 0.0
            if score is not None and ("n" not in sink or read_number(sink["n"]) == -1) and self.shift is None:
                return replace(self, shift=sink["shift"], score=score)
        return None if bound is None else self._narrow(bound, math.inf)

    def _narrow(self, low: float | None, high: float | None) -> Changes | None:
        if low is None or high is None:
            return None
        return replace(self, least=max(self.least, low), most=min(self.most, high))

    def refuse_bounds(self, stable: bool, axes: tuple[int, ...], scores: ir.Value, facts: Facts) -> str:
        """Return why a bound may act; if exponentials are `stable`, each is 1 at most, and so is their sum at least."""
        if self.added and self.least > 0:
            return "a constant is added to its sum, which is also kept above another constant"
        if self.least > (1 if stable else 0):
            least = self.least if self.least > math.nextafter(0, 1) else 0
            why = "" if stable else "; it can be, as no maximum is subtracted from all the scores"
            return f"its sum is kept above {least:g}, which changes the weights where the sum is smaller{why}"
        shape, dtype = facts.shape(scores), facts.dtype(scores)
        lengths = [d for a in axes if shape is not None and isinstance(d := shape[a], int)]
        count = math.prod(lengths) + 1 if stable and len(lengths) == len(axes) else math.inf
        if self.most < min(count, float(dtype.max) if dtype is not None and dtype in NEGLIGIBLE else math.inf):
            return f"its sum is kept below {self.most:g}, which changes the weights where the sum is larger"
        return ""


def _find_bound(condition: ir.Value | None, total: ir.Value, *, taken: bool) -> float | None:
    """Return the least number such that a condition on sums from there on is always `taken`; None if there is none."""
    node = producer(condition, "Not", *_ABOVE)
    if node is None or node.op_type == "Not":
        return None if node is None else _find_bound(operand(node, 0), total, taken=not taken)
    places = [i for i in (0, 1) if are_same(operand(node, i), total, 1)]
    number = read_number(operand(node, 1 - places[0])) if places else None
    holds, strictly = _ABOVE[_SWAPPED.get(node.op_type, node.op_type) if places == [1] else node.op_type]
    if number is None or holds != taken:
        return None
    return math.nextafter(number, math.inf) if strictly else number


def _read_end(clip: ir.Node, place: int, facts: Facts) -> float | None:
    """Return the lower (1) or upper (2) end of a Clip, None if it is no constant."""
    value, none = operand(clip, place), (-math.inf, math.inf)[place - 1]
    if facts.view.container_of(clip).opset < 11:
        return clip.attributes.get_float(("min", "max")[place - 1], none)
    return none if value is None else read_number(value)


def _find_ordered(value: ir.Value | None, facts: Facts) -> ir.Value | None:
    """Return a value before its casts and changes of axes of length 1; None if other operators move it."""
    moved = None if value is None else follow(value, facts)
    if moved is None or not all(is_plain((node,)) or is_op(node, "Squeeze", "Unsqueeze") for node in moved.path):
        return None
    return moved.source


def find_shifted(exponent: ir.Value, shift: ir.Value, axes: tuple[int, ...], facts: Facts) -> ir.Value | None:
    """Return the scores if an exponent is scores minus a shift, and the shift is one number in each row."""
    difference = match(exponent, "Sub(x, shift)")
    mine = None if difference is None else _find_ordered(difference["shift"], facts)
    if difference is None or mine is None or not are_same(mine, _find_ordered(shift, facts)):
        return None
    shape = facts.shape(difference["shift"])
    of_row = shape is not None and all(len(shape) < -axis or shape[axis] == 1 for axis in axes)
    return difference["x"] if of_row else None


def is_maximum(shift: ir.Value, scores: ir.Value, axes: tuple[int, ...], score: float, facts: Facts) -> bool:
    """Return whether a shift is the maximum of the row, or of the row and the score that is added to it."""
    for raised in matches(follow(shift, facts).source, "Relu(m) | Max(m, low) | Max(low, m) | Clip(m, low)"):
        if (read_number(raised["low"]) if "low" in raised else 0.0) == score:
            shift = raised["m"]
    maximum = find_reduction(follow(shift, facts), ["ReduceMax"], facts)
    return maximum is not None and maximum.axes == axes and are_same(maximum.source, follow(scores, facts).source)
