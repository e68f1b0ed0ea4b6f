"""The operators of the row-program language: one table of what each takes and means.

This table is the contract of every backend; `docs/rowprog.md` prints it, and a test checks that each backend covers it.
The sign of a zero is no part of it: some runtimes lose the sign of -0 where they choose between two values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["leaf", "arithmetic", "logic", "conversion", "lookup", "float", "reduction", "loop", "proof"]


@dataclass(frozen=True)
class Op:
    """An operator.

    Attributes:
        name: Its name in printed programs.
        group: What kind of operator it is.
        signature: Argument and result types; `T` is any one number type, `I` any one integer type.
        meaning: Its one meaning, the same on every backend.
        demands: What range analysis has to prove before it is emitted; empty if nothing.
    """

    name: str
    group: Group
    signature: str
    meaning: str
    demands: str = ""


_TABLE = (
    Op("input", "leaf", "-> row", "A row given by the caller: `scores`, or the boolean row `valid`."),
    Op(
        "param",
        "leaf",
        "-> scalar or table",
        "A number or table given at run time, one a site or one a head.",
        "each value lies in its declared interval",
    ),
    Op("const", "leaf", "-> scalar T", "A number; f32 constants are rounded to f32 when traced."),
    Op("table", "leaf", "-> table T", "A constant lookup table."),
    Op("index", "leaf", "-> row i32", "The position of the element in its row, from 0."),
    Op("length", "leaf", "-> scalar i32", "N, the number of elements of the row."),
    Op("add", "arithmetic", "T, T -> T", "Sum. f32: rounded to nearest even.", "an integer result fits its type"),
    Op(
        "sub", "arithmetic", "T, T -> T", "Difference. f32: rounded to nearest even.", "an integer result fits its type"
    ),
    Op(
        "mul",
        "arithmetic",
        "T, T -> T",
        "Product. f32: rounded to nearest even, not contracted with a following add unless the program allows it.",
        "an integer result fits its type",
    ),
    Op(
        "divide",
        "arithmetic",
        "T, T -> T",
        "Integers: the floor of the quotient. f32: the quotient rounded to nearest even, x/0 is infinite, 0/0 is NaN.",
        "integers: dividend >= 0 and divisor > 0",
    ),
    Op("min", "arithmetic", "T, T -> T", "select(a < b, a, b): where either is NaN, b."),
    Op("max", "arithmetic", "T, T -> T", "select(b < a, a, b): where either is NaN, b."),
    Op("shl", "arithmetic", "I, I -> I", "a * 2^b.", "0 <= b < width of the type, and the result fits it"),
    Op("shr", "arithmetic", "I, I -> I", "The floor of a / 2^b, for negative a too.", "0 <= b < width of the type"),
    Op("lt", "logic", "T, T -> bool", "a < b; false where either is NaN."),
    Op("le", "logic", "T, T -> bool", "a <= b; false where either is NaN."),
    Op("eq", "logic", "T, T -> bool", "a = b; false where either is NaN."),
    Op("and", "logic", "bool, bool -> bool", "Both."),
    Op("or", "logic", "bool, bool -> bool", "Either."),
    Op("not", "logic", "bool -> bool", "The other."),
    Op(
        "select",
        "logic",
        "bool, T, T -> T",
        "The second where the first is true, else the third; the one not taken does not matter, not even if NaN.",
    ),
    Op(
        "cast",
        "conversion",
        "T -> any number type",
        "The same value in another type. f32 to integer: the fraction is "
        "cut off. Integer to f32: rounded to nearest even.",
        "the value fits the integer type and is no NaN",
    ),
    Op("rint", "conversion", "f32 -> f32", "The nearest integer, half to even; infinities and NaN stay."),
    Op("lut", "lookup", "table T, I -> T", "The table's entry at the index.", "0 <= index < size of the table"),
    Op("exp2i", "lookup", "i32 -> f32", "2^n exactly.", "-126 <= n <= 127"),
    Op(
        "normalize",
        "lookup",
        "u32 -> u32 or i32",
        "Of x > 0: the mantissa x * 2^s in [2^31, 2^32), or the shift s.",
        "x > 0",
    ),
    Op("log2", "float", "f32 -> f32", "Logarithm to base 2, within 3 units in the last place; -inf at 0, NaN below."),
    Op("sqrt", "float", "f32 -> f32", "Square root, rounded to nearest even; NaN below 0."),
    Op(
        "row_max",
        "reduction",
        "row T -> scalar T",
        "The greatest element; the type's least value (-inf) of an empty row; unspecified if an element is NaN.",
    ),
    Op(
        "row_min",
        "reduction",
        "row T -> scalar T",
        "The least element; the type's greatest value (+inf) of an empty row; unspecified if an element is NaN.",
    ),
    Op(
        "row_sum",
        "reduction",
        "row T -> scalar T",
        "The sum; 0 of an empty row. Integers: exact. f32: in any order, or nearer to the exact sum.",
        "integers: the sum of N elements fits the type",
    ),
    Op(
        "scan",
        "loop",
        "scalars, rows, step -> scalars, rows",
        "A state carried from the first element of the row to the "
        "last by the step, a small program of its own; gives the last states and a row of outputs.",
        "each state stays in its declared interval",
    ),
    Op(
        "exp_minus",
        "float",
        "f32, f32 -> f32",
        "e^-d of the first operand d >= 0, by the second, which the author has made it; a backend whose own "
        "exponential is as exact (2e-7, relatively, where the result is normal) may take that instead.",
    ),
    Op(
        "assume",
        "proof",
        "T -> T",
        "The value itself, with an interval that the analysis cannot see; the interpreter checks it.",
        "stated by the author, checked by the interpreter and by tests",
    ),
)

OPS: dict[str, Op] = {op.name: op for op in _TABLE}
