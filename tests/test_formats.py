"""Formats of few bits against encoders that are not softq's: ml_dtypes, and onnxruntime's casts."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from softq.rowprog import DType, Program, Trace, run
from softq.rowprog.formats import FORMATS
from softq.rowprog.onnx import emit
from softq.rowprog.ranges import prove
from softq.rowprog.rounding import round_to
from tests.rowhost import everywhere

F32 = NDArray[np.float32]
ENCODERS = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0-nearest": ml_dtypes.float8_e8m0fnu, "bf16": ml_dtypes.bfloat16, "f16": np.float16,
}  # fmt: skip
CODES = {"e4m3": 2**8, "e5m2": 2**8, "e2m1": 2**4, "e8m0-nearest": 2**8}


def inputs() -> F32:
    """All float16 numbers, and a million float32 ones: half of them any bits, half of the formats' range."""
    rng = np.random.default_rng(0)
    half = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = rng.integers(0, 2**32, size=500_000, dtype=np.uint32).view(np.float32)
    near = np.exp2(rng.uniform(-20, 17, 500_000)) * rng.choice([-1.0, 1.0], 500_000)
    return np.concatenate(
        [half, bits, near.astype(np.float32), np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)]
    )


def program(name: str) -> Program:
    t = Trace("round")
    return t.program(weights=t.scores, normalizer=t.length(), y=round_to(t, t.scores, name))


def both_ways(name: str, x: F32) -> list[F32]:
    """Return the interpreter's rounding, and the arithmetic that the program carries for all other walkers."""
    direct = program(name)
    arithmetic = replace(direct, outputs={**direct.outputs, "y": direct.outputs["y"].args[1]})
    return [run(p, x[None])["y"][0].astype(np.float32) for p in (direct, arithmetic)]


@pytest.mark.parametrize("name", ENCODERS)
def test_every_number_is_what_another_encoder_makes_of_it(name: str) -> None:
    x, form = inputs(), FORMATS[name]
    with np.errstate(all="ignore"):
        theirs = x.astype(ENCODERS[name]).astype(np.float32)
    # Where ml_dtypes has a choice of the specifications that softq does not: what is beyond the greatest number
    # saturates here, and E8M0, which has no 0 and no sign, ends at its least number.
    greatest = np.float32(form.greatest)
    theirs = np.where(np.abs(x) >= greatest, np.copysign(greatest, x), theirs)
    theirs = np.where(np.isnan(theirs) & ~np.isnan(x) | (np.abs(theirs) > greatest), np.copysign(greatest, x), theirs)
    theirs = np.where(np.isnan(x), x, theirs)
    if form.is_power:
        # ml_dtypes 0.6 takes the power above for what is just above the least, subnormal one; onnxruntime the nearest.
        theirs = np.where(x < 1.5 * form.quantum, np.float32(form.quantum), np.abs(theirs))
    for ours in both_ways(name, x):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", CODES)
def test_every_code_is_a_number_that_stays(name: str) -> None:
    codes = np.arange(CODES[name]).astype(np.uint8).view(ENCODERS[name]).astype(np.float32)
    numbers = codes[np.isfinite(codes)]
    for ours in both_ways(name, numbers):
        np.testing.assert_array_equal(ours, numbers)
    assert np.abs(numbers).max() == FORMATS[name].greatest
    assert np.abs(numbers[numbers != 0]).min() == FORMATS[name].quantum


@pytest.mark.parametrize("name", [name for name in FORMATS if name.startswith("e8m0")])
def test_powers_of_two_that_are_not_the_nearest(name: str) -> None:
    x = np.array([2.0**-127, 1.0, 1.0000001, 1.9999999, 2.0**100, 2.0**99.5, 2.0**126.5], np.float32)
    exponents = {
        "down": np.floor,
        "up": np.ceil,
        "nearest": lambda e: np.where(e % 1 > np.log2(1.5), np.ceil(e), np.floor(e)),
    }
    wanted = np.exp2(exponents[FORMATS[name].direction](np.log2(x.astype(np.float64))))
    for ours in both_ways(name, x):
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_the_interval_of_a_rounded_value(name: str) -> None:
    form, t = FORMATS[name], Trace("round")
    y = round_to(t, t.clamp(t.scores, -3.3125, 5.1875), name)
    found = prove(t.program(weights=t.scores, normalizer=t.length(), y=y)).interval(y.node)
    ends = form.round(np.array([-3.3125, 5.1875], np.float32))
    assert (found.low, found.high, found.nan) == (ends[0], ends[1], False)


@pytest.mark.parametrize("opset", [18, 19, 24])
def test_onnxruntime_s_casts_agree_to_the_bit(opset: int) -> None:
    x = inputs()[::7][None]
    for name, form in FORMATS.items():
        expected = form.round(x)
        for level, found in everywhere(program(name), x, ["y"], opset=opset, max_length=10**6):
            np.testing.assert_array_equal(found["y"], expected, err_msg=f"{name}, {level}")


def test_casts_are_written_where_they_mean_the_same() -> None:
    def casts(name: str, opset: int, low: float = -1.0, high: float = 1.0) -> bool:
        t = Trace("round")
        y = round_to(t, t.clamp(t.scores, low, high), name)
        function = emit(t.program(weights=t.scores, normalizer=t.length(), y=y), opset=opset, outputs=["y"])
        floats = {TensorProto.FLOAT}
        return any(n.op_type == "Cast" and n.attributes["to"].as_int() not in floats for n in function)

    assert [casts("e4m3", o) for o in (18, 19, 24)] == [False, True, True]
    assert [casts("e8m0", o) for o in (18, 23, 24)] == [False, False, True]
    assert not any(casts("e2m1", o) for o in (18, 23, 26))  # onnxruntime has no such cast
    # Casts to the formats of 16 bits do not saturate.
    assert casts("f16", 18)
    assert not casts("f16", 18, high=1e6)


def test_onnxruntime_still_has_no_cast_to_four_bits() -> None:
    """Where it has one, `softq.rowprog.onnx.formats` should write it."""
    node = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT4E2M1),
            helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT)]  # fmt: skip
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N"]) for n in "xz"]
    graph = helper.make_graph(node, "g", value[:1], value[1:])
    model = onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_program_that_rounds_is_not_contracted() -> None:
    t = Trace("round", contract=True)
    y = round_to(t, t.scores, "e4m3")
    assert not t.program(weights=y, normalizer=t.row_sum(y)).contract
    t = Trace("plain", contract=True)
    assert t.program(weights=t.scores, normalizer=t.row_sum(t.scores)).contract
    assert DType.F32 is t.scores.dtype
