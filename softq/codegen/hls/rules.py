"""What each operator is in C++ with `ap_int` and `ap_uint`.

A sum, difference or product of these types has all bits of the result, so that no value is cut before it is assigned.
Shifts and comparisons have not: a shift keeps the type of its first operand, and a comparison of two signs is not
that of the numbers in every version of the headers. Both get operands of one type that holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from softq.rowprog.ops import Rules
from softq.rowprog.ranges.interval import Interval


@dataclass(frozen=True)
class Value:
    """A value in a function.

    Attributes:
        text: The name that holds it, or a number.
        interval: What it lies in.
        held: Whether a name of its type holds it; a number has the type `int`, a last state perhaps a wider one.
    """

    text: str
    interval: Interval
    held: bool = True

    @property
    def type(self) -> str:
        """The narrowest type that holds it."""
        return type_of(self.interval)

    def to_type(self, name: str) -> str:
        """Return it in another type."""
        return self.text if self.held and name == self.type else f"{name}({self.text})"


def type_of(*intervals: Interval) -> str:
    """Return the narrowest type that holds each of some intervals."""
    whole = Interval(min(i.low for i in intervals), max(i.high for i in intervals))
    return f"{'ap_int' if whole.low < 0 else 'ap_uint'}<{whole.bits}>"


Rule = Callable[[Sequence[Value], str], str]
"""An expression of the operands and of the result's type."""


def _arithmetic(sign: str) -> Rule:
    return lambda args, result: f"{args[0].text} {sign} {args[1].text}"


def compare(a: Value, sign: str, b: Value) -> str:
    """Return a comparison of two values."""
    both = type_of(a.interval, b.interval)
    return f"{a.to_type(both)} {sign} {b.to_type(both)}"


def _comparison(sign: str) -> Rule:
    return lambda args, result: compare(args[0], sign, args[1])


def choose(condition: str, a: Value, b: Value, result: str) -> str:
    """Return one of two values."""
    return f"{condition} ? {a.to_type(result)} : {b.to_type(result)}"


def _shift_right(args: Sequence[Value], result: str) -> str:
    value, by = args
    return f"{value.to_type(type_of(value.interval))} >> {by.text}"


RULES: Mapping[str, Rule] = Rules(
    "hls",
    {
        "add": _arithmetic("+"),
        "sub": _arithmetic("-"),
        "mul": _arithmetic("*"),
        "divide": _arithmetic("/"),
        "min": lambda args, result: choose(compare(args[0], "<", args[1]), args[0], args[1], result),
        "max": lambda args, result: choose(compare(args[1], "<", args[0]), args[0], args[1], result),
        "shl": lambda args, result: f"{result}({args[0].text}) << {args[1].text}",
        "shr": _shift_right,
        "lt": _comparison("<"),
        "le": _comparison("<="),
        "eq": _comparison("=="),
        "and": _arithmetic("&"),
        "or": _arithmetic("|"),
        "not": lambda args, result: f"!{args[0].text}",
        "select": lambda args, result: choose(args[0].text, args[1], args[2], result),
    },
)
