"""Every operator alone, in the interpreter and in onnxruntime, at its types' corners, against exact numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from softq.errors import InputError
from softq.rowprog import DType, Kind, Program, Trace, Value, interpreter, run
from softq.rowprog.onnx import emitter, to_model
from softq.rowprog.ops import OPS
from softq.rowprog.ranges import rules

INTEGERS = [d for d in DType if d.is_integer and d is not DType.U64]
SMALL_F32 = float(np.finfo(np.float32).tiny)
F32_MAX = float(np.finfo(np.float32).max)
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -2.5, 3.0, 1e-45, -1e-45, SMALL_F32, 1e10, -3e38, F32_MAX,
          -F32_MAX, math.inf, -math.inf, math.nan]  # fmt: skip
Number = int | float | bool


def span(dtype: DType) -> tuple[int, int]:
    """The integers that the tests use: all, but 41 bits of a 64-bit type, so that sums can be taken apart."""
    return (-(2**40), 2**40) if dtype.bits == 64 else (dtype.low, dtype.high)


def corners(dtype: DType) -> list[int]:
    low, high = span(dtype)
    near = {0, 1, 2, 3, 5, 7, -1, -2, -3, -5, low, low + 1, high - 1, high}
    for bits in (7, 8, 15, 16, 24, 30, 31, 32):
        near |= {2**bits - 1, 2**bits, 2**bits + 1, -(2**bits), -(2**bits) - 1}
    return sorted(v for v in near if low <= v <= high)


def parts(t: Trace, value: Value) -> dict[str, Value]:
    """A value as numbers that float32 outputs hold exactly: 16 bits each, the highest part signed."""
    if value.dtype is DType.BOOL:
        return {"p0": t.select(value, t.const(1, DType.I32), 0)}
    if value.dtype.is_float:
        return {"p0": value}
    if value.dtype.bits <= 16:
        return {"p0": value}
    wide, found = t.cast(value, DType.I64), {}
    for i in range(3):
        above = wide >> 16
        found[f"p{i}"] = wide - (above << 16) if i < 2 else wide
        wide = above
    return found


def both(
    program: Program,
    x: NDArray[np.generic],
    names: Sequence[str],
    params: Mapping[str, NDArray[np.generic]] | None = None,
) -> list[dict[str, NDArray[np.generic]]]:
    """Outputs of the interpreter, of onnxruntime, and of onnxruntime without optimisations."""
    results = [{name: np.asarray(v) for name, v in run(program, x, params=params).items() if name in names}]
    model = to_model(program, params, shape=["a", "b", "c", "N"][-x.ndim :], outputs=names).SerializeToString()
    for level in (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        results.append(
            {name: np.asarray(v) for name, v in zip(names, session.run(list(names), {"scores": x}), strict=True)}
        )
    return results


def together(found: Mapping[str, NDArray[np.generic]], names: Sequence[str]) -> list[Number]:
    if len(names) == 1:
        return np.asarray(found["p0"]).astype(np.float64).reshape(-1).tolist()
    columns = [np.asarray(found[name]).astype(np.float64).reshape(-1) for name in names]
    return [int(a) + (int(b) << 16) + (int(c) << 32) for a, b, c in zip(*columns, strict=True)]


def same(got: Number, expected: Number, ulps: int = 0) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(got)
    if ulps and math.isfinite(expected):
        return abs(got - expected) <= ulps * float(np.spacing(np.float32(abs(expected))))
    return got == expected


def check(
    dtype: DType,
    values: Sequence[Number],
    build: Callable[[Trace, Value], Value],
    expected: Sequence[Number],
    ulps: int = 0,
) -> None:
    """Run `build` on a row of the values in every backend; the results are the expected ones."""
    t = Trace("op", structure="x", scores=dtype)
    a = t.scores if dtype.is_float or dtype.bits < 64 else t.clamp(t.scores, *span(dtype))
    found = parts(t, build(t, a))
    names = list(found)
    program = t.program(weights=t.scores, normalizer=t.length(), **found)
    x = np.asarray(values, dtype=dtype.numpy)[None]
    for results in both(program, x, names):
        for value, got, wanted in zip(values, together(results, names), expected, strict=True):
            assert same(got, wanted, ulps), (value, got, wanted)


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


def test_every_backend_knows_every_operator() -> None:
    assert set(OPS) == set(interpreter.BACKEND) == set(emitter.BACKEND)
    # The analysis itself does those that depend on the input, the choice, the reductions and the loop.
    itself = {"input", "index", "length", "select", "row_max", "row_min", "row_sum", "scan"}
    assert set(OPS) == set(rules.RULES) | itself
    assert not itself & set(rules.RULES)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "divide"])
def test_float_arithmetic(op: str) -> None:
    a, b = pairs(DType.F32)
    check(DType.F32, a, lambda t, x: t.binary(op, x, second(t, b, DType.F32)),
          [ieee(op, f32(x), f32(y)) for x, y in zip(a, b, strict=True)])  # fmt: skip


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.value)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "divide"])
def test_integer_arithmetic(op: str, dtype: DType) -> None:
    # Operands are clamped so far that no result can overflow, which is what the proof demands.
    low, high = span(dtype)
    bound = {"add": (low // 2, high // 2), "sub": (0 if low == 0 else low // 2, high // 2),
             "mul": (-100 if low else 0, 100), "divide": (0, high)}[op]  # fmt: skip
    if op == "mul" and dtype.bits == 8:
        bound = (-11 if low else 0, 11)
    a, b = pairs(dtype)
    x = [min(max(int(v), bound[0]), bound[1]) for v in a]
    y = [min(max(int(v), bound[0]), bound[1]) for v in b]
    if op == "divide":
        y = [max(v, 1) for v in y]
    if op == "sub" and low == 0:
        y = [0 for _ in y]  # unsigned: only what cannot go below 0
    expected = [
        {"add": p + q, "sub": p - q, "mul": p * q, "divide": p // max(q, 1)}[op] for p, q in zip(x, y, strict=True)
    ]
    check(dtype, a, lambda t, v: t.binary(op, t.clamp(v, *bound), second(t, y, dtype)), expected)


@pytest.mark.parametrize("dtype", [*INTEGERS, DType.F32], ids=lambda d: d.value)
@pytest.mark.parametrize("op", ["min", "max", "lt", "le", "eq", "select"])
def test_comparisons_and_choices(op: str, dtype: DType) -> None:
    a, b = pairs(dtype)
    x, y = ([f32(v) for v in side] if dtype.is_float else side for side in (a, b))

    def expected(p: Number, q: Number) -> Number:
        chosen = {"min": p if p < q else q, "max": p if q < p else q, "select": p if p <= q else q}
        return chosen[op] if op in chosen else int({"lt": p < q, "le": p <= q, "eq": p == q}[op])

    def build(t: Trace, v: Value) -> Value:
        other = second(t, b, dtype)
        return t.select(v <= other, v, other) if op == "select" else t.binary(op, v, other)

    check(dtype, a, build, [expected(p, q) for p, q in zip(x, y, strict=True)])


def test_clamp_makes_a_nan_the_lower_bound() -> None:
    check(DType.F32, FLOATS, lambda t, v: t.clamp(v, -2.0, 3.0),
          [-2.0 if math.isnan(v) else min(max(f32(v), -2.0), 3.0) for v in FLOATS])  # fmt: skip


@pytest.mark.parametrize("op", ["and", "or", "not"])
def test_logic(op: str) -> None:
    values = [0, 1, 2, 3]

    def build(t: Trace, v: Value) -> Value:
        a, b = v.eq(1) | v.eq(3), v >= 2
        return ~a if op == "not" else t.binary(op, a, b)

    expected = {"and": [0, 0, 0, 1], "or": [0, 1, 1, 1], "not": [1, 0, 1, 0]}[op]
    check(DType.I32, values, build, expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.value)
@pytest.mark.parametrize("known", [True, False], ids=["constant", "row"])
def test_shift_to_the_right_is_a_floor(dtype: DType, known: bool) -> None:
    values = corners(dtype)
    for by in (0, 1, 3, dtype.bits - 1):

        def build(t: Trace, v: Value, by: int = by) -> Value:
            return v >> (by if known else second(t, [by] * len(values), dtype))

        check(dtype, values, build, [v >> by for v in values])


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.value)
@pytest.mark.parametrize("known", [True, False], ids=["constant", "row"])
def test_shift_to_the_left(dtype: DType, known: bool) -> None:
    values = corners(dtype)
    low, high = (-4 if dtype.is_signed else 0, 3)
    for by in (0, 1, min(dtype.bits - 4, 36)):

        def build(t: Trace, v: Value, by: int = by) -> Value:
            return t.clamp(v, low, high) << (by if known else second(t, [by] * len(values), dtype))

        check(dtype, values, build, [min(max(v, low), high) << by for v in values])


@pytest.mark.parametrize("source", INTEGERS, ids=lambda d: d.value)
@pytest.mark.parametrize("target", [*INTEGERS, DType.F32], ids=lambda d: d.value)
def test_cast_of_integers(source: DType, target: DType) -> None:
    values = corners(source)
    low, high = (
        span(source) if target.is_float else (max(span(source)[0], target.low), min(span(source)[1], target.high))
    )
    kept = [min(max(v, low), high) for v in values]
    expected: list[Number] = [float(np.float32(v)) if target.is_float else v for v in kept]
    check(source, values, lambda t, v: t.cast(t.clamp(v, low, high), target), expected)


@pytest.mark.parametrize("target", [d for d in INTEGERS if d.bits <= 32], ids=lambda d: d.value)
def test_cast_of_floats_cuts_the_fraction_off(target: DType) -> None:
    low, high = float(max(target.low, -(2**24))), float(min(target.high, 2**24))
    values = [*FLOATS, 0.99, -0.99, 100.5, -100.5, 126.99, 2.0**23 + 1]
    kept = [low if math.isnan(v) else min(max(f32(v), low), high) for v in values]
    check(DType.F32, values, lambda t, v: t.cast(t.clamp(v, low, high), target), [math.trunc(v) for v in kept])


def test_rint_is_half_to_even() -> None:
    values = [*FLOATS, 8388607.5, 8388609.0, -8388607.5, 0.49999997, 1.4999999, 4.5, 5.5, -4.5]
    expected = [float(round(f32(v))) if math.isfinite(v) else v for v in values]
    check(DType.F32, values, lambda t, v: t.rint(v), expected)


def test_square_root_is_rounded_once() -> None:
    values = [*FLOATS, *(float(v) for v in np.random.default_rng(0).random(2000, dtype=np.float32) * 100)]

    def root(v: float) -> float:
        return math.nan if math.isnan(v) or v < 0 else v if v in (0.0, math.inf) else f32(math.sqrt(f32(v)))

    check(DType.F32, values, lambda t, v: t.sqrt(v), [root(v) for v in values])


def test_log2_is_within_two_units() -> None:
    values = [SMALL_F32, 1.0, 2.0, 3.0, 0.1, 1000.0, F32_MAX, math.inf, 0.0,
              *(float(v) for v in np.random.default_rng(0).random(500, dtype=np.float32) * 8 + 2)]  # fmt: skip
    expected = [-math.inf if v == 0 else v if math.isinf(v) else math.log2(f32(v)) for v in values]
    check(DType.F32, values, lambda t, v: t.log2(v), expected, ulps=2)
    check(DType.F32, [-1.0, math.nan], lambda t, v: t.log2(v), [math.nan, math.nan])


@pytest.mark.parametrize("bounds", [(-126, 127), (-60, 0), (0, 20)])
def test_powers_of_two_are_exact(bounds: tuple[int, int]) -> None:
    values = list(range(bounds[0], bounds[1] + 1))
    check(DType.I32, values, lambda t, v: t.exp2i(t.clamp(v, *bounds)), [2.0**v for v in values])


@pytest.mark.parametrize(
    "table",
    [[7, -3, 2**31 - 1, 0], [2**14 >> c for c in range(16)], [round(2**14 * 2 ** (-c / 0.75)) for c in range(7)] + [0]],
)
def test_lookup(table: list[int]) -> None:
    values = list(range(len(table)))
    check(DType.U8, values, lambda t, v: t.lut(t.table(table, DType.I32), t.clamp(v, 0, len(table) - 1)), table)


def test_float_lookup() -> None:
    table = [2.0**-c for c in range(15)] + [0.0]
    check(DType.U8, list(range(16)), lambda t, v: t.lut(t.table(table, DType.F32), t.clamp(v, 0, 15)), table)


def test_normalize_shifts_the_highest_bit_to_the_top() -> None:
    for value in (1, 2, 3, 255, 2**16, 2**16 + 1, 2**31 - 1, 2**31, 2**32 - 1):
        shift = 32 - value.bit_length()
        for part, expected in ((0, value << shift), (1, shift)):

            def build(t: Trace, v: Value, part: int = part) -> Value:
                return t.normalize(t.max(t.row_max(v), 1))[part] + t.cast(v - v, (DType.U32, DType.I32)[part])

            check(DType.U32, [value], build, [expected])


@pytest.mark.parametrize("dtype", [*INTEGERS, DType.F32], ids=lambda d: d.value)
@pytest.mark.parametrize("op", ["row_max", "row_min", "row_sum"])
def test_reductions(op: str, dtype: DType) -> None:
    values: list[Number] = [0.5, -3.0, 2.0**100, -math.inf, 2.0] if dtype.is_float else [*corners(dtype)]
    low, high = (0, 0) if dtype.is_float else span(dtype)
    if op == "row_sum":
        values = [1.0, 2.0, -0.5] if dtype.is_float else [v for v in values if abs(v) <= 1]
    expected = {"row_max": max(values), "row_min": min(values), "row_sum": sum(values)}[op]

    def build(t: Trace, v: Value) -> Value:
        inner = v if dtype.is_float or op != "row_sum" else t.clamp(v, max(low, -1), min(high, 1))
        if op == "row_sum" and not dtype.is_float:
            inner = t.cast(inner, DType.I64)
        result: Value = getattr(t, op)(inner)
        return t.select(v.eq(v), result, result)

    check(dtype, values, build, [expected] * len(values))


def test_index_and_length() -> None:
    check(DType.F32, [0.0] * 5, lambda t, v: t.index(), list(range(5)))
    check(DType.F32, [0.0] * 5, lambda t, v: t.length() + t.index() - t.index(), [5] * 5)


def test_scan_carries_a_state_along_the_row() -> None:
    values = [3, -5, 7, 100, -100, 2]

    def build(t: Trace, v: Value, part: int) -> Value:
        small = t.clamp(v, -50, 50)
        (total, _), (running,) = t.scan(
            [t.const(0, DType.I32), t.const(1, DType.I32)], [small],
            lambda s, k, e: ((t.clamp(s + e, -200, 200), t.min(k + k, 64)), (s,)), [(-200, 200), (1, 64)],
        )  # fmt: skip
        return running if part else total + t.index() - t.index()

    clamped = [min(max(v, -50), 50) for v in values]
    check(DType.I32, values, lambda t, v: build(t, v, 0), [sum(clamped)] * len(values))
    check(DType.I32, values, lambda t, v: build(t, v, 1), [sum(clamped[:i]) for i in range(len(values))])


def test_assume_is_checked_by_the_interpreter() -> None:
    check(DType.I32, [1, 2, 3], lambda t, v: t.assume(v, 0, 9, "the test says so") * 1000, [1000, 2000, 3000])
    t = Trace("op", scores=DType.I32)
    program = t.program(weights=t.assume(t.scores, 0, 9, "the test says so"), normalizer=t.length())
    with pytest.raises(InputError, match=r"outside \[0, 9\], assumed because the test says so"):
        run(program, np.array([[1, 10]], np.int32))


@pytest.mark.parametrize("scope", ["site", "head"])
def test_parameters(scope: str) -> None:
    t = Trace("op", structure="x", scores=DType.F32)
    factor = t.param("factor", "site" if scope == "site" else "head", DType.F32, -10, 10, "a factor")
    table = t.param("table", "site" if scope == "site" else "head", DType.U16, 0, 9, "a table", size=3)
    row = t.lut(table, t.clamp(t.index(), 0, 2))
    program = t.program(weights=t.scores * factor, normalizer=t.length(), looked=row)
    assert row.kind is Kind.ROW
    x = np.arange(2 * 2 * 1 * 3, dtype=np.float32).reshape(2, 2, 1, 3)
    params: dict[str, NDArray[np.generic]] = {
        "factor": np.array([2], np.float32),
        "table": np.array([7, 8, 9], np.uint16),
    }
    if scope == "head":
        params = {"factor": np.array([2, -1], np.float32).reshape(2, 1, 1),
                  "table": np.array([[7, 8, 9], [1, 2, 3]], np.uint16).reshape(2, 1, 3)}  # fmt: skip
    expected = np.broadcast_to(params["table"].astype(np.float64).reshape(-1, 1, 3), x.shape)
    for results in both(program, x, ["weights", "looked"], params):
        np.testing.assert_array_equal(results["weights"], x * params["factor"].astype(np.float32))
        np.testing.assert_array_equal(results["looked"].astype(np.float64), expected)
