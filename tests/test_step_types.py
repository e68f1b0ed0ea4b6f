"""A number type at each step of a float method: what a sweep names, against the steps written in NumPy."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from softq.errors import UsageError
from softq.methods import METHODS
from softq.methods._roundings import FloatOptions
from softq.rowprog import DType, Kind, Program, run
from softq.rowprog.ranges import prove
from tests.rowhost import everywhere

METHODS_BY_NAME = METHODS.entries()


def uses_floats(name: str) -> bool:
    """Whether a method's weights, or what is coded as them, are computed as floats."""
    program = program_of(name)
    weights = program.outputs["weights" if program.is_pair else "probabilities"]
    return weights.dtype.is_float or any(node.op == "exp_minus" for node in program.nodes())


KINDS = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
STEPS = ("difference", "exponential", "sum", "product")


def program_of(name: str, **settings: str) -> Program:
    method = METHODS.get(name)
    return method.program(method.resolve(method.configure(settings), False))


FLOAT_METHODS = [name for name in METHODS_BY_NAME if uses_floats(name)]

LACKING = {
    # The logarithm of a probability is coded, which is never formed.
    "adalog": {"product"}, "log-sqrt2": {"product"}, "log2": {"product"},
    # No maximum is subtracted, no exponential taken, or nothing summed.
    "consmax": {"sum"}, "entmax15": {"exponential"}, "power": {"difference", "exponential"},
    "relu": {"difference", "exponential", "sum"}, "sigmoid": {"difference", "sum"}, "softplus": {"difference"},
    "sparsemax": {"exponential"}, "taylor": {"difference", "exponential"},
}  # fmt: skip
"""The steps that float methods do not have."""


def held(x: np.ndarray, kind: str) -> np.ndarray:
    return x.astype(KINDS[kind]).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_of_the_exact_softmax(kind: str) -> None:
    x = (np.random.default_rng(0).normal(size=(20, 50)) * 2).astype(np.float32)
    difference = (x.max(axis=-1, keepdims=True) - x).astype(np.float32)
    exact = run(program_of("exact"), x)["weights"].astype(np.float32)
    by_step = {step: run(program_of("exact", **{f"{step}_type": kind}), x) for step in STEPS}
    # The exponential is softq's own, so that what is rounded is the same number.
    moved = run(program_of("exact"), -held(difference, kind))["weights"]
    np.testing.assert_array_equal(by_step["difference"]["weights"], moved)
    np.testing.assert_array_equal(by_step["exponential"]["weights"], held(exact, kind))
    np.testing.assert_allclose(by_step["exponential"]["normalizer"].astype(np.float64)[:, 0],
                               held(exact, kind).astype(np.float64).sum(-1), rtol=1e-6)  # fmt: skip
    np.testing.assert_array_equal(by_step["sum"]["weights"], exact)
    np.testing.assert_array_equal(by_step["sum"]["normalizer"],
                                  held(run(program_of("exact"), x)["normalizer"].astype(np.float32), kind))  # fmt: skip
    # What is multiplied with V is rounded, what was summed is not.
    np.testing.assert_array_equal(by_step["product"]["weights"], held(exact, kind))
    np.testing.assert_array_equal(by_step["product"]["normalizer"], run(program_of("exact"), x)["normalizer"])


def test_every_float_method_has_the_options_and_no_other() -> None:
    with_types = {name for name, method in METHODS_BY_NAME.items() if issubclass(method.options, FloatOptions)}
    assert with_types == set(FLOAT_METHODS)
    assert set(LACKING) < with_types
    assert len(with_types) == 31


def test_the_other_methods_compute_in_integers() -> None:
    for name in sorted(set(METHODS_BY_NAME) - set(FLOAT_METHODS)):
        method = METHODS_BY_NAME[name]
        # Of float scores the distance becomes a whole number of units; no exponential is a float.
        floats = {n.op for n in program_of(name).nodes(["weights"]) if n.kind is Kind.ROW and n.dtype.is_float}
        assert floats <= {"cast", "input", "max", "min", "mul", "rint", "sub"}, name
        if method.integer_scores:
            settings = {"step": 0.0625} if "step" in method.options.specs() else {}
            options = method.resolve(method.configure(settings), False)
            integers = method.program(options, scores=DType.U8)
            assert not any(node.dtype.is_float for node in integers.nodes()), name


def exp64(d: np.ndarray) -> np.ndarray:
    return np.exp(-d.astype(np.float64)).astype(np.float32)


def online(x: np.ndarray, types: dict[str, str]) -> tuple[np.ndarray, float]:
    """The recurrence of a row, each step rounded by the other encoder; e^-d is that of float64."""

    def rounded(step: str, value: np.ndarray) -> np.ndarray:
        return held(value, types[step]) if step in types else value

    def e(difference: np.ndarray) -> np.ndarray:
        return rounded("exponential", exp64(rounded("difference", np.asarray(difference, np.float32))))

    greatest, total = x[0], np.float32(1)
    for score in x[1:]:
        if score > greatest:
            total, greatest = np.float32(total * e(score - greatest) + np.float32(1)), score
        else:
            total = np.float32(total + e(greatest - score))
    return rounded("product", e(greatest - x)), float(rounded("sum", np.asarray(total)))


@pytest.mark.parametrize("steps", [*STEPS, "all"])
def test_the_steps_of_the_running_softmax(steps: str) -> None:
    # Differences are multiples of 1/8 up to 16, of which no last bit of an exponential decides a rounding.
    x = (np.random.default_rng(1).integers(0, 128, size=(20, 60)) / 8).astype(np.float32)
    types = {step: "bf16" for step in STEPS if steps in (step, "all")}
    out = run(program_of("exact-online", **{f"{step}_type": kind for step, kind in types.items()}), x)
    for row, weights, normalizer in zip(x, out["weights"], out["normalizer"], strict=True):
        wanted, total = online(row, types)
        np.testing.assert_allclose(weights.astype(np.float64), wanted, rtol=2e-7)
        most = 2**-7 if "sum" in types else 3e-6  # the sum's last bits may decide how it is rounded
        np.testing.assert_allclose(float(normalizer[0]), total, rtol=most)


@pytest.mark.parametrize("maximum", ["first", "running"])
def test_the_steps_of_the_two_passes(maximum: str) -> None:
    x = (np.random.default_rng(2).normal(size=(20, 60)) * 3).astype(np.float32)

    def out(**types: str) -> dict[str, np.ndarray]:
        return {k: v.astype(np.float64) for k, v in run(program_of("two-pass", maximum=maximum, **types), x).items()}

    plain = out()
    # A number of E4M3 times a power of two: of a mantissa in [1/2, 2) no step of the format is lost by the exponent.
    power = np.exp2(np.rint(x * math.log2(math.e)) - np.rint(x * math.log2(math.e)).max(-1, keepdims=True))
    mantissas = out(exponential_type="e4m3")["weights"] / power
    np.testing.assert_array_equal(mantissas, held((plain["weights"] / power).astype(np.float32), "e4m3"))
    rest = x.astype(np.float64) - np.rint(x * math.log2(math.e)) * math.log(2)
    moved = np.exp(held(rest.astype(np.float32), "e4m3").astype(np.float64)) * power
    np.testing.assert_allclose(out(difference_type="e4m3")["weights"], moved, rtol=3e-7)
    total = out(sum_type="e4m3")
    np.testing.assert_array_equal(total["normalizer"], held(plain["normalizer"].astype(np.float32), "e4m3"))
    np.testing.assert_array_equal(total["weights"], plain["weights"])
    product = out(product_type="e4m3")
    np.testing.assert_array_equal(product["weights"], held(plain["weights"].astype(np.float32), "e4m3"))
    np.testing.assert_array_equal(product["normalizer"], plain["normalizer"])


@pytest.mark.quick_cases(16)
@pytest.mark.parametrize("name", FLOAT_METHODS)
def test_every_float_method_has_types_and_keeps_special_values(name: str) -> None:
    rows = np.array([[1, 2, 3], [np.inf, 0, np.inf], [-np.inf] * 3, [np.nan, 1, 2], [1, -np.inf, 0.5]], np.float32)
    normal = np.random.default_rng(0).normal(size=(8, 40)).astype(np.float32) * 2 + 0.3
    plain, usual = run(program_of(name), rows), run(program_of(name), normal)
    for step in STEPS:
        if step in LACKING.get(name, ()):
            with pytest.raises(UsageError, match=f"{name} rounds no {step} here: {step}_type is e5m2, allowed is f32"):
                program_of(name, **{f"{step}_type": "e5m2"})
            continue
        program = program_of(name, **{f"{step}_type": "e5m2"})
        assert not program.contract
        assert prove(program, max_length=4096).max_length == 4096
        out, moved = run(program, rows), run(program, normal)
        if (name, step) != ("mxfp4", "product"):  # these weights are numbers of E5M2 already
            assert any(not np.array_equal(moved[key], usual[key]) for key in moved), step
        for output, value in out.items():
            if value.dtype.kind == "f":
                np.testing.assert_array_equal(np.isnan(value)[:3], np.isnan(plain[output].astype(np.float32))[:3])
        assert np.isnan(next(v for k, v in out.items() if k in ("normalizer", "probabilities"))[3]).all()
        weights = out["weights" if program.is_pair else "probabilities"]
        assert weights[4, 1] == 0
        assert weights[1, 1] == 0


@pytest.mark.parametrize("settings", [{"difference_type": "f16", "exponential_type": "e4m3"}, {"sum_type": "bf16"}])
@pytest.mark.parametrize("name", ["exact", "exact-online", "two-pass"])
def test_steps_are_the_same_in_onnxruntime(name: str, settings: dict[str, str]) -> None:
    # Whole and half distances: exponentials whose codes no last bit decides.
    x = (np.random.default_rng(0).integers(-20, 20, size=(30, 40)) / 4).astype(np.float32)
    program = program_of(name, **settings)
    (_, ours), *others = everywhere(program, x, ["weights", "normalizer"], opset=19)
    for _, found in others:
        for output, most in (("weights", 1e-6), ("normalizer", 2**-7)):
            wanted = ours[output].astype(np.float32)
            np.testing.assert_allclose(found[output].astype(np.float32), wanted, rtol=most)


def test_plans_and_names_say_nothing_of_f32() -> None:
    method = METHODS.get("poly-exp2")
    assert method.configure({}).to_json() == {"degree": 3, "coefficients": "published"}
    assert method.configure({}).structure == "d3_cpublished"
    typed = method.configure({"exponential_type": "bf16"})
    assert typed.to_json()["exponential_type"] == "bf16"
    assert typed.structure == "ebf16_d3_cpublished"
    assert method.configure(typed.to_json()) == typed
    with pytest.raises(UsageError, match="exact sum_type is 'i8'; allowed is f32 or bf16 or f16 or e5m2 or e4m3"):
        METHODS.get("exact").configure({"sum_type": "i8"})
