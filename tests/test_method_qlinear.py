"""The method of onnxruntime's QLinearSoftmax against that operator, and against float64 where that has defects."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser

from softq.rowprog import DType, run
from tests.conformance import host_of, program_of
from tests.rowhost import everywhere

Array = NDArray[np.generic]


def operator(x: Array, step: float, levels: float) -> NDArray[np.int64]:
    """Codes by onnxruntime, without its zero point."""
    kind, zero = ("uint8", 0) if x.dtype == np.uint8 else ("int8", -128)
    model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 13, "com.microsoft": 1]>
        g ({kind}[r,n] x) => ({kind}[r,n] y)
        <float xs = {{{step!r}}}, {kind} xz = {{0}}, float ys = {{{1 / levels!r}}}, {kind} yz = {{{zero}}}> {{
            y = com.microsoft.QLinearSoftmax <axis: int = -1, opset: int = 13> (x, xs, xz, ys, yz)
        }}""")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert isinstance(model, onnx.ModelProto)
    return np.asarray(session.run(None, {"x": x})[0]).astype(np.int64) - zero


def rows(kind: DType, length: int) -> Array:
    rng = np.random.default_rng(length)
    middle = (kind.low + kind.high) // 2
    peaked = middle + rng.normal(size=(300, length)) * rng.choice([2, 10, 40], size=(300, 1))
    wide = rng.integers(kind.low, kind.high + 1, size=(100, length))
    return np.concatenate([wide, np.clip(peaked, kind.low, kind.high).astype(np.int64)]).astype(kind.numpy)


@pytest.mark.parametrize("kind", [DType.U8, DType.I8])
@pytest.mark.parametrize("step", [0.0625, 0.01, 0.3, 2.0])
def test_codes_are_the_operators(kind: DType, step: float) -> None:
    wrong = total = 0
    for length in (1, 2, 3, 17, 197, 1000):
        x = rows(kind, length)
        ours = run(program_of("qlinear", {"step": step, "output": "uint8"}, kind), x)["weights"].astype(np.int64)
        theirs = operator(x, step, 256)
        # Of uint8 results the operator turns 256 into 0 (1.31.1): these are looked at below.
        theirs = np.where((ours == 255) & (theirs == 0), 255, theirs)
        assert np.max(np.abs(ours - theirs)) <= 1
        wrong, total = wrong + int(np.sum(ours != theirs)), total + ours.size
    assert wrong <= 1e-5 * total


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("output", "levels"), [("pair", 256.0), ("uint8", 256.0), ("uint8", 100.5)])
@pytest.mark.parametrize("kind", [DType.F32, DType.I8, DType.U8])
def test_probabilities_by_float64_on_every_backend(kind: DType, output: str, levels: float) -> None:
    x = rows(DType.I8 if kind.is_float else kind, 50)
    scores = (x.astype(np.float64) * 0.1).astype(np.float32) if kind.is_float else x
    keep = np.random.default_rng(0).random(x.shape) < 0.7
    keep[::5] = False
    program = program_of("qlinear", {"step": 0.1, "output": output, "levels": levels}, kind, masked=True)
    steps = np.where(keep, x, -(2.0**40)).astype(np.float64)
    e = np.where(keep, np.exp((steps - steps.max(axis=1, keepdims=True)) * float(np.float32(0.1))), 0)
    p = e / np.maximum(e.sum(axis=1, keepdims=True), 1)
    native = host_of(program, 65536) if output == "uint8" else None
    for _, out in everywhere(program, scores, list(program.outputs), valid=keep):
        assert np.array_equal(out["normalizer"][:, 0] == 0, ~keep.any(axis=1))
        got = out["weights"].astype(np.float64) / np.maximum(out["normalizer"].astype(np.float64), 1e-9)
        if output == "pair":
            np.testing.assert_allclose(got, p, rtol=2e-6)
            continue
        codes = out["weights"].astype(np.float64)
        assert np.max(np.abs(codes - np.minimum(p * np.float32(levels), 255))) <= 0.5 + 1e-4
        assert np.all((out["normalizer"] == np.float32(levels)) | (out["normalizer"] == 0))
    if native is not None and kind.is_float:
        native(scores, keep)


@pytest.mark.parametrize("kind", [DType.U8, DType.I8])
def test_a_winner_keeps_its_probability(kind: DType) -> None:
    # p = 1 is 256 levels: the operator wraps around to 0 there, of int8 or of uint8 results, by release.
    x = np.full((1, 4), kind.low).astype(kind.numpy)
    x[0, 2] = kind.high
    program = program_of("qlinear", {"step": 0.1, "output": "uint8"}, kind)
    assert run(program, x)["weights"].tolist() == [[0, 0, 255, 0]]


def test_a_fractional_scale_is_kept() -> None:
    # 1 / scale = 101.75: the operator takes 101.
    x = np.zeros((1, 2), np.uint8)
    program = program_of("qlinear", {"output": "uint8", "levels": 101.75}, DType.U8)
    assert run(program, x)["weights"].tolist() == [[51, 51]]
    assert operator(x, 0.0625, 101.75).tolist() == [[50, 50]]
