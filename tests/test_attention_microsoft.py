"""onnxruntime's Attention and MultiHeadAttention, opened, give what its own fused CPU kernels give.

Tolerance: 1e-5 relative and 1e-6 absolute, of outputs near 1, for sums of products in another order. Where all keys of
a query are masked by -1e4, its scores are multiples of 2^-10, and a sum may round to the next one: there it is 1e-3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import softq

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array | None]

B, S, L, P, N, H = 2, 3, 5, 4, 2, 4
"""Batch, queries, keys of another sequence, past keys, heads, width of a head."""
D = N * H
RNG = np.random.default_rng(5)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*rows: object) -> Array:
    return np.array(rows, np.int32)


Attributes = Mapping[str, int | float | list[int]]

HEADS: Attributes = {"num_heads": N}


def fused(
    operator: str, inputs: Inputs, outputs: str, attributes: Attributes = HEADS, symbolic: bool = False
) -> onnx.ModelProto:
    """Return a model of one node; `symbolic` hides the lengths of batch and sequences."""
    given, wanted = {k: v for k, v in inputs.items() if v is not None}, outputs.split()
    values: list[onnx.ValueInfoProto] = []
    for name, array in given.items():
        keep = {array.ndim - 1} if array.dtype != np.int32 else set[int]()
        keep |= {1} if array.ndim == 4 else {0, 2} if array.ndim == 5 else {0} if name == "weights" else set()
        shape = [n if not symbolic or i in keep else f"{name}{i}" for i, n in enumerate(array.shape)]
        values.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape))
    names = ["" if array is None else name for name, array in inputs.items()]
    kind = TensorProto.FLOAT16 if next(iter(given.values())).dtype == np.float16 else TensorProto.FLOAT
    ranks = {"y": 3, "present": 5}
    shapes = {name: [f"{name}{i}" for i in range(ranks.get(name, 4))] for name in wanted if name != "_"}
    results = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    places = ["" if name == "_" else name for name in wanted]
    node = helper.make_node(operator, names, places, name="fused", domain="com.microsoft")
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    graph = helper.make_graph([node], "g", values, results)
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def run(model: onnx.ModelProto, inputs: Inputs) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(x) for x in session.run(None, {k: v for k, v in inputs.items() if v is not None})]


def same(model: onnx.ModelProto, inputs: Inputs, relative: float = 1e-5) -> None:
    """Convert with the exact method and with four bits; compare with the fused kernel."""
    want = run(model, inputs)
    result = softq.convert(model, method="exact")
    assert [site.role for site in result.sites] == ["attention"]
    assert len(result.plan.sites) == 1, result.sites[0].verdict
    onnx.checker.check_model(result.model, full_check=True)
    assert not any(node.domain == "com.microsoft" for node in result.model.graph.node)
    for g, w in zip(run(result.model, inputs), want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=relative, atol=relative / 10)
    for g, w in zip(run(softq.convert(model, bits=4).model, inputs), want, strict=True):
        assert (np.isfinite(g) == np.isfinite(w)).all()


def mha(**more: Array | None) -> dict[str, Array | None]:
    names = ("query", "key", "value", "bias", "mask", "attention_bias", "past_key", "past_value")
    given: dict[str, Array | None] = {"query": floats(B, S, D), "key": floats(B, S, D), "value": floats(B, S, D)} | more
    last = max(place for place, name in enumerate(names) if given.get(name) is not None)
    return {name: given.get(name) for name in names[: last + 1]}


FULL = ints([0] * S, [1, 0, 2])
PAIRS = ints([[1, 0, 2], [0, -1, 0], [1, 1, 1]], [[1, 1, 1], [0, 0, 1], [0, 0, 0]])
PAST: dict[str, Array | None] = {"past_key": floats(B, N, P, H), "past_value": floats(B, N, P, H)}
WIDE: dict[str, Array | None] = {"key": floats(B, L, D), "value": floats(B, L, D + 2 * N)}

MHA: dict[str, dict[str, Array | None]] = {
    "plain": {},
    "bias": {"bias": floats(3 * D)},
    "other keys": WIDE,
    "other keys and bias": WIDE | {"bias": floats(3 * D + 2 * N)},
    "lengths": {"mask": ints(2, 3)},
    "no key at all": {"mask": ints(2, 0)},
    "lengths out of range": {"mask": ints(-1, 9)},
    "lengths with starts, which are not read": {"mask": ints(2, 3, 0, 3, 6, 0, 3, 6)},
    "keys": {"mask": ints([1, 1, 0], [0, 1, 5])},
    "fully masked": {"mask": FULL},
    "pairs": {"mask": PAIRS},
    "added": {"attention_bias": floats(B, N, S, S)},
    "added to all": {"attention_bias": floats(1, 1, S, S), "mask": ints([1, 1, 0], [0, 1, 1])},
    "past": PAST,
    "past and mask": PAST | {"mask": ints([1, 0, 1, 1, 0, 1, 1], [0, 0, 1, 0, 0, 0, 0])},
    "past and lengths": PAST | {"mask": ints(6, 2)},
    "keys by head": {"key": floats(B, N, L, H), "value": floats(B, N, L, H)},
    "keys by head and bias": {"key": floats(B, N, L, H), "value": floats(B, N, L, H), "bias": floats(3 * D)},
    "one query": {"query": floats(B, 1, D)},
    "more queries than keys": {"query": floats(B, L, D)},
}
FULLY_MASKED = {"no key at all", "lengths out of range", "starts out of range", "fully masked", "pairs"}


@pytest.mark.quick_cases(40)
@pytest.mark.parametrize("symbolic", [False, True], ids=["sizes", "symbols"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("case", MHA)
def test_multi_head_attention(case: str, causal: int, symbolic: bool) -> None:
    inputs = mha(**MHA[case])
    outputs = "y present_key present_value qk" if causal or "past" in case else "y"
    model = fused("MultiHeadAttention", inputs, outputs, {"num_heads": N, "unidirectional": causal}, symbolic)
    same(model, inputs, 1e-3 if case in FULLY_MASKED else 1e-5)


@pytest.mark.parametrize("value", [-5.0, -1e9, -float("inf"), float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("causal", [0, 1])
def test_other_values_at_masked_keys(value: float, causal: int) -> None:
    inputs = mha(mask=FULL)
    options: Attributes = {"num_heads": N, "unidirectional": causal, "mask_filter_value": value, "scale": 0.3}
    same(fused("MultiHeadAttention", inputs, "y", options), inputs)


@pytest.mark.parametrize("outputs", ["y present_key", "y _ present_value", "y _ _ qk"])
def test_any_of_the_outputs(outputs: str) -> None:
    inputs = mha(mask=ints([1, 1, 0], [0, 1, 5]))
    same(fused("MultiHeadAttention", inputs, outputs), inputs)


@pytest.mark.parametrize("outputs", ["y", "y present_key", "y _ present_value", "y _ _ qk"])
def test_past_keys_without_present_ones_are_refused(outputs: str) -> None:
    # The kernel joins past and new keys in the present ones: without these it reads memory that is not its own.
    site = softq.inspect(fused("MultiHeadAttention", mha(**PAST), outputs))[0]
    assert "present outputs" in site.verdict.reason


def test_float16_is_computed_in_float32() -> None:
    inputs = {k: None if v is None else v.astype(np.float16) for k, v in mha(bias=floats(3 * D)).items()}
    same(fused("MultiHeadAttention", inputs, "y"), inputs, 2.0**-9)


def projected(more: Inputs, sizes: tuple[int, int, int] = (D, D, D)) -> dict[str, Array | None]:
    names = ("input", "weights", "bias", "mask", "past", "attention_bias")
    given: dict[str, Array | None] = {"input": floats(B, S, D + 1), "weights": floats(D + 1, sum(sizes)) / 3}
    given |= {"bias": floats(sum(sizes)), **dict(more)}
    last = max(place for place, name in enumerate(names) if given.get(name) is not None)
    return {name: given.get(name) for name in names[: last + 1]}


ATTENTION: dict[str, dict[str, Array | None]] = {
    "plain": {},
    "lengths": {"mask": ints(2, 3)},
    "no key at all": {"mask": ints(2, 0)},
    "lengths and starts": {"mask": ints(2, 3, 0, 1)},
    "starts out of range": {"mask": ints(2, 3, 9, -1)},
    "lengths with starts, which are not read": {"mask": ints(2, 3, 0, 3, 6, 0, 3, 6)},
    "keys": {"mask": ints([1, 1, 0], [0, 1, 5])},
    "fully masked": {"mask": FULL},
    "pairs": {"mask": PAIRS},
    "one column, which is no mask": {"mask": ints([0], [1])},
    "one number, which is no mask": {"mask": ints([0])},
    "past": {"past": floats(2, B, N, P, H)},
    "past and lengths": {"past": floats(2, B, N, P, H), "mask": ints(6, 2)},
    "past and keys": {"past": floats(2, B, N, P, H), "mask": ints([1, 0, 1, 1, 0, 1, 1], [0, 0, 1, 0, 0, 0, 0])},
    "added": {"attention_bias": floats(B, N, S, S)},
    "added to all": {"attention_bias": floats(1, 1, S, S), "mask": ints([1, 1, 0], [0, 1, 1])},
}


@pytest.mark.quick_cases(32)
@pytest.mark.parametrize("symbolic", [False, True], ids=["sizes", "symbols"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case: str, causal: int, symbolic: bool) -> None:
    inputs = projected(ATTENTION[case])
    outputs = "y present" if "past" in case or causal else "y"
    model = fused("Attention", inputs, outputs, {"num_heads": N, "unidirectional": causal}, symbolic)
    same(model, inputs, 1e-3 if case in FULLY_MASKED else 1e-5)


def test_attention_with_hidden_sizes_and_scale() -> None:
    inputs = projected({}, (D, D, D + 2 * N))
    options: Attributes = {"num_heads": N, "qkv_hidden_sizes": [D, D, D + 2 * N], "scale": 0.2}
    same(fused("Attention", inputs, "y", options), inputs)


def test_a_mask_is_one_to_softq_too() -> None:
    site = softq.inspect(fused("Attention", projected({"mask": FULL}), "y"))[0]
    assert (site.mask, site.masked_row, site.shape, site.head_axis) == ("additive", "scores", (B, N, S, S), -3)
    assert (site.axis, site.dtype, site.consumer) == (-1, "float32", "itself")
    inputs = projected({"past": floats(2, B, N, P, H)})
    site = softq.inspect(fused("Attention", inputs, "y present", {"num_heads": N, "unidirectional": 1}))[0]
    assert (site.mask, site.shape) == ("additive", (B, N, S, S + P))


# What the CPU kernel does not run is refused.

KEPT_APART: dict[str, tuple[str, Inputs, Attributes, str]] = {
    "packed query": ("MultiHeadAttention", {"query": floats(B, S, N, 3, H)}, HEADS, "packed"),
    "packed keys": ("MultiHeadAttention", {"query": floats(B, S, D), "key": floats(B, S, N, 2, H)}, HEADS, "packed"),
    "past keys alone": ("MultiHeadAttention", mha(past_key=floats(B, N, P, H)), HEADS, "alone"),
    "rotary": ("Attention", projected({}), {"num_heads": N, "do_rotary": 1}, "rotary"),
    "rank 4": ("Attention", projected({"mask": np.ones((B, 1, 8, 8), np.int32)}), HEADS, "rank 4"),
    "past and bias": (
        "Attention", projected({"past": floats(2, B, N, P, H), "attention_bias": floats(B, N, S, S + P)}),
        HEADS, "bias on",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT_APART)
def test_what_the_kernel_does_not_run_is_refused(case: str) -> None:
    operator, inputs, attributes, reason = KEPT_APART[case]
    model = fused(operator, inputs, "y present" if "past" in case else "y", attributes)
    with pytest.raises(Exception, match=r"NOT_IMPLEMENTED|not implemented|not supported|shall be|cannot"):
        run(model, inputs)
    site = softq.inspect(model, all_sites=True)[0]
    assert site.verdict.action == "refuse"
    assert reason in site.verdict.reason


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ("GroupQueryAttention", "past_key"), ("PackedAttention", "no CPU kernel"), ("SparseAttention", "sparse"),
        ("PackedMultiHeadAttention", "no CPU kernel"), ("DecoderMaskedMultiHeadAttention", "cache"),
        ("QAttention", "integers"), ("QOrderedAttention", "integers"), ("LongformerAttention", "sparse"),
        ("QLinearSoftmax", "integers"), ("PagedAttention", "pages"), ("Unheard0fAttention", "not known"),
    ],
)  # fmt: skip
def test_what_is_not_opened_says_why(operator: str, reason: str) -> None:
    site = softq.inspect(fused(operator, {"x": floats(B, S, D)}, "y"), all_sites=True)[0]
    assert site.verdict.action == "refuse"
    assert reason in site.verdict.reason
    assert f"com.microsoft::{operator}" in site.verdict.reason


def test_shared_buffers_and_symbolic_widths_are_refused() -> None:
    inputs = mha(**PAST) | {"past_sequence_length": ints(2)}
    site = softq.inspect(fused("MultiHeadAttention", inputs, "y a b"))[0]
    assert "past_sequence_length" in site.verdict.reason
    model = fused("MultiHeadAttention", mha(), "y")
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "width"
    assert "hidden sizes" in softq.inspect(model)[0].verdict.reason


def test_what_is_not_selected_stays_fused() -> None:
    inputs = mha()
    model = fused("MultiHeadAttention", inputs, "y")
    second = onnx.NodeProto()
    second.CopyFrom(model.graph.node[0])
    second.name, second.output[0] = "second", "z"
    model.graph.node.append(second)
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["b", "s", "d"]))
    result = softq.convert(model, method="exact", sites=["z"])
    kept = [node for node in result.model.graph.node if node.domain == "com.microsoft"]
    assert [node.SerializeToString() for node in kept] == [model.graph.node[0].SerializeToString()]
    for g, w in zip(run(result.model, inputs), run(model, inputs), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
