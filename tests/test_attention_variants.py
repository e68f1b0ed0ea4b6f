"""Variants of ONNX's Attention drawn at random: the exact method gives what onnx's own evaluator makes of the operator.

The evaluator does not go through the body that softq opens the operator into. Tolerance: 1e-4 relative, 1e-5 absolute,
for sums of products in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import softq

Array = np.ndarray[Any, Any]

B, H = 2, 4


@dataclass(frozen=True)
class Variant:
    """One node, and what to feed it."""

    model: onnx.ModelProto
    feeds: dict[str, Array]


def draw(seed: int) -> Variant:
    rng = np.random.default_rng(seed)

    def floats(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32)

    def one_of(*choices: int) -> int:
        return int(rng.choice(choices))

    opset, kv_heads, queries, keys, width = (
        one_of(23, 24, 25),
        one_of(1, 2),
        one_of(1, 2, 4),
        one_of(1, 3, 5),
        one_of(4, 6),
    )
    heads = kv_heads * one_of(1, 2)
    past = one_of(0, 0, 1, 3)
    total, joined = keys + past, one_of(0, 1)
    attributes: dict[str, int | float] = {"is_causal": one_of(0, 1), "qk_matmul_output_mode": one_of(0, 1, 2, 3)}
    if one_of(0, 1):
        attributes["scale"] = 0.4
    # The evaluator gives the capped scores where the raw ones are asked for (mode 0); onnxruntime and the text do not.
    if one_of(0, 1) and attributes["qk_matmul_output_mode"]:
        attributes["softcap"] = 1.5
    if opset == 25:
        attributes |= {"left_window_size": one_of(-1, 0, 2), "right_window_size": one_of(-1, 0, 1)}
    if joined:
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
        shapes = (B, queries, heads * H), (B, keys, kv_heads * H), (B, keys, kv_heads * width)
    else:
        shapes = (B, heads, queries, H), (B, kv_heads, keys, H), (B, kv_heads, keys, width)
    feeds = {name: floats(*shape) for name, shape in zip("qkv", shapes, strict=True)}
    operands = ["q", "k", "v", "", "", "", ""][: 6 if opset == 23 else 7]
    kind = one_of(0, 1, 2, 3)
    if kind:
        lead = [(), (B, 1), (B, heads), (1, heads)][one_of(0, 1, 2, 3)]
        shown = rng.random((*lead, queries, total)) < 0.6
        shown[..., 0, :] = False
        bias = floats(*shown.shape) if kind == 3 else np.zeros(shown.shape, np.float32)
        feeds["mask"] = shown if kind == 1 else np.where(shown, bias, np.float32(-np.inf))
        operands[3] = "mask"
    if past:
        feeds |= {"past_key": floats(B, kv_heads, past, H), "past_value": floats(B, kv_heads, past, width)}
        operands[4:6] = ["past_key", "past_value"]
    elif opset > 23 and one_of(0, 1):
        feeds["lengths"] = rng.integers(0, keys + 1, size=(B,))
        operands[6] = "lengths"
    results = {"y": len(shapes[0]), "present_key": 4, "present_value": 4, "scores": 4}
    names = [name if past or not name.startswith("present") else "" for name in results]
    hides = one_of(0, 1)

    def known(name: str, axis: int, rank: int) -> bool:
        # The widths, and the heads where they are an axis.
        return not hides or (name in {"q", "k", "v", "past_key", "past_value"} and axis in {rank - 1, rank - 3} - {0})

    values: list[onnx.ValueInfoProto] = []
    for name, array in feeds.items():
        dims = [d if known(name, i, array.ndim) else f"{name}{i}" for i, d in enumerate(array.shape)]
        values.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims))
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{name}{i}" for i in range(rank)])
        for name, rank in results.items()
        if name in names
    ]
    node = helper.make_node("Attention", operands, names)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    graph = helper.make_graph([node], "g", values, outputs)
    imports = [helper.make_opsetid("", opset)]
    return Variant(helper.make_model(graph, opset_imports=imports, ir_version=11 if opset < 25 else 13), feeds)


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        # An opset that onnxruntime does not know.
        return [np.asarray(output) for output in ReferenceEvaluator(model).run(None, feeds)]
    return [np.asarray(output) for output in session.run(None, feeds)]


@pytest.mark.quick_cases(30)
@pytest.mark.parametrize("seed", range(60))
def test_a_variant(seed: int) -> None:
    variant = draw(seed)
    want = [np.asarray(output) for output in ReferenceEvaluator(variant.model).run(None, variant.feeds)]
    exact = softq.convert(variant.model, method="exact")
    assert len(exact.plan.sites) == 1, exact.sites[0].verdict
    onnx.checker.check_model(exact.model, full_check=True)
    for g, w in zip(run(exact.model, variant.feeds), want, strict=True):
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
    # With four bits no value leaves the range of V, and what is zero because nothing is attended to stays zero.
    got = run(softq.convert(variant.model, bits=4).model, variant.feeds)[0]
    assert (
        np.abs(got).max()
        <= max(np.abs(variant.feeds[name]).max() for name in ("v", "past_value") if name in variant.feeds) + 1e-5
    )
    assert not got[want[0] == 0].any()


def test_the_variants_cover_what_they_should() -> None:
    drawn = [draw(seed) for seed in range(60)]
    for name in ("mask", "past_key", "lengths"):
        assert sum(name in variant.feeds for variant in drawn) >= 10
    results = [list(ReferenceEvaluator(variant.model).run(None, variant.feeds)) for variant in drawn]
    assert sum(bool((np.asarray(outputs[0]) == 0).all(axis=-1).any()) for outputs in results) >= 10
