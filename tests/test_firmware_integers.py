"""Products of 8-bit integers in models in C: NumPy's sums on this computer and, by DSP instructions, on boards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

pytest.importorskip("tvm")

import softq
from benchmarks.mcu.boards import BOARDS, missing
from benchmarks.mcu.products import WORKS, measure
from benchmarks.mcu.running import run_model
from tests.built import Array
from tests.test_firmware import COMPILERS, compiled
from tests.test_native_integers import CASES, attention, codes, product

SHAPES = ((1, 1, 3, 1), (2, 7, 3, 5), (1, 9, 33, 10), (1, 16, 64, 16), (1, 1, 260, 7))
"""Batch, rows, length of the sums, columns."""


def products(left: str, right: str, shape: tuple[int, int, int, int]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of products with constants and with inputs, with zero points and without, and its feed."""
    b, m, k, n = shape
    low = -128 if right == "int8" else 0
    model = parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    products ({left}[{b}, {m}, {k}] a, {right}[{b}, {n}, {k}] bt, {left} z)
             => (int32[{b}, {m}, {n}] turned, int32[{b}, {m}, {n}] plain, int32[{b}, {m}, {n}] fixed)
    <{right} w = {{{low + 100}}}, {left} y = {{7}}>
    {{
        b = Transpose <perm = [0, 2, 1]> (bt)
        turned = MatMulInteger(a, b, z, w)
        plain = MatMulInteger(a, c)
        fixed = MatMulInteger(a, c, y, w)
    }}
    """)
    model.graph.initializer.append(numpy_helper.from_array(codes(3, right, k, n), "c"))
    z = (-128 if left == "int8" else 0) + 250
    return model, {"a": codes(1, left, b, m, k), "bt": codes(2, right, b, n, k), "z": np.array(z, left)}


def wanted(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    numbers = {x.name: numpy_helper.to_array(x) for x in model.graph.initializer}
    a, c, w, y = feed["a"], numbers["c"], int(numbers["w"]), int(numbers["y"])
    turned = product(a, feed["bt"].swapaxes(1, 2), (int(feed["z"]), w))
    return [turned, product(a, c, (0, 0)), product(a, c, (y, w))]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("left", ["int8", "uint8"])
def test_products_are_those_of_numpy(left: str, right: str, tmp_path: Path) -> None:
    for at, shape in enumerate(SHAPES):
        model, feed = products(left, right, shape)
        softq.build(model, tmp_path / f"sums{at}", target="c")
        with softq.load(tmp_path / f"sums{at}") as built:
            found = built(feed)
        for output, expected in zip(model.graph.output, wanted(model, feed), strict=True):
            np.testing.assert_array_equal(found[output.name], expected, f"{shape} {output.name}")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("kind", "form", "method"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES])
def test_attentions_are_those_of_the_processor(kind: str, form: dict[str, bool], method: str, tmp_path: Path) -> None:
    """Codes may differ where a score is beside a boundary: multiply-adds are rounded once or twice."""
    model = softq.convert(attention(kind, **form), method=method).model
    n, m, c, d = 50, 13, 17, 16
    lengths = {"q": (m, c), "k": (n, c), "v": (n, d)}
    feed: dict[str, Array] = {
        x: codes(i, kind, 2, *((w[0], 3, w[1]) if form["beside"] else (3, *w)))
        for i, (x, w) in enumerate(lengths.items())
    }
    if form["mask"]:
        feed["bias"] = np.where(np.arange(n) % 5 == 3, np.float32(-1e9), np.float32(0))[None, None, None].repeat(2, 0)
    shapes = {name: list(array.shape) for name, array in feed.items()}
    found: list[Array] = []
    for target in ("cpu", "c"):
        softq.build(model, tmp_path / target, target=target, input_shapes=shapes)
        with softq.load(tmp_path / target) as built:
            found.append(np.asarray(built(feed)["out"]).astype(int))
    (tmp_path / "libraries").mkdir()
    for compiler in COMPILERS:
        compiled(tmp_path / "c", tmp_path / "libraries", "-O2", compiler=compiler)
    difference = np.abs(found[0] - found[1])
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.001


CONVOLUTIONS = {
    "strides": ("1, 3, 13, 13", "5, 3, 4, 4", "strides = [3, 3]"),
    "padded": ("2, 3, 6, 7", "4, 3, 3, 3", "pads = [1, 1, 1, 1]"),
    "dilated": ("1, 2, 9, 9", "3, 2, 3, 2", "dilations = [2, 1]"),
    "lines": ("1, 5, 20", "7, 5, 3", "strides = [2]"),
}


def convolution(name: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    of_image, of_weights, attributes = CONVOLUTIONS[name]
    model = parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    f (uint8[{of_image}] x) => (int32[{", ".join(["n", "c", "h", "v"][: of_image.count(",") + 1])}] y)
    <uint8 z = {{9}}, int8 u = {{0}}> {{ y = ConvInteger <{attributes}> (x, w, z, u) }}
    """)
    shapes = [[int(n) for n in dims.split(", ")] for dims in (of_image, of_weights)]
    model.graph.initializer.append(numpy_helper.from_array(codes(1, "int8", *shapes[1]), "w"))
    return model, {"x": codes(2, "uint8", *shapes[0])}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_products_of_windows(name: str, tmp_path: Path) -> None:
    model, feed = convolution(name)
    softq.build(model, tmp_path / "m", target="c,name=m")
    with softq.load(tmp_path / "m") as built:
        (found,) = built(feed).values()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(np.asarray(found), np.asarray(session.run(None, feed)[0]))
    assert "m_softq_matmul_runs" in (tmp_path / "m" / "m.c").read_text()


def quantized_convolution(name: str, kind: str, group: int = 1) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a Conv between quantizations, with a scale for each channel of the result and a bias of int32."""
    of_image, of_weights, attributes = CONVOLUTIONS[name]
    low, shapes = np.iinfo(kind).min, [[int(n) for n in dims.split(", ")] for dims in (of_image, of_weights)]
    shapes[0][1] *= group
    shapes[1][0] *= group
    out = ", ".join(["n", "c", "h", "v"][: len(shapes[0])])
    model = parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 21]>
    f ({kind}[{", ".join(map(str, shapes[0]))}] x) => ({kind}[{out}] y)
    <float a = {{0.03}}, {kind} z = {{{low + 90}}}, float c = {{0.4}}>
    {{
        xr = DequantizeLinear(x, a, z)
        wr = DequantizeLinear <axis = 0> (w, scales, zeros)
        br = DequantizeLinear <axis = 0> (bias, bias_scales)
        r = Conv <group = {group}, {attributes}> (xr, wr, br)
        y = QuantizeLinear(r, c, z)
    }}
    """)
    rng, count = np.random.default_rng(7), shapes[1][0]
    scales = rng.uniform(0.02, 0.05, count).astype(np.float32)
    numbers = {"w": codes(1, "int8", *shapes[1]), "scales": scales, "zeros": np.zeros(count, np.int8)}
    numbers |= {"bias": rng.integers(-4000, 4000, count, np.int32), "bias_scales": scales * np.float32(0.03)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in numbers.items())
    return model, {"x": codes(2, kind, *shapes[0])}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_quantized_convolutions_multiply_integers(name: str, kind: str, tmp_path: Path) -> None:
    """Sums are exact; onnxruntime's of floats are not, so that some codes are the next ones."""
    model, feed = quantized_convolution(name, kind)
    softq.build(model, tmp_path / "m", target="c,name=m")
    with softq.load(tmp_path / "m") as built:
        found = np.asarray(next(iter(built(feed).values()))).astype(int)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = np.asarray(session.run(None, feed)[0])
    assert len(np.unique(expected)) > 20
    assert np.abs(found - expected).max() <= 1
    assert np.count_nonzero(found != expected) <= expected.size // 50
    assert "m_softq_matmul_runs" in (tmp_path / "m" / "m.c").read_text()


def test_convolutions_of_groups_stay_floats(tmp_path: Path) -> None:
    model, feed = quantized_convolution("padded", "int8", group=2)
    softq.build(model, tmp_path / "m", target="c,name=m")
    with softq.load(tmp_path / "m") as built:
        found = np.asarray(next(iter(built(feed).values()))).astype(int)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.abs(found - np.asarray(session.run(None, feed)[0])).max() <= 1
    assert "matmul_runs" not in (tmp_path / "m" / "m.c").read_text()


@pytest.mark.parametrize("name", ["m4", *(pytest.param(name, marks=pytest.mark.slow) for name in ("m3", "m55 mve"))])
def test_products_on_boards(name: str, tmp_path: Path) -> None:
    """A Cortex-M4 multiplies by DSP instructions, a Cortex-M3 has none, MVE has vectors: all give NumPy's sums."""
    board = BOARDS[name]
    absent = missing(board)
    if absent:
        pytest.skip(f"needs {absent}")
    cases = [("int8", "int8", (1, 9, 34, 7)), ("uint8", "int8", (2, 3, 16, 8)), ("int8", "uint8", (1, 2, 100, 13))]
    for at, (left, right, shape) in enumerate(cases):
        model, feed = products(left, right, shape)
        built = tmp_path / f"model{at}"
        softq.build(model, built, target=f"{board.target},name=sums")
        (found,) = run_model(board, built, tmp_path, [feed]).outputs
        for output, expected in zip(model.graph.output, wanted(model, feed), strict=True):
            np.testing.assert_array_equal(found[output.name], expected, f"{output.name} of {left} and {right}")
        assert not board.cpu.in_c or "smlad" in (built / "sums_kernels.h").read_text()


@pytest.mark.parametrize("name", ["m7", pytest.param("m55 mve", marks=pytest.mark.slow)])
def test_products_to_codes_on_boards(name: str, tmp_path: Path) -> None:
    if absent := missing(BOARDS[name]):
        pytest.skip(f"needs {absent}")
    assert 0.05 < measure(WORKS[-1], (11, 48, 43), BOARDS[name], tmp_path) < 10
