"""move-integers, multiply-integers: the same codes, and the products of floats without their roundings."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from softq.passes.move_integers import MoveIntegers
from softq.passes.multiply_integers import MultiplyIntegers
from tests.prepared import applied, assert_close, by_onnxruntime, model, operators

MOVED = """
g (uint8[2, 12, 4] q) => (uint8[2, 4, 2, 6] out, uint8[2, 12, 2] first, uint8[2, 12, 2] second)
<float s = {0.37}, uint8 z = {77}, int64[4] shape = {2, 2, 6, 4}, int64[2] parts = {2, 2}>
{
    x = DequantizeLinear(q, s, z)
    same = QuantizeLinear(x, s, z)
    again = DequantizeLinear(same, s, z)
    heads = Reshape(again, shape)
    codes = QuantizeLinear(heads, s, z)
    back = DequantizeLinear(codes, s, z)
    turned = Transpose <perm = [0, 3, 1, 2]> (back)
    out = QuantizeLinear(turned, s, z)
    a, b = Split <axis = 2> (x, parts)
    first = QuantizeLinear(a, s, z)
    second = QuantizeLinear(b, s, z)
}
"""


def test_moves_of_what_codes_stand_for_become_moves_of_codes() -> None:
    before = model(MOVED, 20)
    after = applied(MoveIntegers(), before)
    assert operators(after) == {"Reshape": 1, "Transpose": 1, "Split": 1}
    feed = {"q": np.arange(96, dtype=np.uint8).reshape(2, 12, 4) * 3}
    for ours, theirs in zip(by_onnxruntime(after, feed), by_onnxruntime(before, feed), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("scale", [1e-37, 3.1e-8, 0.0039215689, 0.1, 1.0, 7.7e6, 1e30])
def test_codes_survive_their_scale(scale: float) -> None:
    """The proof that the pass rests on, for every code: in float32, as onnxruntime computes it."""
    text = f"""
    g (int8[256] q) => (int8[256] out) <float s = {{{scale}}}, int8 z = {{-3}}>
    {{ x = DequantizeLinear(q, s, z) out = QuantizeLinear(x, s, z) }}
    """
    codes = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(by_onnxruntime(model(text), {"q": codes})[0], codes)


@pytest.mark.parametrize(
    "change",
    [
        ("out = QuantizeLinear(turned, s, z)", "out = QuantizeLinear(turned, t, z)"),
        ("out = QuantizeLinear(turned, s, z)", "out = QuantizeLinear(turned, s, y)"),
        ("back = DequantizeLinear", "less = DequantizeLinear(codes, s, z) back = Relu(less) unused = DequantizeLinear"),
    ],
    ids=["scale", "zero", "other-operator"],
)  # fmt: skip
def test_what_changes_codes_stays(change: tuple[str, str]) -> None:
    text = MOVED.replace(*change).replace("<float s", "<float t = {0.38}, uint8 y = {76}, float s")
    before = model(text, 20)
    after = applied(MoveIntegers(), before)
    assert operators(after)["QuantizeLinear"] == 1
    feed = {"q": np.arange(96, dtype=np.uint8).reshape(2, 12, 4) * 3}
    for ours, theirs in zip(by_onnxruntime(after, feed), by_onnxruntime(before, feed), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def products(columns: bool, shape: str = "8, 5", axis: int = 1) -> onnx.ModelProto:
    scale = (
        "float[5] t = {0.5, 0.25, 3, 0.01, 1}, int8[5] w = {4, 4, 4, 4, 4}"
        if columns
        else "float t = {0.02}, int8 w = {4}"
    )
    return model(
        f"""
        g (uint8[2, 3, 8] a, int8[{shape}] b) => (float[2, 3, 5] y)
        <float s = {{0.1}}, uint8 z = {{128}}, {scale}>
        {{
            x = DequantizeLinear(a, s, z)
            m = DequantizeLinear <axis = {axis}> (b, t, w)
            y = MatMul(x, m)
        }}
        """,
        20,
    )


@pytest.mark.parametrize("columns", [False, True])
def test_products_are_those_of_floats(columns: bool) -> None:
    before = products(columns)
    after = applied(MultiplyIntegers(), before)
    assert operators(after) == {"MatMulInteger": 1, "Cast": 1, "Mul": 1}
    rng = np.random.default_rng(1)
    feed = {"a": rng.integers(0, 256, (2, 3, 8)).astype(np.uint8), "b": rng.integers(-128, 128, (8, 5)).astype(np.int8)}
    # Eight products of floats of at most 13 x 400, each rounded once, and their sum.
    ours, theirs = by_onnxruntime(after, feed), by_onnxruntime(before, feed)
    assert_close(ours, theirs, rtol=1e-6, atol=1e-2)
    whole = (feed["a"].astype(float) - 128) @ (feed["b"].astype(float) - 4)
    scale = np.array([0.5, 0.25, 3, 0.01, 1], np.float32) if columns else np.float32(0.02)
    exact = whole * (np.float32(0.1) * scale).astype(np.float32)
    assert_close(ours, [np.asarray(exact, np.float32)], rtol=2**-22, atol=0)


def test_other_quantizations_stay_floats() -> None:
    rows = products(True, "5, 5", axis=0)
    rows.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 5
    wide = products(False)
    for value, name in ((wide.graph.input[0], 2), (wide.graph.input[1], 0)):
        value.type.tensor_type.shape.dim[name].dim_value = 1 << 17  # 2^17 products of 128 and 132 leave 32 bits
    signed = products(False)
    signed.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT16
    for tensor in signed.graph.initializer:
        if tensor.name == "z":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(128, np.uint16), "z"))
    signed.opset_import[0].version = 21
    signed.ir_version = 10
    for proto in (rows, wide, signed):
        assert operators(applied(MultiplyIntegers(), proto)) == {"DequantizeLinear": 2, "MatMul": 1}


def gemm(columns: bool, attributes: str, shape: str, axis: int) -> onnx.ModelProto:
    scale = (
        "float[5] t = {0.5, 0.25, 3, 0.01, 1}, int8[5] w = {4, 4, 4, 4, 4}"
        if columns
        else "float t = {0.02}, int8 w = {4}"
    )
    return model(
        f"""
        g (uint8[3, 8] a, int8[{shape}] b) => (float[3, 5] y)
        <float s = {{0.1}}, uint8 z = {{128}}, {scale}, int32[5] c = {{-400, 3, 0, 91, 17}},
         float u = {{0.3}}, int32 v = {{0}}>
        {{
            x = DequantizeLinear(a, s, z)
            m = DequantizeLinear <axis = {axis}> (b, t, w)
            bias = DequantizeLinear(c, u, v)
            y = Gemm <{attributes}> (x, m, bias)
        }}
        """,
        20,
    )


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.5, -2.0)])
def test_gemm_is_a_product_of_integers(columns: bool, transposed: bool, factors: tuple[float, float]) -> None:
    given = f"alpha = {factors[0]}, beta = {factors[1]}, transB = {int(transposed)}"
    before = gemm(columns, given, "5, 8" if transposed else "8, 5", 0 if transposed else 1)
    after = applied(MultiplyIntegers(), before)
    assert operators(after)["MatMulInteger"] == 1
    assert "Gemm" not in operators(after)
    rng = np.random.default_rng(1)
    b = rng.integers(-128, 128, (5, 8) if transposed else (8, 5)).astype(np.int8)
    feed = {"a": rng.integers(0, 256, (3, 8)).astype(np.uint8), "b": b}
    whole = (feed["a"].astype(float) - 128) @ ((b.T if transposed else b).astype(float) - 4)
    scale = np.array([0.5, 0.25, 3, 0.01, 1], np.float32) if columns else np.float32(0.02)
    exact = whole * (np.float32(0.1) * scale) * factors[0]
    exact += np.array([-400, 3, 0, 91, 17]) * np.float64(np.float32(0.3)) * factors[1]
    assert_close(by_onnxruntime(after, feed), [np.asarray(exact, np.float32)], rtol=1e-6, atol=1e-4)


def test_scales_of_the_wrong_axis_and_transposed_left_operands_stay_floats() -> None:
    rows = gemm(True, "transB = 1", "5, 5", 1)
    rows.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5
    turned = gemm(False, "transA = 1", "3, 5", 1)
    turned.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 8
    for proto in (rows, turned):
        assert operators(applied(MultiplyIntegers(), proto))["Gemm"] == 1
