"""The operators of the row-program language: what each takes, means and costs, and what has to be proved of it.

This table is the contract of every walker, and all of them read it: tracing takes types from it, range analysis what to
prove, kernels what is worth storing. A new operator is an entry here and one rule for each walker, in its table of
`Rules`; `make docs` prints the entry, and a test names the walkers that lack the rule. `Trace.apply` takes it by name.

The sign of a zero is no part of it: some runtimes lose the sign of -0 where they choose between two values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from softq.errors import SoftqError
from softq.rowprog.signature import Demand, Group, Op
from softq.rowprog.types import DType

R = TypeVar("R")


class Rules(dict[str, R]):
    """What a walker does for each operator, by the operator's name.

    Args:
        walker: What messages call the walker.
        rules: The rules.
    """

    def __init__(self, walker: str, rules: Mapping[str, R]) -> None:
        super().__init__(rules)
        self.walker = walker

    def __missing__(self, op: str) -> R:
        raise SoftqError(f"{self.walker} has no rule for the operator {op} of row programs")


_FITS = Demand("an integer result fits its type", interval=lambda dtype, size: (dtype.low, dtype.high), integers=True)
_SHIFT = Demand("0 <= b < width of the type", 1, "the shift", lambda dtype, size: (0, dtype.bits - 1))
_DIVIDEND = Demand("integers: dividend >= 0", 0, "the dividend", lambda dtype, size: (0, math.inf), integers=True)
_DIVISOR = Demand("integers: divisor > 0", 1, "the divisor", lambda dtype, size: (1, math.inf), integers=True)
_CAST_FITS = Demand(
    "the value fits the integer type and is no NaN", 0, "the operand", lambda dtype, size: (dtype.low, dtype.high), True
)
_INDEX = Demand("0 <= index < size of the table", 1, "the index", lambda dtype, size: (0, size - 1))
_EXPONENT = Demand("-126 <= n <= 127", 0, "the exponent", lambda dtype, size: (-126, 127))
_POSITIVE = Demand("x > 0", 0, "the operand", lambda dtype, size: (1, DType.U32.high))
_PARAM = Demand("each value lies in its declared interval")
_SUM = Demand("integers: the sum of N elements fits the type")
_STATES = Demand("each state stays in its declared interval")
_ASSUMED = Demand("stated by the author, checked by the interpreter and by tests")

_TABLE = (
    Op("input", "leaf", "-> row", "A row given by the caller: `scores`, or the boolean row `valid`.", cost="free"),
    Op(
        "param",
        "leaf",
        "-> scalar or table",
        "A number or table given at run time, one per site or one per head.",
        (_PARAM,),
        cost="free",
    ),
    Op("const", "leaf", "-> scalar E", "A number or bool; f32 constants are rounded to f32 when traced.", cost="free"),
    Op("table", "leaf", "-> table E", "A constant lookup table.", cost="free"),
    Op("index", "leaf", "-> row i32", "The position of the element in its row, from 0.", cost="free"),
    Op("length", "leaf", "-> scalar i32", "N, the number of elements of the row.", cost="free"),
    Op("add", "arithmetic", "T, T -> T", "Sum. f32: rounded to nearest even.", (_FITS,), modular=True),
    Op("sub", "arithmetic", "T, T -> T", "Difference. f32: rounded to nearest even.", (_FITS,), modular=True),
    Op(
        "mul",
        "arithmetic",
        "T, T -> T",
        "Product. f32: rounded to nearest even, not contracted with a following add unless the program allows it.",
        (_FITS,),
        modular=True,
    ),
    Op(
        "divide",
        "arithmetic",
        "T, T -> T",
        "Integers: the floor of the quotient. f32: the quotient rounded to nearest even, x/0 is infinite, 0/0 is NaN.",
        (_DIVIDEND, _DIVISOR),
        cost="dear",
    ),
    Op("min", "arithmetic", "T, T -> T", "select(a < b, a, b): where either is NaN, b."),
    Op("max", "arithmetic", "T, T -> T", "select(b < a, a, b): where either is NaN, b."),
    Op("shl", "arithmetic", "I, I -> I", "a * 2^b.", (_SHIFT, _FITS)),
    Op("shr", "arithmetic", "I, I -> I", "The floor of a / 2^b, for negative a too.", (_SHIFT,)),
    Op("lt", "logic", "T, T -> bool", "a < b; false where either is NaN."),
    Op("le", "logic", "T, T -> bool", "a <= b; false where either is NaN."),
    Op("eq", "logic", "E, E -> bool", "a = b; false where either is NaN."),
    Op("and", "logic", "bool, bool -> bool", "Both."),
    Op("or", "logic", "bool, bool -> bool", "Either."),
    Op("not", "logic", "bool -> bool", "The other."),
    Op(
        "select",
        "logic",
        "bool, E, E -> E",
        "The second where the first is true, else the third; the one not taken does not matter, not even if NaN.",
    ),
    Op(
        "cast",
        "conversion",
        "T -> any number type",
        "The same value in another type. f32 to integer: the fraction is "
        "cut off. Integer to f32: rounded to nearest even.",
        (_CAST_FITS,),
    ),
    Op("rint", "conversion", "f32 -> f32", "The nearest integer, half to even; infinities and NaN stay."),
    Op(
        "round_to",
        "float",
        "f32, f32 -> f32",
        "The first operand rounded to the numbers of a format of few bits (`softq.rowprog.formats` has its rules), by "
        "the second, which the author has made it; a backend may convert by instructions of its own, to the bit.",
        cost="dear",
    ),
    Op("lut", "lookup", "table E, I -> E", "The table's entry at the index.", (_INDEX,), cost="dear"),
    Op("exp2i", "lookup", "i32 -> f32", "2^n exactly.", (_EXPONENT,)),
    Op(
        "normalize",
        "lookup",
        "scalar u32 -> u32 or i32",
        "Of x > 0: the mantissa x * 2^s in [2^31, 2^32), or the shift s.",
        (_POSITIVE,),
    ),
    Op(
        "log2",
        "float",
        "f32 -> f32",
        "Logarithm to base 2, within 3 units in the last place; -inf at 0, NaN below.",
        cost="dear",
    ),
    Op("sqrt", "float", "f32 -> f32", "Square root, rounded to nearest even; NaN below 0.", cost="dear"),
    Op(
        "row_max",
        "reduction",
        "row T -> scalar T",
        "The greatest element; the type's least value (-inf) of an empty row; unspecified if an element is NaN.",
        of_empty_row=lambda dtype: -math.inf if dtype.is_float else dtype.low,
    ),
    Op(
        "row_min",
        "reduction",
        "row T -> scalar T",
        "The least element; the type's greatest value (+inf) of an empty row; unspecified if an element is NaN.",
        of_empty_row=lambda dtype: math.inf if dtype.is_float else dtype.high,
    ),
    Op(
        "row_sum",
        "reduction",
        "row T -> scalar T",
        "The sum; 0 of an empty row. Integers: exact. f32: in any order, or nearer to the exact sum.",
        (_SUM,),
    ),
    Op(
        "group_max",
        "group",
        "row f32 -> row f32",
        "For each element the greatest of its group: k consecutive elements from a multiple of k on, a power of 2 up "
        "to 256, and fewer at the row's end; unspecified if one of them is NaN.",
        cost="dear",
    ),
    Op(
        "scan",
        "loop",
        "scalars, rows, step -> scalars, rows",
        "A state carried from the first element of the row to the "
        "last by the step, a small program of its own; gives the last states and a row of outputs.",
        (_STATES,),
        cost="dear",
    ),
    Op(
        "exp_minus",
        "float",
        "f32, f32 -> f32",
        "e^-d of the first operand d >= 0, by the second, which the author has made it; a backend whose own "
        "exponential is as exact (2e-7, relatively, where the result is normal) may take that instead.",
        cost="dear",
    ),
    Op(
        "assume",
        "proof",
        "T -> T",
        "The value itself, with an interval that the analysis cannot see; the interpreter checks it.",
        (_ASSUMED,),
        cost="free",
    ),
)

OPS: Mapping[str, Op] = {op.name: op for op in _TABLE}


def names_of(*groups: Group) -> frozenset[str]:
    """Return the names of the operators of these groups."""
    return frozenset(op.name for op in _TABLE if op.group in groups)
