"""A number type at each step of a float method: what a sweep names, against the steps written in NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from softq.errors import UsageError
from softq.methods import METHODS
from softq.methods._roundings import FloatOptions
from softq.rowprog import Program, run
from softq.rowprog.ranges import prove
from tests.rowhost import everywhere

FLOAT_METHODS = [name for name, method in METHODS.entries().items() if issubclass(method.options, FloatOptions)]
KINDS = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
STEPS = ("difference", "exponential", "sum", "product")


def program_of(name: str, **settings: str) -> Program:
    method = METHODS.get(name)
    return method.program(method.resolve(method.configure(settings), False))


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


@pytest.mark.parametrize("name", FLOAT_METHODS)
def test_every_float_method_has_types_and_keeps_special_values(name: str) -> None:
    rows = np.array([[1, 2, 3], [np.inf, 0, np.inf], [-np.inf] * 3, [np.nan, 1, 2], [1, -np.inf, 0.5]], np.float32)
    plain = run(program_of(name), rows)
    for step in STEPS:
        program = program_of(name, **{f"{step}_type": "e5m2"})
        assert not program.contract
        assert prove(program, max_length=4096).max_length == 4096
        out = run(program, rows)
        for output, value in out.items():
            if value.dtype.kind == "f":
                np.testing.assert_array_equal(np.isnan(value)[:3], np.isnan(plain[output].astype(np.float32))[:3])
        assert np.isnan(next(v for k, v in out.items() if k in ("normalizer", "probabilities"))[3]).all()
        weights = out["weights" if program.is_pair else "probabilities"]
        assert weights[4, 1] == 0
        assert weights[1, 1] == 0


@pytest.mark.parametrize("settings", [{"difference_type": "f16", "exponential_type": "e4m3"}, {"sum_type": "bf16"}])
def test_steps_are_the_same_in_onnxruntime(settings: dict[str, str]) -> None:
    # Whole and half distances: exponentials whose codes no last bit decides.
    x = (np.random.default_rng(0).integers(-20, 20, size=(30, 40)) / 4).astype(np.float32)
    program = program_of("exact", **settings)
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
