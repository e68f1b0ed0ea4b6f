"""Softmaxes in spellings that no form knows, functions that only resemble one, and operators that hold one."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import helper, parser

import softq
from tests.forms import build

INPUTS = "float[2,4,8] q, float[2,5,8] k, float[2,5,8] v, int64[9] to, float[9] s, float[9] acc, float[9,4] w"
REFUSED = {
    "scatter": """a = ScatterElements<axis = 0, reduction = "add">(none, to, e); b = Gather(a, to); c = 1e-16
        d = Add(b, c); p = Div(e, d)""",
    "scatter, no maximum": """x = Exp(s); a = ScatterElements<axis = 0, reduction = "add">(none, to, x)
        b = Gather(a, to); p = Div(x, b)""",
    "one-hot": "a = MatMul(edges, e); t = Transpose(edges); b = MatMul(t, a); p = Div(e, b)",
    "einsum": 'a = Einsum<equation = "ij,j->i">(edges, e); b = Gather(a, to); p = Div(e, b)',
    "running": "axis = [0]; a = CumSum(e, axis); p = Div(e, a)",
    "windows": """n = [1, 1, 9]; x = Reshape(e, n); a = AveragePool<kernel_shape = [3], pads = [1, 1]>(x)
        p = Div(x, a)""",
    "convolution": """n = [1, 1, 9]; x = Reshape(e, n); a = Conv<pads = [1, 1]>(x, ones3); b = Reciprocal(a)
        p = Mul(x, b)""",
    "logarithm": "a = MatMul(edges, e); b = Gather(a, to); l = Log(b); n = Neg(l); r = Exp(n); p = Mul(e, r)",
    "two blocks": "f = Exp(acc); t = Add(e, f); p = Div(e, t)",
    "two halves": "a, b = Split<axis = 0>(e, halves); t = Add(a, b); p = Div(e, t)",
    "two columns": """x = Reshape(e, three); i = [0]; j = [1]; a = Slice(x, i, j, j); n = [2]; b = Slice(x, j, n, j)
        t = Add(a, b); p = Div(x, t); y = Mul(p, x)""",
    "a softmax below": """a = MatMul(edges, e); b = Gather(a, to); p = Div(e, b); r = Softmax(p); y = Identity(r)""",
}
CONSTANTS = """<int64[2] halves = {3, 6}, int64[2] three = {3, 3},
    float[5] none = {0, 0, 0, 0, 0}, float[1,1,3] ones3 = {1, 1, 1},
    float[5,9] edges = {1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}>"""
KEPT = {
    "linear attention": ("""f = Relu(q); g = Relu(k); t = Transpose<perm = [0, 2, 1]>(g); c = MatMul(t, v)
        n = MatMul(f, c); a = ReduceSum[1](g); b = Mul(f, a); d = ReduceSum[-1](b); y = Div(n, d)""",
        "linear attention"),
    "linear attention by Einsum": ("""f = Elu(q); g = Elu(k); c = Einsum<equation = "bnd,bne->bde">(g, v)
        a = ReduceSum[1]k0(g); d = Einsum<equation = "bnd,bd->bn">(f, a); r = Reciprocal(d)
        n = Einsum<equation = "bnd,bde->bne">(f, c); u = Unsqueeze[-1](r); y = Mul(n, u)""", "linear attention"),
    "exponentials as features": ("""f = Exp(q); g = Exp(k); t = Transpose<perm = [0, 2, 1]>(g); c = MatMul(t, v)
        n = MatMul(f, c); a = ReduceSum[1](g); b = Transpose<perm = [0, 2, 1]>(a); d = MatMul(f, b); y = Div(n, d)""",
        "linear attention"),
    "linear attention, squared": ("""f = Relu(q); g = Relu(k); t = Transpose<perm = [0, 2, 1]>(g); a = MatMul(f, t)
        d = ReduceSum[-1](a); p = Div(a, d); y = MatMul(p, v)""", "linear attention"),
    "SOFT": ("""a = Mul(q, q); b = ReduceSum[-1](a); t = Transpose<perm = [0, 2, 1]>(k); p = MatMul(q, t); d = Sub(b, p)
        h = -0.5; m = Mul(d, h); e = Exp(m); y = MatMul(e, v)""", "as in SOFT"),
    "StableMax": ("""zero = 0.0; one = 1.0; c = Less(s, zero); u = Add(s, one); n = Sub(one, s); r = Reciprocal(n)
        x = Where(c, r, u); t = ReduceSum[-1](x); y = Div(x, t)""", "StableMax"),
}  # fmt: skip
NONE = {
    "sigmoid": "one = 1.0; n = Neg(s); e = Exp(n); d = Add(e, one); y = Div(one, d)",
    "tanh": "n = Neg(s); e = Exp(s); f = Exp(n); a = Sub(e, f); b = Add(e, f); y = Div(a, b)",
    "normalized by the root": """e = Exp(s); m = ReduceMean[-1](e); d = Sub(e, m); v2 = Mul(d, d)
        a = ReduceMean[-1](v2); r = Sqrt(a); y = Div(d, r)""",
    "the length of exponentials": "e = Exp(s); a = Mul(e, e); t = ReduceSum[-1](a); r = Sqrt(t); y = Div(e, r)",
    "a Gaussian likelihood": "e = Exp(s); d = Mul(s, s); a = Div(d, e); y = ReduceSum[-1](a)",
    "boxes": "e = Exp(q); h = 0.5; a = Mul(e, h); b = Sub(q, a); c = Add(q, a); d = Sub(c, b); y = Div(d, c)",
    "a product over another sum": """t = Transpose<perm = [0, 2, 1]>(k); c = MatMul(t, v); n = MatMul(q, c)
        d = ReduceSum[-1](s); y = Div(n, d)""",
    "a decay": "axis = [1]; c = CumSum(q, axis); e = Exp(c); y = Mul(e, q)",
    "a sum of moved exponentials": """e = Exp(s); r = [0]; n = [-1]; h = [-99]; f = Slice(e, n, h, r, n); t = Add(e, f)
        y = Div(acc, t)""",
    "a mean": "t = ReduceSum[-1](s); y = Div(s, t)",
    "normalized products": "t = Transpose<perm = [0, 2, 1]>(k); a = MatMul(q, t); d = ReduceMax[-1](a); y = Div(a, d)",
}


def model(body: str) -> onnx.ModelProto:
    """Return a model; inputs that it does not read are no harm."""
    proto = build(body, INPUTS, "float y", 18)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto.graph.initializer.extend(parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float x) => (float y) {CONSTANTS} {{ y = Identity(x) }}'
    ).graph.initializer)  # fmt: skip
    return proto


@pytest.mark.parametrize("body", REFUSED.values(), ids=list(REFUSED))
def test_exponentials_over_a_sum_of_theirs_are_refused_by_name(body: str) -> None:
    start = "m = ReduceMax[-1](s); d0 = Sub(s, m); e = Exp(d0)\n"
    end = "" if "y =" in body else "\ny = Mul(p, s)"
    (site, *_) = softq.inspect(
        model((start if "no maximum" not in body and "x = Exp" not in body else "") + body + end)
    )
    assert site.verdict.action == "refuse"
    assert f"(node {site.id})" in site.verdict.reason
    assert "adds them up" in site.verdict.reason
    assert any(f" of node {name} " in site.verdict.reason for name in "py")


@pytest.mark.parametrize(("body", "name"), KEPT.values(), ids=list(KEPT))
def test_other_functions_are_listed_and_kept(body: str, name: str) -> None:
    for all_sites in (False, True):
        (site,) = softq.inspect(model(body), all_sites=all_sites)
        assert site.verdict.action == "keep"
        assert name in site.verdict.reason
        assert f"node {'p' if 'p = Div' in body else 'y'}" in site.verdict.reason


@pytest.mark.parametrize("body", NONE.values(), ids=list(NONE))
def test_what_divides_by_no_sum_of_exponentials_is_no_site(body: str) -> None:
    assert softq.inspect(model(body)) == ()


def test_a_softmax_that_is_normalized_again_is_one_site() -> None:
    body = """e = Exp(s); t = ReduceSum[-1](e); r = Reciprocal(t); p = Mul(e, r); q0 = Mul(p, acc)
        u = ReduceSum[-1](q0); y = Div(q0, u)"""
    assert [(site.id, site.form) for site in softq.inspect(model(body))] == [("p", "exp-times-reciprocal")]


def scan(body: str, states: str, ends: str, scanned: str) -> onnx.ModelProto:
    """Return a model that divides the last of two states by the one before."""
    graph = parser.parse_graph(body)
    shapes = {"m": [2, 4, 1], "l": [2, 4, 1], "c": [2, 4, 8], "ks": [3, 2, 5, 8], "vs": [3, 2, 5, 8], "q": [2, 4, 8],
              "xs": [7, 2, 4, 1], "us": [7, 2, 4, 8]}  # fmt: skip
    inputs = [helper.make_tensor_value_info(n, 1, shapes[n]) for n in [*states.split(), *scanned.split(), "q"]]
    names = [*states.split(), *scanned.split()]
    node = helper.make_node("Scan", names, ends.split(), num_scan_inputs=len(scanned.split()), body=graph)
    last, before = ends.split()[-1], ends.split()[-2]
    nodes = [node, helper.make_node("Div", [last, before], ["y"])]
    output = helper.make_tensor_value_info("y", 1, [2, 4, 8])
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, [output]), opset_imports=imports, ir_version=8)


BLOCKS = """b (float[2,4,1] m, float[2,4,1] l, float[2,4,8] c, float[2,5,8] k, float[2,5,8] v)
=> (float[2,4,1] mn, float[2,4,1] ln, float[2,4,8] cn) <int64[1] last = {-1}>
{ kt = Transpose <perm = [0, 2, 1]> (k)  s = MatMul (q, kt)  r = ReduceMax (s, last)  mn = Max (m, r)  d = Sub (s, mn)
  e = Exp (d)  g = Sub (m, mn)  f = Exp (g)  es = ReduceSum (e, last)  lf = Mul (l, f)  ln = Add (lf, es)
  ev = MatMul (e, v)  cf = Mul (c, f)  cn = Add (cf, ev) }"""
CARRIED = """b (float[2,4,1] l, float[2,4,8] c, float[2,4,1] x, float[2,4,8] u) => (float[2,4,1] ln, float[2,4,8] cn)
{ e = Exp (x)  ln = Add (l, e)  w = Mul (e, u)  cn = Add (c, w) }"""


@pytest.mark.parametrize(
    ("body", "states", "ends", "scanned", "adds"),
    [
        (BLOCKS, "m l c", "mE lE cE", "ks vs", "ReduceSum of node es"),
        (CARRIED, "l c", "lE cE", "xs us", "Add of node ln"),
    ],
    ids=["blocks", "one key at a time"],
)
def test_a_sum_that_a_scan_carries(body: str, states: str, ends: str, scanned: str, adds: str) -> None:
    (site,) = softq.inspect(scan(body, states, ends, scanned))
    assert site.verdict.action == "refuse"
    assert site.id.endswith("/e")
    assert adds in site.verdict.reason
    assert "Div of node y" in site.verdict.reason


@pytest.mark.parametrize(
    ("domain", "operator", "attributes", "action"),
    [
        ("com.microsoft", "MoERouter", {}, "refuse"),
        ("com.microsoft", "BeamSearch", {}, "keep"),
        ("com.microsoft", "WhisperBeamSearch", {}, "keep"),
        ("com.microsoft", "GreedySearch", {}, "keep"),
        ("com.microsoft", "Sampling", {}, "keep"),
        ("com.example", "FusedMHA", {}, "refuse"),
        ("trt.plugins", "fMHCA", {}, "refuse"),
        ("com.example", "QKVToContextPluginDynamic", {}, "refuse"),
        ("org.pytorch.aten", "ATen", {"operator": "_softmax"}, "refuse"),
        ("com.microsoft", "ATen", {"operator": "aten::scaled_dot_product_attention"}, "refuse"),
        ("com.microsoft", "PythonOp", {"func_name": "FlashAttnFunc"}, "refuse"),
        ("org.pytorch.aten", "ATen", {"operator": "upsample_bicubic2d"}, ""),
        ("mmcv", "Upsampling", {}, ""),
        ("mmcv", "grid_sampler", {}, ""),
        ("ai.onnx.ml", "TreeEnsemble", {"post_transform": 1}, "keep"),
        ("ai.onnx.ml", "TreeEnsemble", {"post_transform": 2}, ""),
        ("ai.onnx.ml", "LinearClassifier", {"post_transform": "SOFTMAX_ZERO"}, "keep"),
        ("ai.onnx.ml", "LinearClassifier", {"post_transform": "LOGISTIC"}, ""),
    ],
)
def test_operators_that_hold_a_softmax_are_listed_by_name(
    domain: str, operator: str, attributes: dict[str, Any], action: str
) -> None:
    node = helper.make_node(operator, ["x"], ["y"], domain=domain, **attributes)
    values = [helper.make_tensor_value_info(name, 1, [4, 8]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    sites = softq.inspect(helper.make_model(graph, opset_imports=imports, ir_version=8))
    assert [site.verdict.action for site in sites] == [action] * bool(action)
    assert all("node y" in site.verdict.reason for site in sites)
