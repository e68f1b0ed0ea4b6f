"""The operator Attention of ONNX: what its site says, where it is opened, and what its rows are then.

ONNX's node tests, in `test_onnx_node_tests.py`, say that the values are right; the reference here is a formula in
float64. Tolerance: 1e-5 of outputs near 1, for sums of products in another order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import softq
from softq.errors import RefusalError
from tests.attention import run, softmax64

Array = np.ndarray[Any, Any]

B, N, S, T, H = 2, 3, 4, 6, 8
Q = f"float[b,{N},s,{H}] q"
QKV = f"{Q}, float[b,{N},t,{H}] k, float[b,{N},t,{H}] v"
RNG = np.random.default_rng(3)


def model(attributes: str = "", inputs: str = QKV, operands: str = "q, k, v", opset: int = 23) -> onnx.ModelProto:
    ir_version = 11 if opset < 24 else 13
    return parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["": {opset}]> g ({inputs}) => (float[b,{N},s,{H}] y)'
        f"{{ y = Attention{f'<{attributes}>' if attributes else ''}({operands}) }}"
    )


def feed(**more: Array) -> dict[str, Array]:
    made = {name: RNG.standard_normal((B, N, T, H)).astype(np.float32) for name in "kv"}
    return {"q": RNG.standard_normal((B, N, S, H)).astype(np.float32), **made, **more}


def reference(feeds: dict[str, Array], hidden: Array) -> Array:
    """Return the attention with -inf at hidden positions, and rows of zeros where all are hidden."""
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    scores = np.where(hidden, -np.inf, q @ k.swapaxes(-1, -2) / np.sqrt(H))
    return np.nan_to_num(softmax64(scores), nan=0.0) @ v


def hidden_keys() -> Array:
    hidden = RNG.random((B, 1, S, T)) < 0.4
    hidden[0, :, 1], hidden[1, :, 3], hidden[:, :, 0] = True, True, False
    return hidden


BOOLEAN = (f"{QKV}, bool[b,1,s,t] m", "q, k, v, m")
ADDED = (f"{QKV}, float[b,1,s,t] m", "q, k, v, m")


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize("opset", [23, 24, 25, 26, 28])
@pytest.mark.parametrize("kind", [BOOLEAN, ADDED], ids=["boolean", "added"])
@pytest.mark.parametrize(("method", "bound"), [("exact", 1e-5), ("uniform", 0.1), ("log2", 0.9), ("deferred-log", 0.9)])
def test_rows_without_a_key_are_zeros_in_every_method(
    opset: int, kind: tuple[str, str], method: str, bound: float
) -> None:
    hidden = hidden_keys()
    mask = ~hidden if kind is BOOLEAN else np.where(hidden, -np.inf, 0).astype(np.float32)
    feeds = feed(m=mask)
    result = softq.convert(model("", *kind, opset=opset), method=method)
    onnx.checker.check_model(result.model, full_check=True)
    got, want = run_anywhere(result.model, feeds), reference(feeds, hidden)
    empty = np.broadcast_to(hidden.all(-1), got.shape[:-1])
    assert empty.any()
    assert not got[empty].any()
    assert np.abs(got - want).max() < bound
    assert np.abs(want).max() > 1


def run_anywhere(proto: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    """Return the first output; a model of an opset that onnxruntime does not know runs under the newest it knows.

    After the conversion nothing is left that changed since.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for imports in (copy.opset_import, *(function.opset_import for function in copy.functions)):
        for known in imports:
            known.version = min(known.version, 24) if not known.domain else known.version
    copy.ir_version = min(copy.ir_version, 11)
    return run(copy, feeds)


def test_the_site_says_what_the_node_shows() -> None:
    def facts(*arguments: str, opset: int = 23) -> tuple[object, ...]:
        site = softq.inspect(model(*arguments, opset=opset))[0]
        assert (site.axis, site.head_axis, site.role, site.consumer) == (-1, -3, "attention", "itself")
        assert (site.masked_row, site.guard) == ("zero", "row-where")
        return site.mask, site.shape, site.dtype

    assert facts() == ("none", ("b", N, "s", "t"), "float32")
    assert facts("is_causal=1") == ("additive", ("b", N, "s", "t"), "float32")
    assert facts("left_window_size=2", opset=25)[0] == "additive"
    assert facts("softmax_precision=16")[2] == "bfloat16"
    assert facts("", *BOOLEAN)[0] == "additive"
    assert facts("", *ADDED)[0] == "unproven"
    flat = (
        f"float[2,4,{N * H}] q, float[2,6,{N * H}] k, float[2,6,{N * H}] v, float[2,{N},5,{H}] a, float[2,{N},5,{H}] c"
    )
    heads = f"q_num_heads={N}, kv_num_heads={N}"
    assert facts(heads, flat, "q, k, v, , a, c")[1] == (2, N, 4, 11)


def test_the_division_goes_behind_the_product_with_v() -> None:
    result = softq.convert(model("is_causal=1", *BOOLEAN), bits=4).model
    operators = [node.op_type for node in result.graph.node]
    assert operators[-5:] == ["MatMul", "Div", "Constant", "Where", "Identity"]
    # One in the scale, one behind the product, one in the number of heads a key has; none over the weights.
    assert operators.count("Div") == 3


def test_the_guard_is_found_in_front_of_a_cast() -> None:
    inputs = "float16[b,3,s,8] q, float16[b,3,t,8] k, float16[b,3,t,8] v, bool[b,1,s,t] m"
    proto = model("softmax_precision=1", inputs, "q, k, v, m")
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    result = softq.convert(proto, bits=4).model
    assert [node.op_type for node in result.graph.node][-6:] == [
        "MatMul",
        "Div",
        "Constant",
        "Where",
        "Cast",
        "Identity",
    ]
    hidden = hidden_keys()
    feeds = {name: array.astype(np.float16) for name, array in feed().items()} | {"m": ~hidden}
    got = run(softq.convert(proto, method="exact").model, feeds)
    np.testing.assert_allclose(got.astype(np.float64), reference(feeds, hidden), rtol=0, atol=2.0**-8)


@pytest.mark.parametrize("opset", [23, 24, 25])
def test_a_causal_mask_of_a_boolean_one_reaches_the_method(opset: int) -> None:
    hidden = hidden_keys()
    feeds = feed(m=~hidden)
    result = softq.convert(model("is_causal=1", *BOOLEAN, opset=opset), method="exact").model
    later = np.arange(T) > np.arange(S)[:, None]
    np.testing.assert_allclose(run_anywhere(result, feeds), reference(feeds, hidden | later), rtol=0, atol=1e-5)
    assert [function.name for function in result.functions] == ["Exact_valid"]


def test_what_is_told_of_a_method_is_true_of_what_is_opened() -> None:
    for kind, name in ((BOOLEAN, "softq::Exact_valid"), (ADDED, "softq::Exact_f32")):
        cost = softq.explain(model("", *kind), "y", method="exact").cost
        assert cost is not None
        assert cost.function == name


def test_a_nan_in_a_row_that_has_keys_stays_a_nan() -> None:
    hidden = hidden_keys()
    feeds = feed(m=~hidden)
    feeds["q"][0, 0, 2, 0] = np.nan
    got = run(softq.convert(model("", *BOOLEAN), bits=4).model, feeds)
    assert np.isnan(got[0, 0, 2]).all()
    assert np.isfinite(np.delete(got.reshape(-1, H), 2, axis=0)).all()


def test_a_float_mask_that_the_user_names_is_lifted() -> None:
    hidden = hidden_keys()
    feeds = feed(m=np.where(hidden, -np.inf, 0).astype(np.float32))
    result = softq.convert(model("", *ADDED), method="exact", masks=["m"])
    assert result.sites[0].mask == "additive"
    assert [function.name for function in result.model.functions] == ["Exact_valid"]
    np.testing.assert_allclose(run(result.model, feeds), reference(feeds, hidden), rtol=0, atol=1e-5)


def test_double_is_computed_in_float32_where_that_is_allowed() -> None:
    hidden = hidden_keys()
    feeds = feed(m=~hidden)
    proto = model("softmax_precision=11", *BOOLEAN)
    assert "--allow-float32" in softq.inspect(proto)[0].verdict.reason
    result = softq.convert(proto, method="exact", allow_float32=True)
    assert len(result.plan.sites) == 1
    np.testing.assert_allclose(run(result.model, feeds), reference(feeds, hidden), rtol=0, atol=1e-5)


def test_options_are_fitted_on_what_is_inside() -> None:
    feeds = [feed(m=~hidden_keys()) for _ in range(4)]
    result = softq.convert(model("", *BOOLEAN), bits=3, settings={"r": "head"}, calibration=feeds)
    fitted = result.plan.sites[0].fitted["r"]
    assert isinstance(fitted, tuple)
    assert len(fitted) == N
    assert np.isfinite(run(result.model, feeds[0])).all()


TWO = f"""<ir_version: 11, opset_import: ["": 23]> g ({QKV}) => (float[b,{N},s,{H}] y, float[b,{N},s,{H}] z)
    {{ ["first"] y = Attention(q, k, v) ["second"] z = Attention<is_causal=1>(q, k, v) }}"""


def test_what_is_not_selected_stays_fused() -> None:
    proto, feeds = parser.parse_model(TWO), feed()
    result = softq.convert(proto, method="exact", sites=["z"])
    kept = [node for node in result.model.graph.node if node.op_type == "Attention"]
    proto.graph.node[0].ClearField("domain")
    assert [node.SerializeToString() for node in kept] == [proto.graph.node[0].SerializeToString()]
    np.testing.assert_array_equal(run(result.model, feeds), run(proto, feeds))
    both = softq.convert(proto, bits=4)
    assert [site.id for site in both.plan.sites] == ["y", "z"]
    assert not any(node.op_type == "Attention" for node in both.model.graph.node)


def test_in_the_body_of_an_if_and_in_a_function() -> None:
    inside = parser.parse_model(
        f"""<ir_version: 11, opset_import: ["": 23, "own": 1]>
        g (bool c, {QKV}) => (float[b,{N},s,{H}] y, float[b,{N},s,{H}] z) {{
            y = If (c) <then_branch = t () => (float[b,{N},s,{H}] p) {{ p = Attention<is_causal=1>(q, k, v) }},
                        else_branch = e () => (float[b,{N},s,{H}] r) {{ r = Identity(q) }}>
            z = own.attend(q, k, v)
        }}
        <domain: "own", opset_import: ["": 23]> attend (a, b, d) => (o) {{ o = Attention(a, b, d) }}"""
    )
    feeds = feed(c=np.array(True))
    result = softq.convert(inside, method="exact")
    assert len(result.plan.sites) == 2
    onnx.checker.check_model(result.model, full_check=True)
    later = np.arange(T) > np.arange(S)[:, None]
    np.testing.assert_allclose(run(result.model, feeds), reference(feeds, later), rtol=0, atol=1e-5)


def without_v() -> onnx.ModelProto:
    """Return an Attention that names no V."""
    proto = model()
    proto.graph.node[0].input[2] = ""
    return proto


@pytest.mark.parametrize(
    ("proto", "reason"),
    [
        (without_v(), "lacks one of Q, K and V"),
        (model("softmax_precision=7"), "no float type"),
    ],
)
def test_what_cannot_be_opened_says_so(proto: onnx.ModelProto, reason: str) -> None:
    site = softq.inspect(proto)[0]
    assert site.verdict.action == "refuse"
    assert reason in site.verdict.reason


def test_an_unknown_rank_and_a_foreign_attribute_are_refused() -> None:
    proto = model("", *ADDED)
    proto.graph.input[3].type.tensor_type.ClearField("shape")
    assert "rank of m" in softq.inspect(proto)[0].verdict.reason
    proto = parser.parse_model(
        f"""<ir_version: 11, opset_import: ["": 23, "own": 1]> g ({QKV}) => (float[b,{N},s,{H}] y) {{
            y = own.attend<causal = 1>(q, k, v)
        }}
        <domain: "own", opset_import: ["": 23]> attend <causal> (a, b, d) => (o) {{
            o = Attention<is_causal: int = @causal>(a, b, d)
        }}"""
    )
    assert "attribute is_causal" in softq.inspect(proto)[0].verdict.reason
    with pytest.raises(RefusalError, match="attribute is_causal"):
        softq.convert(proto, require=True)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ("softcap = -1.0", "node y has a softcap of -1.0, below 0, where ONNX's definitions differ"),
        (
            f"q_num_heads = {N}, kv_num_heads = {N}",
            "node y has q_num_heads, which ONNX allows for inputs of three axes",
        ),
        (f"kv_num_heads = {N}", "node y has kv_num_heads, which ONNX allows for inputs of three axes"),
    ],
)
def test_attributes_where_the_body_and_the_reference_differ_are_refused(attributes: str, reason: str) -> None:
    (site,) = softq.inspect(model(attributes))
    assert site.verdict.action == "refuse"
    assert site.verdict.reason.startswith(reason)
