"""Which values the elements of a tensor can take, as far as the graph proves it: how a mask is told from a bias."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import onnx_ir as ir

from softq.graph.facts import Facts
from softq.graph.queries import MOVES_ONLY, cast_target, chain_above, constant, is_passthrough, operand

MASKED = -1e4
"""The largest value that is written into scores to mask them (BERT's; its exponential is zero in every float type)."""

FEW = 8
"""Up to how many different values are told apart; more are an interval."""

BOOLEAN = frozenset(
    {"And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf"}
)
"""Operators whose result is boolean whether or not the graph says so."""

_MOVES = MOVES_ONLY - {"Concat"} | {"Trilu"}
_ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum,
}  # fmt: skip


@dataclass(frozen=True)
class ValueSet:
    """A set that holds every value an element can take.

    Attributes:
        values: The values in ascending order if they are few, else the smallest and the largest.
        few: Whether `values` names them all.
    """

    values: tuple[float, ...]
    few: bool

    @property
    def low(self) -> float:
        """The least value that is possible."""
        return self.values[0]


def find_values(value: ir.Value | None, facts: Facts, depth: int = 24) -> ValueSet | None:
    """Return what the elements of `value` can be, None if nothing is proved; looks at most `depth` nodes up."""
    if value is None or depth < 0:
        return None
    # A chain such as y = x + x has as many ways down as it has operands, to the power of its length.
    if (value, depth) not in facts.value_sets:
        facts.value_sets[value, depth] = _find_values(value, facts, depth)
    found = facts.value_sets[value, depth]
    return found if isinstance(found, ValueSet) else None


def _find_values(value: ir.Value, facts: Facts, depth: int) -> ValueSet | None:
    tensor = constant(value)
    if tensor is not None:
        return _make_set(tensor)
    dtype = facts.dtype(value)
    if value.name in facts.assumed.masks and dtype is not None and dtype.is_integer():
        return BITS if value.graph is facts.view.model.graph else None
    node = value.producer()
    if node is None or node.domain:
        return BITS if facts.dtype(value) == ir.DataType.BOOL else None
    if node.op_type in BOOLEAN or facts.dtype(value) == ir.DataType.BOOL:
        return BITS

    def below(index: int) -> ValueSet | None:
        return find_values(operand(node, index), facts, depth - 1)

    operator = node.op_type
    if operator in _MOVES:
        moved = below(0)
        # Trilu writes zeros into the other triangle.
        return _union(moved, ZERO) if operator == "Trilu" else moved
    if is_passthrough(node, facts.view.container_of(node).opset):
        return below(0)
    if operator in {"Cast", "CastLike"}:
        inner, to = below(0), facts.dtype(value) or cast_target(node)
        return None if inner is None else cast(inner, to)
    if operator == "Where":
        return _union(below(1), below(2))
    if operator == "Concat":
        return reduce(_union, [below(i) for i in range(len(node.inputs))])
    # Below opset 11 the value is an attribute.
    if operator == "Pad" and node.attributes.get_string("mode", "constant") == "constant" and len(node.inputs) > 1:
        return _union(below(0), ZERO if operand(node, 2) is None else below(2))
    if operator == "ConstantOfShape":
        fill = node.attributes.get("value")
        return ZERO if fill is None else None if fill.is_ref() else _make_set(fill.as_tensor().numpy())
    if operator == "Neg":
        inner = below(0)
        return None if inner is None else _make_set(-np.array(inner.values), inner.few)
    if operator == "Clip" and len(node.inputs) == 3 and (inner := below(0)) is not None:
        low, high = below(1), below(2)
        return None if low is None or high is None else _make_set(np.clip(inner.values, low.low, high.low), inner.few)
    if operator in _ARITHMETIC and len(node.inputs) == 2:
        left, right = below(0), below(1)
        if operator == "Sub" and left == ONE and right is None and _is_integer(operand(node, 1), facts):
            # The idiom of every exporter for an integer attention mask, 1 - Cast(mask): 0 or 1.
            return BITS
        return _combine(_ARITHMETIC[operator], left, right, facts.dtype(value))
    return None


def cast(inner: ValueSet, to: ir.DataType | None) -> ValueSet | None:
    """Return the values in another type: rounded, and infinite where they do not fit."""
    if to is None:
        return None
    values = np.array(inner.values)
    if to == ir.DataType.BOOL:
        return BITS
    if not to.is_floating_point():
        return _make_set(np.trunc(values), inner.few) if np.isfinite(values).all() else None
    with np.errstate(over="ignore"):
        return _make_set(values.astype(to.numpy()).astype(np.float64), inner.few)


def _is_integer(value: ir.Value | None, facts: Facts) -> bool:
    """Whether `value` is an integer tensor, or one that was only moved and cast since."""
    dtypes = (facts.dtype(above) for above in chain_above(value, *_MOVES, "Identity", "Cast"))
    return any(dtype is not None and dtype.is_integer() for dtype in dtypes)


def _make_set(array: np.ndarray, few: bool = True) -> ValueSet | None:
    if array.size == 0:
        return None
    if array.dtype == np.bool_:
        array = array.astype(np.int8)
    low, high = array.min(), array.max()
    if np.isnan(low) or np.isnan(high):
        return None
    if few:
        different = _find_distinct(array)
        if different is not None:
            return ValueSet(different, True)
    return ValueSet((float(low), float(high)), False)


def _find_distinct(array: np.ndarray) -> tuple[float, ...] | None:
    # Sorting a large mask costs seconds; peeling off one value after the other costs FEW passes at most.
    rest, found = array.reshape(-1), list[float]()
    while rest.size:
        if len(found) == FEW:
            return None
        found.append(float(rest[0]))
        rest = rest[rest != rest[0]]
    return tuple(sorted(set(found)))


def _union(left: ValueSet | None, right: ValueSet | None) -> ValueSet | None:
    if left is None or right is None:
        return None
    return _make_set(np.array(left.values + right.values), left.few and right.few)


def _combine(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray],
    left: ValueSet | None,
    right: ValueSet | None,
    dtype: ir.DataType | None,
) -> ValueSet | None:
    if left is None or right is None or dtype is None:
        return None
    with np.errstate(all="ignore"):
        # The corners of two intervals bound each of these functions; of two short lists they are all there is.
        corners = function(np.array(left.values)[:, None], np.array(right.values)[None, :])
    result = _make_set(corners, left.few and right.few)
    return None if result is None else cast(result, dtype)


BITS = ValueSet((0.0, 1.0), True)
ZERO = ValueSet((0.0,), True)
ONE = ValueSet((1.0,), True)
MINUS_INFINITY = ValueSet((-math.inf,), True)
