"""Range analysis against brute force: an evaluator in exact Python integers that shares no code with it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from softq.errors import ProofError, UsageError
from softq.methods import METHODS
from softq.rowprog import DType, Kind, Node, Program, Trace, Value, run, run_node
from softq.rowprog.program import body_of, number_of, param_of, table_of, walk
from softq.rowprog.ranges import Interval, floats, integers, largest_length, prove, rules
from softq.rowprog.ranges.analysis import Analysis
from softq.rowprog.ranges.bounds import Bounds
from softq.rowprog.ranges.cells import anything, cells
from softq.rowprog.ranges.facts import Facts
from softq.rowprog.ranges.interval import UnprovedError, require

F32_MAX = float(np.finfo(np.float32).max)
TINY = float(np.finfo(np.float32).smallest_subnormal)
SPECIAL = tuple(
    float(np.float32(v))
    for v in (-math.inf, -F32_MAX, -3, -1, -1e-38, -TINY, -0.0, 0, TINY, 1e-38, 0.5, 1, 2.5, 3e38, F32_MAX, math.inf)
)

Number = int | float
Values = list[Number]


class ViolationError(Exception):
    """A demand that does not hold at run time."""


def _f32(x: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(x))


def _demand(holds: bool, node: Node) -> None:
    if not holds:
        raise ViolationError(node.op)


def _divide_f32(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.divide(np.float32(a), np.float32(b)))


def _one(node: Node, *args: Number) -> Number:
    """Evaluate an elementwise operator on numbers, and check its demands."""
    flt, dtype = node.dtype.is_float, node.dtype
    a, b, c = [*args, 0, 0][:3]
    match node.op:
        case "add" | "sub" | "mul":
            result = {"add": a + b, "sub": a - b, "mul": a * b}[node.op]
            if flt:
                return _f32(result)  # exact or once rounded in double, and then innocuously rounded again
            _demand(dtype.low <= result <= dtype.high, node)
            return result
        case "divide":
            if flt:
                return _divide_f32(a, b)
            _demand(a >= 0 and b > 0, node)
            return a // b
        case "min":
            return a if a < b else b
        case "max":
            return a if b < a else b
        case "shl" | "shr":
            _demand(0 <= b < dtype.bits, node)
            result = int(a) << int(b) if node.op == "shl" else int(a) >> int(b)
            _demand(dtype.low <= result <= dtype.high, node)
            return result
        case "lt":
            return int(a < b)
        case "le":
            return int(a <= b)
        case "eq":
            return int(a == b)
        case "and":
            return a & b  # pyright: ignore[reportOperatorIssue]
        case "or":
            return a | b  # pyright: ignore[reportOperatorIssue]
        case "not":
            return 1 - a
        case "select":
            return b if a else c
        case "cast":
            if flt:
                return float(np.array([int(a)], np.int64 if a < 2**63 else np.uint64).astype(np.float32)[0])
            _demand(not math.isnan(a) and dtype.low <= a <= dtype.high, node)
            return math.trunc(a)
        case "rint":
            return float(np.rint(a))
        case "exp2i":
            _demand(-126 <= a <= 127, node)
            return 2.0**a
        case "normalize":
            _demand(a > 0, node)
            shift = 32 - int(a).bit_length()
            return shift if node.attrs["part"] == "shift" else int(a) << shift
        case "log2":
            with np.errstate(all="ignore"):
                return float(np.log2(np.float32(a)))
        case "sqrt":
            with np.errstate(all="ignore"):
                return float(np.sqrt(np.float32(a)))
        case "exp_minus":
            return b
        case "assume":
            _demand(number_of(node, "low") <= a <= number_of(node, "high"), node)
            return a
        case _:
            raise AssertionError(node.op)


def evaluate(
    program: Program, scores: Values, valid: Values | None, params: Mapping[str, Values], order: random.Random
) -> dict[Node, Values]:
    """Return the values of every node for one row; scalars have one value, rows N."""
    known: dict[Node, Values] = {}
    _evaluate(program.nodes(), known, scores, valid, params, order)
    return known


def _evaluate(
    nodes: Sequence[Node],
    known: dict[Node, Values],
    scores: Values,
    valid: Values | None,
    params: Mapping[str, Values],
    order: random.Random,
) -> None:
    n = len(scores)
    for node in nodes:
        if node in known:
            continue
        args = [known[arg] for arg in node.args]
        if node.op == "input":
            known[node] = scores if node.attrs["name"] == "scores" else (valid or [])
        elif node.op == "const":
            known[node] = [number_of(node)]
        elif node.op == "table":
            known[node] = list(table_of(node))
        elif node.op == "param":
            known[node] = params[param_of(node).name]
        elif node.op == "index":
            known[node] = list(range(n))
        elif node.op == "length":
            known[node] = [n]
        elif node.op == "lut":
            for at in args[1]:
                _demand(0 <= at < len(args[0]), node)
            known[node] = [args[0][int(at)] for at in args[1]]
        elif node.op == "row_sum":
            shuffled = order.sample(args[0], n)
            total: Number = 0.0 if node.dtype.is_float else 0
            for value in shuffled:
                total = _f32(total + value) if node.dtype.is_float else total + value
                _demand(node.dtype.is_float or node.dtype.low <= total <= node.dtype.high, node)
            known[node] = [total]
        elif node.op in ("row_max", "row_min"):
            least = node.op == "row_min"
            if node.dtype.is_float:
                start: Number = math.inf if least else -math.inf
            else:
                start = node.dtype.high if least else node.dtype.low
            best = start
            for value in order.sample(args[0], n):
                best = (value if value < best else best) if least else (value if best < value else best)
            known[node] = [best]
        elif node.op == "scan":
            _loop(node, known, args, n, order)
        else:
            length = n if node.kind is Kind.ROW else 1
            known[node] = [_one(node, *(a[i % len(a)] for a in args)) for i in range(length)]


def _loop(node: Node, known: dict[Node, Values], args: list[Values], n: int, order: random.Random) -> None:
    body, position = body_of(node), node.attrs["result"]
    assert isinstance(position, int)
    count = len(body.states)
    states = [list(a) for a in args[:count]]
    outputs: list[Values] = [[] for _ in body.outputs]
    inner = tuple(walk((*body.next, *body.outputs)))
    seen: dict[Node, Values] = {}
    for j in range(n + 1):
        for state, (low, high) in zip(states, body.invariants, strict=True):
            _demand(low <= state[0] <= high, node)
        if j == n:
            break
        step = dict(known)
        step.update(zip(body.states, states, strict=True))
        step.update(zip(body.elements, ([a[j]] for a in args[count : count + len(body.elements)]), strict=True))
        _evaluate(inner, step, [0], None, {}, order)
        states = [step[node] for node in body.next]
        for out, value in zip(outputs, body.outputs, strict=True):
            out.append(step[value][0])
        for inside in inner:
            seen.setdefault(inside, []).extend(step[inside])
    for inside, values in seen.items():
        known.setdefault(inside, values)
    known[node] = [*states, *outputs][position]


# A generator of small programs


def _literal(rng: random.Random, dtype: DType) -> Number:
    if dtype.is_float:
        return rng.choice([v for v in SPECIAL if math.isfinite(v)])
    return rng.choice([0, 1, 2, 3, 7, 100, dtype.high, dtype.low, rng.randint(dtype.low, dtype.high)])


def _grow(rng: random.Random, t: Trace, values: list[Value]) -> Value:
    """Return one new value made from those that there are."""

    def pick(accept: Callable[[Value], bool] = lambda v: v.dtype is not DType.BOOL) -> Value:
        return rng.choice([v for v in values[-8:] if accept(v)] or [v for v in values if accept(v)])

    a = pick()
    same = [v for v in values if v.dtype is a.dtype]
    b: Value | Number = rng.choice(same) if rng.random() < 0.6 else _literal(rng, a.dtype)
    choice = rng.random()
    if choice < 0.35:
        op = rng.choice(["add", "sub", "sub", "mul", "min", "max", "divide"])
        return t.apply(op, a, b) if rng.random() < 0.7 else t.apply(op, b, a)
    if choice < 0.45 and a.dtype.is_integer:
        amount = rng.choice([*same, t.const(rng.choice([0, 1, 3, a.dtype.bits - 1]), a.dtype)])
        return t.apply(rng.choice(["shl", "shr"]), a, amount)
    if choice < 0.58:
        condition = t.apply(rng.choice(["lt", "le", "eq"]), a, b)
        if rng.random() < 0.3:
            condition = ~condition
        if t.valid is not None and rng.random() < 0.3:
            condition = t.apply(rng.choice(["and", "or"]), condition, t.valid)
        return t.select(condition, rng.choice([a, rng.choice(same)]), rng.choice([a, b]))
    if choice < 0.72:
        if a.dtype.is_float and rng.random() < 0.5:
            return rng.choice([t.rint, t.log2, t.sqrt])(a)
        return t.cast(
            a, rng.choice([DType.F32, DType.I8, DType.I16, DType.U16, DType.I32, DType.U32, DType.I64, DType.U64])
        )
    if choice < 0.78:
        return t.clamp(a, *sorted([_literal(rng, a.dtype), _literal(rng, a.dtype)]))
    rows = [v for v in values if v.kind is Kind.ROW and v.dtype is not DType.BOOL]
    if choice < 0.92:
        row = rng.choice(rows)
        reduced = {"row_max": t.row_max, "row_min": t.row_min, "row_sum": t.row_sum}[
            rng.choice(["row_max", "row_max", "row_min", "row_sum"])
        ](row)
        return reduced if rng.random() < 0.4 else t.apply("sub", reduced, row)
    if choice < 0.95 and a.dtype.is_integer:
        q = t.divide(a, b)
        return rng.choice([a - q * b, t.divide(a * 3, b), t.divide(a << t.const(2, a.dtype), b)])
    if a.dtype.is_integer:
        entries = [rng.randint(-100, 100) for _ in range(rng.choice([1, 5, 8]))]
        return t.lut(t.table(entries, DType.I32), t.min(t.max(a, 0), len(entries) - 1))
    return t.index() if rng.random() < 0.5 else t.length()


def _whole(t: Trace, value: Value) -> Program:
    row = value if value.kind is Kind.ROW else t.scores
    scalar = value if value.kind is Kind.SCALAR else t.length()
    return t.program(weights=row, normalizer=scalar)


def _plain(program: Program, length: int) -> dict[Node, Interval]:
    return Analysis(program, anything(program)).intervals(length)[0]


def _celled(program: Program, length: int) -> dict[Node, Interval]:
    return dict(prove(program, max_length=length).intervals)


def _score(rng: random.Random, dtype: DType) -> Number:
    if dtype.is_float:
        return rng.choice([*SPECIAL, math.nan, _f32(rng.uniform(-9, 9))])
    return rng.choice([dtype.low, dtype.high, 0, -1 if dtype.is_signed else 1, rng.randint(dtype.low, dtype.high)])


def _check(
    rng: random.Random, program: Program, analyse: Callable[[Program, int], dict[Node, Interval]], rows: int = 12
) -> bool:
    """Return whether a proof exists; if so, hold it against rows of 0 to 4 elements."""
    try:
        intervals = analyse(program, 4)
    except ProofError:
        return False
    for _ in range(rows):
        n = rng.randint(0, 4)
        scores = [_score(rng, program.scores) for _ in range(n)]
        valid: Values | None = [rng.randint(0, 1) for _ in range(n)] if program.masked else None
        for node, values in evaluate(program, scores, valid, {}, rng).items():
            if node.kind is Kind.TABLE:
                continue
            for value in values:
                assert value in intervals[node], (
                    node.op,
                    value,
                    intervals[node],
                    scores,
                    valid,
                    [a.op for a in node.args],
                )
    return True


def _random_programs(seed: int, dtype: DType, analyse: Callable[[Program, int], dict[Node, Interval]]) -> int:
    """Grow programs a value at a time, keep what is proved, and count it."""
    rng = random.Random(seed)
    proved = 0
    for _ in range(6):
        t = Trace("random", scores=dtype, masked=rng.random() < 0.5, contract=False)
        values = [t.scores]
        if rng.random() < 0.6 and not dtype.is_float:
            values.append(t.cast(t.scores, DType.I32))
        if dtype.is_float and rng.random() < 0.6:
            values.append(t.select(t.scores.eq(t.scores), t.scores, 0.0))
        for _ in range(24):
            try:
                value = _grow(rng, t, values)
            except UsageError:
                continue
            if _check(rng, _whole(t, value), analyse):
                values.append(value)
                proved += 1
    return proved


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize(
    "dtype", [DType.I8, DType.U8, DType.I16, DType.I32, DType.I64, DType.U64, DType.F32], ids=lambda d: d.value
)
@pytest.mark.parametrize("seed", range(8))
def test_values_of_random_programs_lie_in_their_intervals(dtype: DType, seed: int) -> None:
    assert _random_programs(seed, dtype, _plain) > 20


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8], ids=lambda d: d.value)
@pytest.mark.parametrize("seed", range(100, 106))
def test_values_of_random_programs_lie_in_their_cells(dtype: DType, seed: int) -> None:
    assert _random_programs(seed, dtype, _celled) > 20


# Each rule of f32 against points


def _point(x: float) -> Bounds:
    low = np.full((1, 1), x, np.float32)
    return Bounds(low, low, np.isnan(low))


def _hull(rng: random.Random) -> tuple[Bounds, list[float]]:
    inside = sorted(rng.choices(SPECIAL, k=rng.choice([1, 2, 3])))
    nan = rng.random() < 0.3
    only = rng.random() < 0.1
    ends = [math.nan, math.nan] if only else [inside[0], inside[-1]]
    arrays = [np.full((1, 1), v, np.float32) for v in ends]
    return Bounds(arrays[0], arrays[1], np.full((1, 1), nan or only)), [
        *([] if only else inside),
        *[math.nan] * (nan or only),
    ]


@pytest.mark.parametrize("op", ["add", "sub", "mul", "divide", "min", "max"])
def test_f32_rules_hold_every_pair_of_special_values(op: str) -> None:
    rng = random.Random(op)
    t = Trace("pair")
    node = t.apply(op, t.scores, t.row_max(t.scores)).node
    with np.errstate(all="ignore"):
        for _ in range(3000):
            (a, xs), (b, ys) = _hull(rng), _hull(rng)
            found = rules.RULES[op](node, [a, b]).interval
            for x in xs:
                for y in ys:
                    assert _one(node, x, y) in found, (x, y, str(found))


@pytest.mark.parametrize("op", ["log2", "sqrt", "rint"])
def test_f32_rules_hold_every_special_value(op: str) -> None:
    rng = random.Random(op)
    t = Trace("one")
    node = t.apply(op, t.scores).node
    with np.errstate(all="ignore"):
        for _ in range(500):
            a, xs = _hull(rng)
            found = rules.RULES[op](node, [a]).interval
            for x in xs:
                assert _one(node, x) in found, (x, str(found))


def test_log2_is_at_least_zero_from_one_on() -> None:
    t = Trace("log")
    value = t.log2(t.max(t.scores, 1.0))
    assert _plain(_whole(t, value), 4)[value.node].low == 0


def test_ends_are_exact_where_arithmetic_is() -> None:
    with np.errstate(all="ignore"):
        assert floats.add(_point(F32_MAX), _point(F32_MAX)).interval == Interval(math.inf, math.inf)
        assert floats.sub(_point(math.inf), _point(math.inf)).interval == Interval(math.inf, -math.inf, True)
        assert floats.mul(_point(0.0), _point(math.inf)).interval.nan
        assert floats.divide(_point(1.0), _point(3.0)).interval.low == _f32(1 / 3)


def test_a_clamp_takes_nan_away() -> None:
    t = Trace("clamp")
    value = t.clamp(t.scores, 0.0, 15.0)
    assert _plain(_whole(t, value), 9)[value.node] == Interval(0.0, 15.0)
    t = Trace("wrong")
    value = t.max(0.0, t.min(15.0, t.scores))  # the other way round a NaN goes through
    assert _plain(_whole(t, value), 9)[value.node].nan


@pytest.mark.parametrize("seed", range(20))
def test_a_fused_product_lies_in_the_interval_of_a_program_that_allows_it(seed: int) -> None:
    rng = random.Random(seed)
    t = Trace("fused", contract=True)
    low, high = sorted(_f32(rng.uniform(-3, 3)) for _ in range(2))
    x, k = t.clamp(t.scores, low, high), _f32(rng.uniform(-3, 3))
    c = _f32(rng.uniform(-3, 3))
    for sign, value in ((1, x * k + c), (-1, c - x * k), (0, x * k - c)):
        found = _plain(_whole(t, value), 4)[value.node]
        for end in (low, high, _f32((low + high) / 2)):
            product = np.float64(end) * np.float64(k)  # exact
            total = {1: product + c, -1: c - product, 0: product - c}[sign]
            assert found.low <= total <= found.high


def test_a_maximum_of_products_may_lie_below_an_unrounded_one() -> None:
    for contract in (False, True):
        t = Trace("max", contract=contract)
        y = t.clamp(t.scores, 0.0, 1.0) * t.const(0.1, DType.F32)
        d = t.row_max(y) - y
        assert (_plain(_whole(t, d), 4)[d.node].low == 0.0) is not contract


@pytest.mark.parametrize("seed", range(6))
def test_sums_of_f32_in_any_order_lie_in_the_interval(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 3000
    t = Trace("sum")
    total = t.row_sum(t.clamp(t.scores, -1.0 if seed % 2 else 0.0, 1.0))
    found = _plain(_whole(t, total), n)[total.node]
    x = rng.uniform(0.999, 1, n).astype(np.float32)
    running = np.float32(0)
    for value in x:
        running += value
    assert found.low <= float(running) <= found.high
    assert found.high <= n * (1 + 2e-3)


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_f32_may_be_rounded_up_each_time(seed: int) -> None:
    rng, n = random.Random(seed), 3000
    for _ in range(8):
        value = _f32(rng.uniform(0.1, 1))
        t = Trace("sum")
        total = t.row_sum(t.clamp(t.scores, 0.0, value))
        running = np.float32(0)
        for _ in range(n):
            running += np.float32(value)
        assert float(running) <= _plain(_whole(t, total), n)[total.node].high


# Known limits


def _sum_of_weights(dtype: DType) -> Program:
    t = Trace("sum", scores=DType.U16)
    weights = t.min(t.scores, 2**15)
    return t.program(weights=weights, normalizer=t.row_sum(t.cast(weights, dtype)))


@pytest.mark.parametrize(("dtype", "limit"), [(DType.I32, 65535), (DType.U32, 131071), (DType.U16, 1)])
def test_limits_of_sums(dtype: DType, limit: int) -> None:
    program = _sum_of_weights(dtype)
    assert largest_length(program) == limit
    prove(program, max_length=limit)
    with pytest.raises(ProofError, match="row_sum: the sum is"):
        prove(program, max_length=limit + 1)


def test_the_error_names_program_value_interval_limit_and_length() -> None:
    with pytest.raises(ProofError) as caught:
        prove(_sum_of_weights(DType.I32))
    assert str(caught.value) == (
        "program sum: row_sum: the sum is [0, 2147483648]; allowed is [-2147483648, 2147483647], "
        "for rows of up to 65536 elements; in %2: scalar i32 = row_sum %1"
    )


def test_widest_value_of_rows_with_elements() -> None:
    proof = prove(_sum_of_weights(DType.I32), max_length=1000)
    assert (proof.widest_bits, proof.widest) == (25, "%2: scalar i32 = row_sum %1 in [0, 32768000]")
    t = Trace("max", scores=DType.I16)
    greatest = t.row_max(t.cast(t.scores, DType.I32))
    proof = prove(t.program(weights=t.scores, normalizer=greatest))
    assert proof.widest_bits == 16
    assert proof.interval(greatest.node) == Interval(-(2**31), 2**15 - 1)  # the empty row's maximum is the type's least
    assert proof.filled[greatest.node] == Interval(-(2**15), 2**15 - 1)


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda t, x: x >> t.const(32, DType.I32), "the shift is"),
        (lambda t, x: x >> t.clamp(x, 0, 32), "the shift is"),
        (lambda t, x: x << t.const(31, DType.I32), "the result is"),
        (lambda t, x: t.divide(5, t.max(x, 0)), "the divisor is"),
        (lambda t, x: t.divide(x, 5), "the dividend is"),
        (lambda t, x: t.cast(x, DType.U16), "the operand is"),
        (lambda t, x: t.exp2i(t.clamp(x, -127, 0)), "the exponent is"),
        (lambda t, x: t.lut(t.table([1, 2], DType.I32), t.clamp(x, 0, 2)), "the index is"),
        (lambda t, x: x * 65536 * 2, "the result is"),
        (lambda t, x: t.assume(t.clamp(x, 0, 5), 6, 9, "it is false"), "the operand is"),
    ],
)
def test_each_demand_is_refused_where_it_may_fail(write: Callable[[Trace, Value], Value], text: str) -> None:
    t = Trace("demand", scores=DType.I16)
    program = _whole(t, write(t, t.cast(t.scores, DType.I32)))
    with pytest.raises(ProofError, match=text):
        prove(program, max_length=4)


@pytest.mark.parametrize("clamped", [False, True])
def test_a_cast_of_f32_needs_a_clamp(clamped: bool) -> None:
    t = Trace("cast")
    value = t.cast(t.clamp(t.scores, -128.0, 127.0) if clamped else t.scores, DType.I8)
    if clamped:
        assert prove(_whole(t, value)).interval(value.node) == Interval(-128, 127)
    else:
        with pytest.raises(ProofError, match="or NaN"):
            prove(_whole(t, value))


def test_a_demand_is_of_both_ends_and_of_nan() -> None:
    require("it", Interval(0, 1), 0, 1)
    for found in (Interval(-1, 1), Interval(0, 2), Interval(0, 1, nan=True)):
        with pytest.raises(UnprovedError):
            require("it", found, 0, 1)


def test_a_mantissa_between_two_shifts() -> None:
    """Of 5 to 9 it is greatest at 7."""
    found = integers.normalize(Bounds(integers.exact(5), integers.exact(9)), "mantissa").interval
    assert all(x << (32 - x.bit_length()) in found for x in range(5, 10))


def test_normalize_needs_a_sum_that_is_not_empty() -> None:
    for guarded in (False, True):
        t = Trace("normalize", scores=DType.I16)
        total = t.row_sum(t.cast(t.clamp(t.scores, 1, 9), DType.U32))
        mantissa, shift = t.normalize(t.max(total, 1) if guarded else total)
        program = t.program(weights=t.scores, normalizer=mantissa, shift=shift)
        if guarded:
            assert prove(program, max_length=4).interval(shift.node) == Interval(26, 31)
        else:
            with pytest.raises(ProofError, match="for the empty row"):
                prove(program, max_length=4)


def test_lengths_outside_i32_are_refused() -> None:
    with pytest.raises(UsageError, match="2147483648"):
        prove(_sum_of_weights(DType.U32), max_length=2**31)


# Facts


def _exponential(scores: DType, masked: bool = False) -> tuple[Trace, Value]:
    """Return d = max - x, row of i32, as methods write it."""
    t = Trace("facts", scores=scores, masked=masked)
    x = t.cast(t.scores, DType.I32)
    if t.valid is not None:
        x = t.select(t.valid, x, scores.low)
    return t, t.row_max(x) - x


def test_distance_from_the_maximum_is_not_negative() -> None:
    t, d = _exponential(DType.I16)
    assert _plain(_whole(t, d), 9)[d.node] == Interval(0, 65535)


@pytest.mark.parametrize("nan", [False, True])
def test_distance_of_floats_is_not_negative_only_without_nan(nan: bool) -> None:
    t = Trace("facts")
    x = t.scores if nan else t.select(t.scores.eq(t.scores), t.scores, 0.0)
    d = t.max(t.row_max(x), -1.0) - x
    found = _plain(_whole(t, d), 9)[d.node]
    assert found.nan
    assert (found.low == 0) is not nan  # with a NaN in the row its maximum may be anything
    d = t.row_max(x) - x
    assert (_plain(_whole(t, d), 9)[d.node].low == 0) is not nan


def test_remainders() -> None:
    t, d = _exponential(DType.I16)
    q = t.divide(d, 23)
    r = d - q * 23
    assert _plain(_whole(t, r), 9)[r.node] == Interval(0, 22)
    r = d - ((d >> 4) << 4)
    assert _plain(_whole(t, r), 9)[r.node] == Interval(0, 15)


@pytest.mark.parametrize("low", [0, -1])
def test_a_share_of_a_sum_is_at_most_one(low: int) -> None:
    t = Trace("share", scores=DType.I16)
    x = t.clamp(t.cast(t.scores, DType.I32), low, 1000)
    total = t.max(t.row_sum(x), 1)
    positive = t.max(x, 0)
    for value, limit in (
        (t.divide(positive << 8, total), 256),
        (t.divide(positive * 100, total), 100),
        (t.divide(positive, total), 1),
    ):
        program = _whole(t, value)
        assert (_plain(program, 9)[value.node].high == limit) is (low == 0)
        assert _check(random.Random(limit), program, _plain, rows=300)


@pytest.mark.parametrize("low", [0, -1])
def test_a_share_by_one_division_a_row_is_at_most_the_whole(low: int) -> None:
    t = Trace("share", scores=DType.I16)
    x = t.clamp(t.cast(t.scores, DType.I32), low, 1000)
    factor = t.divide(t.const(2**31 - 1, DType.I32), t.max(t.row_sum(x), 1))
    wide = t.cast(factor, DType.I64)
    value = wide * t.cast(x, DType.I64)  # a cast stands between: nothing is known, but i64 holds it
    assert _plain(_whole(t, value), 9)[value.node].high == (2**31 - 1) * 1000
    if low < 0:
        with pytest.raises(ProofError):
            prove(_whole(t, factor * x), max_length=9)
        return
    value = factor * x
    program = _whole(t, value)
    assert _plain(program, 9)[value.node] == Interval(0, 2**31 - 1)
    assert _check(random.Random(1), program, _plain, rows=300)


def test_a_share_of_something_negative_has_no_such_limit() -> None:
    t = Trace("share", scores=DType.I16)
    x = t.clamp(t.cast(t.scores, DType.I32), -5, -4)
    value = t.divide(x * -3, t.clamp(t.cast(t.scores, DType.I32), 1, 2))
    assert _plain(_whole(t, value), 9)[value.node] == Interval(6, 15)


@pytest.mark.parametrize("dtype", [DType.I64, DType.U64], ids=lambda d: d.value)
def test_the_ends_of_64_bit_types(dtype: DType) -> None:
    t = Trace("ends", scores=dtype)
    rounded = t.cast(t.scores, DType.F32)
    narrow = t.select(t.scores < dtype.high, t.scores, dtype.low)
    proof = prove(t.program(weights=rounded, normalizer=t.length(), narrow=narrow))
    assert proof.interval(rounded.node) == Interval(float(dtype.low), float(dtype.high + 1))
    assert proof.interval(narrow.node) == Interval(dtype.low, dtype.high - 1)
    for value in (t.scores + 1, t.scores - 1, t.scores * 2, t.scores << t.const(1, dtype), t.row_sum(t.scores)):
        with pytest.raises(ProofError):
            prove(_whole(t, value))


@pytest.mark.parametrize("masked", [False, True])
def test_a_sum_holds_the_element_at_the_maximum_unless_masked(masked: bool) -> None:
    t, d = _exponential(DType.I16, masked)
    weights = t.cast(t.max(1000 - d, 0), DType.U32)
    if t.valid is not None:
        weights = t.select(t.valid, weights, 0)
    total = t.row_sum(weights)
    proof = prove(t.program(weights=weights, normalizer=total), max_length=50)
    assert proof.filled[total.node] == Interval(0 if masked else 1000, 50_000)
    assert proof.interval(total.node) == Interval(0, 50_000)


def test_conditions_narrow_their_branches() -> None:
    t = Trace("narrow", scores=DType.I16)
    x = t.cast(t.scores, DType.I32)
    for value, expected in (
        (t.select(x < 5, x, 0), Interval(-32768, 4)),
        (t.select(x <= 5, 6, x), Interval(6, 32767)),
        (t.select((x >= 0) & ~(x > 9), x, 0), Interval(0, 9)),
        (t.select(x.eq(7), x, 8), Interval(7, 8)),
        (t.select(x < x, 100_000, x), Interval(-32768, 32767)),
    ):
        assert _plain(_whole(t, value), 4)[value.node] == expected
    t = Trace("narrow")
    s = t.scores
    for value, expected in (
        (t.select(s < 5.0, s, 0.0), Interval(-math.inf, float(np.nextafter(np.float32(5), np.float32(0))))),
        (t.select(s <= 5.0, 6.0, s), Interval(float(np.nextafter(np.float32(5), np.float32(9))), math.inf, True)),
        (t.select(~s.eq(s), 1.0, s), Interval(-math.inf, math.inf)),
        # Not below a NaN either: then the value may be anything that it was.
        (t.select(t.clamp(s, 0.0, 10.0) < t.max(3.0, s), 5.0, t.clamp(s, 0.0, 10.0)), Interval(0.0, 10.0)),
    ):
        assert _plain(_whole(t, value), 4)[value.node] == expected


@pytest.mark.parametrize("guarded", [False, True])
def test_facts_of_rows_do_not_hold_of_the_empty_one(guarded: bool) -> None:
    t = Trace("empty", scores=DType.I16)
    x = t.cast(t.scores, DType.I32)
    greatest, smallest = t.row_max(x), t.row_min(x)
    if guarded:
        greatest, smallest = t.max(greatest, -(2**20)), t.min(smallest, 2**20)
    program = t.program(weights=x, normalizer=greatest - smallest)
    if guarded:
        proof = prove(program)
        assert proof.interval(program.outputs["normalizer"]).low == -(2**21)
        assert proof.filled[program.outputs["normalizer"]] == Interval(0, 65535)
        assert _check(random.Random(0), program, _plain, rows=50)
    else:
        with pytest.raises(ProofError, match="for the empty row"):
            prove(program)


# Loops


def _online_sum(declared: int) -> Program:
    t = Trace("scan", scores=DType.I16)
    weight = t.clamp(t.cast(t.scores, DType.I32), 0, 100)

    def step(total: Value, w: Value) -> tuple[list[Value], list[Value]]:
        after = t.min(total + w, 10_000)
        return [after], [after - total]

    (total,), (gains,) = t.scan([t.const(0, DType.I32)], [weight], step, [(0, declared)])
    return t.program(weights=gains, normalizer=total)


def test_invariants_of_a_scan_are_proved() -> None:
    program = _online_sum(10_000)
    proof = prove(program)
    assert proof.interval(program.outputs["normalizer"]) == Interval(0, 10_000)
    assert _check(random.Random(0), program, _plain, rows=50)
    with pytest.raises(ProofError, match="state 0 after a step"):
        prove(_online_sum(9_999))


def test_demands_inside_a_scan_are_proved() -> None:
    t = Trace("scan", scores=DType.I16)
    (total,), _ = t.scan(
        [t.const(0, DType.I32)], [t.cast(t.scores, DType.I32)], lambda s, x: ([s + x], []), [(-(2**31), 2**31 - 1)]
    )
    with pytest.raises(ProofError, match="add: the result is"):
        prove(t.program(weights=t.scores, normalizer=total), max_length=4)


def _kept_sum(declared: int, keep: Callable[[Value], Value], *, add: Callable[[Value, Value], Value]) -> Program:
    t = Trace("kept", scores=DType.I8)
    weight = t.clamp(t.cast(t.scores, DType.I32), 0, 100)
    (total,), _ = t.scan(
        [t.const(7, DType.I32)], [weight], lambda s, w: ([keep(s) + add(s, w)], []), [(0, declared)]
    )  # fmt: skip
    return t.program(weights=weight, normalizer=total)


_KEPT: tuple[Callable[[Value], Value], ...] = (
    lambda s: s, lambda s: s >> 1, lambda s: s.trace.min(s, 90), lambda s: s.trace.select(s < 50, s, 0),
)  # fmt: skip


@pytest.mark.parametrize("keep", _KEPT)
def test_a_sum_in_a_state_grows_with_the_row(keep: Callable[[Value], Value]) -> None:
    program = _kept_sum(10_007, keep, add=lambda s, w: w)
    highs = [prove(program, max_length=n).interval(program.outputs["normalizer"]).high for n in (1, 3, 100)]
    assert all(high <= 7 + 100 * n for high, n in zip(highs, (1, 3, 100), strict=True))
    assert _check(random.Random(0), program, _plain, rows=50)


def test_a_sum_in_a_state_fits_as_long_as_a_row_is_short_enough() -> None:
    program = _kept_sum(10_007, _KEPT[0], add=lambda s, w: w)
    assert prove(program, max_length=100).interval(program.outputs["normalizer"]).high == 10_007
    assert largest_length(program) == 100
    with pytest.raises(ProofError, match=r"state 0 after a step is \[0, 10107\]; allowed is \[0, 10007\]"):
        prove(program, max_length=101)


@pytest.mark.parametrize(("keep", "add"), [
    (lambda s: s + s, lambda s, w: w), (lambda s: s + 1, lambda s, w: w), (lambda s: s, lambda s, w: s.trace.min(s, w)),
    (lambda s: s << 1, lambda s, w: w),
])  # fmt: skip
def test_what_grows_otherwise_is_no_sum(keep: Callable[[Value], Value], add: Callable[[Value, Value], Value]) -> None:
    with pytest.raises(ProofError):
        prove(_kept_sum(10_007, keep, add=add), max_length=3)


def _shifted_sum(falls: bool) -> tuple[Program, Value, Value]:
    """A sum of values shifted left by a running maximum (or by what may fall again), shifted back by the last one."""
    t = Trace("shifted", scores=DType.I16)
    weight, octave = t.clamp(t.cast(t.scores, DType.I32) >> 2, 0, 100), t.clamp(t.cast(t.scores, DType.I32), 0, 9)

    def rise(reference: Value, here: Value) -> tuple[list[Value], list[Value]]:
        after = here if falls else t.max(reference, here)
        return [after], [after]

    (last,), (reference,) = t.scan([t.const(0, DType.I32)], [octave], rise, [(0, 9)])
    total = t.row_sum(weight << reference) >> last
    return t.program(weights=last - reference, normalizer=total), total, last - reference


@pytest.mark.parametrize("falls", [False, True])
def test_a_sum_of_shifted_values_shifted_back_is_at_most_that_of_the_values(falls: bool) -> None:
    program, total, left = _shifted_sum(falls)
    found = prove(program, max_length=7).filled
    assert found[total.node] == Interval(0, 700 << 9 if falls else 700)
    assert found[left.node] == Interval(-9 if falls else 0, 9)
    assert _check(random.Random(0), program, _plain, rows=200)


# Cells


def _integer_exponential(masked: bool) -> Program:
    """Return shifts and a product of two intervals that no fact ties together: I-BERT's i-exp, for 8-bit scores."""
    t, d = _exponential(DType.I8, masked)
    q = (d * 89) >> 10
    r = d * 89 - (q << 10)
    mantissa = (2048 - r) * (2048 - r) + (1 << 21)
    weights = t.cast(mantissa >> t.min(q, 31), DType.U32)
    if t.valid is not None:
        weights = t.select(t.valid, weights, 0)
    return t.program(weights=weights, normalizer=t.row_sum(weights))


@pytest.mark.parametrize("masked", [False, True])
def test_cells_are_what_brute_force_finds(masked: bool) -> None:
    program = _integer_exponential(masked)
    weights = program.outputs["weights"]
    x = np.minimum(np.arange(-128, 128, dtype=np.int8)[None, :], np.arange(-128, 128, dtype=np.int8)[:, None])
    proof = prove(program, max_length=10)
    for node in program.nodes():
        if node.kind is not Kind.ROW or node.dtype is DType.BOOL:
            continue
        values = run_node(program, node, x, valid=np.ones((1, 256), np.bool_) if masked else None).astype(object)
        found = proof.interval(node)
        assert found.low <= values.min() <= values.max() <= found.high
        if not masked:
            assert (found.low, found.high) == (values.min(), values.max()), node.op
    total = proof.filled[program.outputs["normalizer"]]
    greatest = proof.interval(weights).high
    assert total == Interval(0 if masked else greatest, 10 * greatest)
    assert run(program, x, valid=np.ones((1, 256), np.bool_) if masked else None)


def test_cells_prove_what_plain_intervals_cannot() -> None:
    t, d = _exponential(DType.I8)
    q = (d * 89) >> 10
    r = d * 89 - q * 1024  # no shift of a shift: the fact does not apply
    program = _whole(t, t.cast(r, DType.U16))
    assert prove(program).interval(r.node) == Interval(0, 1023)
    with pytest.raises(ProofError):
        _plain(program, 4)


def test_cells_are_only_for_8_bits() -> None:
    t, d = _exponential(DType.I16)
    assert cells(_whole(t, d)) is None
    t, d = _exponential(DType.U8)
    assert cells(_whole(t, d)) is not None


@pytest.mark.parametrize("scores", [DType.F32, DType.I8, DType.U8], ids=lambda d: d.value)
@pytest.mark.parametrize("masked", [False, True])
def test_deferred_log_is_proved_to_its_documented_length(scores: DType, masked: bool) -> None:
    method = METHODS.get("deferred-log")
    options = method.configure({"r": 1.0} if scores.is_float else {"r": 1.0, "step": 0.05})
    assert largest_length(method.program(options, scores=scores, masked=masked)) == (2**32 - 1) // 2**14


# gemmlowp's fixed point, as TFLite's int8 softmax uses it (tensorflow/lite/kernels/internal/reference/softmax.h and
# gemmlowp/fixedpoint/fixedpoint.h): distances in Q5.26, exponentials in Q0.31, their sum in Q12.19.


def _high_product(t: Trace, a: Value, b: Value) -> Value:
    """Return gemmlowp's SaturatingRoundingDoublingHighMul: a * b / 2^31, rounded, halves away from 0."""
    product = t.cast(a, DType.I64) * t.cast(b, DType.I64)
    nudged = product + t.select(product >= 0, t.const(1 << 30, DType.I64), 1 - (1 << 30))
    shift = t.const(31, DType.I64)
    quotient = t.select(nudged >= 0, nudged >> shift, 0 - ((0 - nudged) >> shift))
    return t.cast(t.clamp(quotient, -(2**31), 2**31 - 1), DType.I32)


def _rounded_shift(t: Trace, x: Value, by: int) -> Value:
    """Return gemmlowp's RoundingDivideByPOT."""
    rest = x - ((x >> t.const(by, DType.I32)) << t.const(by, DType.I32))
    half = (1 << by) // 2 - 1
    up = rest > t.select(x < 0, t.const(half + 1, DType.I32), half)
    return (x >> t.const(by, DType.I32)) + t.select(up, t.const(1, DType.I32), 0)


def _exponential_of_negative(t: Trace, a: Value) -> Value:
    """Return e^a as Q0.31 of a in Q5.26, at most 0."""

    def const(value: int) -> Value:
        return t.const(value, DType.I32)

    quarter = 1 << 24
    rest = (a - ((a >> const(24)) << const(24))) - quarter
    x = (rest << const(5)) + (1 << 28)
    x2 = _high_product(t, x, x)
    x3, x4 = _high_product(t, x2, x), _high_product(t, x2, x2)
    third = _high_product(t, _rounded_shift(t, x4, 2) + x3, const(715827883))
    terms = x + _rounded_shift(t, third + x2, 1)
    at_eighth = const(1895147668)
    wide = t.cast(at_eighth, DType.I64) + t.cast(_high_product(t, at_eighth, terms), DType.I64)
    result = t.cast(t.min(wide, 2**31 - 1), DType.I32)
    left = rest - a
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for bit, factor in zip(range(24, 31), factors, strict=True):
        is_set = (left >> const(bit)) - ((left >> const(bit + 1)) << const(1)) > 0
        result = t.select(is_set, _high_product(t, result, const(factor)), result)
    return t.select(a.eq(0), 2**31 - 1, result)


def test_the_published_limit_of_tflite_is_found() -> None:
    t, d = _exponential(DType.I8)
    scaled = _high_product(t, (0 - d) << t.const(23, DType.I32), t.const(1 << 30, DType.I32))
    weights = _rounded_shift(t, _exponential_of_negative(t, scaled), 12)
    program = t.program(weights=weights, normalizer=t.row_sum(weights))
    assert largest_length(program) == 4095  # 2^12 elements of 2^19 each are 2^31
    x = np.arange(-128, 128, dtype=np.int8)
    found = run(program, x)["weights"]
    assert prove(program, max_length=9).interval(weights.node) == Interval(int(found.min()), int(found.max()))
    exact = np.exp(-(127 - x.astype(np.float64)) / 16) * 2**19  # a distance of 1 is 2^22 in Q5.26
    assert np.max(np.abs(found - exact)) <= 1


def test_parameters_lie_in_their_declared_interval() -> None:
    t = Trace("param")
    rate = t.param("rate", "head", DType.F32, 0.5, 2.0, "codes a unit")
    table = t.param("weights", "site", DType.U32, 3, 77, "weight of each code", 16)
    weights = t.lut(table, t.cast(t.clamp(t.scores, 0.0, 15.0), DType.U8))
    proof = prove(t.program(weights=weights, normalizer=t.row_sum(weights), rate=rate), max_length=10)
    assert proof.interval(rate.node) == Interval(0.5, 2.0)
    assert proof.interval(weights.node) == Interval(3, 77)
    short = t.param("short", "site", DType.U32, 3, 77, "weight of each code but the last", 15)
    with pytest.raises(ProofError, match="the index"):
        prove(_whole(t, t.lut(short, t.cast(t.clamp(t.scores, 0.0, 15.0), DType.U8))))


# The tests can fail


def _many_random_programs(dtype: DType) -> None:
    for seed in range(40):
        _random_programs(seed, dtype, _plain)


def _broken(name: str) -> Callable[[Node, Sequence[Bounds]], Bounds]:
    original = rules.RULES[name]

    def rule(node: Node, args: Sequence[Bounds]) -> Bounds:
        found = original(node, args)
        return Bounds(found.low, found.low, found.nan)

    return rule


@pytest.mark.parametrize("name", ["add", "mul", "min", "max", "shr", "lt", "cast"])
def test_a_broken_rule_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert isinstance(rules.RULES, dict)
    monkeypatch.setitem(rules.RULES, name, _broken(name))
    with pytest.raises((AssertionError, ViolationError)):
        _many_random_programs(DType.I16)


@pytest.mark.parametrize("dtype", [DType.I16, DType.F32], ids=lambda d: d.value)
def test_a_false_fact_is_found(monkeypatch: pytest.MonkeyPatch, dtype: DType) -> None:
    def always(self: Facts, a: Node, b: Node) -> bool:
        return True

    monkeypatch.setattr(Facts, "at_least", always)
    with pytest.raises((AssertionError, ViolationError)):
        _many_random_programs(dtype)
