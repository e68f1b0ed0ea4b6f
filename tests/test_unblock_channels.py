"""unblock-channels: models that onnxruntime saved at ORT_ENABLE_ALL compute what they did before they were saved."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

import softq
from softq.cli import main
from softq.graph import block_width
from softq.graph.block_bodies import DOMAIN
from softq.graph.facts import Facts
from softq.graph.view import ModelView
from softq.passes import NOTES_KEY
from softq.passes.unblock_channels import UnblockChannels
from tests.prepared import Array, applied, assert_close, by_onnxruntime, model, normal

F32 = np.float32

# Sums of at most 600 products of numbers of size 1, in float32 and in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}

SAVED = {
    "few-inputs": ("x:1,3,9,9", "w:12,3,3,3 b:12", "y = Conv (x, w, b)"),
    "no-bias": ("x:2,3,9,9", "w:20,3,3,3 v:32,20,1,1", "a = Conv (x, w) r = Relu (a) y = Conv (r, v)"),
    "twelve-inputs": ("x:1,12,9,9", "w:32,12,3,3 b:32", "y = Conv <strides = [2, 1], pads = [1, 0, 2, 1]> (x, w, b)"),
    "twenty-inputs": ("x:1,20,9,9", "w:32,20,3,3 b:32", 'y = Conv <auto_pad = "SAME_LOWER"> (x, w, b)'),
    "dilated": ("x:1,32,9,9", "w:32,32,2,3", "y = Conv <dilations = [2, 3]> (x, w)"),
    "chain": (
        "x:1,3,9,9",
        "w:20,3,3,3 v:20,1,3,3 u:20,20,1,1 b:20",
        "a = Conv (x, w, b) r = Relu (a) c = Conv <group = 20> (r, v, b) d = Conv (c, u, b) s = Conv (c, u) "
        "t = Add (s, d) y = Relu (t)",
    ),
    "groups": ("x:1,32,9,9", "w:32,16,3,3 b:32", "y = Conv <group = 2> (x, w, b)"),
    "depthwise": ("x:1,32,9,9", "w:32,1,3,3 b:32", "a = Conv <group = 32> (x, w, b) y = Sigmoid (a)"),
    "activations": (
        "x:1,32,9,9",
        "w:32,32,1,1 b:32",
        "k = Constant <value = float {6.0}> () l = Constant <value = float {-1.0}> () "
        "c1 = Conv (x, w, b) a1 = LeakyRelu <alpha = 0.2> (c1) c2 = Conv (a1, w) a2 = HardSigmoid (c2) "
        "c3 = Conv (a2, w) a3 = Clip (c3, l, k) c4 = Conv (a3, w) a4 = HardSwish (c4) c5 = Conv (a4, w) "
        "a5 = Tanh (c5) c6 = Conv (a5, w) s6 = Sigmoid (c6) a6 = Mul (c6, s6) y = Conv (a6, w)",
    ),
    "pools": (
        "x:1,32,9,9",
        "",
        "a = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1, dilations = [2, 1]> (x) "
        "c = AveragePool <kernel_shape = [2, 2], count_include_pad = 1, pads = [1, 0, 1, 1]> (a) "
        'd = AveragePool <kernel_shape = [3, 2], auto_pad = "SAME_UPPER"> (c) '
        "g = GlobalMaxPool (d) h = GlobalAveragePool (d) y = Concat <axis = 0> (g, h)",
    ),
    "normalization": (
        "x:1,32,9,9",
        "w:32,32,1,1 s:32 t:32 m:32",
        "a = MaxPool <kernel_shape = [2, 2]> (x) v = Mul (s, s) b = BatchNormalization <epsilon = 0.5> (a, s, t, m, v) "
        "y = Conv (b, w)",
    ),
    "channels-last": (
        "x:1,9,9,20",
        "w:20,20,3,3 b:20",
        "a = Transpose <perm = [0, 3, 1, 2]> (x) c = Conv (a, w, b) y = Transpose <perm = [0, 2, 3, 1]> (c)",
    ),
    "concat": (
        "x:1,32,9,9",
        "w:32,32,3,3 v:16,32,3,3 u:12,48,1,1",
        "a = Conv (x, w) c = Conv (x, v) d = Concat <axis = 1> (a, c) y = Conv (d, u)",
    ),
    "unknown-sum": (
        "x:N,20,A,B z:N,20,C,D",
        "w:20,20,3,3 v:20,20,3,3 b:20",
        "a = Conv (x, w, b) c = Conv (z, v, b) d = Add (a, c) e = Mul (d, d) y = Relu (e)",
    ),
    "unknown-channels": ("x:N,K,A,B", "w:20,20,3,3", "y = Conv (x, w)"),
    "upsamplings": (
        "x:1,32,5,4",
        "w:32,32,1,1 b:32",
        "k = Constant <value = float[4] {1.0, 1.0, 2.0, 3.0}> () c1 = Conv (x, w, b) "
        'u1 = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (c1, , k) '
        'c2 = Conv (u1, w) u2 = Resize <mode = "linear"> (c2, , k) c3 = Conv (u2, w) '
        'u3 = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (c3, , k) y = Conv (u3, w)',
    ),
    "gate": (
        "x:1,32,9,9",
        "w:32,32,3,3 v:8,32,1,1 u:32,8,1,1",
        "a = Conv (x, w) s = GlobalAveragePool (a) c = Conv (s, v) r = Relu (c) d = Conv (r, u) h = Sigmoid (d) "
        "y = Mul (a, h)",
    ),
}  # fmt: skip
"""Inputs, weights, and the nodes; letters are lengths that the model leaves open."""

OLD = {
    **{name: SAVED[name] for name in ("chain", "channels-last", "unknown-sum", "unknown-channels")},
    "clip": ("x:1,32,9,9", "w:32,32,1,1", "c = Conv (x, w) y = Clip <min = -0.1, max = 0.2> (c)"),
    "upsampling-7": ("x:1,32,5,4", "w:32,32,1,1", "c = Conv (x, w) y = Upsample <scales = [1.0, 1.0, 2.0, 3.0]> (c)"),
    "upsampling-9": (
        "x:1,32,5,4",
        "w:32,32,1,1 k:1,1,2,3",
        'c = Conv (x, w) u = Upsample (c, k) d = Conv (u, w) y = Upsample <mode = "linear"> (d, k)',
    ),
    "upsampling-10": ("x:1,32,5,4", "w:32,32,1,1 k:1,1,2,3", "c = Conv (x, w) y = Resize (c, k)"),
}
"""Models of older operator sets."""


LENGTHS = {"N": 1, "K": 20}


def shapes(text: str) -> dict[str, list[str]]:
    return {name: sizes.split(",") for name, sizes in (item.split(":") for item in text.split())}


def original(name: str, opset: int) -> onnx.ModelProto:
    inputs, weights, nodes = (SAVED | OLD)[name]
    given = ", ".join(f"float[{', '.join(dims)}] {value}" for value, dims in shapes(inputs).items())
    whole = model(f"g ({given}) => (float[P, Q, R, S] y) {{ {nodes} }}", opset)
    for seed, (value, dims) in enumerate(shapes(weights).items()):
        if value == "k":
            whole.graph.initializer.append(numpy_helper.from_array(np.array(dims, F32), value))
            continue
        array = normal(seed, *map(int, dims)).astype(F32) / F32(np.sqrt(np.prod([int(d) for d in dims[1:]] or [1])))
        whole.graph.initializer.append(numpy_helper.from_array(array, value))
    return whole


def save(whole: onnx.ModelProto, path: Path, level: str = "ORT_ENABLE_ALL") -> onnx.ModelProto:
    """Return the model as a session saves it; the level is the default one."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath, options.log_severity_level = str(path), 4
    ort.InferenceSession(whole.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(path)


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        *((name, 18) for name in SAVED),
        *((name, opset) for name in list(OLD)[:4] for opset in (7, 10, 12)),
        ("clip", 10),
        ("upsampling-7", 7),
        ("upsampling-9", 9),
        ("upsampling-10", 10),
    ],
)
def test_saved_models_compute_the_same(name: str, opset: int, tmp_path: Path) -> None:
    before = original(name, opset)
    saved = save(before, tmp_path / "saved.onnx")
    assert any(node.domain == DOMAIN for node in saved.graph.node)
    after = applied(UnblockChannels(), saved)
    assert not any(node.domain == DOMAIN for node in after.graph.node)
    assert DOMAIN not in {entry.domain for entry in after.opset_import}
    feed = {
        value: normal(9, *(int(d) if d.isdecimal() else LENGTHS.get(d, 7) for d in dims))
        for value, dims in shapes((SAVED | OLD)[name][0]).items()
    }
    assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed), **TOLERANCE)


def test_padding_goes(tmp_path: Path) -> None:
    after = applied(UnblockChannels(), save(original("chain", 18), tmp_path / "saved.onnx"))
    names = {name for node in after.graph.node for name in node.input}
    read = [list(tensor.dims) for tensor in after.graph.initializer if tensor.name in names]
    assert sorted(read) == sorted([[20, 3, 3, 3], [20, 1, 3, 3], [20, 20, 1, 1], [20]])
    assert not {"Pad", "Slice"} & {node.op_type for node in after.graph.node}


def pack(weights: Array, width: int, *, both: bool) -> Array:
    """Return weights as onnxruntime lays them out, written from the comments of MLAS's reorder.cpp."""
    outputs, inputs, height, breadth = weights.shape
    filled = [-(-n // width) * width if full else n for n, full in ((outputs, True), (inputs, both))]
    found: list[float] = []
    step = width if both else 1
    for o, i, h, w in itertools.product(
        range(0, filled[0], width), range(0, filled[1], step), range(height), range(breadth)
    ):
        for inner, outer in itertools.product(range(i, i + step), range(o, o + width)):
            there = inner < inputs and outer < outputs
            found.append(float(weights[outer, inner, h, w]) if there else 0.0)
    return np.array(found, F32).reshape(*filled, height, breadth)


def blocked(weights: Array, width: int, *, plain: bool = False) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return a convolution, as it is and in blocks; `plain` if its operand is read as it is."""
    outputs, inputs = weights.shape[:2]
    head = f"g (float[1, {inputs}, 6, 5] x) => (float[1, {outputs}, R, S] y)"
    whole = model(f"{head} {{ y = Conv (x, w) }}")
    whole.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    enter = "a = Identity (x)" if plain else f"a = {DOMAIN}.ReorderInput (x)"
    lines = f"{enter} b = {DOMAIN}.Conv (a, w) y = {DOMAIN}.ReorderOutput <channels = {outputs}> (b)"
    other = model(f"{head} {{ {lines} }}", com_microsoft_nchwc=1)
    other.graph.initializer.append(numpy_helper.from_array(pack(weights, width, both=not plain), "w"))
    return whole, other


def unblock(weights: Array, width: int, *, plain: bool) -> list[str]:
    """Check that a convolution in blocks computes what it did; return the notes of the pass."""
    whole, other = blocked(weights, width, plain=plain)
    work = ir.from_proto(other)
    UnblockChannels()(work)
    feed = {"x": normal(2, 1, weights.shape[1], 6, 5)}
    assert_close(by_onnxruntime(ir.to_proto(work), feed), by_onnxruntime(whole, feed), **TOLERANCE)
    return list(work.meta.get(NOTES_KEY, []))


TELLING = {
    "outputs fill blocks of 8": (8, (24, 32, 3, 2), False),
    "inputs fill blocks of 8": (8, (32, 8, 3, 2), False),
    "twelve inputs as they are": (16, (32, 12, 3, 2), True),
    "zeros where outputs are filled up to 8": (8, (12, 32, 3, 2), False),
    "zeros where outputs are filled up to 16": (16, (12, 32, 3, 2), False),
    "zeros where few inputs are read as they are": (8, (28, 3, 3, 2), True),
    "zeros where inputs are filled up": (16, (32, 28, 1, 1), False),
}


@pytest.mark.parametrize("name", TELLING)
def test_the_model_tells_how_wide_blocks_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> int:
        raise AssertionError("this machine is asked")

    monkeypatch.setattr(block_width, "width_here", never)
    width, shape, plain = TELLING[name]
    assert unblock(normal(1, *shape).astype(F32), width, plain=plain) == []


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize(("plain", "zeros"), [(False, ""), (True, ""), (False, "negative"), (False, "pruned")])
def test_else_this_machine_does_and_it_is_said(
    width: int, plain: bool, zeros: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_width, "width_here", lambda: width)
    shape = (32, 3 if plain else 32, 3, 2)
    weights = normal(1, *shape).astype(F32)
    if zeros == "negative":
        weights[weights < 0] = 0  # Zeros anywhere are no padding.
    elif zeros == "pruned":
        weights[[5, 31]] = 0  # Nor are channels, though the last of them ends a block.
    (note,) = unblock(weights, width, plain=plain)
    assert f"taken as {width}, " in note
    assert "ORT_ENABLE_EXTENDED" in note


def test_building_says_what_it_takes_for_granted(tmp_path: Path) -> None:
    whole = original("depthwise", 18)
    save(whole, tmp_path / "saved.onnx")
    arguments = ["build", str(tmp_path / "saved.onnx"), str(tmp_path / "built"), "--target", "cpu"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("softq: warning: the model has channels in blocks")
    feed = {"x": normal(9, 1, 32, 9, 9)}
    with softq.load(tmp_path / "built") as built:
        assert_close([np.asarray(built(feed)["y"])], by_onnxruntime(whole, feed), **TOLERANCE)


def test_shapes_behind_blocks_are_known(tmp_path: Path) -> None:
    for name, shape in (
        ("channels-last", (1, 7, 7, 20)),
        ("upsamplings", (1, 32, 40, 108)),
        ("activations", (1, 32, 9, 9)),
    ):
        for level in ("ORT_ENABLE_ALL", "ORT_ENABLE_EXTENDED"):
            saved = save(original(name, 18), tmp_path / "saved.onnx", level)
            saved.graph.output[0].type.tensor_type.ClearField("shape")
            saved.graph.ClearField("value_info")
            work = ir.from_proto(saved)
            assert Facts(ModelView(work)).shape(work.graph.outputs[0]) == shape


REFUSED = {
    "a result": ("y = com.microsoft.nchwc.ReorderInput (x)", "'y' is a result"),
    "other reader": (
        "a = com.microsoft.nchwc.ReorderInput (x) y = Transpose <perm = [1, 0, 2, 3]> (a)",
        "Transpose 'y' .* not known what the operator does",
    ),
    "other shape": (
        "a = com.microsoft.nchwc.ReorderInput (x) s = Constant <value = int64[2] {1, -1}> () y = Reshape (a, s)",
        "Reshape 'y' .* another shape",
    ),
    "not in blocks": ("y = com.microsoft.nchwc.MaxPool <kernel_shape = [2, 2]> (x)", "MaxPool 'y' .* not where"),
    "computed weights": (
        "a = com.microsoft.nchwc.ReorderInput (x) w = Exp (v) b = com.microsoft.nchwc.Conv (a, w) "
        "y = com.microsoft.nchwc.ReorderOutput <channels = 16> (b)",
        "Conv 'b' .* computed",
    ),
    "no width": (
        "b = com.microsoft.nchwc.Conv (x, v) y = com.microsoft.nchwc.ReorderOutput <channels = 12> (b)",
        "no width",
    ),
    "activation": (
        "a = com.microsoft.nchwc.ReorderInput (x) "
        'b = com.microsoft.nchwc.Conv <activation = "Odd"> (a, u) '
        "y = com.microsoft.nchwc.ReorderOutput <channels = 16> (b)",
        "Conv 'b' .* activation",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused(name: str) -> None:
    nodes, text = REFUSED[name]
    whole = model(f"g (float[1, 16, 4, 4] x) => (float[P, Q, R, S] y) {{ {nodes} }}", com_microsoft_nchwc=1)
    for value, shape in (("v", (12, 16, 1, 1)), ("u", (16, 16, 1, 1))):
        whole.graph.initializer.append(numpy_helper.from_array(normal(1, *shape).astype(F32), value))
    with pytest.raises(softq.RefusalError, match=f"{text}.*save it at ORT_ENABLE_EXTENDED"):
        UnblockChannels()(ir.from_proto(whole))


def test_a_model_without_blocks_stays() -> None:
    applied(UnblockChannels(), original("few-inputs", 18))
