"""Every operator alone, in the interpreter and in onnxruntime, at its types' corners, against exact numbers."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest

from softq.errors import InputError
from softq.rowprog import DType, Program, Trace, Value, run
from softq.rowprog.formats import FORMATS, Format
from softq.rowprog.onnx import to_model
from softq.rowprog.program import Scope
from softq.rowprog.rounding import round_to
from tests.rowhost import Array, everywhere

INTEGERS = [d for d in DType if d.is_integer and d is not DType.U64]
SMALL_F32 = float(np.finfo(np.float32).tiny)
F32_MAX = float(np.finfo(np.float32).max)
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -2.5, 3.0, 1e-45, -1e-45, SMALL_F32, 1e10, -3e38, F32_MAX,
          -F32_MAX, math.inf, -math.inf, math.nan]  # fmt: skip
Number = int | float | bool


def corners(dtype: DType) -> list[int]:
    near = {0, 1, 2, 3, 5, 7, -1, -2, -3, -5, dtype.low, dtype.low + 1, dtype.high - 1, dtype.high}
    for bits in (7, 8, 15, 16, 24, 30, 31, 32, 33, 53, 62):
        near |= {2**bits - 1, 2**bits, 2**bits + 1, -(2**bits), -(2**bits) - 1}
    near |= {2**24 + 3, 2**33 + 2**31, 2**40 + 2**16}
    return sorted(v for v in near if dtype.low <= v <= dtype.high)


def same(got: Number, expected: Number, ulps: int = 0) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(got)
    if ulps and math.isfinite(expected):
        return abs(got - expected) <= ulps * float(np.spacing(np.float32(abs(expected))))
    return got == expected


Case = tuple[Callable[[Trace, Value], Value], Sequence[Number]]
"""What makes a value of the scores, and what it gives at each of them."""


def check(
    dtype: DType,
    values: Sequence[Number],
    build: Callable[[Trace, Value], Value],
    expected: Sequence[Number],
    ulps: int = 0,
) -> None:
    """Run `build` on a row of the values in every backend; the results are the expected ones."""
    check_each(dtype, values, {"result": (build, expected)}, ulps)


def check_each(dtype: DType, values: Sequence[Number], cases: Mapping[str, Case], ulps: int = 0) -> None:
    """Do what `check` does for several values of the same scores, each an output of one program."""
    t = Trace("op", structure="x", scores=dtype)
    built = {name: build(t, t.scores) for name, (build, _) in cases.items()}
    program = t.program(weights=t.scores, normalizer=t.length(), **built)
    x = np.asarray(values, dtype=dtype.numpy)[None]
    for backend, results in everywhere(program, x, list(cases)):
        for name, (_, expected) in cases.items():
            found: list[Number] = np.broadcast_to(results[name], (1, len(values)))[0].tolist()
            for value, got, wanted in zip(values, found, expected, strict=True):
                assert same(got, wanted, ulps), (backend, name, value, got, wanted)


def second(t: Trace, values: Sequence[Number], dtype: DType) -> Value:
    """A row of constants: the second operand at each position."""
    return t.lut(t.table(values, dtype), t.clamp(t.index(), 0, len(values) - 1))


def pairs(dtype: DType) -> tuple[list[Number], list[Number]]:
    each: Sequence[Number] = FLOATS if dtype.is_float else corners(dtype)
    chosen = [(a, b) for a in each for b in each]
    return [a for a, _ in chosen], [b for _, b in chosen]


def f32(value: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(value))


def ieee(op: str, a: float, b: float) -> float:
    """One float32 operation: exact in rationals, then rounded once."""
    with np.errstate(all="ignore"):
        x, y = np.float32(a), np.float32(b)
        special = {"add": x + y, "sub": x - y, "mul": x * y, "divide": x / y}[op]
    if (
        not (math.isfinite(a) and math.isfinite(b))
        or (op == "divide" and b == 0)
        or float(special) in (math.inf, -math.inf, 0.0)
    ):
        return float(special)
    p, q = Fraction(a), Fraction(b)
    exact = {"add": p + q, "sub": p - q, "mul": p * q, "divide": p / q if q else p}[op]
    # A double holds the quotient to 53 bits, enough to round a float32 quotient once more without harm.
    return f32(float(exact))


@pytest.mark.parametrize("op", ["add", "sub", "mul", "divide"])
def test_float_arithmetic(op: str) -> None:
    a, b = pairs(DType.F32)
    check(DType.F32, a, lambda t, x: t.apply(op, x, second(t, b, DType.F32)),
          [ieee(op, f32(x), f32(y)) for x, y in zip(a, b, strict=True)])  # fmt: skip


def arithmetic(op: str, dtype: DType, a: Sequence[Number], b: Sequence[Number]) -> Case:
    # Operands are clamped so far that no result can overflow, which is what the proof demands.
    low, high = (dtype.low, dtype.high)
    bound = {"add": (low // 2, high // 2), "sub": (0 if low == 0 else low // 2, high // 2),
             "mul": (-100 if low else 0, 100), "divide": (0, high)}[op]  # fmt: skip
    if op == "mul" and dtype.bits == 8:
        bound = (-11 if low else 0, 11)
    x = [min(max(int(v), bound[0]), bound[1]) for v in a]
    y = [min(max(int(v), bound[0]), bound[1]) for v in b]
    if op == "divide":
        y = [max(v, 1) for v in y]
    if op == "sub" and low == 0:
        y = [0 for _ in y]  # unsigned: only what cannot go below 0
    expected = [
        {"add": p + q, "sub": p - q, "mul": p * q, "divide": p // max(q, 1)}[op] for p, q in zip(x, y, strict=True)
    ]
    return lambda t, v: t.apply(op, t.clamp(v, *bound), second(t, y, dtype)), expected


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.value)
def test_integer_arithmetic(dtype: DType) -> None:
    a, b = pairs(dtype)
    check_each(dtype, a, {op: arithmetic(op, dtype, a, b) for op in ("add", "sub", "mul", "divide")})


@pytest.mark.parametrize("dtype", [*INTEGERS, DType.F32], ids=lambda d: d.value)
def test_comparisons_and_choices(dtype: DType) -> None:
    a, b = pairs(dtype)
    x, y = ([f32(v) for v in side] if dtype.is_float else side for side in (a, b))

    def expected(op: str, p: Number, q: Number) -> Number:
        chosen = {"min": p if p < q else q, "max": p if q < p else q, "select": p if p <= q else q}
        return chosen[op] if op in chosen else int({"lt": p < q, "le": p <= q, "eq": p == q}[op])

    def build(t: Trace, v: Value, op: str) -> Value:
        other = second(t, b, dtype)
        return t.select(v <= other, v, other) if op == "select" else t.apply(op, v, other)

    check_each(
        dtype,
        a,
        {
            op: (partial(build, op=op), [expected(op, p, q) for p, q in zip(x, y, strict=True)])
            for op in ("min", "max", "lt", "le", "eq", "select")
        },
    )


def test_clamp_makes_a_nan_the_lower_bound() -> None:
    check(DType.F32, FLOATS, lambda t, v: t.clamp(v, -2.0, 3.0),
          [-2.0 if math.isnan(v) else min(max(f32(v), -2.0), 3.0) for v in FLOATS])  # fmt: skip


@pytest.mark.parametrize("op", ["and", "or", "not"])
def test_logic(op: str) -> None:
    values = [0, 1, 2, 3]

    def build(t: Trace, v: Value) -> Value:
        a, b = v.eq(1) | v.eq(3), v >= 2
        return ~a if op == "not" else t.apply(op, a, b)

    expected = {"and": [0, 0, 0, 1], "or": [0, 1, 1, 1], "not": [1, 0, 1, 0]}[op]
    check(DType.I32, values, build, expected)


def test_a_sum_may_be_narrower_than_a_number_in_it() -> None:
    # The result fits a byte, in which the number itself does not.
    check(DType.I8, corners(DType.I8), lambda t, x: t.cast(x, DType.I32) - (-128), [v + 128 for v in corners(DType.I8)])
    check(DType.U8, corners(DType.U8), lambda t, x: t.cast(x, DType.I32) - 200, [v - 200 for v in corners(DType.U8)])
    check(DType.U8, corners(DType.U8), lambda t, x: t.clamp(t.cast(x, DType.I32), 190, 210) - 200,
          [min(max(v, 190), 210) - 200 for v in corners(DType.U8)])  # fmt: skip


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.value)
def test_shift_to_the_right_is_a_floor(dtype: DType) -> None:
    values = corners(dtype)
    check_each(
        dtype, values, {f"by{by}": (lambda t, v, by=by: v >> by, [v >> by for v in values]) for by in range(dtype.bits)}
    )


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.value)
def test_shift_to_the_right_by_runtime_amounts(dtype: DType) -> None:
    shifts = range(dtype.bits)
    values, amounts = [v for v in corners(dtype) for _ in shifts], [by for _ in corners(dtype) for by in shifts]
    expected = [v >> by for v, by in zip(values, amounts, strict=True)]
    check(dtype, values, lambda t, v: v >> second(t, amounts, dtype), expected)
    # Not negative, and so narrow that the carrier has fewer bits than the type.
    expected = [min(max(v, 0), 100) >> by for v, by in zip(values, amounts, strict=True)]
    check(dtype, values, lambda t, v: t.clamp(v, 0, 100) >> second(t, amounts, dtype), expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.value)
@pytest.mark.parametrize("known", [True, False], ids=["constant", "row"])
def test_shift_to_the_left(dtype: DType, known: bool) -> None:
    values = corners(dtype)
    cases: dict[str, Case] = {}
    # Up to the greatest amount that leaves room for the operand: 2^62 is the greatest power in int64.
    for by in {
        0,
        1,
        2,
        dtype.bits // 2,
        min(30, dtype.bits - 2),
        dtype.bits - 3,
        dtype.bits - 2,
        min(dtype.bits - 1, 62),
    }:
        room = (dtype.high >> by, dtype.low >> by)
        high, low = min(room[0], 3), max(room[1], -4)

        def build(t: Trace, v: Value, by: int = by, low: int = low, high: int = high) -> Value:
            return t.clamp(v, low, high) << (by if known else second(t, [by] * len(values), dtype))

        cases[f"by{by}"] = build, [min(max(v, low), high) << by for v in values]
    check_each(dtype, values, cases)


def test_shift_to_the_left_by_runtime_amounts() -> None:
    amounts = list(range(32)) * 2
    values = [1] * 32 + [0] * 32
    for dtype in (DType.U32, DType.I64):
        check(dtype, values, lambda t, v, d=dtype: t.clamp(v, 0, 1) << second(t, amounts, d),
              [v << by for v, by in zip(values, amounts, strict=True)])  # fmt: skip


@pytest.mark.parametrize("source", INTEGERS, ids=lambda d: d.value)
def test_cast_of_integers(source: DType) -> None:
    values = corners(source)
    cases: dict[str, Case] = {}
    for target in (*INTEGERS, DType.U64, DType.F32):
        low, high = source.low, source.high
        if not target.is_float:
            low, high = max(low, target.low), min(high, target.high)
        kept = [min(max(v, low), high) for v in values]

        def build(t: Trace, v: Value, target: DType = target, low: int = low, high: int = high) -> Value:
            return t.cast(t.clamp(v, low, high), target)

        cases[target.value] = build, [nearest(v) if target.is_float else v for v in kept]
    check_each(source, values, cases)


def nearest(value: int) -> float:
    """The nearest float32 of an integer, half to even, by integer arithmetic."""
    drop = max(abs(value).bit_length() - 24, 0)
    return math.copysign(round(Fraction(abs(value), 2**drop)) * 2**drop, value)


@pytest.mark.parametrize("target", INTEGERS, ids=lambda d: d.value)
def test_cast_of_floats_cuts_the_fraction_off(target: DType) -> None:
    # The greatest float32 that the type holds.
    high = float(target.high - (target.high >> 24 if target.bits > 24 else 0))
    low = float(target.low)
    values = [
        *FLOATS,
        0.99,
        -0.99,
        100.5,
        -100.5,
        126.99,
        2.0**23 + 1,
        2.0**31,
        2.0**32,
        2.0**40,
        -(2.0**40),
        16777215.0,
    ]
    kept = [low if math.isnan(v) else min(max(f32(v), low), high) for v in values]
    assert f32(high) == high
    check(DType.F32, values, lambda t, v: t.cast(t.clamp(v, low, high), target), [math.trunc(v) for v in kept])


def test_a_value_survives_a_chain_of_casts() -> None:
    values = [*FLOATS, 3.7, -3.7, 250.5]
    kept = [math.trunc(0.0 if math.isnan(v) else min(max(f32(v), 0.0), 255.0)) for v in values]

    def build(t: Trace, v: Value) -> Value:
        for dtype in (DType.I64, DType.F32, DType.U8, DType.I32, DType.F32, DType.U32, DType.F32):
            v = t.cast(t.clamp(v, 0, 255), dtype)
        return v

    check(DType.F32, values, build, kept)


def test_rint_is_half_to_even() -> None:
    values = [*FLOATS, 8388607.5, 8388609.0, -8388607.5, 0.49999997, 1.4999999, 4.5, 5.5, -4.5]
    expected = [float(round(f32(v))) if math.isfinite(v) else v for v in values]
    check(DType.F32, values, lambda t, v: t.rint(v), expected)


@cache
def every_number(form: Format) -> list[float]:
    """Return the numbers of a format that are not below zero, by their codes."""
    if form.is_power:
        return [2.0**e for e in range(form.least, round(math.log2(form.greatest)) + 1)]
    normal = [(2.0**e) * (1 + m / 2**form.mantissa) for e in range(form.least, 128) for m in range(2**form.mantissa)]
    subnormal = [2.0**form.least * m / 2**form.mantissa for m in range(2**form.mantissa)]
    return [v for v in subnormal + normal if v <= form.greatest]


def to_format(form: Format, x: float) -> float:
    """Return the nearest number by comparing rational distances; ties go to the even code, of powers upwards."""
    if math.isnan(x):
        return x
    numbers = every_number(form)
    size = abs(x) if not form.is_power else max(x, numbers[0])
    if size >= numbers[-1]:
        return math.copysign(numbers[-1], x) if not form.is_power else numbers[-1]
    above = bisect.bisect_right(numbers, size)
    low, high = numbers[above - 1], numbers[above]
    below, beyond = Fraction(size) - Fraction(low), Fraction(high) - Fraction(size)
    if form.is_power:
        up = {"down": False, "up": below > 0, "nearest": below >= beyond}[form.direction]
        return high if up else low
    up = below > beyond or (below == beyond and (above - 1) % 2 == 1)
    return math.copysign(high if up else low, x)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_rounding_to_a_format(name: str, signed: bool) -> None:
    form, rng = FORMATS[name], np.random.default_rng(0)
    numbers = rng.choice(every_number(form), 40)
    near = [
        s * f32(n * f) for n in numbers for f in (0.5, 0.75, 0.9999999, 1, 1.0000001, 1.25, 1.0625) for s in (1, -1)
    ]
    # What is least may be 0 on a device; that is below half of the least number of all formats but these.
    tiny = [v for v in FLOATS if SMALL_F32 <= abs(f32(v)) or v == 0 or not math.isfinite(v)]
    values = [v for v in (*tiny, *near) if signed or not v < 0]
    expected = [to_format(form, f32(v)) for v in values]
    check(DType.F32, values, lambda t, v: round_to(t, v, name, signed=signed), expected)


@pytest.mark.parametrize("size", [2, 16, 32])
def test_the_greatest_of_a_group(size: int) -> None:
    for length in (1, 16, 33, 300):
        values = [f32(v) for v in np.random.default_rng(length).normal(size=length)]
        values[length // 2] = -math.inf
        best = [max(values[at - at % size : at - at % size + size]) for at in range(length)]
        check(DType.F32, values, lambda t, v: t.group_max(v, size), best)
        # Of computed values, and used by what comes behind it.
        expected = [ieee("sub", v, ieee("mul", 2 * b, 2 * max(values))) for v, b in zip(values, best, strict=True)]
        check(DType.F32, values, lambda t, v: v - t.group_max(v * 2.0, size) * t.row_max(t.group_max(v * 2.0, 4)),
              expected)  # fmt: skip


def test_square_root_is_rounded_once() -> None:
    values = [*FLOATS, *(float(v) for v in np.random.default_rng(0).random(2000, dtype=np.float32) * 100)]

    def root(v: float) -> float:
        return math.nan if math.isnan(v) or v < 0 else v if v in (0.0, math.inf) else f32(math.sqrt(f32(v)))

    check(DType.F32, values, lambda t, v: t.sqrt(v), [root(v) for v in values])


def test_log2_is_within_three_units() -> None:
    rng = np.random.default_rng(0)
    values = [1e-45, 1e-40, SMALL_F32, 1.0, 2.0, 3.0, 0.1, 1000.0, F32_MAX, math.inf, 0.0, -0.0,
              *np.exp2(rng.uniform(-149, 128, 5000)).astype(np.float32).tolist(),
              *(1 + rng.uniform(-0.5, 1, 2000)).astype(np.float32).tolist()]  # fmt: skip
    expected = [-math.inf if v == 0 else v if math.isinf(v) else math.log2(f32(v)) for v in values]
    check(DType.F32, values, lambda t, v: t.log2(v), expected, ulps=3)
    check(DType.F32, [-1.0, math.nan], lambda t, v: t.log2(v), [math.nan, math.nan])


@pytest.mark.parametrize("bounds", [(-126, 127), (-62, 0), (-63, 0), (-60, 0), (0, 20), (-1, 1), (-126, -126), (5, 5)])
def test_powers_of_two_are_exact(bounds: tuple[int, int]) -> None:
    values = list(range(bounds[0], bounds[1] + 1))
    check(DType.I32, values, lambda t, v: t.exp2i(t.clamp(v, *bounds)), [2.0**v for v in values])


@pytest.mark.parametrize(
    "table",
    [
        [7, -3, 2**31 - 1, 0],
        [2**14 >> c for c in range(16)],
        [round(2**14 * 2 ** (-c / 0.75)) for c in range(7)] + [0],
        [0, 2**40, -(2**40), 2**31, -(2**63), 2**63 - 1],
        [2**62 >> c for c in range(64)],
        [5],
    ],
    ids=lambda table: str(table[:4]),
)
def test_lookup(table: list[int]) -> None:
    positions = [*range(len(table)), 0, len(table) - 1]
    check(DType.U8, positions, lambda t, v: t.lut(t.table(table, DType.I64), t.clamp(v, 0, len(table) - 1)),
          [table[i] for i in positions])  # fmt: skip


@pytest.mark.parametrize(
    "table",
    [
        [2.0**-c for c in range(15)] + [0.0],
        [3.5, -1.0, math.inf],
        [math.nan, 1.0],
        [-math.inf, 1.0],
        [1e-45, 0.0, 1e-40],
    ],
    ids=str,
)
def test_float_lookup(table: list[float]) -> None:
    size = len(table)
    check(DType.U8, list(range(size)), lambda t, v: t.lut(t.table(table, DType.F32), t.clamp(v, 0, size - 1)),
          [f32(v) for v in table])  # fmt: skip


@pytest.mark.parametrize("part", [0, 1])
def test_normalize_shifts_the_highest_bit_to_the_top(part: int) -> None:
    t = Trace("op", structure="x", scores=DType.U32)
    parts = t.normalize(t.max(t.row_max(t.scores), 1))
    program = t.program(weights=t.scores, normalizer=parts[part])
    values = [v for k in range(32) for v in (2**k, 2**k + 1, 2 ** (k + 1) - 1) if v < 2**32]
    shifts = [32 - v.bit_length() for v in values]
    expected = shifts if part else [v << shift for v, shift in zip(values, shifts, strict=True)]
    for backend, results in everywhere(program, np.array(values, np.uint32)[:, None], ["normalizer"]):
        assert results["normalizer"][:, 0].tolist() == expected, backend


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.value)
@pytest.mark.parametrize("length", [1, 2, 3, 8, 33])
def test_reductions_of_integers(dtype: DType, length: int) -> None:
    rng, each = np.random.default_rng(length), corners(dtype)
    # Runs of corners that lie close together, so that what decides is in the lower half too.
    start = rng.integers(0, len(each), size=(60, 1))
    x = np.array(each, dtype.numpy)[np.minimum(start + rng.integers(0, 4, size=(60, length)), len(each) - 1)]
    t = Trace("op", structure="x", scores=dtype)
    high = dtype.high // 64
    low = -high if dtype.low else 0
    total = t.row_sum(t.clamp(t.scores, low, high))
    program = t.program(weights=t.scores, normalizer=total, most=t.row_max(t.scores), least=t.row_min(t.scores))
    rows: list[list[int]] = x.tolist()
    expected = {
        "normalizer": [sum(min(max(v, low), high) for v in row) for row in rows],
        "most": [max(row) for row in rows],
        "least": [min(row) for row in rows],
    }
    for backend, results in everywhere(program, x, list(expected), max_length=length):
        for name, wanted in expected.items():
            assert results[name][:, 0].tolist() == wanted, (backend, name)


@pytest.mark.parametrize(("op", "expected"), [("row_max", 2.0**100), ("row_min", -math.inf), ("row_sum", 3.5)])
def test_reductions_of_floats(op: str, expected: float) -> None:
    values = [1.0, 2.0, -0.5, 1.0] if op == "row_sum" else [0.5, -3.0, 2.0**100, -math.inf, 2.0]
    check(DType.F32, values, lambda t, v: getattr(t, op)(v), [expected] * len(values))


def test_reductions_of_nothing() -> None:
    for dtype in (*INTEGERS, DType.F32):
        t = Trace("op", structure="x", scores=dtype)
        program = t.program(
            weights=t.scores, normalizer=t.row_sum(t.cast(t.min(t.scores, 1), DType.F32)), length=t.length(),
            greatest=t.row_max(t.scores), least=t.row_min(t.scores), some=t.any(t.scores > 0),
        )  # fmt: skip
        out = run(program, np.zeros((2, 0), dtype.numpy))
        low, high = (-math.inf, math.inf) if dtype.is_float else (dtype.low, dtype.high)
        assert out["weights"].shape == (2, 0)
        assert out["normalizer"].tolist() == [[0], [0]]
        assert out["length"].tolist() == [[0], [0]]
        assert out["greatest"].tolist() == [[low], [low]]
        assert out["least"].tolist() == [[high], [high]]
        assert out["some"].tolist() == [[False], [False]]


def test_index_and_length() -> None:
    check(DType.F32, [0.0] * 5, lambda t, v: t.index(), list(range(5)))
    check(DType.F32, [0.0] * 5, lambda t, v: t.length(), [5] * 5)
    check(DType.F32, [0.0] * 5, lambda t, v: t.length() - t.index() * 2, [5, 3, 1, -1, -3])


def test_masks_broadcast_to_the_scores() -> None:
    t = Trace("op", structure="x", masked=True)
    assert t.valid is not None
    program = t.program(weights=t.scores, normalizer=t.length(), mask=t.valid, kept=t.any(t.valid & (t.scores > 0.0)))
    x = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    for shape in ((2, 3, 4), (1, 1, 4), (2, 1, 1), (1, 3, 1), (1, 1, 1)):
        valid = np.arange(math.prod(shape)).reshape(shape) % 3 == 0
        for backend, results in everywhere(program, x, ["mask", "kept"], valid=valid):
            full = np.broadcast_to(valid, x.shape)
            np.testing.assert_array_equal(results["mask"], full, err_msg=backend)
            np.testing.assert_array_equal(results["kept"], np.any(full & (x > 0), -1, keepdims=True), err_msg=backend)


def test_scan_carries_a_state_along_the_row() -> None:
    values = [3, -5, 7, 100, -100, 2]

    def build(t: Trace, v: Value, part: int) -> Value:
        small = t.clamp(v, -50, 50)
        (total, _), (running,) = t.scan(
            [t.const(0, DType.I32), t.const(1, DType.I32)], [small],
            lambda s, k, e: ((t.clamp(s + e, -200, 200), t.min(k + k, 64)), (s,)), [(-200, 200), (1, 64)],
        )  # fmt: skip
        return running if part else total

    clamped = [min(max(v, -50), 50) for v in values]
    check(DType.I32, values, lambda t, v: build(t, v, 0), [sum(clamped)] * len(values))
    check(DType.I32, values, lambda t, v: build(t, v, 1), [sum(clamped[:i]) for i in range(len(values))])


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_scan_with_states_and_rows_of_every_kind(rank: int) -> None:
    """An online softmax in halves: the scale is halved whenever the maximum grows; booleans, wide and narrow states."""
    t = Trace("op", structure="x", scores=DType.I8)
    odd = (t.index() >> 1).eq(0)
    start = t.min(t.cast(t.row_min(t.scores), DType.I32), 5)

    def step(m: Value, s: Value, seen: Value, e: Value, first: Value) -> tuple[list[Value], list[Value]]:
        x = t.cast(e, DType.I32) - start  # a scalar from outside
        new = t.max(m, x)
        total = t.min((s >> t.cast(t.min(new - m, 31), DType.U64)) + t.cast(t.max(x, 0), DType.U64), 2**40)
        return [new, total, seen | (first & (x > 3))], [new, t.cast(total, DType.F32), seen, x]

    (m, s, seen), (maxima, totals, before, same) = t.scan(
        [t.const(0, DType.I32), t.const(2**40, DType.U64), t.const(False, DType.BOOL)], [t.scores, odd], step,
        [(0, 300), (0, 2**40), (False, True)],
    )  # fmt: skip
    program = t.program(
        weights=maxima, normalizer=m, total=s, seen=seen, totals=totals, before=before, same=same,
    )  # fmt: skip
    x = np.random.default_rng(rank).integers(-20, 20, size=(2, 3, 4, 11)[4 - rank :]).astype(np.int8)
    names = list(program.outputs)
    expected: dict[str, list[list[float]]] = {name: [] for name in names}
    for row in x.reshape(-1, 11).tolist():
        low = min(*row, 5)
        greatest, total, met = 0, 2**40, False
        rows: dict[str, list[float]] = {"weights": [], "totals": [], "before": [], "same": []}
        for i, e in enumerate(row):
            v = e - low
            rows["before"].append(met)
            new = max(greatest, v)
            total = min((total >> min(new - greatest, 31)) + max(v, 0), 2**40)
            met |= i < 2 and v > 3
            greatest = new
            for name, value in (("weights", new), ("totals", f32(float(total))), ("same", v)):
                rows[name].append(value)
        for name in names:
            scalars = {"normalizer": greatest, "total": total, "seen": met}
            expected[name].append([scalars[name]] if name in scalars else rows[name])
    for backend, results in everywhere(program, x, names):
        for name in names:
            assert results[name].reshape(len(expected[name]), -1).tolist() == expected[name], (backend, name)


def test_a_scan_leaving_its_interval_is_found() -> None:
    t = Trace("op", scores=DType.I32)
    (last,), _ = t.scan([t.const(0, DType.I32)], [t.scores], lambda s, e: ([s + e], []), [(0, 9)])
    program = t.program(weights=t.scores, normalizer=last)
    assert run(program, np.array([[4, 5]], np.int32))["normalizer"].tolist() == [[9]]
    with pytest.raises(InputError, match=r"a state leaves its declared interval \[0, 9\] at element 1"):
        run(program, np.array([[4, 6]], np.int32))


def test_assume_is_checked_by_the_interpreter() -> None:
    check(DType.I32, [1, 2, 3], lambda t, v: t.assume(v, 0, 9, "the test says so") * 1000, [1000, 2000, 3000])
    t = Trace("op", scores=DType.I32)
    program = t.program(weights=t.assume(t.scores, 0, 9, "the test says so"), normalizer=t.length())
    with pytest.raises(InputError, match=r"outside \[0, 9\], assumed because the test says so"):
        run(program, np.array([[1, 10]], np.int32))


def parameters(scope: Scope) -> tuple[Program, dict[str, Array]]:
    t = Trace("op", structure="x", scores=DType.F32)
    factor = t.param("factor", scope, DType.F32, -10, 10, "a factor")
    table = t.param("table", scope, DType.U32, 0, 2**32 - 1, "a table", size=3)
    looked = t.lut(table, t.clamp(t.index(), 0, 2))
    once = t.lut(table, t.const(1, DType.U8))  # no score is part of it
    program = t.program(weights=t.scores * factor, normalizer=factor, looked=looked, once=once)
    values: dict[str, Array] = {
        "factor": np.array([2], np.float32),
        "table": np.array([7, 2**32 - 1, 2**31], np.uint32),
    }
    if scope == "head":
        values = {"factor": np.array([2, -1], np.float32).reshape(2, 1, 1),
                  "table": np.array([[7, 8, 9], [1, 2**32 - 2, 3]], np.uint32).reshape(2, 1, 3)}  # fmt: skip
    return program, values


@pytest.mark.parametrize("scope", ["site", "head"])
@pytest.mark.parametrize("lead", [(2, 2, 1), (1, 2, 5), (3, 2, 2)])
def test_parameters(scope: Scope, lead: tuple[int, ...]) -> None:
    program, values = parameters(scope)
    x = np.arange(math.prod(lead) * 3, dtype=np.float32).reshape(*lead, 3)
    factor, table = values["factor"].astype(np.float32), values["table"].astype(np.int64)
    for backend, results in everywhere(program, x, list(program.outputs), params=values):
        np.testing.assert_array_equal(results["weights"], x * factor, err_msg=backend)
        np.testing.assert_array_equal(results["normalizer"], np.broadcast_to(factor, (*lead, 1)), err_msg=backend)
        np.testing.assert_array_equal(results["looked"], np.broadcast_to(table, x.shape), err_msg=backend)
        np.testing.assert_array_equal(results["once"], np.broadcast_to(table[..., 1:2], (*lead, 1)), err_msg=backend)


def test_parameters_are_checked_alike_in_every_backend() -> None:
    program, right = parameters("site")
    wrong: list[tuple[dict[str, Array], str]] = [
        ({"factor": right["factor"]}, "parameter table is missing"),
        (right | {"more": right["factor"]}, r"unknown parameters \['more'\]"),
        (right | {"factor": np.array([2.0])}, "parameter factor is float64; expected float32"),
        (right | {"factor": np.array([11], np.float32)}, "holds a value outside its interval"),
        (right | {"factor": np.array([np.nan], np.float32)}, "holds a value outside its interval"),
        (right | {"table": np.array([1, 2], np.uint32)}, r"parameter table has shape .*2.*; expected"),
    ]
    for values, message in wrong:
        with pytest.raises(InputError, match=message):
            run(program, np.zeros((2, 3), np.float32), params=values)
        with pytest.raises(InputError, match=message):
            to_model(program, values)


def test_what_the_interpreter_is_given_is_checked() -> None:
    t = Trace("op", masked=True)
    assert t.valid is not None
    looked = t.lut(t.table([1.0, 2.0], DType.F32), t.cast(t.scores, DType.I32))
    program = t.program(probabilities=t.select(t.valid, looked, 0.0))
    x, yes = np.zeros((2, 3), np.float32), np.ones((2, 3), np.bool_)
    for scores, valid, message in (
        (np.zeros((2, 3)), yes, r"scores are float64 of shape \(2, 3\); expected float32"),
        (np.float32(0), yes, r"scores are float32 of shape \(\); expected float32 with at least one axis"),
        (x, None, "valid is missing; the program is masked"),
        (x, yes.astype(np.uint8), "valid is uint8; expected bool"),
        (x, yes[:, :2], "valid has shape .*, which does not broadcast to"),
        (x + 2, yes, "lut: the index is 2 to 2; allowed is 0 to 1"),
        (x - 1, yes, "lut: the index is -1 to -1; allowed is 0 to 1"),
    ):
        with pytest.raises(InputError, match=message):
            run(program, scores, valid=valid)
    t = Trace("op")
    with pytest.raises(InputError, match="valid is given; the program is not masked"):
        run(t.program(probabilities=t.scores), x, valid=yes)
