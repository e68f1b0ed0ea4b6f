"""Convolutions of groups, depthwise ones among them, of few channels and of long rows, beside onnxruntime's."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

import softq
from tests.emulators import EDGE, emulator
from tests.native import Executor, build_program
from tests.prepared import assert_close

pytest.importorskip("tvm")

Array = NDArray[Any]

# Channels, lengths of the image, channels of the result, groups, kernel, attributes. Widths below, at and above those
# of vectors and of several; windows that reach over edges on one side; strides beyond those taken out of vectors.
CASES: list[tuple[int, tuple[int, ...], int, int, tuple[int, ...], str]] = [
    (5, (9, 40), 5, 5, (3, 3), "pads=[1, 1, 1, 1]"),
    (3, (56, 65), 3, 3, (3, 3), "pads=[0, 2, 1, 0], strides=[2, 2]"),
    (4, (17, 70), 4, 4, (5, 5), "pads=[2, 2, 2, 2], strides=[1, 3]"),
    (2, (7, 7), 2, 2, (7, 7), "pads=[3, 3, 3, 3]"),
    (2, (14, 230), 2, 2, (3, 9), "strides=[3, 5], dilations=[2, 3], pads=[0, 7, 0, 9]"),
    (6, (8, 33), 12, 6, (1, 2), "strides=[2, 1]"),
    (8, (11, 31), 14, 2, (3, 2), "dilations=[2, 1]"),
    (12, (6, 50), 15, 3, (2, 3), 'auto_pad="SAME_UPPER", strides=[2, 2]'),
    (8, (5, 66), 32, 2, (3, 3), "pads=[1, 1, 1, 1]"),
    (8, (9, 9), 16, 2, (1, 1), "strides=[2, 2]"),
    (6, (100,), 6, 6, (5,), "pads=[2, 2]"),
    (6, (129,), 9, 3, (4,), "strides=[4], pads=[3, 0]"),
    (4, (131,), 32, 4, (16,), "pads=[8, 8]"),
    (4, (4, 5, 6), 4, 4, (2, 2, 2), "pads=[1, 1, 0, 0, 1, 1]"),
    (4, (4, 5, 20), 32, 2, (2, 1, 3), "strides=[1, 2, 1]"),
    # Blocks: more rows and columns than one has, and edges in the last ones.
    (1, (70, 33), 20, 1, (3, 3), "pads=[1, 1, 1, 1]"),
    (2, (35, 520), 3, 1, (5, 7), "pads=[2, 3, 2, 3]"),
    (1, (1100,), 9, 1, (16,), "strides=[2], pads=[7, 8]"),
    (3, (1040,), 2, 1, (3,), "strides=[1], dilations=[4], pads=[4, 4]"),
    (40, (6, 50), 24, 1, (3, 3), "pads=[1, 1, 1, 1]"),
    (30, (64, 1), 33, 1, (5, 1), "pads=[2, 0, 2, 0]"),
    # Few windows along one axis.
    (19, (21,), 40, 1, (8,), "pads=[3, 0], strides=[2]"),
    (7, (1, 9), 25, 1, (1, 3), "dilations=[1, 2]"),
    (33, (5,), 20, 1, (1,), "strides=[1]"),
    (3, (66, 49), 8, 1, (3, 3), 'auto_pad="SAME_LOWER", strides=[2, 2]'),
    # Rows of vectors that end in the next one, and more channels than are summed or computed at once.
    (45, (9, 9), 67, 1, (3, 3), "pads=[1, 1, 1, 1]"),
    (4, (40, 13), 13, 1, (5, 9), "pads=[0, 4, 3, 2], dilations=[2, 1]"),
    (5, (3, 600), 4, 1, (2, 3), "dilations=[1, 2], pads=[0, 2, 1, 2]"),
    # Positions that fill no tile and no vector, with and without zeros around them, and panels that are not full.
    (9, (3, 3), 100, 1, (2, 2), "strides=[1, 1]"),
    (9, (12, 10), 35, 1, (4, 4), "pads=[3, 3, 3, 3], strides=[2, 1]"),
    (12, (31, 33), 96, 2, (3, 3), "pads=[0, 1, 1, 0], strides=[2, 1]"),
    (40, (30, 6), 33, 1, (1, 1), "strides=[2, 2]"),
    (36, (5, 53), 65, 1, (1, 1), "strides=[1, 1]"),
]


def model(dynamic: bool) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return all convolutions as one model and its inputs; `dynamic` leaves batch and lengths open."""
    rng, feeds, weights, nodes, given, results = np.random.default_rng(5), dict[str, Array](), [], [], [], []
    for i, (channels, lengths, count, groups, kernel, attributes) in enumerate(CASES):
        if dynamic and "auto_pad" in attributes:
            continue
        feeds[f"x{i}"] = rng.standard_normal((2, channels, *lengths), np.float32)
        dims = [f"b{i}", str(channels), *(f"d{i}_{j}" for j in range(len(lengths)))]
        shape = ", ".join(dims) if dynamic else str(feeds[f"x{i}"].shape)[1:-1]
        given.append(f"float[{shape}] x{i}")
        bias = i % 3 > 0
        sizes = {"w": (count, channels // groups, *kernel), **({"c": (count,)} if bias else {})}
        for name, size in sizes.items():
            array = rng.standard_normal(size, np.float32)
            weights.append(onnx.numpy_helper.from_array(array, f"{name}{i}"))
        nodes.append(f"y{i} = Conv<group={groups}, {attributes}>(x{i}, w{i}{f', c{i}' * bias})")
        results.append(f"float[{', '.join(f'r{i}_{j}' for j in range(len(lengths) + 2))}] y{i}")
    lines = "\n".join(nodes)
    proto = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    convolutions ({", ".join(given)}) => ({", ".join(results)}) {{ {lines} }}
    """)
    proto.graph.initializer.extend(weights)
    return proto, feeds


@pytest.mark.parametrize(("dynamic", "cpu"), [(False, "native"), (True, "native"), (False, "generic")])
def test_convolutions(dynamic: bool, cpu: str) -> None:
    """`generic` has the shortest vectors that a computer of this kind may have."""
    if cpu == "generic" and platform.machine() == "x86_64":
        cpu = "x86-64"
    proto, feeds = model(dynamic)
    program = build_program(proto, cpu)
    symbols = [step.kernel for step in program.steps]
    own = ("softq_convolution", "softq_depthwise", "softq_flat", "softq_panels", "softq_windows")
    # Not those of three axes and of few windows along one.
    assert sum(x.startswith(own) for x in symbols) >= len(proto.graph.node) - 4
    found = Executor(program)(feeds)
    names = [value.name for value in proto.graph.output]
    expected = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for name, array in zip(names, expected, strict=True):
        # At most 405 products of normal numbers, added up in another order.
        assert_close([found[name]], [np.asarray(array)], rtol=1e-5, atol=1e-4)


def test_results_of_channels_that_come_last_are_not_moved() -> None:
    """Keras's Conv1D, as it is exported: the image, windows, and one product with everything behind it."""
    proto = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18]>
    keras (float[n, 21, 32] x) => (float[n, 14, 40] y) <int64[1] one = {1}, int64[1] two = {2}> {
        a = Unsqueeze (x, one)
        b = Transpose <perm = [0, 3, 1, 2]> (a)
        c = Conv (b, w)
        d = Squeeze (c, two)
        e = Add (d, bias)
        f = Relu (e)
        y = Transpose <perm = [0, 2, 1]> (f)
    }""")
    rng = np.random.default_rng(1)
    for name, shape in (("w", (40, 32, 1, 8)), ("bias", (1, 40, 1))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32), name))
    program = build_program(proto)
    assert [step.kernel.startswith("softq_matmul_add") for step in program.steps] == [False, False, True]
    feeds = {"x": rng.standard_normal((3, 21, 32), np.float32)}
    expected = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    # 256 products of normal numbers.
    assert_close([Executor(program)(feeds)["y"]], [np.asarray(expected[0])], rtol=1e-5, atol=1e-4)


def test_parameters_that_old_files_list_as_inputs_are_constants() -> None:
    """Kernels that are one number each, and a normalization, as in the light models of the onnx package."""
    proto = onnx.parser.parse_model("""
    <ir_version: 3, opset_import: ["" : 9]>
    light (float[1, 3, 9, 20] x, float[1, 8, 7, 18] z, int64[4] shape, float[8] s) => (float[1, 8, 7, 18] y)
    <int64[4] shape = {8, 3, 3, 3}, float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}> {
        w = ConstantOfShape <value: tensor = float[1] {0.25}> (shape)
        c = Conv (x, w)
        n = BatchNormalization (c, s, s, s, s)
        a = Sum (n, z)
        y = Relu (a)
    }""")
    program = build_program(proto)
    assert [step.kernel.startswith("softq_convolution_1_3_add_less") for step in program.steps] == [True]
    rng = np.random.default_rng(1)
    feeds = {name: rng.standard_normal(dims, np.float32) for name, dims in (("x", (1, 3, 9, 20)), ("z", (1, 8, 7, 18)))}
    expected = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    assert_close([Executor(program)(feeds)["y"]], [np.asarray(expected[0])], rtol=1e-5, atol=1e-4)


# A line of an image, one whose rows are short, long ones; groups of few and of many channels; strides.
FINISHED: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
    ((8, 40), (24, 8, 3), "pads=[1, 1]"),
    ((8, 6, 7), (16, 8, 3, 3), "pads=[1, 1, 1, 1]"),
    ((8, 6, 7), (16, 8, 3, 3), "group=1"),
    ((8, 12, 40), (16, 8, 3, 3), "pads=[1, 1, 1, 1], strides=[2, 2]"),
    ((8, 12, 40), (8, 1, 5, 5), "pads=[2, 2, 2, 2], group=8"),
    ((8, 7, 7), (8, 1, 3, 3), "pads=[1, 1, 1, 1], group=8"),
    ((8, 12, 20), (8, 1, 3, 3), "strides=[2, 2], group=8"),
    ((8, 12, 40), (8, 2, 3, 3), "group=4"),
]


@pytest.mark.parametrize("case", FINISHED)
def test_what_follows_a_convolution_is_done_by_its_kernel(case: tuple[tuple[int, ...], tuple[int, ...], str]) -> None:
    dims, kernel, attributes = case
    count, rng = kernel[0], np.random.default_rng(3)
    arrays = {
        "w": rng.standard_normal(kernel),
        "c": rng.standard_normal(count),
        "scale": rng.uniform(0.5, 2, count),
        "shift": rng.standard_normal(count),
        "mean": rng.standard_normal(count),
        "variance": rng.uniform(0.5, 2, count),
        "slope": rng.uniform(0, 1, (count, *[1] * (len(dims) - 1))),
    }
    proto = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    finished (float[2, {", ".join(map(str, dims))}] x) => (float[n, m{", p" * (len(dims) - 1)}] y) {{
        a = Conv<{attributes}>(x, w, c)
        b = BatchNormalization(a, scale, shift, mean, variance)
        d = PRelu(b, slope)
        e = Conv<{attributes}>(x, w)
        s = Sigmoid(e)
        f = Mul(e, s)
        y = Add(f, d)
    }}
    """)
    weights = [onnx.numpy_helper.from_array(a.astype(np.float32), name) for name, a in arrays.items()]
    proto.graph.initializer.extend(weights)
    feeds = {"x": rng.standard_normal((2, *dims), np.float32)}
    program = build_program(proto)
    assert not [step.kernel for step in program.steps if step.kernel.startswith("softq_tvm")]
    expected = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    # 72 products of normal numbers, twice, added up in another order.
    assert_close([Executor(program)(feeds)["y"]], [np.asarray(expected[0])], rtol=1e-5, atol=3e-5)


def test_images_are_joined_behind_what_their_kernels_do() -> None:
    rng = np.random.default_rng(6)
    proto = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18]>
    joined (float[b, 4, h, w] x) => (float[b, 13, h, w] y) {
        a = Conv (x, v)
        c = Relu (a)
        d = Conv <pads = [1, 1, 1, 1]> (x, u)
        e = Relu (d)
        y = Concat <axis = 1> (c, x, e)
    }""")
    for name, shape in (("v", (6, 4, 1, 1)), ("u", (3, 4, 3, 3))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32), name))
    program = build_program(proto)
    assert not [step.kernel for step in program.steps if step.kernel.startswith("softq_tvm")]
    for size in ((2, 4, 5, 7), (1, 4, 3, 40)):
        feeds = {"x": rng.standard_normal(size, np.float32)}
        session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        found = Executor(program)(feeds)["y"]
        assert_close([found], [np.asarray(session.run(None, feeds)[0])], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("processor", EDGE)
def test_convolutions_on_other_processors(processor: str, tmp_path: Path) -> None:
    """Few channels, windows a stride apart, narrow results, channels of their own, and pools between them."""
    rng = np.random.default_rng(2)
    proto = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18]>
    chain (float[1, 3, 33, 65] x) => (float[1, 35, 4, 8] y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, w0)
        b = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
        c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (b, w1)
        d = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (c)
        e = Conv <pads = [1, 1, 1, 1]> (d, w2)
        f = Conv <pads = [1, 1, 1, 1], group = 36> (e, w3)
        g = Relu (f)
        z = Conv (g, w4)
        y = Conv <pads = [1, 1, 1, 1]> (z, w5)
    }""")
    sizes = [(20, 3, 3, 3), (22, 20, 3, 3), (36, 22, 3, 3), (36, 1, 3, 3), (40, 36, 1, 1), (35, 40, 3, 3)]
    for i, size in enumerate(sizes):
        array = rng.standard_normal(size, np.float32) / np.float32(np.sqrt(np.prod(size[1:])))
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, f"w{i}"))
    emulated, x = emulator(processor), rng.standard_normal((1, 3, 33, 65), np.float32)
    out = softq.build(proto, tmp_path / "built", target=EDGE[processor]).folder
    expected = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    found = np.frombuffer(emulated.run(out, x.tobytes(), []), np.float32).reshape(1, 35, 4, 8)
    # Numbers of about 1, sums of at most 360 products.
    assert_close([found], [np.asarray(expected[0])], rtol=1e-4, atol=1e-5)
