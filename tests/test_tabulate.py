"""Tabulated programs give the same outputs, on every pair of a maximum and a score."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from softq.errors import ProofError, RefusalError
from softq.methods import METHODS
from softq.rowprog import DType, Program, Trace, Value, run
from softq.rowprog.library import exp_minus
from softq.rowprog.program import table_of
from softq.rowprog.ranges import prove
from softq.rowprog.tabulate import tabulate, tabulate_or_keep

Array = NDArray[np.generic]
BYTES = pytest.mark.parametrize("scores", [DType.I8, DType.U8], ids=lambda d: d.value)
MASKED = pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])


def _same(a: Program, b: Program, scores: Array, valid: Array | None, params: dict[str, ArrayLike] | None) -> None:
    expected, found = (run(p, scores, valid=valid, params=params) for p in (a, b))
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name].view(np.uint8), value.view(np.uint8), err_msg=name)


def hold_equal(a: Program, b: Program, params: dict[str, ArrayLike] | None = None) -> None:
    """Compare bits on every pair, on random rows with and without a mask, on masked, short and empty rows."""
    low, high, dtype = a.scores.low, a.scores.high, a.scores.numpy
    x = np.arange(low, high + 1, dtype=dtype)
    pairs = np.minimum(x[None, :], x[:, None])
    rng = np.random.default_rng(0)
    rows = [pairs, rng.integers(low, high + 1, (50, 19), dtype=dtype), x[:, None], np.zeros((2, 0), dtype)]
    for scores in rows:
        if not a.masked:
            _same(a, b, scores, None, params)
            continue
        for valid in (np.ones(scores.shape), np.zeros(scores.shape), rng.random(scores.shape) < 0.5):
            _same(a, b, scores, valid.astype(np.bool_), params)
    if a.masked:  # each score masked behind each maximum
        scores = np.concatenate([x[:, None], np.broadcast_to(x, (256, 256))], axis=1)
        _same(a, b, scores, np.broadcast_to(np.arange(257) == 0, scores.shape), params)


def _deferred_log(scores: DType, masked: bool) -> Program:
    method = METHODS.get("deferred-log")
    return method.program(method.configure({"step": 0.05, "bits": 5, "r": 1.5}), scores=scores, masked=masked)


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
def test_a_weight_is_looked_up_at_the_code_that_determines_it(masked: bool) -> None:
    program = _deferred_log(DType.I8, masked)
    found = tabulate(program)
    weights = next(node for node in found.nodes() if node.op == "row_sum").args[0]
    assert weights.args[1].dtype is DType.U8, "looked up at codes, not at distances"
    assert len(table_of(weights.args[0])) <= 32, "codes have 5 bits"
    hold_equal(program, found)


def _distance(scores: DType, masked: bool) -> tuple[Trace, Value]:
    t = Trace("byte", structure="b8", scores=scores, masked=masked)
    x = t.cast(t.scores, DType.I32)
    if t.valid is not None:
        x = t.select(t.valid, x, scores.low)
    return t, t.row_max(x) - x


def _behind_mask(t: Trace, value: Value) -> Value:
    return value if t.valid is None else t.select(t.valid, value, 0)


def _quotients(scores: DType, masked: bool) -> Program:
    """Return an integer softmax that divides each weight: one phase behind the sum."""
    t, d = _distance(scores, masked)
    e = _behind_mask(t, t.cast((4096 - (d << 3)) >> 1, DType.U32))
    return t.program(probabilities=t.cast(t.divide(e << 8, t.max(t.row_sum(e), 1)), DType.U16))


def _floats(scores: DType, masked: bool) -> Program:
    t, d = _distance(scores, masked)
    w = exp_minus(t, t.cast(d, DType.F32) * 0.0625)
    w = w if t.valid is None else t.select(t.valid, w, -0.0)
    return t.program(weights=w, normalizer=t.row_sum(w))


@BYTES
@MASKED
@pytest.mark.parametrize("make", [_deferred_log, _quotients, _floats])
def test_a_tabulated_program_has_the_same_outputs(
    make: Callable[[DType, bool], Program], scores: DType, masked: bool
) -> None:
    program = make(scores, masked)
    table = tabulate(program)
    hold_equal(program, table)
    assert prove(table, max_length=4).widest_bits <= prove(program, max_length=4).widest_bits
    luts = [node for node in table.nodes() if node.op == "lut"]
    assert luts
    assert all(len(table_of(node.args[0])) == 256 for node in luts if node.args[1].op == "sub")


@MASKED
def test_only_the_tables_are_left_before_the_sum(masked: bool) -> None:
    table = tabulate(_deferred_log(DType.I8, masked))
    ops = {node.op for node in table.nodes()}
    assert ops <= {"input", "cast", "const", "select", "row_max", "sub", "lut", "table", "row_sum"}
    assert sum(node.op == "row_max" for node in table.nodes()) == 1
    assert table.structure == "b5_r1p5_s0p05_table"


def test_a_tabulated_program_is_not_tabulated_again() -> None:
    table = tabulate(_deferred_log(DType.I8, True))
    again, reason = tabulate_or_keep(table)
    assert again is table
    assert reason is not None
    assert "more than one operation" in reason


@MASKED
def test_what_a_parameter_shapes_stays_behind_the_table(masked: bool) -> None:
    t, d = _distance(DType.I8, masked)
    codes = _behind_mask(t, t.min((d * 37 + 128) >> 8, 15))
    weights = t.lut(t.param("weights", "head", DType.U32, 0, 999, "weight of each code", 16), codes)
    program = t.program(weights=weights, normalizer=t.row_sum(weights), codes=codes)
    table = tabulate(program)
    assert sum(node.op == "lut" for node in table.nodes()) == 2
    assert not any(node.op in ("mul", "shr", "min") for node in table.nodes())
    hold_equal(program, table, {"weights": np.arange(16, dtype=np.uint32) * 60})


def test_a_scan_behind_the_table_keeps_its_step() -> None:
    t, d = _distance(DType.U8, False)
    w = t.max(300 - 2 * d, 0)
    scale = t.row_max(w)
    (total,), (running,) = t.scan(
        [t.const(0, DType.I32)], [w], lambda s, e: ([t.min(s + e, 5000)], [t.min(s, scale)]), [(0, 5000)]
    )
    program = t.program(weights=running, normalizer=total)
    table = tabulate(program)
    assert any(node.op == "lut" for node in table.nodes())
    hold_equal(program, table)


def _open(write: str) -> Program:
    t, d = _distance(DType.I8, False)
    x = t.cast(t.scores, DType.I32)
    if write == "position":
        row = (d + t.index()) * 3
    elif write == "score":
        row = (x + 128) * (d + 1)
    elif write == "minimum":  # of a row that holds every score up to its maximum, always -128
        row = (d + t.row_min(x)) * 3
    elif write == "maximum of what falls":  # of such a row, always 128
        row = (d + t.row_max(0 - x)) * 3
    elif write == "maximum of what rises and falls":
        row = (d + t.row_max(t.min(x, 0 - x))) * 3
    elif write == "sign of zero":
        row = t.cast(t.select(x < 0, t.const(-0.0, DType.F32), 0.0) * t.cast(d, DType.F32), DType.F32) * 2.0
    else:
        assert write == "distance"
        row = t.cast(d, DType.I16)
    return t.program(weights=row, normalizer=t.length())


@pytest.mark.parametrize(
    "write",
    [
        "position",
        "score",
        "minimum",
        "maximum of what falls",
        "maximum of what rises and falls",
        "sign of zero",
        "distance",
    ],
)
def test_what_is_no_function_of_the_distance_is_left_alone(write: str) -> None:
    program = _open(write)
    kept, reason = tabulate_or_keep(program)
    assert kept is program
    assert reason is not None
    assert "\n" not in reason


@pytest.mark.parametrize("write", ["number of open elements", "score", "maximum"])
def test_what_differs_among_masked_elements_is_left_alone(write: str) -> None:
    t, d = _distance(DType.I8, True)
    assert t.valid is not None
    if write == "number of open elements":
        masked = t.select(t.any(t.valid), t.const(7, DType.I32), 8)
    elif write == "maximum":
        masked = t.min(t.row_max(t.select(t.valid, t.cast(t.scores, DType.I32), -128)), 50)
    else:
        masked = t.cast(t.scores, DType.I32)
    row = t.select(t.valid, t.min(d * 3, 99), masked)
    program = t.program(weights=row, normalizer=t.length())
    table, _ = tabulate_or_keep(program)
    hold_equal(program, table)
    assert table.outputs["weights"].op == "select"
    assert [node.op for node in table.nodes() if node.op in ("lut", "mul")] == ["lut"]  # of the open ones only


def test_masked_elements_may_share_the_table_with_the_least_score() -> None:
    t, d = _distance(DType.I8, True)
    row = d * 3 + 1
    program = t.program(weights=row, normalizer=t.length())
    table = tabulate(program)
    assert table.outputs["weights"].op == "lut"
    hold_equal(program, table)


def test_a_table_may_hold_what_is_no_number() -> None:
    t, d = _distance(DType.I8, False)
    row = t.select(d < 5, t.cast(d, DType.F32) * -0.5, float("nan"))
    program = t.program(weights=row, normalizer=t.length())
    hold_equal(program, tabulate(program))


def test_scores_of_other_types_are_refused() -> None:
    t = Trace("wide", scores=DType.I16)
    with pytest.raises(RefusalError, match="i16"):
        tabulate(t.program(weights=t.scores, normalizer=t.length()))


def test_an_overflow_cannot_hide_in_a_table() -> None:
    t, d = _distance(DType.I8, False)
    row = (d * 2**24) >> 24  # 255 * 2^24 does not fit an i32
    with pytest.raises(ProofError):
        tabulate(t.program(weights=row, normalizer=t.length()))
