"""Operators on quantized tensors beside onnxruntime: sums are exact, codes differ at rounding boundaries alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import softq
from softq.errors import RefusalError
from tests.built import Array

pytest.importorskip("tvm")

RNG = np.random.default_rng(4)
OWN = "com.microsoft"


def codes(dtype: type, *shape: int) -> Array:
    return RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape, np.float32)


def number(value: float, dtype: Any = np.float32) -> Array:
    return np.array(value, dtype)


U8, I8 = np.uint8, np.int8
S, Z = number(0.02), number(131, U8)
"""A scale and a zero point."""

Case = tuple[str, str, dict[str, Array | None], dict[str, Any]]
"""Domain, operator, inputs (those whose names begin with x are the model's), attributes."""


def model_of(cases: list[Case], results: dict[str, int] | None = None) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return one model of several nodes, each with inputs of its own, and its feeds."""
    nodes, values, weights, outputs, feeds = [], [], [], [], dict[str, Array]()
    for place, (domain, operator, inputs, attributes) in enumerate(cases):
        names: list[str] = []
        for name, array in inputs.items():
            names.append("" if array is None else f"{name}{place}")
            if array is None:
                continue
            if name.startswith("x"):
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                values.append(helper.make_tensor_value_info(names[-1], kind, array.shape))
                feeds[names[-1]] = array
            else:
                weights.append(numpy_helper.from_array(array, names[-1]))
        count = (results or {}).get(operator, 1)
        made = [f"y{place}_{i}" for i in range(count)]
        nodes.append(helper.make_node(operator, names, made, domain=domain, **attributes))
        outputs += [onnx.ValueInfoProto(name=name) for name in made]
    graph = helper.make_graph(nodes, "g", values, outputs, weights)
    domains = [helper.make_opsetid("", 21), helper.make_opsetid(OWN, 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    kinds = {"float": 1, "uint8": 2, "int8": 3, "int32": 6}
    for value, found in zip(graph.output, session.get_outputs(), strict=True):
        kind, shape = kinds[found.type[7:-1]], [d if isinstance(d, int) else None for d in found.shape]
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, shape))
    del model.graph.output[:]
    model.graph.output.extend(graph.output)
    return model, feeds


def check(cases: list[Case], folder: Path, results: dict[str, int] | None = None, tolerance: float = 1e-5) -> None:
    model, feeds = model_of(cases, results)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    softq.build(model, folder / "built", target="cpu")
    with softq.load(folder / "built") as built:
        found = built(feeds)
    for output, value in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        got, want = found[output.name], np.asarray(value)
        assert (got.shape, got.dtype) == (want.shape, want.dtype), output.name
        if want.dtype.kind == "f":
            pair = got.astype(np.float64), want.astype(np.float64)
            np.testing.assert_allclose(*pair, rtol=tolerance, atol=tolerance, err_msg=output.name)
        elif want.dtype == np.int32:
            np.testing.assert_array_equal(got, want, err_msg=output.name)
        else:
            apart = np.abs(got.astype(int) - want)
            assert apart.max() <= 1, output.name
            assert (apart > 0).mean() < 0.02, output.name


def conv_integer(x: Array, w: Array, zeros: tuple[int, int], **attributes: Any) -> Case:
    inputs: dict[str, Array | None] = {"x": x, "w": w}
    inputs |= {"xz": number(zeros[0], x.dtype), "wz": number(zeros[1], w.dtype)}
    return "", "ConvInteger", inputs, attributes


def test_integer_convolutions(tmp_path: Path) -> None:
    cases = [
        conv_integer(codes(U8, 2, 3, 9, 7), codes(U8, 5, 3, 3, 3), (7, 0), pads=[1, 1, 1, 1]),
        conv_integer(codes(U8, 2, 64, 5, 6), codes(U8, 17, 64, 3, 3), (255, 9), pads=[1, 0, 2, 1], strides=[2, 1]),
        conv_integer(codes(U8, 1, 8, 5, 4), codes(U8, 4, 8, 1, 1), (3, 0)),
        conv_integer(codes(U8, 2, 6, 8, 8), codes(U8, 6, 1, 3, 3), (128, 130), pads=[1, 1, 1, 1], group=6),
        conv_integer(codes(U8, 2, 32, 8, 8), codes(U8, 32, 16, 3, 3), (200, 1), group=2, dilations=[2, 1]),
        conv_integer(codes(U8, 2, 6, 20), codes(U8, 4, 6, 5), (9, 2), pads=[2, 2]),
    ]
    check(cases, tmp_path)


def conv(bias: bool, w: Array, scale: Array, zero: Array, x: Array, **attributes: Any) -> Case:
    inputs: dict[str, Array | None] = {"x": x, "xs": S, "xz": number(120, x.dtype), "w": w, "ws": scale, "wz": zero}
    inputs |= {"ys": number(1.5), "yz": number(100, x.dtype)}
    if bias:
        inputs["b"] = RNG.integers(-9999, 9999, w.shape[0], np.int32)
    return "", "QLinearConv", inputs, attributes


def test_quantized_convolutions(tmp_path: Path) -> None:
    each = np.linspace(0.01, 0.03, 8, dtype=np.float32)
    cases = [
        conv(True, codes(I8, 8, 3, 3, 3), each, np.zeros(8, I8), codes(U8, 2, 3, 9, 9), pads=[1, 1, 1, 1]),
        conv(False, codes(I8, 4, 3, 3, 3), S, number(0, I8), codes(I8, 2, 3, 9, 9), strides=[2, 2]),
        conv(True, codes(I8, 8, 1, 3, 3), each, np.zeros(8, I8), codes(U8, 2, 8, 9, 9), group=8, pads=[1, 1, 1, 1]),
        conv(False, codes(U8, 4, 3, 1, 1), S, number(128, U8), codes(U8, 2, 3, 9, 9)),
    ]
    check(cases, tmp_path)


def quantized(operator: str, *tensors: Array, out: float = 0.05, zero: int = 110, **attributes: Any) -> Case:
    inputs: dict[str, Array | None] = {}
    for place, tensor in enumerate(tensors):
        inputs |= {f"x{place}_": tensor, f"s{place}_": number(0.02 + 0.01 * place)}
        inputs[f"z{place}_"] = number(100 + place, tensor.dtype)
    inputs |= {"ys": number(out), "yz": number(zero, tensors[0].dtype)}
    return OWN, operator, inputs, attributes


def test_quantized_operators(tmp_path: Path) -> None:
    a, b, image = codes(U8, 3, 4, 5), codes(U8, 4, 1), codes(U8, 2, 3, 7, 8)
    concat = quantized("QLinearConcat", codes(U8, 2, 3), codes(U8, 2, 4), axis=1)
    ordered = dict(list(concat[2].items())[-2:] + list(concat[2].items())[:-2])
    cases: list[Case] = [
        quantized("QLinearAdd", a, b),
        quantized("QLinearMul", a, b),
        quantized("QLinearAdd", codes(I8, 6), codes(I8, 6), zero=-3),
        quantized("QLinearSigmoid", a, out=1 / 256, zero=0),
        quantized("QLinearLeakyRelu", a, alpha=0.2),
        quantized("QLinearAveragePool", image, kernel_shape=[3, 2], pads=[1, 0, 1, 0], strides=[2, 1]),
        quantized("QLinearAveragePool", codes(U8, 2, 7, 8, 3), kernel_shape=[3, 2], channels_last=1),
        quantized("QLinearGlobalAveragePool", image),
        quantized("QLinearGlobalAveragePool", codes(U8, 2, 7, 8, 3), channels_last=1),
        (OWN, "QLinearConcat", ordered, concat[3]),
        (OWN, "QLinearSoftmax", quantized("", a, out=1 / 256, zero=0)[2], {"axis": -1, "opset": 13}),
    ]
    check(cases, tmp_path)


def test_products_with_results_of_floats(tmp_path: Path) -> None:
    right = codes(I8, 20, 6)
    cases: list[Case] = [
        (OWN, "DynamicQuantizeMatMul", {"x": floats(2, 3, 20), "b": right, "bs": S, "bz": number(3, I8)}, {}),
        (
            OWN,
            "DynamicQuantizeMatMul",
            {"x": floats(3, 20), "b": right, "bs": np.full(6, 0.1, np.float32), "bz": np.zeros(6, I8), "c": floats(6)},
            {},
        ),
        (
            OWN,
            "MatMulIntegerToFloat",
            {"x": codes(U8, 3, 20), "b": right, "as": S, "bs": S, "az": Z, "bz": number(3, I8), "c": floats(6)},
            {},
        ),
        (OWN, "MatMulIntegerToFloat", {"x": codes(I8, 3, 20), "b": right, "as": S, "bs": S}, {}),
    ]
    check(cases, tmp_path)


@pytest.mark.parametrize("each", [False, True])
def test_dynamically_quantized_lstm(each: bool, tmp_path: Path) -> None:
    steps, batch, inputs, hidden = 5, 2, 6, 8
    scale = np.full((1, 4 * hidden), 0.004, np.float32) if each else np.full(1, 0.004, np.float32)
    zero = np.full(scale.shape, 0 if each else 128, I8 if each else U8)
    dtype = I8 if each else U8
    given: dict[str, Array | None] = {
        "x": floats(steps, batch, inputs),
        "w": codes(dtype, 1, inputs, 4 * hidden),
        "r": codes(dtype, 1, hidden, 4 * hidden),
        "b": floats(1, 8 * hidden),
        "l": None,
        "h": None,
        "c": None,
        "p": None,
        "ws": scale,
        "wz": zero,
        "rs": scale,
        "rz": zero,
    }
    cases: list[Case] = [(OWN, "DynamicQuantizeLSTM", given, {"hidden_size": hidden})]
    # onnxruntime rounds inputs and states to 8 bits, which a built model does not.
    check(cases, tmp_path, {"DynamicQuantizeLSTM": 3}, tolerance=0.03)


def test_zero_points_of_channels(tmp_path: Path) -> None:
    """onnxruntime has none; the sums are written out."""
    for groups, channels in ((1, 3), (2, 40), (4, 8)):
        x, w = codes(U8, 2, channels, 5, 5), codes(I8, 8 * groups, channels // groups, 3, 3)
        zeros = RNG.integers(-9, 9, 8 * groups).astype(I8)
        wide = (w.astype(np.float64) - zeros.reshape(-1, 1, 1, 1)), x.astype(np.float64) - 7
        windows = np.lib.stride_tricks.sliding_window_view(wide[1], (3, 3), axis=(2, 3))
        parts = zip(np.split(wide[0], groups), np.split(windows, groups, axis=1), strict=True)
        want = np.concatenate([np.einsum("mcij,bcpqij->bmpq", a, b) for a, b in parts], axis=1)
        weights = [numpy_helper.from_array(a, n) for n, a in (("w", w), ("xz", np.array(7, U8)), ("wz", zeros))]
        node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], group=groups)
        given = [helper.make_tensor_value_info("x", 2, x.shape)]
        graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", 6, want.shape)], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        softq.build(model, tmp_path / str(groups), target="cpu")
        with softq.load(tmp_path / str(groups)) as built:
            np.testing.assert_array_equal(built({"x": x})["y"], want)


def test_a_zero_point_for_each_row_is_refused_by_name(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (uint8[1, 3, 4, 4] x, uint8[2, 3, 1, 1] w, uint8[2] z) => (int32[1, 2, 4, 4] y)
        { y = ConvInteger(x, w, z) }""")
    with pytest.raises(RefusalError, match="ConvInteger 'y': the zero point of its input is no single number"):
        softq.build(model, tmp_path / "x", target="cpu")
