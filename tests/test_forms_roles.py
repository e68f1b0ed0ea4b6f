"""What weights are used for, where they are changed before they meet the values, and what is no attention after all."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import softq

BIG = "float[2, 4, 8, 8] s, float[2, 4, 8, 8] r, float[2, 4, 8, 16] v, float[2, 1, 8, 8] m"
ROWS = "float[2, 64, 7] s, float[2, 64, 16] v, float[2, 64, 1] one_head, float[8, 12, 1, 1] unused"
CONSTANTS = """float lam = {0.2}, float eps = {1e-8}, int64[1] first = {1}, int64[1] last = {3},
    float[4, 4] mix = {2, 0, 0, 0, 0, 1, 0, 0, 0, 3, 1, 0, 0, 0, 0, 1},
    float[4, 4, 1, 1] mix1 = {2, 0, 0, 0, 0, 1, 0, 0, 0, 3, 1, 0, 0, 0, 0, 1},
    float[1, 4, 1, 1] classes = {3, 1, 4, 1}, float[1, 4, 1, 1] places = {0, 1, 2, 3}"""
ATTENTION = {
    "differential": (BIG, """p = Softmax (s) p2 = Softmax (r) l = Mul (p2, lam) d = Sub (p, l) y = MatMul (d, v)"""),
    "talking heads": (
        BIG,
        """p = Softmax (s) t = Transpose <perm = [0, 2, 3, 1]> (p) o = MatMul (t, mix)
        u = Transpose <perm = [0, 3, 1, 2]> (o) y = MatMul (u, v)""",
    ),
    "talking heads, Einsum": (
        BIG, 'p = Softmax (s) u = Einsum <equation = "bhij,hg->bgij"> (p, mix) y = MatMul (u, v)'
    ),
    "talking heads, Conv": (BIG, "p = Softmax (s) u = Conv (p, mix1) y = MatMul (u, v)"),
    "a mask behind": (BIG, "p = Softmax (s) u = Mul (p, m) y = MatMul (u, v)"),
    "a mask behind, normalized": (
        BIG,
        """p = Softmax (s) u = Mul (p, m) t = ReduceSum <keepdims = 1> (u, last) n = Div (u, t)
        y = MatMul (n, v)""",
    ),
    "slots": (
        ROWS,
        """p = Softmax <axis = 2> (s) a = Add (p, eps) t = ReduceSum <keepdims = 1> (a, first) n = Div (a, t)
        k = Transpose <perm = [0, 2, 1]> (n) y = MatMul (k, v)""",
    ),
    "pooling": (ROWS, "p = Softmax <axis = 1> (one_head) w = Mul (p, v) y = ReduceSum <keepdims = 0> (w, first)"),
    "a logarithm of more than the weights": (
        BIG, "p = Softmax (s) a = Add (p, eps) z = Log (a) y = MatMul (p, v)"
    ),
}  # fmt: skip
OTHERS = {
    "gate": (ROWS, "p = Softmax <axis = 2> (s) q = Mul (p, s) y = MatMul (mix7, q)", "other"),
    "entropy": (
        BIG,
        "p = Softmax (s) e = Add (p, eps) l = Log (e) w = Mul (p, l) y = ReduceSum <keepdims = 0> (w, last)",
        "other",
    ),
    "segmentation": (BIG, "p = Softmax <axis = 1> (s) y = Conv (p, classes)", "other"),
    "expected place": (BIG, "p = Softmax <axis = 1> (s) y = Conv (p, places)", "detector"),
    "a residual": (BIG, "p = Softmax (s) u = Add (p, r) y = MatMul (u, v)", "other"),
    "chosen experts": (
        ROWS,
        """t, i = TopK <axis = 1> (one_head, first) p = Softmax <axis = 1> (t) g = Gather <axis = 1> (v, first)
        w = Mul (p, g) y = ReduceSum <keepdims = 0> (w, first)""",
        "router",
    ),
}  # fmt: skip


def model(inputs: str, lines: str) -> onnx.ModelProto:
    constants = CONSTANTS + ", float[3, 64] mix7 = {" + ", ".join("1" for _ in range(192)) + "}"
    head = f'<ir_version: 10, opset_import: ["": 18]> g ({inputs}) => (float y) <{constants}>'
    proto = parser.parse_model(f"{head} {{ {lines} }}")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


@pytest.mark.parametrize(("inputs", "lines"), ATTENTION.values(), ids=list(ATTENTION))
def test_changed_weights_are_attention_all_the_same(inputs: str, lines: str) -> None:
    proto = model(inputs, lines)
    found = softq.convert(proto, method="exact", inline=True)
    assert {(site.role, site.verdict.action) for site in found.sites} == {("attention", "convert")}
    rng = np.random.default_rng(0)
    feed = {
        spec.name: rng.random([dim.dim_value for dim in spec.type.tensor_type.shape.dim]).astype(np.float32)
        for spec in proto.graph.input
    }
    outputs = [_run(each, feed) for each in (proto, found.model)]
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-5, atol=1e-6)


def _run(proto: onnx.ModelProto, feed: dict[str, Any]) -> Any:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


@pytest.mark.parametrize(("inputs", "lines", "role"), OTHERS.values(), ids=list(OTHERS))
def test_what_is_something_else_keeps_its_role(inputs: str, lines: str, role: str) -> None:
    (site,) = softq.inspect(model(inputs, lines))
    assert (site.role, site.verdict.action) == (role, "keep")


def test_all_sites_leaves_the_exact_rewrite_of_an_order_alone() -> None:
    proto = model(BIG, "p = Softmax (s) y = ArgMax <axis = -1> (p)")
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    for all_sites in (False, True):
        result = softq.convert(proto, all_sites=all_sites)
        assert [site.rewrite for site in result.sites] == ["drop-argmax"]
        assert [node.op_type for node in result.model.graph.node] == ["ArgMax"]


def test_an_integer_mask_counts_on_the_users_word() -> None:
    inputs = "float[2, 4, 8, 8] s, float[2, 4, 8, 16] v, int64[2, 8] m"
    lines = """
        middle = Constant <value_ints = [1, 2]> ()
        u = Unsqueeze (m, middle) f = Cast <to = 1> (u)
        e = Exp (s) q = Mul (e, f) t = ReduceSum (q, last) p = Div (q, t) y = MatMul (p, v)
    """
    proto = model(inputs, lines)
    (site,) = softq.inspect(proto)
    assert site.verdict.action == "refuse"
    assert "say --mask m" in site.verdict.reason
    result = softq.convert(proto, method="exact", masks=["m"], inline=True)
    assert result.sites[0].verdict.action == "convert"
    rng = np.random.default_rng(0)
    mask = (rng.random((2, 8)) < 0.5).astype(np.int64)
    mask[:, 0] = 1
    feed = {"s": rng.normal(size=(2, 4, 8, 8)).astype(np.float32), "v": np.ones((2, 4, 8, 16), np.float32), "m": mask}
    np.testing.assert_allclose(_run(result.model, feed), _run(proto, feed), rtol=1e-5, atol=1e-6)
