"""V in the formats of the weights: the whole product of eight or four bits, its sums in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray

import softq
from softq.methods import METHODS
from softq.rowprog import run
from tests.test_method_formats import E2M1, E4M3, E5M2, encoded, program_of

F32, F64 = NDArray[np.float32], NDArray[np.float64]
HEADS, ROWS, KEYS, SIZE = 2, 9, 70, 5


def signed(x: F64 | F32, kind: type) -> F64:
    return np.sign(x) * encoded(np.abs(x), kind)


def greatest_of_blocks(columns: F64 | F32, size: int) -> F64:
    """The greatest magnitude of each block of the last axis, at each of its elements."""
    length = columns.shape[-1]
    best = [np.abs(columns[..., at - at % size : at - at % size + size]).max(axis=-1) for at in range(length)]
    return np.stack(best, axis=-1).astype(np.float64)


def fp8(columns: F32, kind: type, top: float) -> F64:
    scale = (np.abs(columns).max(axis=-1, keepdims=True) * np.float32(1 / top)).astype(np.float32)
    return signed((columns / scale).astype(np.float32), kind) * scale


def mx(columns: F32, kind: type, exponent: int) -> F64:
    scale = np.exp2(np.floor(np.log2(greatest_of_blocks(columns, 32))) - exponent)
    return signed(columns / scale, kind) * scale


def nv(columns: F32) -> F64:
    whole = (np.abs(columns).max(axis=-1, keepdims=True) * np.float32(1 / 2688)).astype(np.float32)
    z = (columns / whole).astype(np.float32)
    scale = encoded(greatest_of_blocks(z, 16).astype(np.float32) * np.float32(1 / 6), E4M3)
    return signed((z / np.maximum(scale, 2.0**-9)).astype(np.float32), E2M1) * scale * whole


CASES = {
    "fp8": ("fp8", {}, lambda v: fp8(v, E4M3, 448.0)),
    "e5m2": ("fp8", {"format": "e5m2"}, lambda v: fp8(v, E5M2, 57344.0)),
    "mxfp8": ("mxfp8", {}, lambda v: mx(v, E4M3, 8)),
    "mxfp4": ("mxfp4", {}, lambda v: mx(v, E2M1, 2)),
    "nvfp4": ("nvfp4", {}, nv),
}


def attention(opset: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : {opset}]>
        attention (float[1, {HEADS}, {ROWS}, {KEYS}] s, float[1, {HEADS}, {KEYS}, {SIZE}] v)
            => (float[1, {HEADS}, {ROWS}, {SIZE}] y) {{
            p = Softmax <axis = -1> (s)
            y = MatMul (p, v)
        }}""")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("opset", [18, 19])
def test_products_have_both_operands_coded(case: str, opset: int) -> None:
    name, settings, reference = CASES[case]
    rng = np.random.default_rng(0)
    # Quarters: exponentials whose codes no last bit decides are not needed, since weights are compared by softq's own.
    s = rng.normal(size=(1, HEADS, ROWS, KEYS)).astype(np.float32)
    v = (rng.normal(size=(1, HEADS, KEYS, SIZE)) * 3 + 0.5).astype(np.float32)
    model = attention(opset)
    converted = softq.convert(ir.from_proto(model), method=name, settings={**settings, "values": "coded"}).model
    proto = ir.to_proto(converted)
    onnx.checker.check_model(proto, full_check=True)
    assert sorted(f.domain for f in proto.functions) == ["softq", "softq.values"]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"s": s, "v": v})
    out = run(program_of(name, settings), s)
    coded = np.swapaxes(reference(np.ascontiguousarray(np.swapaxes(v, -1, -2))), -1, -2)
    wanted = out["weights"].astype(np.float64) @ coded / out["normalizer"].astype(np.float64)
    plain = out["weights"].astype(np.float64) @ v / out["normalizer"].astype(np.float64)
    # A code at a border may differ by the last bit of an exponential: far below what V's codes change.
    off = np.abs(np.asarray(found) - wanted).max()
    assert off <= 0.1 * np.abs(plain - wanted).max()
    assert off <= 2e-3 * np.abs(wanted).max()


@pytest.mark.parametrize("case", CASES)
def test_a_column_is_what_another_encoder_makes_of_it(case: str) -> None:
    name, settings, reference = CASES[case]
    method = METHODS.get(name)
    program = method.values_program(method.configure({**settings, "values": "coded"}))
    assert program is not None
    columns = (np.random.default_rng(1).normal(size=(40, 100)) * 2).astype(np.float32)
    found = run(program, columns)["values"].astype(np.float64)
    np.testing.assert_allclose(found, reference(columns), rtol=1e-6)
    assert not np.any(run(program, np.zeros((3, 40), np.float32))["values"])


@pytest.mark.parametrize("name", ["nvfp4", "mxfp8"])
def test_a_built_model_codes_v_too(name: str) -> None:
    pytest.importorskip("tvm")
    from tests.native import Executor, build_program

    rng = np.random.default_rng(0)
    given = {"s": rng.normal(size=(1, HEADS, ROWS, KEYS)).astype(np.float32),
             "v": rng.normal(size=(1, HEADS, KEYS, SIZE)).astype(np.float32)}  # fmt: skip
    converted = softq.convert(ir.from_proto(attention(19)), method=name, settings={"values": "coded"}).model
    proto = ir.to_proto(converted)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    program = build_program(proto)
    assert any(step.kernel.startswith(f"softq_{name}_values") for step in program.steps)
    np.testing.assert_allclose(
        Executor(program)(given)["y"].astype(np.float32), np.asarray(session.run(None, given)[0]), atol=1e-5
    )


def test_without_it_v_stays() -> None:
    assert METHODS.get("nvfp4").values_program(METHODS.get("nvfp4").configure({})) is None
    assert METHODS.get("exact").values_program(METHODS.get("exact").configure({})) is None
    assert ml_dtypes.finfo(E4M3).max == 448
