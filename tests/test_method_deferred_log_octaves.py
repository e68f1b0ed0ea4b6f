"""deferred-log-octaves against a loop in plain Python integers, on every backend, and against deferred-log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.errors import ProofError, UsageError
from softq.methods import METHODS
from softq.rowprog import DType, Program, run
from softq.rowprog.phases import phases
from softq.rowprog.program import Node, ScanBody, body_of, walk
from softq.rowprog.ranges import largest_length, prove
from softq.rowprog.streaming import streaming
from tests.conformance import program_of
from tests.rowhost import everywhere

NAME = "deferred-log-octaves"
SETTINGS = [(2, "auto"), (3, 0.75), (3, "auto"), (4, 1.0), (4, "auto"), (6, 3.0), (7, "auto"), (8, 16.0), (8, "auto")]
INTEGERS = [DType.I8, DType.U8]
Rows = NDArray[Any]


def program(kind: DType, masked: bool = False, **settings: object) -> Program:
    return program_of(NAME, settings, kind, masked=masked)


def outputs(given: Program, x: Rows, valid: NDArray[np.bool_] | None = None) -> Mapping[str, Rows]:
    return run(given, x, valid=valid)


@lru_cache
def tables(bits: int, r: float | str) -> tuple[Sequence[int], Sequence[int], int]:
    """The code of each distance below the reference, the weight of each code, and where the first score stands."""
    chosen = METHODS.get(NAME).configure({"bits": bits, "r": r})
    code = chosen.code()  # pyright: ignore[reportAttributeAccessIssue]
    top = 2**bits - 1
    begins = [Fraction(u) for u in code.thresholds]
    codes = [sum(Fraction(e, 16) >= u for u in begins) for e in range(255)]
    begin = next(e for e in range(256) if e == 255 or codes[e] > 0)
    return [*codes, top], [round(2**14 * w) for w in code.weights], begin // 2


def derive(
    places: Sequence[int | None], bits: int, r: float | str, span: int
) -> tuple[list[int], int, list[int], list[int]]:
    """Weights, sum, codes and octaves of one row from places in units of 1/16 octave; None takes no part."""
    codes_of, weights_of, start = tables(bits, r)
    start %= 16
    origin = next((place for place in places if place is not None), 0)
    reference = 0
    kept: list[tuple[int, int, int]] = []  # what each element weighs as it comes, its reference, and its code
    for place in places:
        if place is None:
            kept.append((0, reference, 2**bits - 1))
            continue
        reference = max(reference, -((origin + start - place) // 16))
        code = codes_of[min(16 * reference - (place - origin - start), 255)]
        kept.append((weights_of[code], reference, code))
    if span + 1 - start <= 31 * 16:
        total = sum(w << octave for w, octave, _ in kept) >> reference
    else:
        here, before = (
            sum(w << octave % 16 for w, octave, _ in kept if octave // 16 == reference // 16 - down) for down in (0, 1)
        )
        total = (here + (before >> 16)) >> reference % 16
    return [w >> reference - o for w, o, _ in kept], total, [c for *_, c in kept], [o for _, o, _ in kept]


def places_of(row: Rows, keep: NDArray[np.bool_], step: float) -> list[int | None]:
    low = np.iinfo(row.dtype).min
    units = step * math.log2(math.e) * 16
    return [round((int(x) - low) * units) if k else None for x, k in zip(row, keep, strict=True)]


def rows(kind: DType) -> Rows:
    rng = np.random.default_rng(11)
    low, high = kind.low, kind.high
    parts = [np.array([[low] * 41, [high] * 41, [low] * 40 + [high], [high] + [low] * 40, [low] + [high] * 40])]
    for spread in (3, 12, 60):
        parts.append(np.clip(rng.normal(size=(8, 41)) * spread + (low + high) // 2, low, high))
    parts += [np.sort(parts[-1], axis=-1), np.sort(parts[-2], axis=-1)[:, ::-1], rng.integers(low, high + 1, (8, 41))]
    return np.concatenate(parts).astype(kind.numpy)


def assert_derived(
    out: Mapping[str, Rows], x: Rows, keep: NDArray[np.bool_], bits: int, r: float | str, step: float
) -> None:
    span = round(255 * step * math.log2(math.e) * 16)
    for i, (row, mask) in enumerate(zip(x, keep, strict=True)):
        weights, total, codes, octaves = derive(places_of(row, mask, step), bits, r, span)
        assert np.asarray(out["weights"])[i].tolist() == weights
        assert np.asarray(out["normalizer"])[i, 0] == total
        if "codes" in out:
            assert np.asarray(out["codes"])[i].tolist() == codes
            assert np.asarray(out["octaves"])[i].tolist() == octaves


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("bits", "r"), SETTINGS)
def test_the_loop_in_python_integers(bits: int, r: float | str, masked: bool, kind: DType) -> None:
    x = rows(kind)
    keep = np.random.default_rng(1).random(x.shape) < (0.6 if masked else 2)
    keep[::9] &= not masked
    for step in (0.02, 0.11, 0.9):
        given = program(kind, masked, bits=bits, r=r, step=step)
        valid = keep if masked else None
        assert_derived(outputs(given, x, valid), x, keep, bits, r, step)
        if step in (0.02, 0.11) and (bits, r) in SETTINGS[2:5]:
            for _, out in everywhere(given, x, list(given.outputs), valid=valid):
                assert_derived(out, x, keep, bits, r, step)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("bits", "r"), [(3, "auto"), (4, 1.0)])
def test_a_built_kernel_gives_the_same(bits: int, r: float | str, masked: bool) -> None:
    pytest.importorskip("tvm")
    from tests.test_native_rows import MIDDLE, MISSING, Host

    if MISSING:
        pytest.skip(MISSING)
    x = rows(DType.I8)
    keep = np.random.default_rng(1).random(x.shape) < (0.6 if masked else 2)
    for step in (0.06, 0.11):
        host = Host(program(DType.I8, masked, bits=bits, r=r, step=step), MIDDLE)
        assert_derived(host(x, valid=keep if masked else None), x, keep, bits, r, step)


@pytest.mark.parametrize("kind", [DType.F32, *INTEGERS])
def test_it_is_deferred_log_where_the_maximum_comes_first(kind: DType) -> None:
    # Sixteenths of an octave, so that neither rounds; where it lies halfway between two codes both round up.
    step = math.log(2) / 16
    x = rows(DType.I8 if kind.is_float else kind)
    x[:, 0] = x.max(axis=-1)
    given = (x * np.float32(step)).astype(np.float32) if kind.is_float else x
    ours = outputs(program(kind, bits=4, r=1.0, step=step), given)
    d = x[:, :1].astype(np.int64) - x
    codes = np.minimum((d + 8) >> 4, 15)
    np.testing.assert_array_equal(ours["codes"], codes)
    assert not np.any(ours["octaves"])
    if not kind.is_float:
        theirs = outputs(program_of("deferred-log", {"steps": "equal", "r": 1.0, "step": step}, kind), x)
        for name in ("weights", "normalizer", "codes"):
            np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize("step", [0.06, 0.11])
@pytest.mark.parametrize("r", [1.0, "auto"])
def test_the_sum_is_exact_or_lacks_what_windows_leave_out(r: float | str, step: float) -> None:
    rng = np.random.default_rng(4)
    drawn, climbing = rng.integers(-128, 128, (2, 20, 300)), np.arange(300) // 2 - 128 + rng.integers(-9, 9, (20, 300))
    x = np.concatenate([np.sort(drawn[0], axis=-1), drawn[1], np.clip(climbing, -128, 127)])
    out = outputs(program(DType.I8, bits=4, r=r, step=step), x.astype(np.int8))
    _, weights_of, _ = tables(4, r)
    weights = np.asarray(weights_of)[out["codes"]]
    behind = out["octaves"][:, -1:].astype(np.int64) - out["octaves"]
    exact = np.sum(weights * 2.0**-behind, axis=-1)
    total = out["normalizer"][:, 0].astype(np.float64)
    if step < 0.084:
        np.testing.assert_array_equal(total, np.floor(exact))
    else:
        assert np.all((total > exact - 2) & (total <= exact))
    ours = out["weights"].astype(np.int64)
    np.testing.assert_array_equal(ours, weights >> np.minimum(behind, 31))
    assert np.all((ours.sum(axis=-1) <= total) & (ours.sum(axis=-1) > total - 300))
    assert np.any(ours.sum(axis=-1) < total)


@pytest.mark.parametrize(("bits", "r"), SETTINGS)
def test_the_greatest_score_weighs_a_quarter_at_least(bits: int, r: float | str) -> None:
    codes_of, weights_of, start = tables(bits, r)
    assert min(weights_of[code] for code in codes_of[:16]) >= 2**12
    assert codes_of[start] == 0
    assert weights_of[0] == 2**14


@pytest.mark.parametrize("step", [0.06, 0.1])
def test_each_loop_is_a_choice_a_maximum_or_a_choice_and_an_addition(step: float) -> None:
    for kind, masked in ((kind, masked) for kind in INTEGERS for masked in (False, True)):
        given = program(kind, masked, bits=4, step=step)
        assert len(phases(given)) == 2
        assert streaming(given).streams
        # What a consumer in the same pass takes is known in the first one, the sum behind it.
        first, last = phases(given)
        assert set(first.outputs) == {"codes", "octaves"}
        assert last.outputs == ("weights",)
        bodies = list(dict.fromkeys(body_of(node) for node in given.nodes() if node.op == "scan"))
        sums = [] if step == 0.06 else [["select", "add", "shr", "select", "select"]]
        assert sorted(_loop(body) for body in bodies) == sorted([["lt", "select"], ["max"], *sums])
        # No loop waits for another: what one hands on is a row.
        states = {state for body in bodies for state in body.states}
        for body in bodies:
            assert not (set(walk(body.next)) & states) - set(body.states)


def _loop(body: ScanBody) -> list[str]:
    """What lies between a state and the next one."""
    inside: list[Node] = []
    for node in walk(body.next):
        if not {*body.states, *inside}.isdisjoint(node.args):
            inside.append(node)
    return [node.op for node in inside]


def test_proved_for_long_rows() -> None:
    longest = (2**32 - 1) // 2**14
    for given in (program(kind, bits=8, step=0.06) for kind in (DType.F32, *INTEGERS)):
        assert prove(given, max_length=65536).interval(given.outputs["normalizer"]).high == 2**30
    for kind, step in ((kind, step) for kind in (DType.F32, *INTEGERS) for step in (0.08, 0.1, 1.0)):
        given = program(kind, bits=8, step=step)
        assert largest_length(given) == longest
        assert prove(given, max_length=longest).interval(given.outputs["normalizer"]).high <= 2**32
        with pytest.raises(ProofError, match=r"the (sum|operand) is|state 0 after a step"):
            prove(given, max_length=2**18)


@pytest.mark.parametrize("bits", [3, 4])
def test_the_error_is_near_that_of_several_passes(bits: int) -> None:
    rng = np.random.default_rng(0)
    for spread in (1.0, 2.0, 4.0):
        scores = rng.normal(size=(100, 200)) * spread
        step = np.abs(scores).max() / 127
        x = np.rint(scores / step).astype(np.int8)
        exact = np.exp(scores - scores.max(axis=-1, keepdims=True))
        exact /= exact.sum(axis=-1, keepdims=True)

        def error(
            name: str, settings: Mapping[str, object], x: Rows = x, step: float = step, exact: Rows = exact
        ) -> float:
            out = outputs(program_of(name, {"bits": bits, "step": step, **settings}, DType.I8), x)
            return float(np.sum((out["weights"] / out["normalizer"] - exact) ** 2))

        several, equal = error("deferred-log", {}), error("deferred-log", {"steps": "equal"})
        assert 0.5 * several < error(NAME, {}) < 2 * several
        assert error(NAME, {"r": 1.0 if bits == 4 else 0.75}) < 3 * equal


def test_integer_scores_need_a_step_and_eight_bits() -> None:
    for kind, step in ((DType.I8, 0.0), (DType.I16, 0.1)):
        with pytest.raises(UsageError, match="integer scores are of 8 bits, with a step above 0"):
            program(kind, step=step)
