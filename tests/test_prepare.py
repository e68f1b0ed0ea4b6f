"""prepare: whole models come out equal and smaller, and the model that went in stays."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from softq.modelfile import load
from softq.passes.prepare import prepare
from tests.prepared import Array, assert_close, by_onnxruntime, model, normal, operators

MODELS = Path(__file__).resolve().parent.parent / "models"


def feeds(name: str, batch: int, seq: int) -> Mapping[str, Array]:
    source = np.random.default_rng(batch)
    if name == "mnist_vit":
        return {"images": source.integers(0, 256, (batch, 1, 28, 28)).astype(np.uint8)}
    return {"input_ids": source.integers(0, 200, (batch, seq))}


@pytest.mark.parametrize("name", ["mnist_vit", "wikipedia_lm"])
def test_models_come_out_equal_for_every_size(name: str) -> None:
    path = MODELS / name / f"{name}.onnx"
    source = load(str(path))
    before = ir.to_proto(source)
    after = ir.to_proto(prepare(source))
    assert ir.to_proto(source) == before
    onnx.checker.check_model(after, full_check=True)
    assert "Constant" not in operators(after)
    assert len(after.graph.node) <= len(before.graph.node)
    for batch, seq in ((1, 1), (2, 7), (3, 64)):
        feed = feeds(name, batch, seq)
        # Only constants were computed beforehand: one unit in the last place of a few of them, over logits up to 20.
        assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed), rtol=1e-6, atol=1e-5)


def test_a_model_of_one_size_has_no_shape_arithmetic() -> None:
    source = load(str(MODELS / "mnist_vit" / "mnist_vit.onnx"))
    after = ir.to_proto(prepare(source, {"batch": 2}))
    assert not {"Shape", "Expand", "Range", "ConstantOfShape"} & set(operators(after))
    feed = feeds("mnist_vit", 2, 0)
    assert_close(by_onnxruntime(after, feed), by_onnxruntime(ir.to_proto(source), feed), rtol=1e-6, atol=1e-5)


def test_everything_together() -> None:
    before = model(
        "g (float[B, S, 32] x, bool[S, S] m) => (float[B, S, 32] y, float[B, S, 32] z) {"
        " two = Constant <value_int: int = 2> ()  eight = Constant <value_ints: ints = [0, 0, 4, 8]> ()"
        " s = Shape (x)  h = com.microsoft.QuickGelu (x)  q = Pow (h, two)  i = Identity (q)"
        " a = Attention <q_num_heads: int = 4, kv_num_heads: int = 4> (i, h, x, m)"
        " heads = Reshape (a, eight)  flat = Reshape (heads, s)  c = CastLike (flat, x)  y = own.Twice (c)"
        " z = own.Twice (c) }"
        '\n<domain: "own", opset_import: ["": 23]> Twice (x) => (y) { z = Identity (x)  y = Add (z, x) }',
        23,
        com_microsoft=1,
        own=1,
    )
    after = ir.to_proto(prepare(ir.from_proto(before)))
    onnx.checker.check_model(after, full_check=True)
    counts = operators(after)
    assert not {"Attention", "QuickGelu", "Pow", "Constant", "Identity", "CastLike", "Twice", "Cast", "Sqrt"} & set(
        counts
    )
    assert counts["Softmax"] == 1
    assert counts["MatMul"] == 2
    assert not after.functions
    for batch, seq in ((1, 1), (2, 5)):
        mask = np.tril(np.ones((seq, seq), bool))
        feed = {"x": normal(seq, batch, seq, 32), "m": mask}
        # As for the Attention body alone.
        assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed), rtol=2e-5, atol=2e-6)


def test_types_and_shapes_are_known_afterwards() -> None:
    after = prepare(load(str(MODELS / "wikipedia_lm" / "wikipedia_lm.onnx")))
    values = [value for node in after.graph for value in node.outputs if value.name]
    assert values
    assert all(value.dtype is not None and value.shape is not None for value in values)


def test_a_second_time_changes_nothing() -> None:
    once = prepare(load(str(MODELS / "wikipedia_lm" / "wikipedia_lm.onnx")))
    assert ir.to_proto(prepare(once)) == ir.to_proto(once)


def test_weights_are_not_copied(tmp_path: Path) -> None:
    text = "g (float[N, 4096] x) => (float[N, 4096] y) { t = Transpose (w)  a = MatMul (x, t)  y = Pow (a, e) }"
    source = ir.from_proto(model(text))
    size = 64 << 20
    weight = ir.Value(name="w", const_value=ir.Tensor(np.zeros((4096, 4096), np.float32), name="w"))
    exponent = ir.Value(name="e", const_value=ir.tensor(np.array(2, np.int64), name="e"))
    source.graph.node(0).replace_input_with(0, weight)
    source.graph.node(2).replace_input_with(1, exponent)
    for value in (weight, exponent):
        source.graph.register_initializer(value)
    tracemalloc.start()
    after = prepare(source)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [node.op_type for node in after.graph] == ["MatMul", "Mul"]
    assert peak < size / 8
