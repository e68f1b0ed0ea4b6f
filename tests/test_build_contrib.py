"""onnxruntime's own operators, and models that it saved, built and compared with it."""

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
from tests.built import Array, check

pytest.importorskip("tvm")

RNG = np.random.default_rng(6)
OWN = "com.microsoft"


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape, np.float32)


def node_model(
    operator: str, inputs: dict[str, Array | None], outputs: list[int], **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of one node and its feeds; inputs whose names are lower case are the model's.

    `outputs` are the ranks of the results, negative where they are int32.
    """
    values, weights, feeds = [], [], dict[str, Array]()
    for name, array in inputs.items():
        if array is not None and name.islower():
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            values.append(helper.make_tensor_value_info(name, kind, array.shape))
            feeds[name] = array
        elif array is not None:
            weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
    names = ["" if array is None else name for name, array in inputs.items()]
    results = [
        helper.make_tensor_value_info(f"y{i}", 1 if rank > 0 else 6, [None] * abs(rank))
        for i, rank in enumerate(outputs)
    ]
    node = helper.make_node(operator, names, [value.name for value in results], domain=OWN, **attributes)
    graph = helper.make_graph([node], "g", values, results, weights)
    domains = [helper.make_opsetid("", 20), helper.make_opsetid(OWN, 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9), feeds


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, feeds)]


def same(model: onnx.ModelProto, feeds: dict[str, Array], folder: Path, tolerance: float = 2e-5) -> None:
    check(model, [feeds], folder, relative=tolerance, absolute=tolerance)


CASES: dict[str, tuple[str, dict[str, Array | None], list[int], dict[str, Any]]] = {
    "matmul": (
        "FusedMatMul",
        {"a": floats(2, 4, 3), "b": floats(2, 5, 4)},
        [3],
        {"transA": 1, "transB": 1, "alpha": 0.5},
    ),
    "matmul of batches behind the rows": (
        "FusedMatMul", {"a": floats(4, 2, 3), "b": floats(3, 2, 5)}, [3], {"transBatchA": 1, "transBatchB": 1}
    ),
    "matmul of batches, all transposed": (
        "FusedMatMul",
        {"a": floats(3, 2, 6, 4), "b": floats(5, 2, 6, 3)},
        [4],
        {"transBatchA": 1, "transBatchB": 1, "transA": 1, "transB": 1},
    ),
    "gemm": ("FusedGemm", {"a": floats(3, 4), "B": floats(4, 5), "C": floats(5)}, [2], {"activation": "Relu"}),
    "conv": (
        "FusedConv",
        {"x": floats(1, 3, 6, 6), "W": floats(4, 3, 3, 3), "B": floats(4), "z": floats(1, 4, 6, 6)},
        [4],
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
    ),
    "conv clipped": (
        "FusedConv",
        {"x": floats(1, 3, 6, 6), "W": floats(4, 3, 3, 3)},
        [4],
        {"activation": "Clip", "activation_params": [-0.5, 0.7]},
    ),
    "gelu": ("BiasGelu", {"a": floats(3, 4), "B": floats(4)}, [2], {}),
    "fast gelu": ("FastGelu", {"a": floats(3, 4), "B": floats(4)}, [2], {}),
    "quick gelu": ("QuickGelu", {"a": floats(3, 4)}, [2], {}),
    "skip": (
        "SkipLayerNormalization",
        {"a": floats(2, 3, 8), "b": floats(2, 3, 8), "G": floats(8), "B": floats(8), "C": floats(8)},
        [3],
        {"epsilon": 1e-5},
    ),
    "skip simplified": (
        "SkipSimplifiedLayerNormalization",
        {"a": floats(2, 3, 8), "b": floats(2, 3, 8), "G": floats(8)},
        [3],
        {"epsilon": 1e-5},
    ),
    "embedding": (
        "EmbedLayerNormalization",
        {
            "ids": RNG.integers(0, 9, (2, 5), np.int32), "segments": RNG.integers(0, 2, (2, 5), np.int32),
            "W": floats(9, 8), "P": floats(7, 8), "S": floats(2, 8), "G": floats(8), "B": floats(8),
            "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32),
        },
        [3, -1],
        {"epsilon": 1e-5},
    ),
    "attention": (
        "Attention",
        {
            "x": floats(2, 5, 8), "W": floats(8, 24), "B": floats(24),
            "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
        },
        [3],
        {"num_heads": 2},
    ),
    "heads with cache": (
        "MultiHeadAttention",
        {
            "q": floats(2, 1, 8), "k": floats(2, 1, 8), "v": floats(2, 1, 8), "B": floats(24), "M": None, "A": None,
            "pk": floats(2, 2, 4, 4), "pv": floats(2, 2, 4, 4),
        },
        [3, 4, 4],
        {"num_heads": 2},
    ),
    "rotation": (
        "RotaryEmbedding",
        {"x": floats(2, 3, 16), "p": np.array([[0, 1, 2], [4, 5, 6]]), "C": floats(9, 4), "S": floats(9, 4)},
        [3],
        {},
    ),
    "rotation of neighbours": (
        "RotaryEmbedding",
        {"x": floats(2, 3, 16), "p": np.array([2]), "C": floats(9, 4), "S": floats(9, 4)},
        [3],
        {"interleaved": 1},
    ),
    "rotation of a part": (
        "RotaryEmbedding",
        {"x": floats(2, 2, 3, 16), "p": np.array([[0, 1, 2], [4, 5, 6]]), "C": floats(9, 4), "S": floats(9, 4)},
        [4],
        {"rotary_embedding_dim": 8, "num_heads": 2},
    ),
    "grouped heads, first": (
        "GroupQueryAttention",
        {
            "q": floats(2, 3, 64), "k": floats(2, 3, 32), "v": floats(2, 3, 32), "pk": floats(2, 2, 0, 16),
            "pv": floats(2, 2, 0, 16), "l": np.array([2, 2], np.int32), "t": np.array([3], np.int32),
            "C": floats(9, 8), "S": floats(9, 8),
        },
        [3, 4, 4],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
    ),
    "grouped heads, next": (
        "GroupQueryAttention",
        {
            "q": floats(2, 1, 32), "k": floats(2, 1, 16), "v": floats(2, 1, 16), "pk": floats(2, 2, 5, 8),
            "pv": floats(2, 2, 5, 8), "l": np.array([5, 5], np.int32), "t": np.array([6], np.int32),
        },
        [3, 4, 4],
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "grouped heads, packed": (
        "GroupQueryAttention",
        {
            "q": floats(2, 3, 128), "k": None, "v": None, "pk": floats(2, 2, 0, 16),
            "pv": floats(2, 2, 0, 16), "l": np.array([2, 2], np.int32), "t": np.array([3], np.int32),
            "C": floats(9, 8), "S": floats(9, 8),
        },
        [3, 4, 4],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": 1},
    ),
    "grouped heads, packed, not causal": (
        "GroupQueryAttention",
        {
            "q": floats(2, 4, 64), "k": None, "v": None, "pk": floats(2, 2, 0, 8), "pv": floats(2, 2, 0, 8),
            "l": np.array([3, 1], np.int32), "t": np.array([4], np.int32),
        },
        [3, 4, 4],
        {"num_heads": 4, "kv_num_heads": 2, "causal": 0},
    ),
    "grouped heads, next, not causal": (
        "GroupQueryAttention",
        {
            "q": floats(1, 4, 32), "k": floats(1, 4, 16), "v": floats(1, 4, 16), "pk": floats(1, 2, 3, 8),
            "pv": floats(1, 2, 3, 8), "l": np.array([6], np.int32), "t": np.array([7], np.int32),
        },
        [3, 4, 4],
        {"num_heads": 4, "kv_num_heads": 2, "causal": 0, "softcap": 1.5},
    ),
    "grouped heads, windowed": (
        "GroupQueryAttention",
        {
            "q": floats(2, 6, 32), "k": floats(2, 6, 16), "v": floats(2, 6, 16), "pk": floats(2, 2, 0, 8),
            "pv": floats(2, 2, 0, 8), "l": np.array([5, 5], np.int32), "t": np.array([6], np.int32),
        },
        [3, 4, 4],
        {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 2},
    ),
    "grouped heads, windowed and capped, next": (
        "GroupQueryAttention",
        {
            "q": floats(2, 1, 64), "k": None, "v": None, "pk": floats(2, 2, 7, 8),
            "pv": floats(2, 2, 7, 8), "l": np.array([7, 7], np.int32), "t": np.array([8], np.int32),
        },
        [3, 4, 4],
        {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 3, "softcap": 1.5, "scale": 0.9},
    ),
    "pool": (
        "NhwcMaxPool",
        {"x": RNG.integers(0, 255, (1, 6, 7, 3), np.uint8)},
        [4],
        {"kernel_shape": [2, 3], "strides": [2, 1]},
    ),
}  # fmt: skip


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("case", CASES)
def test_operators(case: str, tmp_path: Path) -> None:
    operator, inputs, outputs, attributes = CASES[case]
    model, feeds = node_model(operator, inputs, outputs, **attributes)
    if operator == "NhwcMaxPool":
        model.graph.output[0].type.tensor_type.elem_type = 2
    same(model, feeds, tmp_path)


def test_grouped_heads_of_sequences_of_different_lengths(tmp_path: Path) -> None:
    given: dict[str, Array | None] = {
        "q": floats(2, 1, 64), "k": floats(2, 1, 32), "v": floats(2, 1, 32), "pk": floats(2, 2, 5, 16),
        "pv": floats(2, 2, 5, 16), "l": np.array([5, 3], np.int32), "t": np.array([6], np.int32),
        "C": floats(9, 8), "S": floats(9, 8),
    }  # fmt: skip
    attributes: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    model, feeds = node_model("GroupQueryAttention", given, [3, 4, 4], **attributes)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        found = built(feeds)
    want, keys, _ = (np.asarray(value) for value in session.run(None, feeds))
    np.testing.assert_allclose(np.float64(found["y0"]), want, rtol=2e-5, atol=2e-5)
    # Behind the end of the shorter sequence stands anything.
    np.testing.assert_allclose(np.float64(found["y1"][1, :, :4]), keys[1, :, :4], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("grouped heads")])
def test_grouped_heads_convert(case: str) -> None:
    operator, inputs, outputs, attributes = CASES[case]
    model, feeds = node_model(operator, inputs, outputs, **attributes)
    exact = softq.convert(model, method="exact")
    assert [(site.role, site.mask, site.verdict.action) for site in exact.sites] == [("attention", "where", "convert")]
    want, got = (run(proto, feeds) for proto in (model, exact.model))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
    # Weighted means of values stay within their range.
    assert np.abs(run(softq.convert(model, bits=4).model, feeds)[0]).max() <= np.abs(want[2]).max() * (1 + 1e-5)


@pytest.mark.parametrize(
    ("attributes", "more", "reason"),
    [
        ({"smooth_softmax": 1}, {}, "with smooth_softmax"),
        ({"local_window_size": 2, "causal": 0}, {}, "causal = 0 and a window"),
        ({"local_window_size": 0}, {}, "with local_window_size = 0"),
        ({}, {"C": None, "S": None, "P": None, "bias": floats(1, 1, 1, 6)}, "with attention_bias"),
        ({"do_rotary": 1}, {}, "without cos_cache"),
        ({"kv_num_heads": 3}, {}, "do not say how it is laid out"),
    ],
)
def test_what_is_not_known_of_grouped_heads_is_refused(
    attributes: dict[str, Any], more: dict[str, Array | None], reason: str, tmp_path: Path
) -> None:
    operator, inputs, outputs, own = CASES["grouped heads, next"]
    model, _ = node_model(operator, {**inputs, **more}, outputs, **{**own, **attributes})
    (site,) = softq.inspect(model)
    assert site.verdict.action == "refuse"
    assert reason in site.verdict.reason
    with pytest.raises(RefusalError, match="GroupQueryAttention"):
        softq.build(model, tmp_path / "built", target="cpu")


@pytest.mark.parametrize("name", ["mnist_vit", "wikipedia_lm"])
def test_models_that_onnxruntime_saved(name: str, tmp_path: Path) -> None:
    """Those of its level "extended" convert, and build with the exact softmax."""
    source = Path(__file__).parents[1] / "models" / name / f"{name}.onnx"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    saved = onnx.load(tmp_path / "saved.onnx")
    assert any(node.domain == OWN for node in saved.graph.node)
    converted = softq.convert(saved, method="exact")
    assert len(converted.plan.sites) == 4
    feeds: dict[str, Array] = {}
    for given in session.get_inputs():
        shape = [d if isinstance(d, int) else 2 for d in given.shape]
        ints = "int" in given.type
        feeds[given.name] = RNG.integers(0, 9, shape, np.int64) if ints else floats(*shape)
        if given.type == "tensor(uint8)":
            feeds[given.name] = feeds[given.name].astype(np.uint8)
    softq.build(saved, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        found = built(feeds)
    for output, value in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(np.float64(found[output.name]), np.asarray(value), rtol=1e-3, atol=1e-3)
