"""Each method against an independent float64 reference, within the bounds that its docstring states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.calibration import fit
from softq.calibration.fit import _least
from softq.errors import InputError, UsageError
from softq.methods import METHODS, Fitted, Method, Options, Sample
from softq.methods._steps import StepOptions, resolve_steps
from softq.rowprog import DType, Program, prepare, run

ALL = sorted(METHODS.entries())
SHIFTS_MATTER = {"consmax", "power", "relu", "self-adjust", "sigmoid", "softpick", "softplus", "taylor"}
"""Functions of the scores themselves, by their formulas; the softmax's own forms, and those below, know distances."""
SHIFTS_DO_NOT = {"adaptive-temperature", "clipped", "entmax15", "sparsemax", "ssmax", "top-k"}
RISES_AND_FALLS = {"power", "taylor"}
"""Even polynomials: a lower score may weigh more."""
ORDER_MATTERS = {"deferred-log-octaves", "deferred-log-online", "edge-moe"}
"""What a running maximum leaves of an element depends on what comes behind it, by more than a rounding of f32."""
F32 = NDArray[np.float32]


def default_program(method: Method, *, masked: bool = False, **settings: object) -> Program:
    return method.program(method.resolve(method.configure(settings), False), masked=masked)


def in_groups(name: str) -> bool:
    """Say whether a weight depends on which elements stand in its group."""
    return any(node.op == "group_max" for node in default_program(METHODS.get(name)).nodes())


def some_fitted(options: Options) -> Fitted:
    """Return numbers for what deferred-log's options have to be fitted: one, or one for each of three heads."""
    heads = {"r": (0.37, 0.61, 1.9), "first": (0.4, 0.9, 0.05), "shift": (0.0, 0.4, 1.3), "slope": (0.0, 0.4, 1.0)}
    return {name: heads[name] if scope == "head" else heads[name][1] for name, scope in options.fitted.items()}


def probabilities(program: Program, x: F32, valid: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    out = run(program, x, valid=valid)
    if not program.is_pair:
        return out["probabilities"].astype(np.float64)
    with np.errstate(invalid="ignore"):
        return out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)


def softmax64(x: F32) -> NDArray[np.float64]:
    e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True).astype(np.float64))
    return e / e.sum(axis=-1, keepdims=True)


def hard_scores() -> F32:
    """Rows where a softmax without the maximum overflows, flat ones, peaked ones, ties, huge and tiny numbers."""
    rng = np.random.default_rng(7)
    rows = [rng.normal(size=(200, 197)) * scale + shift for scale, shift in [(0.5, 0), (2, 95), (8, -200), (1, 1e4)]]
    rows += [rng.integers(-3, 3, size=(50, 197)), np.zeros((1, 197)), rng.normal(size=(50, 197)) * 1e-30]
    rows += [rng.normal(size=(50, 197)) * 1e38 / 4]
    return np.concatenate(rows).astype(np.float32)


def test_exact_keeps_its_stated_bound() -> None:
    x = hard_scores()
    got, expected = probabilities(default_program(METHODS.get("exact")), x), softmax64(x)
    seen = expected > 3e-38
    bound = 2e-7 + x.shape[-1] * 2.0**-24
    assert np.max(np.abs(got[seen] / expected[seen] - 1)) <= bound
    assert np.max(got[~seen]) <= 3e-38


@pytest.mark.parametrize("bits", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("top", [1.0, 0.125])
def test_uniform_rounds_to_the_nearest_level(bits: int, top: float) -> None:
    x = hard_scores()
    levels = 2**bits - 1
    codes = run(default_program(METHODS.get("uniform"), bits=bits, top=top), x)["weights"].astype(np.float64)
    exact = np.minimum(softmax64(x) * levels / top, levels)
    # Half a level, and what float32 rounding of p adds: p is within 197 * 2^-24 + 2e-7, relatively.
    assert np.max(np.abs(codes - exact) - exact * 1.3e-5) <= 0.5
    assert np.mean(codes != np.rint(exact)) <= 1e-5 * max(1, 2 ** (bits - 8))


@pytest.mark.parametrize("bits", [2, 3, 4, 6])
def test_log2_takes_the_nearest_power_of_two(bits: int) -> None:
    x = hard_scores()
    out = run(default_program(METHODS.get("log2"), bits=bits), x)
    with np.errstate(divide="ignore"):
        level = -np.log2(softmax64(x))
    top = 2**bits - 1
    expected = np.minimum(np.rint(level), top)
    wrong = out["codes"] != expected
    assert np.mean(wrong) <= 1e-5
    assert np.max(np.abs(out["codes"][wrong] - expected[wrong]), initial=0) <= 1
    p = np.where(out["codes"] == top, 0.0, 2.0 ** -out["codes"].astype(np.float64))
    np.testing.assert_array_equal(out["probabilities"], p)


def exact_code(d: Fraction, rate: np.float32, top: int) -> int:
    """The code by rational arithmetic: the product rounded once to float32, then to an integer, half to even."""
    product = float(np.float32(float(d * Fraction(float(rate)))))
    return min(round(product), top) if math.isfinite(product) else top


@pytest.mark.parametrize(("bits", "r"), [(2, 0.5), (3, 0.75), (4, 1.0), (6, 4.0), (8, 16.0)])
def test_deferred_log_codes_are_exact(bits: int, r: float) -> None:
    # Multiples of 1/64 below 2^17: the differences are exact in float32, so that only the product rounds.
    x = (np.random.default_rng(3).integers(-2000, 2000, size=(20, 50)) / 64).astype(np.float32)
    out = run(default_program(METHODS.get("deferred-log"), bits=bits, r=r), x)
    rate, top = np.float32(r * math.log2(math.e)), 2**bits - 1
    for row, codes, weights, total in zip(x, out["codes"], out["weights"], out["normalizer"][:, 0], strict=True):
        greatest = Fraction(float(row.max()))
        expected = [exact_code(greatest - Fraction(float(v)), rate, top) for v in row]
        assert codes.tolist() == expected
        # w = 2^14 * 2^(-c / r), rounded; checked against the integer root, not against a float power.
        table = [0 if c == top else 2.0 ** (14 - c / r) for c in expected]
        assert all(abs(w - t) <= 0.5 for w, t in zip(weights.tolist(), table, strict=True))
        assert total == weights.sum(dtype=np.int64)


@pytest.mark.parametrize("step", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("kind", [DType.I8, DType.U8])
def test_deferred_log_of_integer_scores_over_every_difference(step: float, kind: DType) -> None:
    method = METHODS.get("deferred-log")
    program = method.program(method.configure({"r": 1, "step": step, "steps": "equal"}), scores=kind)
    x = np.stack([np.full(256, kind.high), kind.high - np.arange(256)], axis=1).astype(kind.numpy)
    codes = run(program, x)["codes"][:, 1]
    rate = Fraction(step * math.log2(math.e))
    for d, code in enumerate(codes.tolist()):
        exact = d * rate
        assert abs(min(exact, Fraction(15)) - code) <= Fraction(1, 2) + Fraction(1, 10**4)


# The contract of special values, the same for every method (docs/rowprog.md).


@pytest.mark.parametrize("name", ALL)
def test_masked_elements_weigh_nothing_and_change_nothing(name: str) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(64, 37)) * 3).astype(np.float32)
    valid = rng.random((64, 37)) < 0.6
    valid[:, 0] = True
    method = METHODS.get(name)
    hidden = np.where(valid, x, np.float32(np.nan))  # whatever stands under the mask is harmless
    by_mask = probabilities(default_program(method, masked=True), hidden, valid)
    by_infinity = probabilities(default_program(method), np.where(valid, x, np.float32(-np.inf)))
    np.testing.assert_array_equal(by_mask, by_infinity)
    assert not np.any(by_mask[~valid])
    if in_groups(name):
        return  # without the masked elements the others would be in other groups
    for row, keep, p in zip(x[:8], valid[:8], by_mask[:8], strict=True):
        alone = probabilities(default_program(method), row[keep][None])[0]
        np.testing.assert_allclose(p[keep], alone, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ALL)
def test_fully_masked_rows_have_normalizer_zero_or_are_undefined(name: str) -> None:
    program = default_program(METHODS.get(name))
    out = run(program, np.full((2, 5), -np.inf, np.float32))
    if program.is_pair:
        assert not np.any(out["weights"])
        assert not np.any(out["normalizer"])
    else:
        assert np.all(np.isnan(out["probabilities"]))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("at", [0, 3, 4])
@pytest.mark.parametrize("beside", [1.0, math.inf, -math.inf])
def test_a_nan_makes_the_row_undefined_wherever_it_stands(name: str, at: int, beside: float) -> None:
    x = np.full((2, 5), beside, np.float32)
    x[0, at] = np.nan
    x[1] = [1, 2, 3, 4, 5]
    p = probabilities(default_program(METHODS.get(name)), x)
    assert np.all(np.isnan(p[0]))
    assert not np.any(np.isnan(p[1]))


@pytest.mark.parametrize("name", ALL)
def test_infinite_scores_share_all_the_weight(name: str) -> None:
    inf = math.inf
    x = np.array([[inf, 0, 1, 2], [inf, inf, -inf, 3e38], [3, 1, 2, 0]], np.float32)
    p = probabilities(default_program(METHODS.get(name)), x)
    assert p[0].tolist() == [1, 0, 0, 0]
    assert p[1, 0] == p[1, 1] > 0
    if METHODS.get(name).drop_in or abs(p[2].sum() - 1) <= 0.005:
        assert abs(p[1, 0] - 0.5) <= 0.5 / 255  # uniform has no code for a half
    assert p[1, 2:].tolist() == [0, 0]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_rows(name: str, length: int) -> None:
    p = probabilities(default_program(METHODS.get(name)), np.full((4, length), 2.5, np.float32))
    assert np.all(np.isfinite(p) & (p == p[:1, :1]))
    # Levels of two scores, from one half to 1: the nearest lies within half of the widest gap, as a ratio.
    two = np.stack([np.zeros(4001), -np.linspace(0, 8, 4001)], axis=1).astype(np.float32)
    pairs = probabilities(default_program(METHODS.get(name)), two)
    levels = np.unique(pairs[:, 0])
    if np.all(np.abs(pairs.sum(axis=1) - 1) <= 0.005):
        np.testing.assert_allclose(p, 1 / length, rtol=0, atol=0.002)
    elif METHODS.get(name).drop_in:
        np.testing.assert_allclose(p, 1 / length, rtol=float(np.max(levels[1:] / levels[:-1])) ** 0.5 - 1, atol=0.002)


@pytest.mark.parametrize("name", ALL)
def test_empty_rows(name: str) -> None:
    assert probabilities(default_program(METHODS.get(name)), np.zeros((3, 0), np.float32)).shape == (3, 0)


@pytest.mark.parametrize("name", ALL)
def test_rows_are_treated_alike_whatever_their_order_and_shift(name: str) -> None:
    rng = np.random.default_rng(5)
    x = (rng.integers(-512, 512, size=(16, 41)) / 64).astype(np.float32)  # a shift by 8 is exact
    order = rng.permutation(41)
    program = default_program(METHODS.get(name))
    p = probabilities(program, x)
    if name not in ORDER_MATTERS and not in_groups(name):
        np.testing.assert_allclose(probabilities(program, x[:, order]), p[:, order], rtol=1e-5, atol=0)
        falls = (p[:, :, None] < p[:, None, :]) & (x[:, :, None] > x[:, None, :])
        if METHODS.get(name).drop_in or name in SHIFTS_MATTER | SHIFTS_DO_NOT:
            assert np.any(falls) == (name in RISES_AND_FALLS)
    moved = probabilities(program, x + np.float32(8))
    if METHODS.get(name).drop_in or name in SHIFTS_DO_NOT:
        np.testing.assert_allclose(moved, p, rtol=1e-5, atol=0)
    elif name in SHIFTS_MATTER:
        assert np.max(np.abs(moved - p)) > 1e-4


def test_a_head_gets_its_own_parameters() -> None:
    method = METHODS.get("deferred-log")
    options = method.configure({"bits": 3, "r": "head", "steps": "equal"})
    x = (np.random.default_rng(1).normal(size=(2, 3, 5, 17)) * 3).astype(np.float32)
    rs = (0.5, 0.75, 1.25)
    together = run(method.program(options), x, params=method.parameters(options, {"r": rs}))
    for head, r in enumerate(rs):
        alone = run(method.program(method.configure({"bits": 3, "r": r, "steps": "equal"})), x[:, head])
        np.testing.assert_array_equal(together["codes"][:, head], alone["codes"])
        np.testing.assert_array_equal(together["weights"][:, head], alone["weights"])


def test_options_say_what_is_allowed() -> None:
    with pytest.raises(UsageError, match=r"deferred-log bits is 9; allowed is a whole number from 2 to 8"):
        METHODS.get("deferred-log").configure({"bits": 9})
    with pytest.raises(
        UsageError, match=r"r is 'fast'; allowed is a number from 0.125 to 2048 or auto or site or head"
    ):
        METHODS.get("deferred-log").configure({"r": "fast"})
    known = "difference_type, exponential_type, sum_type, product_type"
    with pytest.raises(UsageError, match=f"method sparsemax has no option 'bits'; its options are: {known}$"):
        METHODS.get("sparsemax").configure({"bits": 4})
    with pytest.raises(UsageError, match=rf"'softmax'; nearest: .*softmax.*; softq methods lists all {len(ALL)}$"):
        METHODS.get("softmax")
    with pytest.raises(UsageError, match="float32 scores only"):
        METHODS.get("log2").program(METHODS.get("log2").configure({}), scores=DType.I8)


@pytest.mark.parametrize(("bits", "r"), [(2, 1.0), (3, 5.0), (4, 24.0)])
def test_growing_steps_take_the_nearest_square(bits: int, r: float) -> None:
    x = (np.random.default_rng(3).integers(-700, 700, size=(40, 50)) / 64).astype(np.float32)
    out = run(default_program(METHODS.get("deferred-log"), bits=bits, r=r, steps="growing"), x)
    octaves = (x.max(axis=-1, keepdims=True).astype(np.float64) - x) * math.log2(math.e)
    top = 2**bits - 1
    root = np.sqrt(octaves * r)
    clear = np.abs(root - np.floor(root) - 0.5) > 1e-5
    assert np.mean(clear) > 0.999
    np.testing.assert_array_equal(out["codes"][clear], np.minimum(np.rint(root), top)[clear])
    # The weight is the mean of 2^-u over the code's interval, by a sum over a fine grid.
    for code in range(top):
        u = ((code - 0.5) ** 2 + (np.arange(20_000) + 0.5) / 20_000 * 2 * code) / r
        mean = np.mean(2.0**-u) if code else 1.0
        weights = out["weights"][out["codes"] == code]
        assert np.all(np.abs(weights.astype(np.float64) - 2**14 * mean) <= 0.51)
    assert not np.any(out["weights"][out["codes"] == top])
    scores = np.stack([np.full(256, 127), 127 - np.arange(256)], axis=1).astype(np.int8)
    method = METHODS.get("deferred-log")
    options = method.configure({"bits": bits, "r": r, "steps": "growing", "step": 0.05})
    codes = run(method.program(options, scores=DType.I8), scores)["codes"][:, 1]
    exact = np.sqrt(np.arange(256) * 0.05 * math.log2(math.e) * r)
    np.testing.assert_array_equal(codes, np.minimum(np.floor(exact + 0.5), top))


@pytest.mark.parametrize("slope", [0.0, 0.4, 1.0, 1.7])
def test_a_slope_weighs_what_is_far_from_the_maximum_more(slope: float) -> None:
    r, bits = 5.0, 3
    program = default_program(METHODS.get("deferred-log"), bits=bits, r=r, steps="growing", slope=slope)
    # One score in the middle of each code, the greatest first.
    x = -np.array([[c**2 / r * math.log(2) for c in range(7)]], np.float32)
    weights = run(program, x)["weights"][0]
    for c in range(1, 7):
        u = np.linspace((c - 0.5) ** 2 / r, (c + 0.5) ** 2 / r, 200_001)
        expected = 2**14 * np.average(2.0**-u, weights=2.0 ** (slope * u))
        assert abs(int(weights[c]) - expected) <= 0.51
    assert weights[0] == 2**14


@pytest.mark.parametrize("bits", [2, 3])
def test_the_fit_of_growing_steps_finds_what_a_grid_gives(bits: int) -> None:
    method = METHODS.get("deferred-log")
    rng = np.random.default_rng(3)
    rows = [(rng.normal(size=(8, 200)) * 2, rng.normal(size=(200, 16))) for _ in range(2)]
    samples = [Sample(scores.astype(np.float32), values.astype(np.float32), 0) for scores, values in rows]
    options = method.resolve(method.configure({"bits": bits}), True)
    program = method.program(options)
    found = fit(method, options, samples)

    def error(numbers: Mapping[str, float | tuple[float, ...]]) -> float:
        values = method.parameters(options, numbers)
        total = 0.0
        for sample in samples:
            out = run(program, sample.scores, params=values)
            share = out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)
            assert sample.values is not None
            exact = softmax64(sample.scores)
            difference = (share - exact) @ sample.values.astype(np.float64)
            total += float(np.sum(difference**2) / np.sum((exact @ sample.values.astype(np.float64)) ** 2))
        return total

    rates = np.geomspace(0.6, 3.0, 8) if bits == 2 else np.geomspace(3.0, 12.0, 8)
    firsts = np.geomspace(0.1, 1.5, 6)
    best = min(
        error({"r": float(r), "first": float(first), "shift": shift, "slope": slope})
        for r in rates for first in firsts for shift in (0.0, 0.4, 0.8) for slope in (0.0, 0.3, 0.6)
    )  # fmt: skip
    plain = min(error({"r": float(r), "first": 0.25 / float(r), "shift": 0.0, "slope": 0.0}) for r in rates)
    assert error(found) <= best * 1.05
    assert error(found) <= plain * 0.85


@pytest.mark.parametrize("steps", ["equal", "growing"])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_codes_begin_at_the_thresholds_of_their_table(bits: int, steps: Literal["equal", "growing"]) -> None:
    options = StepOptions(bits=bits, steps=steps)
    code = resolve_steps(options, False).code({})
    assert len(code.thresholds) == len(code.weights) - 1 == 2**bits - 1
    for number, threshold in enumerate(code.thresholds):
        assert (code.find(threshold * 0.999), code.find(threshold * 1.001)) == (number, number + 1)
        x = np.array([[0, -threshold * math.log(2) * side] for side in (0.999, 1.001)], np.float32)
        codes = run(default_program(METHODS.get("deferred-log"), bits=bits, steps=steps), x)["codes"]
        assert codes[:, 1].tolist() == [number, number + 1]


@pytest.mark.parametrize("bits", [2, 3, 5])
def test_the_rest_weighs_its_mean(bits: int) -> None:
    method, top = METHODS.get("deferred-log"), 2**bits - 1
    units = np.random.default_rng(bits).integers(0, 330, (6, 200))
    units[:, 0] = 0
    units[1, 50:] = 10**6  # masked by a finite number
    units[2] = 0  # nothing beyond the last step
    x = (-units * math.log(2) / 16).astype(np.float32)
    x[3, 1:], x[4] = -np.inf, -np.inf
    plain, out = (
        run(method.program(method.resolve(method.configure({"bits": bits, "rest": rest}), False)), x)
        for rest in ("zero", "mean")
    )
    np.testing.assert_array_equal(out["codes"], plain["codes"])
    for row in range(len(x)):
        beyond = np.flatnonzero((plain["codes"][row] == top) & (units[row] < 255) & np.isfinite(x[row]))
        expected = plain["weights"][row].astype(np.int64)
        if len(beyond):
            mass = sum(round(2**14 * 2 ** (-int(unit) / 16)) for unit in units[row, beyond])
            expected[beyond] = (2 * mass + len(beyond)) // (2 * len(beyond))
        np.testing.assert_array_equal(out["weights"][row], expected)
    assert out["weights"][0, units[0] < 200].min() > 0
    np.testing.assert_array_equal(out["normalizer"][:, 0], out["weights"].sum(axis=-1, dtype=np.int64))
    assert not out["weights"][1, 50:].any()
    with pytest.raises(UsageError, match="rest is mean"):
        method.resolve(method.configure({"bits": bits, "rest": "mean", "distance": "float"}), False)


@pytest.mark.parametrize("bits", range(2, 8))
def test_a_distance_in_a_byte_is_two_tables(bits: int) -> None:
    method = METHODS.get("deferred-log")
    settings = {"bits": bits, "distance": "byte", "step": 1 / 16 / math.log2(math.e)}
    options = method.resolve(method.configure(settings), False)
    assert isinstance(options, StepOptions)
    program = method.program(options)
    # One element at each sixteenth of an octave, and some between them and far beyond.
    octaves = np.concatenate([np.arange(300) / 16, np.random.default_rng(0).uniform(0, 20, 3000), [1e3, 1e30, np.inf]])
    x = np.array([[0, *-octaves * math.log(2)]], np.float32)
    out = run(program, x)
    codes, weights = out["codes"][0, 1:], out["weights"][0, 1:]
    units = np.minimum(np.rint(octaves * 16), 255)
    clear = np.abs(np.minimum(octaves, 16) * 16 % 1 - 0.5) > 1e-3
    table = codes[:256]
    np.testing.assert_array_equal(codes[clear], table[units[clear].astype(int)])
    # Every code has a byte, the last one stands for what is beyond, and thresholds are the nearest ones.
    assert np.unique(table).tolist() == list(range(2**bits))
    assert np.all(np.diff(table.astype(int)) >= 0)
    assert (table[0], weights[0]) == (0, 2**14)
    assert not np.any(weights[codes == 2**bits - 1])
    wanted = np.array(options.growth({}).steps(options.top).thresholds)
    begins = np.searchsorted(table, np.arange(1, 2**bits)) - 0.5
    moved = np.abs(begins - wanted * 16) > 0.5 + 1e-9
    assert not np.any(moved & (begins > 2**bits) & (begins < 254))
    # The weight is the mean of 2^-u over what has the code.
    for code in range(1, 2**bits - 1):
        u = np.linspace((begins[code - 1]) / 16, begins[code] / 16, 20_001)
        mean = np.average(2.0**-u, weights=2.0 ** (float(options.slope) * u))
        assert abs(float(weights[codes == code][0]) - 2**14 * mean) <= 0.6
    eighths = (127 - np.minimum(np.arange(256), 255)).astype(np.int8)
    whole = run(method.program(options, scores=DType.I8), np.stack([np.full(256, 127, np.int8), eighths], axis=1))
    np.testing.assert_array_equal(whole["codes"][:, 1], table)


def test_growing_steps_are_for_few_bits() -> None:
    for bits, distance in ((5, "float"), (8, "auto")):
        with pytest.raises(UsageError, match=f"steps is growing with {bits} bits; growing steps are for 2 to 4 bits"):
            default_program(METHODS.get("deferred-log"), bits=bits, steps="growing", distance=distance)


def test_no_width_loses_to_a_smaller_one() -> None:
    # The error of P V of normal rows, with what each width is without calibration data.
    rng = np.random.default_rng(0)
    errors: list[float] = []
    cases = [
        (rng.normal(size=(32, n)) * sd, rng.normal(size=(n, 32))) for n, sd in ((197, 2.0), (512, 3.0), (1024, 1.0))
    ]
    for bits in range(2, 9):
        program = default_program(METHODS.get("deferred-log"), bits=bits)
        each: list[float] = []
        for scores, v in cases:
            x = scores.astype(np.float32)
            exact = softmax64(x) @ v
            each.append(float(np.linalg.norm(probabilities(program, x) @ v - exact) / np.linalg.norm(exact)))
        errors.append(math.prod(each) ** (1 / len(each)))
    assert errors == sorted(errors, reverse=True)
    # Equal steps with r = 1 were 0.12 at 4 bits, whatever is added to the width.
    assert errors[2] < 0.075
    assert errors[3] < 0.04


@pytest.mark.parametrize(("settings", "message"), [
    ({"bits": 5, "steps": "growing", "r": 5}, "steps is growing with 5 bits"),
    ({"steps": "equal", "r": 5, "first": 0.5}, "first is 0.5 with equal steps; it is for growing ones"),
    ({"steps": "equal", "r": "site", "shift": "site"}, "shift is site with equal steps; it is for growing ones"),
    ({"bits": 8, "steps": "growing", "r": 5, "distance": "byte"}, "with 8 bits; .* 2 to 7 bits of a dist"),
    ({"steps": "equal", "r": 5, "distance": "byte"}, "distance is byte with equal steps; it is for growing ones"),
    ({"steps": "growing", "r": 65}, "r is 65; allowed is up to 64 but for distance=byte"),
    ({"steps": "growing", "r": "site", "first": 0.4, "shift": "auto", "slope": 0.0}, "shift is auto; resolve"),
], ids=str)  # fmt: skip
def test_options_that_contradict_each_other_are_refused_of_plans_too(settings: dict[str, object], message: str) -> None:
    method = METHODS.get("deferred-log")
    # What a plan says is not resolved.
    with pytest.raises(UsageError, match=message):
        method.program(method.configure(settings))


def test_rounded_roots_have_nothing_to_add() -> None:
    # 1 / 49 * 49 is not 1 in doubles, 1 / 4 * 4 is.
    operators = [
        [node.op for node in default_program(METHODS.get("deferred-log"), bits=4, r=r, steps="growing").nodes()]
        for r in (4, 49)
    ]
    assert operators[0] == operators[1]


def test_many_candidates_are_searched_in_part_and_the_least_error_is_found() -> None:
    tried: list[float] = []

    def error(number: float) -> float:
        tried.append(number)
        return (number - 73.0) ** 2 + math.sin(number)  # a few local minima beside the least

    numbers = [float(number) for number in range(128)]
    assert _least(numbers, error) == min(numbers, key=lambda number: (number - 73.0) ** 2 + math.sin(number))
    assert len(tried) == len(set(tried)) < 64
    assert _least(numbers[:40], error) == 39.0


def fitted_program(name: str) -> Program:
    method = METHODS.get(name)
    return method.program(method.resolve(method.configure({}), True))


@pytest.mark.parametrize("name", [name for name in ALL if fitted_program(name).params])
def test_prepared_scores_give_what_a_run_does_for_each_parameter(name: str) -> None:
    program = fitted_program(name)
    given = np.random.default_rng(5).normal(size=(4, 40)).astype(np.float32)
    given[1, :30] = -np.inf
    again = prepare(program, given)
    for share in (0.2, 0.5, 0.8, 0.2):
        params = {p.name: np.full(p.size or 1, p.low + share * (p.high - p.low), p.dtype.numpy) for p in program.params}
        found, expected = again(params), run(program, given, params=params)
        assert list(found) == list(expected)
        for output, value in expected.items():
            np.testing.assert_array_equal(found[output], value)
    with pytest.raises(InputError, match="is missing"):
        again({})
    with pytest.raises(InputError, match="unknown parameters"):
        again({**params, "nothing": np.float32(1)})
