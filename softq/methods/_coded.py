"""What the methods share that write weights in formats of few bits: what is coded, and what products are divided by.

Exponentials e = exp(x - max) are at most 1, however long the row is, so that they lie where such formats have their
numbers; the division is behind the product with V. Coded probabilities are here to be compared: of N keys they are
about 1 / N, which leaves them below what a scale of few bits reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from softq.errors import UsageError
from softq.methods._contract import Method, Outputs
from softq.methods._fitted import Given, per_head, take
from softq.methods._options import FITTED_SCOPES, option
from softq.methods._roundings import FloatOptions
from softq.methods._softmax import softmax
from softq.rowprog import DType, Trace, Value
from softq.rowprog.formats import FORMATS
from softq.rowprog.program import Scope
from softq.rowprog.rounding import round_to

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    CodedT = TypeVar("CodedT", bound="CodedOptions")

Code = Callable[[Value], Value]
"""Returns the weights of numbers in [0, 1], rows of f32."""

MX_BLOCK = 32
"""Numbers of a block in the microscaling formats."""

LEAST_SCALE = 2.0**-100
"""Scales of blocks end here, far above the least of E8M0: no subnormal number of f32 arises."""

SUMS = ("sum", (0.0, 1.0))
"""`Method.choices` of the option `sum`: 0 is coded, 1 exact."""

_CODED = ("coded", 0.0)


@dataclass(frozen=True)
class CodedOptions(FloatOptions):
    """What is coded, and what the product with V is divided by."""

    unnamed: ClassVar = {"of": "exponentials", "sum": "coded", "values": "f32"}

    of: Literal["exponentials", "probabilities"] = option(
        "exponentials", "what is coded: exponentials, and the division is behind the product with V; or probabilities"
    )
    sum: float | Literal["coded", "exact"] | Scope = option(
        "coded", "what products are divided by: the sum of the coded weights (coded, 0), or of the exponentials before "
        "they were coded (exact, 1); or the better one per site or head", low=0.0, high=1.0,
    )  # fmt: skip
    values: Literal["f32", "coded"] = option(
        "f32", "what V is in a product that is divided at last: as it is; or coded as the weights are, each column by "
        "itself, its blocks along the keys",
    )  # fmt: skip


def coded(t: Trace, options: CodedOptions, code: Code, one: Value) -> Outputs:
    """Return a method's outputs: weights made by `code`, and what they are divided by; `one` is what 1 weighs.

    Raises:
        UsageError: probabilities are coded, and a sum is asked for, which they do not have; or a number is no choice.
    """
    p = softmax(t)
    if options.of == "probabilities":
        if options.sum not in _CODED:
            raise UsageError(f"{t.name}: sum is {options.sum}; probabilities are divided by nothing, allowed is coded")
        shares = p.scale(t, t.const(1.0, DType.F32))
        return {"weights": code(shares), "normalizer": p.normalizer(t, one)}
    weights = code(p.exponentials)
    if options.sum in _CODED:
        return p.distance.pair(weights)
    if isinstance(options.sum, float) and options.sum < 1:
        raise UsageError(
            f"{t.name}: sum is {options.sum:g}; allowed numbers are 0, the coded sum, and 1, the exact one"
        )
    total = p.total * one
    if options.sum in FITTED_SCOPES:
        (exact,) = take(
            t, options, "sum", choose_sum, Given("exact", 0.0, 1.0, "whether the exact sum is taken: 1, or 0")
        )
        total = t.select(exact > 0.5, total, t.row_sum(weights))
    return p.distance.pair(weights, total)


def choose_sum(options: CodedOptions, fitted: Mapping[str, float]) -> dict[str, float]:
    """Return the run-time parameter of a fitted sum."""
    return {"exact": float(fitted["sum"])}


ScaleRounding = Literal["down", "up"]


def scale_option() -> ScaleRounding:
    """Return the field for the rounding of block scales."""
    return option(
        "down", "the power of two that a block is divided by; down: that of its greatest number, as MX has it, so that "
        "the greatest numbers may saturate; up: the least with which none does",
    )  # fmt: skip


def sizes(t: Trace, values: Value) -> Value:
    """Return |x| of each element."""
    return t.max(values, 0.0 - values)


def in_blocks(t: Trace, values: Value, name: str, size: int, rounding: ScaleRounding, *, signed: bool = False) -> Value:
    """Return numbers in a microscaling format: a power of two for each block of `size`."""
    form, greatest = FORMATS[name], t.group_max(sizes(t, values) if signed else values, size)
    if rounding == "down":
        top = FORMATS[name].greatest
        exponent = max(e for e in range(16) if 2.0**e <= top)
        scale = round_to(t, greatest, "e8m0") * t.const(2.0**-exponent, DType.F32)
    else:
        scale = round_to(t, greatest * t.const(1 / form.greatest, DType.F32), "e8m0-up")
    scale = t.max(scale, LEAST_SCALE)
    return round_to(t, t.divide(values, scale), name, signed=signed) * scale


def of_column(t: Trace, values: Value, one: float) -> tuple[Value, Value]:
    """Return what a column of V is multiplied back with, scalar of f32, and V over it: its greatest is `one` then."""
    scale = t.max(t.row_max(sizes(t, values)) * t.const(1 / one, DType.F32), LEAST_SCALE)
    return scale, t.divide(values, scale)


def coded_method(
    *,
    name: str,
    summary: str,
    source: str,
    options: type[CodedT],
    code: Callable[[Trace, CodedT, Value], Value],
    column: Callable[[Trace, CodedT], Value],
    one: Callable[[CodedT], float] = lambda options: 1.0,
) -> Method[CodedT]:
    """Return a method whose block scales follow from the row, so that only its sum is fitted.

    Args:
        name: As in `Method`, like `summary`, `source` and `options`.
        summary: One line.
        source: Where the formula comes from.
        options: The dataclass of its options.
        code: Returns the weights of numbers in [0, 1], rows of f32.
        column: Returns a column of V, the trace's scores, in the same format.
        one: What 1 weighs.
    """

    def trace(t: Trace, given: CodedT) -> Outputs:
        return coded(t, given, lambda values: code(t, given, values), t.const(one(given), DType.F32))

    return Method(
        name=name,
        summary=summary,
        source=source,
        options=options,
        trace=trace,
        drop_in=True,
        calibration="optional: fits which sum products are divided by, per site or per head",
        parameters=per_head(sum=choose_sum),
        choices=(SUMS,),
        values=lambda t, given: None if given.values == "f32" else column(t, given),
    )
