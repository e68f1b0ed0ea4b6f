"""Functions of each score by itself on 8-bit scores: whole numbers only, against float64 and on every backend alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.errors import ProofError, UsageError
from softq.methods import METHODS
from softq.rowprog import DType, Kind, Program, run
from softq.rowprog.ranges import prove
from tests.rowhost import everywhere
from tests.test_method_functions import consmax, power, relu, sigmoid, softpick, softplus, taylor

F64 = NDArray[np.float64]
Scores = NDArray[Any]
Reference = Callable[[F64], F64]

STEP = 0.06
UNIT = 2.0**-15


def over_sum(exponent: int, eps: float) -> Reference:
    def of(x: F64) -> F64:
        w = np.maximum(x, 0) ** exponent
        return w / (w.sum() + eps)

    return of


def at_least(weight: Callable[[F64], F64]) -> Reference:
    return lambda x: weight(x) / max(float(weight(x).sum()), 0.5)


def greatest(function: Callable[[F64], F64], zero: int, kind: DType) -> float:
    """Return the greatest weight of all 256 scores."""
    scores = np.arange(kind.low, kind.high + 1).astype(np.float64)
    return float(np.max(function(STEP * (scores - zero))))


# The settings, the formula, and how far a probability may be off, in units of 2^-15, of one over the row's greatest
# weight: half a unit of each weight and of each term of the sum, by the greatest of the table.
CASES: list[tuple[str, dict[str, Any], Reference, Callable[[F64], F64] | None]] = [
    ("relu", {}, relu(1, None), None),
    ("relu", {"power": 2, "divisor": 17}, relu(2, 17), None),
    ("relu", {"divisor": "row"}, relu(1, None), None),
    ("relu", {"divisor": "sum", "eps": 1e-4}, over_sum(1, 1e-4), lambda x: np.maximum(x, 0)),
    ("relu", {"divisor": "sum", "least": 0.5}, at_least(lambda x: np.maximum(x, 0)), lambda x: np.maximum(x, 0)),
    ("sigmoid", {}, sigmoid(None), None),
    ("sigmoid", {"bias": "row"}, sigmoid(None), None),
    ("sigmoid", {"bias": -1.5}, sigmoid(-1.5), None),
    ("consmax", {}, consmax(2.5, 100, 80), None),
    ("consmax", {"beta": -1, "gamma": 7, "clamp": 4}, consmax(-1, 7, 4), None),
    ("taylor", {}, taylor(2), lambda x: 1 + x + x**2 / 2),
    ("taylor", {"order": 4}, taylor(4), lambda x: 1 + x + x**2 / 2 + x**3 / 6 + x**4 / 24),
    ("power", {"power": 2}, power(2), lambda x: x**2),
    ("softplus", {}, softplus, lambda x: np.logaddexp(0, x)),
    ("softplus", {"eps": 0, "least": 0.5}, at_least(lambda x: np.logaddexp(0, x)), lambda x: np.logaddexp(0, x)),
    ("softpick", {}, softpick(1e-8), None),
]
IDS = ["-".join([name, *(f"{k}{v}" for k, v in settings.items())]) for name, settings, _, _ in CASES]
KINDS = [(DType.I8, 0), (DType.U8, 131), (DType.I8, -20)]


def program_of(name: str, kind: DType, zero: int, *, masked: bool = False, **settings: Any) -> Program:
    method = METHODS.get(name)
    options = method.resolve(method.configure({"step": STEP, "zero": zero} | settings), False)
    return method.program(options, scores=kind, masked=masked)


def rows_of(kind: DType, length: int, count: int) -> Scores:
    rng = np.random.default_rng(length)
    some = rng.normal(size=(count, length)) * rng.choice([3, 20, 60], size=(count, 1)) + (kind.low + kind.high + 1) // 2
    return np.clip(np.rint(some), kind.low, kind.high).astype(kind.numpy)


def probabilities(program: Program, rows: Scores, keep: NDArray[np.bool_] | None = None) -> F64:
    out = run(program, rows, valid=keep)
    with np.errstate(all="ignore"):
        return out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)


@pytest.mark.parametrize(("kind", "zero"), KINDS)
@pytest.mark.parametrize(("name", "settings", "reference", "weight"), CASES, ids=IDS)
def test_the_paper_s_formula_of_the_scores_that_integers_stand_for(
    name: str,
    settings: dict[str, Any],
    reference: Reference,
    weight: Callable[[F64], F64] | None,
    kind: DType,
    zero: int,
) -> None:
    program = program_of(name, kind, zero, **settings)
    assert all(node.dtype is not DType.F32 for node in program.nodes())
    for length in (1, 3, 40, 500):
        rows = rows_of(kind, length, 40)
        x = STEP * (rows.astype(np.float64) - zero)
        if name == "power":
            some = np.any(x != 0, axis=-1)
            rows, x = rows[some], x[some]
        want, got = np.array([reference(row) for row in x]), probabilities(program, rows)
        if weight is not None:
            # Half a unit of a weight, and the sum's that of each of its terms, of the table's greatest weight.
            unit = greatest(weight, zero, kind) * UNIT / np.maximum(weight(x).sum(axis=-1, keepdims=True), 1e-9)
            allowed = 0.6 * unit * (1 + want * length) + 1e-12
        elif name == "softpick":
            size = np.abs(np.expm1(x)) * np.exp(-np.maximum(x.max(axis=-1, keepdims=True), 0))
            allowed = 1.1 * UNIT / np.maximum(size.sum(axis=-1, keepdims=True), UNIT) * (1 + want * length)
        elif name == "sigmoid" and settings.get("bias", "row") == "row":
            allowed = (
                2.0**-24 + UNIT * want * (1 - want) / np.minimum(sigmoid(0.0)(x), sigmoid(0.0)(-x)) + UNIT / length
            )
        elif name == "consmax":
            allowed = UNIT * max(want.max(), float(reference(STEP * (np.array([kind.high]) - float(zero)))[0]))
        else:
            top = max(STEP * (kind.high - zero), 1.0) ** int(settings.get("power", 1))
            allowed = 2 * UNIT * top / {"row": length}.get(str(settings.get("divisor")), 1)
        seen = np.isfinite(want)
        assert np.all(np.abs(got - want)[seen] <= np.broadcast_to(allowed, want.shape)[seen]), np.nanmax(
            np.abs(got - want)
        )


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(("name", "settings", "reference", "weight"), CASES, ids=IDS)
def test_every_backend_gives_the_same_bits(
    name: str, settings: dict[str, Any], reference: Reference, weight: object
) -> None:
    for kind, zero in KINDS[:2]:
        for masked in (False, True):
            program = program_of(name, kind, zero, masked=masked, **settings)
            every = np.arange(kind.low, kind.high + 1).astype(kind.numpy)
            for rows in (every[None], rows_of(kind, 33, 30)):
                keep = np.random.default_rng(1).random(rows.shape) < 0.7
                keep[-1] = len(rows) == 1
                found = everywhere(program, rows, list(program.outputs), valid=keep if masked else None)
                ours = run(program, rows, valid=keep if masked else None)
                for backend, out in dict(found).items():
                    for output in program.outputs:
                        np.testing.assert_array_equal(
                            np.asarray(out[output]).astype(np.int64), ours[output].astype(np.int64), err_msg=backend
                        )
                if masked:
                    assert not np.any(ours["weights"][~keep])
                    if "row" in settings.values():
                        continue
                    for row, on, p in zip(rows, keep, probabilities(program, rows, keep), strict=True):
                        alone = probabilities(program, row[on][None], on[on][None])[0]
                        np.testing.assert_array_equal(p[on], alone)


@pytest.mark.parametrize(("name", "settings", "message"), [
    ("relu", {"step": 0.0}, "integer scores are of 8 bits, with a step above 0"),
    ("relu", {"power": 8}, "of which 15 bits hold no fraction of 1"),
    ("relu", {"divisor": 2.0**-19}, "which integers of 32 bits do not hold"),
    ("softplus", {"power": 15}, "power is 15; only 1 is pointwise"),
    ("consmax", {"gamma": 0.001, "beta": -100}, "of which 15 bits hold no fraction of 1"),
])  # fmt: skip
def test_what_integers_do_not_hold_is_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        program_of(name, DType.I8, 0, **dict[str, Any](step=0.5) | settings)
    with pytest.raises(UsageError, match="integer scores are of 8 bits"):
        program_of("taylor", DType.I16, 0)


def test_the_longest_row_is_proved() -> None:
    program = program_of("taylor", DType.I8, 0)
    length = (2**32 - 1) // (2**15 - 1)
    prove(program, max_length=length)
    with pytest.raises(ProofError):
        prove(program, max_length=length + 1)


def test_a_row_of_no_weight() -> None:
    rows = np.zeros((1, 4), np.int8)
    assert probabilities(program_of("power", DType.I8, 0), rows).tolist() == [[0.25] * 4]
    zeros: list[tuple[str, dict[str, Any]]] = [
        ("relu", {"divisor": "sum", "eps": 1e-6}),
        ("softpick", {}),
        ("relu", {}),
    ]
    for name, settings in zeros:
        assert probabilities(program_of(name, DType.I8, 0, **settings), rows).tolist() == [[0.0] * 4]
    assert math.isnan(probabilities(program_of("relu", DType.I8, 0, divisor="sum"), rows)[0, 0])
    assert Kind.ROW is program_of("relu", DType.I8, 0).outputs["weights"].kind
