"""Reductions: what accumulators begin with, how an element is added, and how lanes become one number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr

from softq.rowprog.program import Node, number_of
from softq.rowprog.types import Kind
from softq.targets._native.rows.emission import Emission
from softq.targets._native.rows.tir import BOOL, F32, Local, bits_of, cast, half, is_signed, lane, type_name

Combine = Callable[[Expr, Expr], Expr]


@dataclass(frozen=True)
class Reduction:
    """One kind of reduction.

    Attributes:
        combine: Of an accumulator and a value.
        identity: What an accumulator of a type begins with.
        repeats: Whether an element may be taken in twice.
    """

    combine: Combine
    identity: Callable[[str], float]
    repeats: bool


def _lowest(name: str) -> float:
    if name == F32:
        return -math.inf
    return -(1 << (bits_of(name) - 1)) if is_signed(name) else 0


def _highest(name: str) -> float:
    return math.inf if name == F32 else (1 << (bits_of(name) - is_signed(name))) - 1


# The comparison has the accumulator first where it may be kept, so that it is one instruction on x86.
REDUCTIONS: Mapping[str, Reduction] = {
    "row_max": Reduction(lambda a, x: tirx.Select(tirx.LT(a, x), x, a), _lowest, True),
    "row_min": Reduction(lambda a, x: tirx.Select(tirx.LT(x, a), x, a), _highest, True),
    "row_sum": Reduction(lambda a, x: tirx.Add(a, x), lambda name: 0, False),
}


class Accumulators:
    """The accumulators of one reduction in one pass: `count` vectors.

    Args:
        node: The reduction.
        place: Where elements of this many lanes are computed; gives the type.
        count: Number of accumulators.
    """

    def __init__(self, node: Node, place: Emission, count: int) -> None:
        self.node = node
        self.rule = REDUCTIONS[node.op]
        self.name = place.type_of(node)
        self.lanes = place.lanes
        start = place.const(self.rule.identity(self.name), self.name)
        self.condition = _marked(node)
        self.parts = [Local.of(start, self.name, self.lanes) for _ in range(1 if self.condition else count)]
        self._waiting: list[Expr] = []

    def add(self, e: Emission, part: int, counted: Expr | None, more: bool = False) -> None:
        """Take in the elements of a place.

        Args:
            e: The place.
            part: Number of the accumulator.
            counted: Which lanes were not taken in yet, for a vector that overlaps.
            more: Whether another part of the same step of the loop follows.
        """
        if self.condition is not None:
            # Of many conditions the disjunction is one instruction each, and tests for NaN are one for two vectors.
            self._waiting.append(e.arg(self.condition, BOOL))
            if more:
                return
            any_of = functools.reduce(tirx.Or, self._waiting)
            x, part = tirx.Select(any_of, e.const(1, self.name), e.const(0, self.name)), 0
            self._waiting.clear()
        else:
            x = e.arg(self.node.args[0], self.name)
        if counted is not None and not self.rule.repeats:
            x = tirx.Select(counted, x, e.const(0, self.name))
        self.parts[part].set(self.rule.combine(self.parts[part].get(), x))

    def result(self) -> Expr:
        """Return the reduction of all accumulators in the type that the program names."""
        parts = self.parts
        while len(parts) > 1:
            half_count = (len(parts) + 1) // 2
            for i in range(len(parts) - half_count):
                parts[i].set(self.rule.combine(parts[i].get(), parts[half_count + i].get()))
            parts = parts[:half_count]
        x, lanes = parts[0].get(), self.lanes
        while lanes > 2:
            lower, upper = half(x, lanes, False), half(x, lanes, True)
            lanes //= 2
            x = Local.of(self.rule.combine(lower, upper), self.name, lanes).get()
        if lanes == 2:
            x = self.rule.combine(lane(x, 0), lane(x, 1))
        return cast(x, self.name, type_name(self.node.dtype), 1)


def _marked(node: Node) -> Node | None:
    """Return the condition of a maximum over numbers that are 1 where it holds, else 0."""
    if node.op != "row_max" or node.args[0].op != "select":
        return None
    condition, yes, no = node.args[0].args
    marks = yes.op == no.op == "const" and (number_of(yes), number_of(no)) == (1, 0)
    return condition if marks and condition.kind is Kind.ROW else None


def of_empty_row(node: Node) -> float:
    """Return what a reduction gives for a row without elements."""
    return REDUCTIONS[node.op].identity(type_name(node.dtype))
