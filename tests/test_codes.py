"""Codes of a byte give the weights back, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.errors import RefusalError
from softq.methods import METHODS
from softq.rowprog import DType, Program, Trace, run
from softq.rowprog.codes import coded
from softq.rowprog.tabulate import tabulate_or_keep
from softq.rowprog.types import Kind

Array = NDArray[np.generic]
MASKED = pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])


def program_of(name: str, masked: bool, scores: DType, **settings: Any) -> Program:
    method = METHODS.get(name)
    known = method.options.specs()
    settings |= {"step": 0.1} if "step" in known and not scores.is_float else {}
    return method.program(method.resolve(method.configure(settings), False), scores=scores, masked=masked)


def _in_any_order(name: str) -> bool:
    return all(node.op != "scan" for node in program_of(name, False, DType.I8).nodes())


INTEGER_ONLY = [n for n, m in METHODS.entries().items() if m.integer_scores and m.drop_in and _in_any_order(n)]


def hold_decoded(program: Program) -> None:
    """Compare decoded codes with the weights of the program itself, and its other outputs with those."""
    found = coded(program)
    codes = found.program.outputs["codes"]
    assert codes.kind is Kind.ROW
    assert codes.dtype is DType.U8
    assert 1 < len(found.table) <= 256
    rng = np.random.default_rng(0)
    low, high = program.scores.low, program.scores.high
    x = np.arange(low, high + 1, dtype=program.scores.numpy)
    for scores in (
        np.minimum(x[None, :], x[:, None]),
        rng.integers(low, high + 1, (40, 37), dtype=x.dtype),
        x[:, None],
    ):
        for share in (1, 0.6, 0) if program.masked else (1,):
            valid = rng.random(scores.shape) < share if program.masked else None
            expected, values = (run(p, scores, valid=valid) for p in (program, found.program))
            weights = expected["weights"]
            decoded = np.take(np.asarray(found.table, weights.dtype), values["codes"].astype(np.intp))
            np.testing.assert_array_equal(decoded.view(np.uint8), weights.view(np.uint8))
            for name in set(expected) - {"codes"}:
                value = expected[name]
                np.testing.assert_array_equal(values[name], value, err_msg=name)


@pytest.mark.quick_cases(30)
@MASKED
@pytest.mark.parametrize("tabulated", [False, True], ids=["", "tabulated"])
@pytest.mark.parametrize("name", INTEGER_ONLY)
def test_codes_of_every_integer_only_method(name: str, masked: bool, tabulated: bool) -> None:
    program = program_of(name, masked, DType.I8)
    program = tabulate_or_keep(program)[0] if tabulated else program
    refused = {"index-softmax": "bytes already"}
    if masked:  # 256 weights that all differ, and none of them is 0
        refused["qlinear"] = "no code is left"
        if not tabulated:  # a masked element's distance is one of 16 bits
            refused["hls4ml"] = "more than one byte"
    if name in refused:
        with pytest.raises(RefusalError, match=refused[name]):
            coded(program)
    else:
        hold_decoded(program)


def test_float_scores_have_codes_where_distances_are_bytes() -> None:
    program = program_of("i-exp", False, DType.F32)
    found = coded(program)
    x = (np.random.default_rng(0).normal(size=(60, 50)) * 5).astype(np.float32)
    x[3, :7], x[4], x[5, 2] = -np.inf, -np.inf, np.inf
    values, expected = run(found.program, x), run(program, x)
    np.testing.assert_array_equal(np.take(found.table, values["codes"].astype(np.intp)), expected["weights"])
    np.testing.assert_array_equal(values["normalizer"], expected["normalizer"])
    assert not any(node.op == "mul" and node.dtype.is_integer for node in found.program.nodes(["weights"]))


def _distance(masked: bool = False) -> tuple[Trace, Any]:
    t = Trace("byte", structure="b8", scores=DType.I8, masked=masked)
    x = t.cast(t.scores, DType.I32)
    if t.valid is not None:
        x = t.select(t.valid, x, -128)
    return t, t.row_max(x) - x


@pytest.mark.parametrize("greatest", [255, 99])
def test_masked_elements_have_a_code_of_their_own_where_no_weight_is_theirs(greatest: int) -> None:
    t, d = _distance(masked=True)
    assert t.valid is not None
    weights = t.select(t.valid, 1000 - t.min(d, greatest), 7)
    program = t.program(weights=weights, normalizer=t.row_sum(weights))
    if greatest == 255:
        with pytest.raises(RefusalError, match="no code is left"):
            coded(program)
        return
    hold_decoded(program)
    assert coded(program).table[100] == 7


@pytest.mark.parametrize("beside", ["position", "sum", "score", "two conditions"])
def test_weights_of_more_than_a_byte_have_no_codes(beside: str) -> None:
    t, d = _distance()
    x = t.cast(t.scores, DType.I32)
    if beside == "position":
        weights = d * 3 + t.index()
    elif beside == "sum":
        weights = d * t.min(t.row_sum(d), 5)
    elif beside == "score":
        weights = (x + 128) * (d + 1)
    else:
        weights = t.select(x > 3, d * 5, t.select(t.index() > 4, d, 4))
    with pytest.raises(RefusalError, match="more than one byte"):
        coded(t.program(weights=weights, normalizer=t.length()))


def test_conditions_with_two_open_sides_are_refused() -> None:
    t, d = _distance()
    weights = t.select(t.index() > 4, d * 5, d * 7)
    with pytest.raises(RefusalError, match="both sides"):
        coded(t.program(weights=weights, normalizer=t.length()))


def test_a_byte_needs_no_code_and_probabilities_have_none() -> None:
    t, d = _distance()
    with pytest.raises(RefusalError, match="bytes already"):
        coded(t.program(weights=255 - d, normalizer=t.length()))
    with pytest.raises(RefusalError, match="no weights"):
        coded(t.program(probabilities=d))
