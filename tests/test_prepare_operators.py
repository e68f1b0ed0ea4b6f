"""expand-operators: the bodies that ONNX defines compute what onnxruntime and onnx's reference compute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from softq.passes.expand_operators import OPENED, ExpandOperators
from softq.passes.infer_shapes import InferShapes
from tests.prepared import Array, Arrays, applied, assert_close, by_onnxruntime, by_reference, model, normal, operators

_TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bool": TensorProto.BOOL,
    "int64": TensorProto.INT64,
}

# Rounding of float32 sums of at most 16 products, of exp and of one division, each in another order than the kernels'.
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}


@dataclass(frozen=True)
class Case:
    name: str
    inputs: Arrays
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 23
    names: tuple[str, ...] | None = None


def attention(case: Case, *, dynamic: bool) -> onnx.ModelProto:
    names = list(case.names or case.inputs)
    outs = [f"o{k}" for k in range(case.outputs)]
    node = helper.make_node("Attention", names, outs, **case.attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, _TYPES[str(a.dtype)], [f"{name}{k}" for k in range(a.ndim)] if dynamic else a.shape
        )
        for name, a in case.inputs.items()
    ]
    ranks = [case.inputs["q"].ndim, 4, 4, 4]
    outputs = [
        helper.make_tensor_value_info(name, _TYPES[str(case.inputs["q"].dtype)], [f"{name}_{k}" for k in range(rank)])
        for name, rank in zip(outs, ranks, strict=False)
    ]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)


def qkv(heads: int = 4, kv_heads: int = 4, q: int = 3, kv: int = 5, size: int = 8, v: int = 8) -> dict[str, Array]:
    return {
        "q": normal(1, 2, heads, q, size),
        "k": normal(2, 2, kv_heads, kv, size),
        "v": normal(3, 2, kv_heads, kv, v),
    }


def flat(heads: int = 4, kv_heads: int = 2, q: int = 3, kv: int = 5) -> dict[str, Array]:
    return {"q": normal(1, 2, q, heads * 8), "k": normal(2, 2, kv, kv_heads * 8), "v": normal(3, 2, kv, kv_heads * 8)}


def past(length: int = 2, heads: int = 4) -> dict[str, Array]:
    return {"past_k": normal(5, 2, heads, length, 8), "past_v": normal(6, 2, heads, length, 8)}


TRUTH = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 1, 1], [1, 0, 0, 0, 0]], bool)

CASES = [
    Case("plain", qkv()),
    Case("other-v-size", qkv(v=6)),
    Case("scale", qkv(), {"scale": 0.3}),
    Case("causal", qkv(q=5), {"is_causal": 1}),
    Case("softcap", qkv(), {"softcap": 2.0}),
    Case("bool-mask", {**qkv(), "m": TRUTH}),
    Case("float-mask", {**qkv(), "m": normal(4, 2, 1, 3, 5)}),
    Case("grouped", qkv(kv_heads=2)),
    Case("grouped-flat", flat(), {"q_num_heads": 4, "kv_num_heads": 2}),
    Case("flat", flat(kv_heads=4), {"q_num_heads": 4, "kv_num_heads": 4, "is_causal": 1}),
    Case(
        "past", {**qkv(q=3, kv=3), **past()}, {"is_causal": 1}, outputs=3, names=("q", "k", "v", "", "past_k", "past_v")
    ),
    Case("past-and-mask", {**qkv(q=3, kv=3), "m": TRUTH, **past()}, outputs=3),
    *(
        Case(f"scores-{mode}", {**qkv(), "m": normal(4, 3, 5)}, {"qk_matmul_output_mode": mode}, outputs=4, opset=24)
        for mode in (0, 3)
    ),
    Case("opset-24", {**qkv(kv_heads=2), "m": TRUTH}, opset=24),
    Case("opset-25", {**qkv(q=5), "m": normal(4, 5, 5)}, {"is_causal": 1}, opset=25),
    Case("padded", {**qkv(), "n": np.array([2, 5])}, opset=24, names=("q", "k", "v", "", "", "", "n")),
    Case("precision", qkv(), {"softmax_precision": 1}),
]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_attention_is_what_the_reference_computes(case: Case, dynamic: bool) -> None:
    before = attention(case, dynamic=dynamic)
    after = applied(ExpandOperators(), before)
    assert operators(after)["Attention"] == 0
    assert operators(after)["Softmax"] == 1
    expected = by_reference(before, case.inputs)
    assert_close(by_reference(after, case.inputs), expected, **TOLERANCE)
    assert_close(by_onnxruntime(after, case.inputs), expected, **TOLERANCE)


@pytest.mark.parametrize("case", [case for case in CASES if case.opset == 23], ids=lambda case: case.name)
def test_attention_is_what_onnxruntime_computes(case: Case) -> None:
    before = attention(case, dynamic=False)
    after = applied(ExpandOperators(), before)
    assert_close(by_onnxruntime(after, case.inputs), by_onnxruntime(before, case.inputs), **TOLERANCE)


def test_attention_of_half_floats() -> None:
    feed = {name: array.astype(np.float16) for name, array in qkv(kv_heads=2).items()}
    before = attention(Case("half", feed, {"softmax_precision": TensorProto.FLOAT}), dynamic=False)
    after = applied(ExpandOperators(), before)
    # float16 has a unit of 2^-10 for weights and results around 1, and eight products are added.
    assert_close(by_onnxruntime(after, feed), by_reference(before, feed), atol=2.0**-8)


ROTARY = {
    "x": normal(1, 2, 4, 3, 8),
    "c": normal(2, 10, 4),
    "s": normal(3, 10, 4),
    "p": np.array([[0, 1, 2], [4, 9, 3]]),
}


@pytest.mark.parametrize("opset", [23, 24, 25])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("form", ["positions", "no-positions", "partial", "flat"])
def test_rotary_embedding(form: str, interleaved: int, opset: int) -> None:
    feed: dict[str, Array] = dict(ROTARY)
    options = [f"interleaved: int = {interleaved}"]
    ids, x = "int64[B, T] p", "float[B, 4, T, 8] x"
    if form == "no-positions":
        feed = {"x": feed["x"], "c": normal(2, 2, 3, 4), "s": normal(3, 2, 3, 4)}
        ids = ""
    if form == "partial":
        feed |= {"c": normal(2, 10, 2), "s": normal(3, 10, 2)}
        options += ["rotary_embedding_dim: int = 4", "num_heads: int = 4"]
    if form == "flat":
        feed["x"], x = normal(1, 2, 3, 32), "float[B, T, 32] x"
        options.append("num_heads: int = 4")
    width = feed["c"].shape[-1]
    rows = "10" if ids else "B, T"
    caches = f"float[{rows}, {width}] c, float[{rows}, {width}] s"
    arguments = "x, c, s, p" if ids else "x, c, s"
    before = model(
        f"g ({x}, {caches}{', ' + ids if ids else ''}) => ({x.replace(' x', ' y')}) "
        f"{{ y = RotaryEmbedding <{', '.join(options)}> ({arguments}) }}",
        opset,
    )
    after = applied(ExpandOperators(), before)
    assert operators(after)["RotaryEmbedding"] == 0
    expected = by_reference(before, feed)
    # Two products and a sum: the same ones in the same order.
    assert_close(by_reference(after, feed), expected, rtol=1e-6, atol=1e-6)
    assert_close(by_onnxruntime(after, feed), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("opset", [23, 25])
@pytest.mark.parametrize("axis", [-1, 1])
def test_rms_normalization(axis: int, opset: int) -> None:
    shape = "8" if axis == -1 else "6, 8"
    before = model(
        f"g (float[N, 6, 8] x, float[{shape}] w) => (float[N, 6, 8] y) "
        f"{{ y = RMSNormalization <axis: int = {axis}, epsilon: float = 0.001> (x, w) }}",
        opset,
    )
    feed = {"x": normal(1, 3, 6, 8), "w": normal(2, *((8,) if axis == -1 else (6, 8)))}
    after = applied(ExpandOperators(), before)
    assert operators(after)["RMSNormalization"] == 0
    # A mean of at most 48 squares, a root, a division.
    assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed), rtol=1e-5)


# onnx's reference takes exp of large numbers on its way to 0 and 1.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("alpha", ["", "<alpha: float = 1.5>"])
@pytest.mark.parametrize("opset", [24, 25, 27])
def test_swish(alpha: str, opset: int) -> None:
    before = model(f"g (float[N] x) => (float[N] y) {{ y = Swish {alpha} (x) }}", opset)
    feed = {"x": np.array([-100, -3, -0.0, 0, 1, 20, np.inf, np.nan], np.float32)}
    after = applied(ExpandOperators(), before)
    # The tail of the sigmoid at -100 is 3.7e-44, a denormal number of few bits.
    # By the reference: onnxruntime ends before operator set 27.
    assert_close(by_reference(after, feed), by_reference(before, feed), rtol=2e-6, atol=1e-40)


@pytest.mark.parametrize("opset", [18, 20, 23])
def test_celu_of_older_operator_sets(opset: int) -> None:
    before = model("g (float[N] x) => (float[N] y) { y = Celu <alpha: float = 2.0> (x) }", opset)
    feed = {"x": normal(1, 50)}
    after = applied(ExpandOperators(), before)
    assert "Celu" not in operators(after)
    assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed), rtol=1e-6, atol=2e-7)


def test_what_is_not_known_or_not_asked_for_stays() -> None:
    unknown = model("g (float[N] x) => (float[N] y) { z = custom.Any (x)  y = Swish (z) }", 24, custom=1)
    assert operators(applied(ExpandOperators(), unknown, check=False))["Swish"] == 1
    known = model("g (float[N] x) => (float[N] y) { y = Swish (x) }", 24)
    assert operators(applied(ExpandOperators({"Attention"}), known))["Swish"] == 1


def test_bodies_of_if_are_opened_and_metadata_goes_along() -> None:
    before = model(
        "g (bool c, float[N] x) => (float[N] y) {"
        " y = If (c) <then_branch = t () => (float[N] a) { a = Swish (x) },"
        " else_branch = e () => (float[N] b) { b = Identity (x) }> }",
        24,
    )
    feed = {"c": np.array(True), "x": normal(1, 4)}
    after = applied(ExpandOperators(), before)
    assert [node.op_type for node in after.graph.node[0].attribute[0].g.node][-1] == "Mul"
    assert_close(by_onnxruntime(after, feed), by_reference(before, feed), rtol=2e-6)


def test_every_operator_of_the_list_has_a_body() -> None:
    for name in OPENED:
        schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == name and s.domain == ""]
        assert any(s.has_function or s.has_context_dependent_function for s in schemas), name  # type: ignore[attr-defined]


def test_shapes_reach_through_what_was_opened() -> None:
    before = attention(CASES[7], dynamic=False)
    after = applied(InferShapes(), applied(ExpandOperators(), before))
    known = {value.name for value in after.graph.value_info}
    assert known >= {name for node in after.graph.node for name in node.output if name and name != "o0"}
