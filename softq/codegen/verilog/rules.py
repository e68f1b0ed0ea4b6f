"""What each operator is in Verilog, and how many levels of logic it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from softq.codegen.verilog.signals import Signal, common
from softq.rowprog.ops import Rules

CARRY_BITS = 16
"""Bits of a carry chain that take as long as one table of four inputs and the way to it."""

LOGIC_INPUTS = 4


@dataclass(frozen=True)
class Rule:
    """An operator without a clock of its own.

    Attributes:
        expression: What it is, of its operands and the result's bits.
        levels: How long it takes, in tables of four inputs one behind the other.
    """

    expression: Callable[[Sequence[Signal], int], str]
    levels: Callable[[Sequence[Signal], int], float]


def _chain(args: Sequence[Signal], width: int) -> float:
    return 1 + max(width, *(a.width for a in args)) / CARRY_BITS


def _modular(sign: str) -> Rule:
    return Rule(lambda args, width: f"{args[0].to_width(width)} {sign} {args[1].to_width(width)}", _chain)


def compare(a: Signal, sign: str, b: Signal) -> str:
    """Return a comparison of two values.

    Two numbers with a sign compare as two without whose highest bits have changed places: one chain of carries, where
    synthesis makes more of a comparison with signs.
    """
    width, signed = common(a, b)
    if not signed:
        return f"{a.to_width(width)} {sign} {b.to_width(width)}"
    left, right = (_with_top(x, y, width) for x, y in ((a, b), (b, a)))
    return f"{left} {sign} {right}"


def _with_top(value: Signal, other: Signal, width: int) -> str:
    """Return a value in `width` bits, the highest of which is that of another value."""
    top = other.to_bit(width - 1)
    return f"{{{top}, {value.to_width(width - 1)}}}" if width > 1 else top


def _comparison(sign: str) -> Rule:
    return Rule(lambda args, width: compare(args[0], sign, args[1]), _chain)


def _choice(sign: str) -> Rule:
    """The first operand where it is less (or greater), else the second."""
    return Rule(
        lambda args, width: (
            f"{compare(args[0], sign, args[1])} ? {args[0].to_width(width)} : {args[1].to_width(width)}"
        ),
        lambda args, width: 1 + _chain(args, width),
    )


def product(a: Signal, b: Signal) -> str:
    """Return the product of two values, for a place as wide as both together."""
    if not a.signed and not b.signed:
        return f"{a.name} * {b.name}"
    return " * ".join(f"$signed({x.name if x.signed else x.to_width(x.width + 1)})" for x in (a, b))


def _left(args: Sequence[Signal], width: int) -> str:
    value, by = args
    if by.value is not None:
        return f"{{{value.to_width(max(width - by.value, 1))}, {by.value}'b0}}" if by.value else value.to_width(width)
    return f"{value.to_width(width)} << {by.name}"


def _right(args: Sequence[Signal], width: int) -> str:
    value, by = args
    if by.value is not None:
        return value.drop(by.value).to_width(width)
    wide = max(width, value.width)
    if not value.signed:
        text = f"{value.to_width(wide)} >> {by.name}"
    else:
        text = f"$signed({value.to_width(wide)}) >>> {by.name}"
    return text  # The bits above are cut off where it is assigned.


def _shift_levels(args: Sequence[Signal], width: int) -> float:
    return 0 if args[1].value is not None else (args[1].width + 1) // 2


def _logic(expression: Callable[[Sequence[Signal], int], str], levels: float = 1) -> Rule:
    return Rule(expression, lambda args, width: levels)


RULES: Mapping[str, Rule] = Rules(
    "verilog",
    {
        "add": _modular("+"),
        "sub": _modular("-"),
        "min": _choice("<"),
        "max": Rule(
            lambda args, width: (
                f"{compare(args[1], '<', args[0])} ? {args[0].to_width(width)} : {args[1].to_width(width)}"
            ),
            lambda args, width: 1 + _chain(args, width),
        ),
        "shl": Rule(_left, _shift_levels),
        "shr": Rule(_right, _shift_levels),
        "lt": _comparison("<"),
        "le": _comparison("<="),
        "eq": _comparison("=="),
        "and": _logic(lambda args, width: f"{args[0].name} & {args[1].name}"),
        "or": _logic(lambda args, width: f"{args[0].name} | {args[1].name}"),
        "not": _logic(lambda args, width: f"~{args[0].name}", 0),
        "select": _logic(lambda args, width: f"{args[0].name} ? {args[1].to_width(width)} : {args[2].to_width(width)}"),
    },
)
