"""Weights that also choose, feature maps of linear attention, and weighted sums that are the model's answer."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import softq
from tests.forms import Array, build, run

QKV = "float[1,2,7,4] q, float[1,2,7,4] k, float[1,2,7,4] v"
WEIGHTS = "float[3,4,9,9] s, float[3,4,9,8] v"
SELECTING = {
    "pruning": ("""one = [1]; two = [2]; end = [99]; zero = [0]; k = [4]; three = [3]; c = Slice(p, zero, one, two)
        d = Slice(c, one, end, three); e = ReduceMean[1]k0(d); f = Squeeze(e, one); u, pick = TopK(f, k)""", "TopK"),
    "ArgMax": ("pick = ArgMax<axis = -1>(p)", "ArgMax"),
    "threshold": ("h = 0.2; pick = Greater(p, h)", "Greater"),
    "less confident": ("m = ReduceMax[-1](p); h = 0.5; pick = Less(m, h)", "Less"),
    "entropy": (
        "g = 1e-9; a = Add(p, g); l = Log(a); w = Mul(p, l); n = ReduceSum[-1](w); h = -1.0; pick = Less(n, h)",
        "Less"),
    "not zero": ("pick = Cast<to = 9>(p)", "Cast"),
    "scattered": (
        """a = ReduceSum[1, 2]k0(p); pick = ScatterElements<axis = 1, reduction = "add">(acc, ids, a)""",
        "ScatterElements"),
    "of all heads": (
        "t = Transpose<perm = [0, 2, 3, 1]>(p); m = MatMul(t, heads); u, pick = TopK<axis = 2>(m, four)", "TopK"),
    "pooled": ("a = AveragePool<kernel_shape = [1, 3], pads = [0, 1, 0, 1]>(p); pick = ArgMax<axis = -1>(a)", "ArgMax"),
    "rolled out": ("q = Softmax(r); a = MatMul(p, q); pick = ArgMax<axis = -1>(a)", "ArgMax"),
    "quantized by onnxruntime": (
        """g = 0.004; c = com.microsoft.QuantizeLinear(p, g); d = com.microsoft.DequantizeLinear(c, g)
        pick = ArgMax<axis = -1>(d)""", "ArgMax"),
    "less a constant": ("h = 0.1; d = Sub(p, h); a = Relu(d); pick = NonZero(a)", "NonZero"),
    "pooled by Einsum": ('a = Einsum<equation = "bhqk->bk">(p); pick = ArgMax<axis = -1>(a)', "ArgMax"),
    "normalized": ("a = LpNormalization<axis = -1>(p); pick = ArgMax<axis = -1>(a)", "ArgMax"),
    "enlarged": ('a = Resize<mode = "linear">(p, , twice); pick = ArgMax<axis = -1>(a)', "ArgMax"),
    "sign": ("h = 0.2; d = Sub(p, h); pick = Sign(d)", "Sign"),
    "places": ("h = 4.0; a = Mul(p, h); i = Cast<to = 7>(a); pick = Gather(four, i)", "Gather"),
}  # fmt: skip
NOT_SELECTING = {
    "the sum of a row": "t = ReduceSum[-1](p); h = 0.0; pick = Equal(t, h)",
    "what the product gives": "pick = ArgMax<axis = -1>(y)",
    "a guard": "n = IsNaN(p); pick = Not(n)",
    "scores": "pick = ArgMax<axis = -1>(s)",
}
MORE = "<int64[1] four = {4}, float[4] twice = {1, 1, 2, 2}, float[4,1] heads = {1, 2, 3, 4}>"


def model(body: str, extra: str = "") -> onnx.ModelProto:
    head = f"p = Softmax<axis = -1>(s); {extra}y = MatMul(p, v)"
    inputs = WEIGHTS + ", float[3,4,9,9] r, float[3,9] acc, int64[3,9] ids"
    proto = build(f"{head}; {body}", inputs, "float[3,4,9,8] y, int64[3,4] pick", 18, domains="com.microsoft")
    proto.graph.initializer.extend(
        parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 18]> g (float x) => (float y) {MORE} {{ y = Identity(x) }}'
        ).graph.initializer
    )
    kind = {"ScatterElements": 1, "Sign": 1}.get(proto.graph.node[-1].op_type, 7)
    kind = 9 if proto.graph.node[-1].op_type in {"Greater", "Less", "Equal", "Not", "Cast"} else kind
    proto.graph.output[1].CopyFrom(onnx.helper.make_tensor_value_info("pick", kind, None))
    return proto


@pytest.mark.parametrize(("body", "operator"), SELECTING.values(), ids=list(SELECTING))
def test_weights_that_also_choose_are_kept_and_converted_on_request(body: str, operator: str) -> None:
    proto = model(body)
    site = softq.inspect(proto)[0]
    assert (site.id, site.role, site.consumer, site.verdict.action) == ("p", "selector", operator, "keep")
    assert f"{operator} of node pick" in site.verdict.reason or "of node u" in site.verdict.reason
    assert "MatMul of node y" in site.verdict.reason
    for asked in (softq.inspect(proto, all_sites=True)[0], softq.inspect(proto, sites=["p"])[0]):
        assert asked.verdict.action == "convert"
        assert f"{operator} of node" in asked.verdict.reason


@pytest.mark.parametrize("body", NOT_SELECTING.values(), ids=list(NOT_SELECTING))
def test_what_chooses_by_something_else_is_attention(body: str) -> None:
    site = softq.inspect(model(body))[0]
    assert (site.role, site.verdict.action) == ("attention", "convert")


@pytest.mark.parametrize(
    "shown", ["pick = Identity(p)", "pick = ReduceMean[1]k0(p)", "a = Cast<to = 10>(p); pick = Cast<to = 1>(a)"]
)
def test_weights_that_are_an_output_too_are_converted_with_a_note(shown: str) -> None:
    proto = model(shown)
    proto.graph.output[1].type.tensor_type.elem_type = 1
    (site,) = softq.inspect(proto)
    assert (site.role, site.consumer, site.verdict.action) == ("attention", "MatMul", "convert")
    assert "graph output 'pick'" in site.verdict.reason


def test_check_counts_the_choices_that_change() -> None:
    rng = np.random.default_rng(0)
    body = "zero = [0]; one = [1]; two = [2]; c = Slice(p, zero, one, two); e = ReduceMean[1, 2]k0(c)"
    proto = build(f"p = Softmax(s); y = MatMul(p, v); k = [4]; {body}; u, pick = TopK(e, k)",
                  "float[40,4,9,9] s, float[40,4,9,8] v", "float[40,4,9,8] y, int64[40,4] pick")  # fmt: skip
    feeds = {"s": 2 * rng.normal(size=(40, 4, 9, 9)), "v": rng.normal(size=(40, 4, 9, 8))}
    floats: dict[str, Array] = {name: array.astype(np.float32) for name, array in feeds.items()}
    coarse = softq.convert(proto, method="deferred-log", bits=3, all_sites=True).model
    lost = [len(set(a) - set(b)) for a, b in zip(run(proto, floats)[1], run(coarse, floats)[1], strict=True)]
    assert sum(lost) > 0
    report = softq.check(proto, coarse, [floats])
    (share,) = [metric for metric in report.metrics if metric.name == "changed-choices of pick"]
    assert share.candidate == sum(lost) / 160
    report = softq.check(proto, coarse, [floats], output="pick", metrics=["changed-choices"], max_drop=0.0)
    assert report.metrics[0].candidate == sum(lost) / 160
    assert report.gate is not None
    assert not report.gate.passed
    assert softq.check(proto, softq.convert(proto).model, [floats], output="pick").metrics[-1].candidate == 0


def test_indices_that_repeat_are_compared_in_their_places() -> None:
    proto = build("y = Neg(x)", "int64[n,3] x", "int64[n,3] y")
    for ours, theirs, share in (
        ([[1, 2, 3]], [[3, 1, 2]], 0.0),  # a set
        ([[1, 2, 3]], [[3, 1, 4]], 1 / 3),
        ([[1, 1, 2]], [[2, 1, 1]], 2 / 3),
        ([[1, 2, 3], [1, 1, 1]], [[2, 2, 1], [1, 1, 1]], 1 / 3),
    ):
        a, b = np.array(ours, np.int64), np.array(theirs, np.int64)
        shifted = build("z = Sub(x, d); y = Neg(z)", "int64[n,3] x", "int64[n,3] y")
        shifted.graph.initializer.append(onnx.numpy_helper.from_array(a - b, "d"))
        report = softq.check(proto, shifted, [{"x": a}], batch=len(a))
        assert report.metrics[-1].name == "changed-choices"
        assert report.metrics[-1].candidate == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(
    ("mode", "tail", "role", "note"),
    [(3, "ArgMax", "selector", "ArgMax of node pick"), (3, "Identity", "attention", "graph output 'pick'"),
     (0, "ArgMax", "attention", ""), (2, "Identity", "attention", "")],
)  # fmt: skip
def test_weights_that_an_operator_shows(mode: int, tail: str, role: str, note: str) -> None:
    body = f"y, a, b, w = Attention<qk_matmul_output_mode = {mode}>(q, k, v); pick = {tail}(w)"
    out = "int64[1,2,7,7] pick" if tail == "ArgMax" else "float[1,2,7,7] pick"
    (site,) = softq.inspect(build(body, QKV, f"float[1,2,7,4] y, {out}", 23))
    assert (site.role, site.verdict.action) == (role, "keep" if role == "selector" else "convert")
    assert note in site.verdict.reason
    assert note or "pick" not in site.verdict.reason


EFFICIENT = {
    "efficient attention": """a = Softmax<axis = -1>(q); b = Softmax<axis = -2>(k)
        t = Transpose<perm = [0, 1, 3, 2]>(b); c = MatMul(t, v); y = MatMul(a, c)""",
    "by Einsum": """a = Softmax<axis = -1>(q); b = Softmax<axis = -2>(k); c = Einsum<equation = "bhnd,bhne->bhde">(b, v)
        h = 0.5; w = Mul(a, h); y = Einsum<equation = "bhnd,bhde->bhne">(w, c)""",
    "Hedgehog": """m = Neg(q); a = Softmax(q); a2 = Softmax(m); f = Concat<axis = -1>(a, a2); n = Neg(k); b = Softmax(k)
        b2 = Softmax(n); g = Concat<axis = -1>(b, b2); t = Transpose<perm = [0, 1, 3, 2]>(g); c = MatMul(f, t)
        u = ReduceSum[-1](c); z = Div(c, u); y = MatMul(z, v)""",
    "Hedgehog, linear": """m = Neg(q); a = Softmax(q); a2 = Softmax(m); f = Concat<axis = -1>(a, a2); n = Neg(k)
        b = Softmax(k); b2 = Softmax(n); g = Concat<axis = -1>(b, b2); t = Transpose<perm = [0, 1, 3, 2]>(g)
        c = MatMul(t, v); o = MatMul(f, c); u = ReduceSum[-2](g); r = Mul(f, u); d = ReduceSum[-1](r); y = Div(o, d)""",
}


@pytest.mark.parametrize("body", EFFICIENT.values(), ids=list(EFFICIENT))
def test_features_of_linear_attention_are_kept(body: str) -> None:
    proto = build(body, QKV, "float[1,2,7,4] y")
    softmaxes = [site for site in softq.inspect(proto) if site.operator == "Softmax"]
    assert len(softmaxes) == body.count("Softmax")
    assert {(site.role, site.verdict.action) for site in softmaxes} == {("feature-map", "keep")}
    assert all("linear attention" in site.verdict.reason for site in softmaxes)


def test_attention_to_what_attention_gave_is_no_feature_map() -> None:
    # Nyströmformer: landmarks attend to keys, and queries to landmarks.
    body = """t = Transpose<perm = [0, 1, 3, 2]>(k); s1 = MatMul(q, t); s2 = MatMul(l, t); a = Softmax(s1)
        b = Softmax(s2); c = MatMul(b, v); u = Transpose<perm = [0, 1, 3, 2]>(l); s3 = MatMul(q, u); d = Softmax(s3)
        y = MatMul(d, c); z = MatMul(a, v)"""
    proto = build(body, QKV + ", float[1,2,3,4] l", "float[1,2,7,4] y, float[1,2,7,4] z")
    assert {(site.role, site.verdict.action) for site in softq.inspect(proto)} == {("attention", "convert")}


@pytest.mark.parametrize("body", ["a = MatMul(r, v); y = MatMul(p, a)", "a = MatMul(p, r); y = MatMul(a, v)"])
def test_weights_of_weights_are_attention(body: str) -> None:
    head = "p = Softmax(s); r = Softmax(s2)"
    sites = softq.inspect(build(f"{head}; {body}", "float[2,5,5] s, float[2,5,5] s2, float[2,5,8] v", "float[2,5,8] y"))
    assert "feature-map" not in {site.role for site in sites}
    assert sites[0].role == "attention"


PLACES = {
    "RAFT": ("""c = Conv(x, kernel); n = [1, 1, 9, 2, 2, 3, 3]; r = Reshape(c, n); p = Softmax<axis = 2>(r)
        w = Mul(p, flow); u = ReduceSum[2]k0(w); t = Transpose<perm = [0, 1, 4, 2, 5, 3]>(u); m = [1, 2, 6, 6]
        y = Reshape(t, m)""",
        "float[1,4,3,3] x, float[1,2,9,1,1,3,3] flow"),
    "RAFT by Einsum": ("""c = Conv(x, kernel); n = [9, 2, 2, 3, 3]; r = Reshape(c, n); p = Softmax<axis = 0>(r)
        y = Einsum<equation = "kabhw,ckhw->cabhw">(p, flow)""", "float[1,4,3,3] x, float[2,9,3,3] flow"),
    "soft-argmax": ("p = Softmax(x); y = MatMul(p, grid)", "float[1,4,9] x"),
    "soft-argmax by Mul": ("p = Softmax(x); w = Mul(p, line); y = ReduceSum[-1](w)", "float[1,4,9] x"),
    "soft-argmax by Einsum": ('p = Softmax(x); y = Einsum<equation = "bkn,nc->bkc">(p, grid)', "float[1,4,9] x"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "inputs"), PLACES.values(), ids=list(PLACES))
def test_a_weighted_sum_that_is_a_place_is_kept(body: str, inputs: str) -> None:
    proto = build(body, inputs, "float y")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 3), np.linspace(0, 2, 3)), -1).reshape(9, 2)
    arrays = {"kernel": np.ones((36, 4, 1, 1)), "grid": grid, "line": np.linspace(0, 1, 9)}
    for name, array in arrays.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    (site,) = softq.inspect(proto)
    assert (site.role, site.verdict.action) == ("detector", "keep")


LAYERS = {
    "pooling of tokens": ("""c = MatMul(x, narrow); p = Softmax<axis = 1>(c); w = Mul(p, x); y = ReduceSum[1]k0(w)""",
        "float[2,7,4] x"),
    "a learned query": ("t = Transpose<perm = [0, 2, 1]>(x); c = MatMul(query, t); p = Softmax(c); y = MatMul(p, x)",
        "float[2,7,4] x"),
    "outlook attention": ("""c = MatMul(x, wide); n = [2, 7, 2, 9]; r = Reshape(c, n); p = Softmax(r); u = MatMul(p, v)
        y = MatMul(u, square)""", "float[2,7,4] x, float[2,7,9,4] v"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "inputs"), LAYERS.values(), ids=list(LAYERS))
def test_an_average_that_goes_on_is_attention_though_a_layer_weighs(body: str, inputs: str) -> None:
    proto = build(body, inputs, "float y")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    for name, shape in {"narrow": (4, 1), "wide": (4, 18), "square": (4, 4), "query": (1, 4)}.items():
        array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    (site,) = softq.inspect(proto)
    assert (site.role, site.verdict.action) == ("attention", "convert")


COLUMN = {
    "Unsqueeze": "p = Softmax(s2); last = [2]; w = Unsqueeze(p, last); y = MatMul(vt, w)",
    "Reshape": "p = Softmax(s2); n = [2, 5, 1]; w = Reshape(p, n); y = MatMul(vt, w)",
    "vector": "p = Softmax(s1); y = MatMul(vt, p)",
}


@pytest.mark.parametrize("body", COLUMN.values(), ids=list(COLUMN))
def test_weights_as_a_column_on_the_right_are_attention(body: str) -> None:
    proto = build(body, "float[2,5] s2, float[5] s1, float[2,8,5] vt", "float y")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    result = softq.convert(proto, method="exact")
    assert [(site.role, site.verdict.action) for site in result.sites] == [("attention", "convert")]
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in (("s2", (2, 5)), ("s1", (5,)), ("vt", (2, 8, 5)))
    }
    np.testing.assert_allclose(run(result.model, feeds)[0], run(proto, feeds)[0], rtol=1e-5, atol=1e-6)


def test_a_row_on_the_right_is_no_average() -> None:
    body = "p = Softmax(s2); middle = [1]; w = Unsqueeze(p, middle); y = MatMul(u, w)"
    (site,) = softq.inspect(build(body, "float[2,5] s2, float[2,8,1] u", "float[2,8,5] y"))
    assert (site.role, site.verdict.action) == ("other", "keep")
    assert "MatMul of node y does not sum over the axis of the softmax" in site.verdict.reason
