"""Tracing: what is refused and in which words, what becomes one node, and how programs print."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from softq.errors import UsageError
from softq.rowprog import DType, Kind, Program, Trace, Value, run, to_text
from softq.rowprog.program import number_of, table_of
from softq.rowprog.text import node_to_text
from softq.rowprog.value import Operand

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = [d for d in DType if d is not DType.BOOL]


def constant(value: Value) -> object:
    assert value.node.op == "const"
    return value.node.attrs["value"]


# Types


@pytest.mark.parametrize("op", ["add", "sub", "mul", "divide", "min", "max", "lt", "le", "eq"])
def test_operands_have_one_type(op: str) -> None:
    t = Trace("t")
    with pytest.raises(UsageError, match=rf"^{op} of f32 and i32: cast one of them, nothing is promoted$"):
        t.apply(op, t.scores, t.index())


@pytest.mark.parametrize("op", ["add", "sub", "mul", "divide", "min", "max", "lt", "le", "shl", "shr"])
def test_numbers_only(op: str) -> None:
    t = Trace("t")
    truth = t.scores < 0.0
    with pytest.raises(UsageError, match=rf"^{op} takes (numbers|integers), not bool$"):
        t.apply(op, truth, truth)


@pytest.mark.parametrize("op", ["shl", "shr"])
def test_shifts_take_integers(op: str) -> None:
    t = Trace("t")
    with pytest.raises(UsageError, match=rf"^{op} takes integers, not f32$"):
        t.apply(op, t.scores, 1)


@pytest.mark.parametrize("op", ["and", "or"])
def test_logic_takes_bool(op: str) -> None:
    t = Trace("t", scores=DType.I8)
    with pytest.raises(UsageError, match=rf"^{op} takes bool, not i8$"):
        t.apply(op, t.scores, t.scores)
    with pytest.raises(UsageError, match=r"^not takes bool, not i8$"):
        _ = ~t.scores


@pytest.mark.parametrize("op", ["rint", "log2", "sqrt"])
def test_float_functions_take_f32(op: str) -> None:
    t = Trace("t", scores=DType.I8)
    with pytest.raises(UsageError, match=rf"^{op} takes f32, not i8$"):
        t.apply(op, t.scores)


def other_refusals() -> list[tuple[str, Callable[[Trace], object]]]:
    def foreign(t: Trace) -> object:
        return t.scores + Trace("other").scores

    return [
        (r"select takes bool, not f32", lambda t: t.select(t.scores, 1.0, t.scores)),
        (r"select of Python numbers: at least one operand", lambda t: t.select(t.scores < 0.0, 1.0, 2.0)),
        (r"add of Python numbers: at least one operand", lambda t: t.apply("add", 1, 2)),
        (r"cast from f32 to bool is not defined; use select", lambda t: t.cast(t.scores, DType.BOOL)),
        (r"cast from bool to i8 is not defined; use select", lambda t: t.cast(t.scores < 0.0, DType.I8)),
        (r"lut takes a table of values, not a row of f32", lambda t: t.lut(t.scores, t.index())),
        (r"lut takes integers, not f32", lambda t: t.lut(t.table([1], DType.U8), t.scores)),
        (r"add takes rows and scalars; a table is only looked up", lambda t: t.table([1.0], DType.F32) + t.scores),
        (r"exp2i takes i32, not f32", lambda t: t.exp2i(t.scores)),
        (r"normalize takes a scalar of u32, not a row of f32", lambda t: t.normalize(t.scores)),
        (r"normalize takes a scalar of u32, not a scalar of i32", lambda t: t.normalize(t.length())),
        (r"row_sum takes a row of numbers, not a scalar of i32", lambda t: t.row_sum(t.length())),
        (r"row_max takes a row of numbers, not a row of bool", lambda t: t.row_max(t.scores < 0.0)),
        (r"a table needs at least one entry", lambda t: t.table([], DType.U8)),
        (r"assume needs a number, low <= high and a reason", lambda t: t.assume(t.scores, 0.0, 1.0, "")),
        (r"assume needs a number, low <= high and a reason", lambda t: t.assume(t.scores, 1.0, 0.0, "so")),
        (r"assume needs a number, low <= high and a reason", lambda t: t.assume(t.scores, math.nan, 0.0, "so")),
        (r"parameter k: the interval \[2, 1\] is empty", lambda t: t.param("k", "site", DType.I8, 2, 1, "k")),
        (r"<row f32 input> belongs to another trace", foreign),
    ]


@pytest.mark.parametrize(("message", "build"), other_refusals(), ids=[m for m, _ in other_refusals()])
def test_other_refusals(message: str, build: Callable[[Trace], object]) -> None:
    with pytest.raises(UsageError, match=message):
        build(Trace("t"))


def test_scores_are_numbers() -> None:
    with pytest.raises(UsageError, match="scores cannot be bool; allowed are f32 and the integer types"):
        Trace("t", scores=DType.BOOL)


def test_a_value_has_no_truth_value() -> None:
    t = Trace("t")
    with pytest.raises(UsageError, match="no truth value: a row program has no branches; use select"):
        assert t.scores < 0.0
    with pytest.raises(UsageError, match="no truth value"):
        _ = 0.0 < t.scores < 1.0  # Python makes `and` of it


# Python numbers


@pytest.mark.parametrize("dtype", [d for d in NUMBERS if d.is_integer], ids=lambda d: d.value)
def test_an_integer_takes_what_its_type_holds(dtype: DType) -> None:
    t = Trace("t", scores=dtype)
    for value in (dtype.low, dtype.high, 2.0):
        held = constant(Value(t, (t.scores + value).node.args[1]))
        assert held == value
        assert type(held) is int
    for wrong in (dtype.low - 1, dtype.high + 1):
        with pytest.raises(UsageError, match=rf"^add: {wrong} is outside {dtype.value}, which holds {dtype.low} to "):
            _ = t.scores + wrong
    for wrong in (0.5, math.inf, math.nan):
        with pytest.raises(UsageError, match=rf"^add: {wrong} is not an integer, expected {dtype.value}$"):
            _ = t.scores + wrong
    with pytest.raises(UsageError, match=r"^add: True is a bool, expected a number of type"):
        _ = t.scores + True


def test_a_literal_is_exact_and_a_constant_is_rounded() -> None:
    t = Trace("t")
    with pytest.raises(UsageError, match=r"^mul: 0.1 is not an f32 number; use const\(\), which rounds$"):
        _ = t.scores * 0.1
    assert constant(t.const(0.1, DType.F32)) == float(np.float32(0.1))
    assert constant(t.const(2**24 + 1, DType.F32)) == 2.0**24
    for wrong in (1e39, -1e39):
        with pytest.raises(UsageError, match="is outside f32"):
            t.const(wrong, DType.F32)
    with pytest.raises(UsageError, match="is outside every integer type; write it as a float"):
        t.const(-(10**400), DType.F32)
    for special in (math.inf, -math.inf):
        assert constant(t.const(special, DType.F32)) == special
    assert math.isnan(number_of(t.select(t.scores < 0.0, math.nan, t.scores).node.args[1]))
    with pytest.raises(UsageError, match="1 is not a bool"):
        t.const(1, DType.BOOL)
    assert table_of(t.table([0.1, 1], DType.F32).node) == (float(np.float32(0.1)), 1.0)


def test_numbers_may_stand_on_either_side() -> None:
    t = Trace("t")
    x = np.array([[0.5, 3.0]], np.float32)

    def value(v: Value) -> list[float]:
        return run(t.program(probabilities=v), x)["probabilities"].tolist()[0]

    assert value(1 - t.scores) == [0.5, -2]
    assert value(2 * t.scores) == [1, 6]
    assert value(1 + t.scores) == [1.5, 4]
    assert value(-t.scores) == [-0.5, -3]
    assert value(t.divide(6, t.scores)) == [12, 2]
    truth: list[tuple[Value, list[float]]] = [
        (1.0 > t.scores, [1, 0]),
        (t.scores >= 3.0, [0, 1]),
        (t.scores <= 0.5, [1, 0]),
        ((t.scores < 1.0) & (t.scores > 0.75), [0, 0]),
    ]
    for condition, expected in truth:
        assert value(t.select(condition, t.const(1.0, DType.F32), 0.0)) == expected


# Equal expressions


def test_equal_expressions_are_one_node() -> None:
    t = Trace("t")
    assert (t.scores + 1.0).node is (t.scores + 1).node
    assert (t.scores + 1.0).node is not (1.0 + t.scores).node  # operands keep their order: max(a, b) is not max(b, a)
    assert t.table([1, 2], DType.U8).node is t.table((1, 2), DType.U8).node
    assert t.table([1, 2], DType.U8).node is not t.table([1, 2], DType.U16).node
    assert t.row_max(t.scores).node is t.row_max(t.scores).node
    assert t.normalize(t.const(1, DType.U32))[0].node is not t.normalize(t.const(1, DType.U32))[1].node
    assert t.param("k", "site", DType.I8, 0, 1, "k").node is t.param("k", "site", DType.I8, 0, 1, "k").node


def test_zeros_of_both_signs_and_nan_are_told_apart() -> None:
    t = Trace("t")
    zero, minus, nan = (t.const(v, DType.F32) for v in (0.0, -0.0, math.nan))
    assert len({zero.node, minus.node, nan.node}) == 3
    assert nan.node is t.const(math.nan, DType.F32).node


def test_a_parameter_has_one_declaration() -> None:
    t = Trace("t")
    t.param("k", "site", DType.I8, 0, 1, "k")
    with pytest.raises(UsageError, match="parameter k is declared twice, with different"):
        t.param("k", "site", DType.I8, 0, 2, "k")


# Outputs


def test_the_two_interfaces() -> None:
    t = Trace("t")
    row, scalar = t.scores, t.row_sum(t.scores)
    assert not t.program(probabilities=row).is_pair
    assert t.program(weights=row, normalizer=scalar, codes=row).is_pair
    wrong: list[tuple[dict[str, Value], str]] = [
        ({}, "outputs are none; expected either probabilities, or weights and normalizer"),
        ({"weights": row}, "outputs are weights; expected either"),
        ({"codes": row}, "outputs are codes; expected either"),
        ({"probabilities": row, "weights": row, "normalizer": scalar}, "expected either"),
        ({"probabilities": scalar}, "probabilities is a scalar, expected a row"),
        ({"weights": row, "normalizer": row}, "normalizer is a row, expected a scalar"),
    ]
    for outputs, message in wrong:
        with pytest.raises(UsageError, match=f"^program t: .*{message}"):
            t.program(**outputs)


# Loops


def test_scan_says_what_it_takes() -> None:
    t = Trace("t")
    zero = t.const(0.0, DType.F32)

    def keep(state: Value, element: Value) -> tuple[list[Value], list[Value]]:
        return [state], []

    with pytest.raises(UsageError, match="scan carries scalars along rows, with one invariant per state"):
        t.scan([t.scores], [t.scores], keep, [(0, 1)])
    with pytest.raises(UsageError, match="scan carries scalars along rows, with one invariant per state"):
        t.scan([zero], [t.scores], keep, [])
    with pytest.raises(UsageError, match=r"returns states of \['bool'\]; expected \['f32'\]"):
        t.scan([zero], [t.scores], lambda s, e: ([s < e], []), [(0, 1)])
    with pytest.raises(UsageError, match="its results are scalars"):
        t.scan([zero], [t.scores], lambda s, e: ([s], [t.scores + e]), [(0, 1)])
    with pytest.raises(UsageError, match="at least one"):
        t.scan([zero], [], lambda s: ([s], []), [(0, 1)])
    with pytest.raises(UsageError, match="a row from outside cannot be used in it"):
        t.scan([zero], [t.scores], lambda s, e: ([s + t.row_max(t.scores)], []), [(0, 1)])
    with pytest.raises(UsageError, match="300 is outside u8"):
        t.scan([t.const(0, DType.U8)], [t.scores], keep, [(0, 300)])


def test_a_parameter_that_only_a_step_names_is_one_of_the_program() -> None:
    t = Trace("t", scores=DType.I32)

    def limit(state: Value, element: Value) -> tuple[list[Value], list[Value]]:
        return [t.param("limit", "site", DType.I32, 0, 9, "the limit")], []

    (last,), _ = t.scan([t.const(0, DType.I32)], [t.scores], limit, [(0, 9)])
    program = t.program(weights=t.scores, normalizer=last)
    assert [param.name for param in program.params] == ["limit"]
    out = run(program, np.array([[1, 5, 2]], np.int32), params={"limit": np.array([4], np.int32)})
    assert out["normalizer"].tolist() == [[4]]


def test_a_step_may_use_scalars_from_outside() -> None:
    t = Trace("t")
    peak = t.row_max(t.scores)
    (_,), (row,) = t.scan(
        [t.const(0, DType.I32)], [t.scores], lambda s, e: ([t.length() - 1], [peak - e]), [(-1, 65536)]
    )
    (last,), _ = t.scan([t.const(0, DType.I32)], [t.scores], lambda s, e: ([t.length()], []), [(0, 65536)])
    program = t.program(weights=row, normalizer=last)
    x = np.array([[1, 5, 2]], np.float32)
    out = run(program, x)
    assert out["weights"].tolist() == [[4, 0, 3]]
    assert out["normalizer"].tolist() == [[3]]  # N, not the length of what a step sees


# Text


def example(name: str = "sample") -> Program:
    t = Trace(name, structure="b4", scores=DType.I8, masked=True)
    assert t.valid is not None
    k = t.param("k", "head", DType.U8, 1, 9, "a factor")
    x = t.cast(t.select(t.valid, t.scores, -128), DType.I32)
    d = t.assume(t.row_max(x) - x, 0, 255, "the maximum is one of them")
    w = t.lut(t.table([128 >> (c // 4) for c in range(256)], DType.U8), d)
    wide = t.cast(w, DType.U32) * t.cast(k, DType.U32)
    mantissa, shift = t.normalize(t.max(t.row_sum(wide), 1))
    (last,), (running,) = t.scan([t.const(0, DType.U32)], [wide], lambda s, e: ([t.min(s + e, 9)], [s]), [(0, 9)])
    return t.program(
        weights=wide, normalizer=t.cast(last, DType.I64) + t.cast(mantissa, DType.I64), running=running, shift=shift
    )


def test_text_says_everything_in_order() -> None:
    expected = """\
program sample b4(scores: row i8, valid: row bool) -> \
(weights: row u32, normalizer: scalar i64, running: row u32, shift: scalar i32)
  %0: row i8 = select valid, scores, -128
  %1: row i32 = cast %0
  %2: scalar i32 = row_max %1
  %3: row i32 = sub %2, %1
  %4: row i32 = assume %3 in [0, 255] because the maximum is one of them
  %5: row u8 = lut [128 128 128 128 64 64 ... 0 0], %4
  %6: row u32 = cast %5
  %7: scalar u8 = param k a head, in [1, 9]: a factor
  %8: scalar u32 = cast %7
  %9: row u32 = mul %6, %8
  step scan0.0, scan0.1:
    %10: scalar u32 = add scan0.0, scan0.1
    %11: scalar u32 = min %10, 9
    next %11, scan0.0
  %12: scalar u32 = scan 0, %9, result=0
  %13: scalar i64 = cast %12
  %14: scalar u32 = row_sum %9
  %15: scalar u32 = max %14, 1
  %16: scalar u32 = normalize %15, mantissa
  %17: scalar i64 = cast %16
  %18: scalar i64 = add %13, %17
  %19: row u32 = scan 0, %9, result=1
  %20: scalar i32 = normalize %15, shift
  return weights = %9
  return normalizer = %18
  return running = %19
  return shift = %20
"""
    assert to_text(example()) == expected


def test_text_is_the_same_in_every_process() -> None:
    command = (
        "from tests.test_rowprog_trace import example; from softq.rowprog import to_text; print(to_text(example()))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", command],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert texts == {to_text(example()) + "\n"}


def test_a_node_is_named_as_in_the_text() -> None:
    program = example()
    text = to_text(program)
    for node in program.nodes():
        line = node_to_text(program, node)
        assert node.op in ("const", "input", "table", "index", "length") or line in text, line
    assert node_to_text(program, program.outputs["weights"].args[0].args[0].args[0]).startswith(
        "[128 128 128 128 64 64"
    )


def test_kinds() -> None:
    t = Trace("t")
    operand: Operand = t.row_max(t.scores)
    assert operand.kind is Kind.SCALAR
    assert (operand + t.scores).kind is Kind.ROW
    assert repr(t.scores + 1.0) == "<row f32 add>"
