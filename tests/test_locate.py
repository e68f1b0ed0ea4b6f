"""Every candidate is found, named and explained; only `meta` is written."""

from __future__ import annotations

import textwrap

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from softq.errors import UsageError
from softq.forms import FORMS
from softq.graph.view import ModelView
from softq.passes import PASSES
from softq.passes.locate import SITES_KEY, Locate, locate
from softq.site import META_KEY, Site

X = "float[2,3,4,5] x"
V = "float[2,3,5,6] v"


def model(
    body: str, inputs: str = f"{X}, {V}", outputs: str = "float[2,3,4,6] z", opset: int = 18, **extra: str
) -> ir.Model:
    """A model of one graph; `extra` are further imports, initializers and functions."""
    domains = "".join(f', "{name}": 1' for name in extra.get("domains", "").split())
    text = f'<ir_version: 8, opset_import: ["": {opset}{domains}]>\n g ({inputs}) => ({outputs})'
    initializers = extra.get("initializers", "")
    text += (f" <{initializers}>" if initializers else "") + " {\n" + textwrap.dedent(body) + "\n}"
    return ir.from_proto(parser.parse_model(text + extra.get("functions", "")))


def only(of: ir.Model, all_sites: bool = False) -> Site:
    sites = locate(of, all_sites=all_sites)
    assert len(sites) == 1, [site.id for site in sites]
    return sites[0]


def attention(scores: str, inputs: str, initializers: str = "") -> Site:
    """The site of an attention whose softmax `p` reads `s`, which `scores` computes."""
    body = f"{scores}\n p = Softmax(s)\n z = MatMul(p, v)"
    return only(model(body, inputs=f"{X}, {V}, {inputs}", initializers=initializers))


def test_an_attention_is_converted() -> None:
    graph = model("p = Softmax<axis = -1>(x)\n z = MatMul(p, v)")
    site = only(graph)
    assert (site.id, site.container, site.operator, site.form) == ("p", (), "Softmax", "softmax")
    assert (site.axis, site.head_axis, site.dtype, site.shape) == (-1, -3, "float32", (2, 3, 4, 5))
    assert (site.mask, site.masked_row, site.guard) == ("none", "nan", "none")
    assert (site.role, site.consumer) == ("attention", "MatMul")
    assert site.verdict.action == "convert"
    assert graph.meta[SITES_KEY] == (site,)
    assert [node.meta.get(META_KEY) for node in graph.graph] == [site, None]


def test_the_model_itself_stays_as_it_is() -> None:
    # Without shapes inside, so that inference has to run.
    graph = model("s = Neg(x)\n p = Softmax(s)\n z = MatMul(p, v)")
    before = ir.to_proto(graph).SerializeToString(deterministic=True)
    result = Locate()(graph)
    assert not result.modified
    assert ir.to_proto(graph).SerializeToString(deterministic=True) == before
    assert graph.graph[0].outputs[0].shape is None
    assert graph.meta[SITES_KEY][0].shape == (2, 3, 4, 5)


def test_the_passes_and_forms_are_found_by_listing() -> None:
    assert {"locate", "normalize"} <= set(PASSES.entries())
    assert {"softmax", "softmax-flattened", "log-softmax", "exp-over-sum"} <= set(FORMS.entries())


# Opset and axis


@pytest.mark.parametrize(
    ("opset", "axis", "form", "expected"),
    [
        (1, "", "softmax-flattened", -3),
        (11, "", "softmax-flattened", -3),
        (12, "", "softmax-flattened", -3),
        (13, "", "softmax", -1),
        (28, "", "softmax", -1),
        (11, "axis = 3", "softmax", -1),
        (11, "axis = -1", "softmax", -1),
        (12, "axis = 0", "softmax-flattened", -4),
        (13, "axis = 0", "softmax", -4),
        (18, "axis = 2", "softmax", -2),
        (23, "axis = 3", "softmax", -1),
    ],
)
def test_the_axis_means_what_the_opset_says(opset: int, axis: str, form: str, expected: int) -> None:
    site = only(model(f"p = Softmax{f'<{axis}>' if axis else ''}(x)\n z = MatMul(p, v)", opset=opset))
    assert (site.form, site.axis, site.verdict.action) == (form, expected, "convert")


@pytest.mark.parametrize(
    ("opset", "axis", "action", "reason"),
    [
        (11, "1", "refuse", "undecidable"),
        (11, "-1", "convert", ""),
        (13, "1", "refuse", "unknown rank"),
        (13, "-2", "refuse", "unknown rank"),
        (13, "-1", "convert", ""),
    ],
)
def test_an_unknown_rank_is_refused_where_it_matters(opset: int, axis: str, action: str, reason: str) -> None:
    body = f"s = Reshape(x, k)\n p = Softmax<axis = {axis}>(s)\n z = MatMul(p, v)"
    site = only(model(body, inputs="float[2,3,4,5] x, float[5,6] v, int64[n] k", outputs="float z", opset=opset))
    assert site.shape is None
    assert site.verdict.action == action
    assert reason in site.verdict.reason


def test_the_rank_behind_a_computed_reshape_is_proved() -> None:
    body = "s = Reshape(x, k)\n m = Mul(s, s)\n p = Softmax<axis = 3>(m)\n z = MatMul(p, v)"
    site = only(model(body, inputs=f"{X}, {V}, int64[4] k", outputs="float z", opset=11))
    assert (site.form, site.axis, site.verdict.action) == ("softmax", -1, "convert")
    assert site.shape == (None, None, None, None)


def test_an_axis_outside_the_tensor_is_refused() -> None:
    assert "rank 4" in only(model("p = Softmax<axis = 4>(x)\n z = MatMul(p, v)")).verdict.reason


@pytest.mark.parametrize(
    ("dtype", "name", "action"),
    [("float16", "float16", "convert"), ("bfloat16", "bfloat16", "convert"), ("double", "float64", "refuse")],
)
def test_types(dtype: str, name: str, action: str) -> None:
    inputs = f"{dtype}[2,3,4,5] x, {dtype}[2,3,5,6] v"
    site = only(model("p = Softmax(x)\n z = MatMul(p, v)", inputs=inputs, outputs=f"{dtype}[2,3,4,6] z"))
    assert (site.dtype, site.verdict.action) == (name, action)
    assert action == "convert" or "double" in site.verdict.reason


# Roles and policy


@pytest.mark.parametrize(
    ("behind", "outputs", "role", "consumer"),
    [
        ("q = Identity(p)\n c = Cast<to = 1>(q)\n z = MatMul(c, v)", "float[2,3,4,6] z", "attention", "MatMul"),
        ("d = Dropout(p)\n z = MatMul(d, v)", "float[2,3,4,6] z", "attention", "MatMul"),
        ("t = Transpose<perm = [0, 1, 3, 2]>(p)\n z = MatMul(w, t)", "float[2,3,6,4] z", "attention", "MatMul"),
        ('z = Einsum<equation = "bhqk,bhkd->bhqd">(p, v)', "float[2,3,4,6] z", "attention", "Einsum"),
        ("z = MatMul(p, weight)", "float[2,3,4,2] z", "other", "MatMul"),
        ("u = Identity(weight)\n z = MatMul(p, u)", "float[2,3,4,2] z", "other", "MatMul"),
        ("z = MatMul(w2, p)", "float[2,3,6,5] z", "other", "MatMul"),
        ("z = Identity(p)", "float[2,3,4,5] z", "classifier", "graph output"),
        ("z = ArgMax(p)", "int64[1,3,4,5] z", "classifier", "ArgMax"),
        ("f = Flatten<axis = 3>(p)\n y, z = TopK(f, k)", "int64[24,1] z", "router", "TopK"),
        ("f = Flatten<axis = 3>(p)\n z = Multinomial(f)", "int32[24,1] z", "sampler", "Multinomial"),
        ("z = Conv(p, kernel)", "float[2,1,4,5] z", "detector", "Conv"),
        ("z = ReduceSum(p)", "float z", "other", "ReduceSum"),
    ],
)  # fmt: skip
def test_the_role_is_seen_behind_what_only_moves_values(behind: str, outputs: str, role: str, consumer: str) -> None:
    inputs = f"{X}, {V}, float[2,3,6,5] w, float[2,3,6,4] w2"
    initializers = "float[5,2] weight = {1,2,3,4,5,6,7,8,2,1}, float[1,3,1,1] kernel = {1,2,3}, int64[1] k = {1}"
    site = only(model(f"p = Softmax(x)\n {behind}", inputs=inputs, outputs=outputs, initializers=initializers))
    assert (site.role, site.consumer) == (role, consumer)
    assert site.verdict.action == ("convert" if role == "attention" else "keep")


def test_a_result_that_nothing_reads_is_kept() -> None:
    site = only(model("p = Softmax(x)\n z = Identity(x)", inputs=X, outputs="float[2,3,4,5] z"))
    assert site.verdict.action == "keep"
    assert site.verdict.reason == "nothing reads its result"


def test_a_softmax_whose_logarithm_is_taken_is_kept_whatever_is_asked_for() -> None:
    graph = model("p = Softmax(x)\n z = Log(p)", inputs=X, outputs="float[2,3,4,5] z")
    site = only(graph, all_sites=True)
    assert site.verdict.action == "keep"
    assert "logarithm" in site.verdict.reason


TWO = "p = Softmax(x)\n q = Softmax(x)\n z = MatMul(p, v)"


def test_what_is_asked_for_is_converted() -> None:
    graph = model(TWO, outputs="float[2,3,4,6] z, float[2,3,4,5] q")
    assert [s.verdict.action for s in locate(graph)] == ["convert", "keep"]
    assert [s.verdict.action for s in locate(graph, all_sites=True)] == ["convert", "convert"]
    assert [s.verdict.action for s in locate(graph, select=["q"])] == ["keep", "convert"]
    assert [s.verdict.action for s in locate(graph, select=["[pq]"])] == ["convert", "convert"]


def test_a_glob_that_matches_nothing_lists_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"no softmax matches 'r\*'; there are: p, q"):
        locate(model(TWO, outputs="float[2,3,4,6] z, float[2,3,4,5] q"), select=["p", "r*"])
    with pytest.raises(UsageError, match="has none"):
        locate(model("z = Neg(x)", inputs=X, outputs="float[2,3,4,5] z"), select=["*"])
    with pytest.raises(UsageError, match="at once"):
        locate(model(TWO, outputs="float[2,3,4,6] z, float[2,3,4,5] q"), select=["p"], all_sites=True)


# Masks


BOOL = "bool[2,1,4,5] c"
F32_MIN = "-3.4028234663852886e38"


@pytest.mark.parametrize(
    ("constant", "row"), [("-10000", "scores"), ("-1e9", "scores"), ("-1e30", "uniform"), (F32_MIN, "uniform")]
)
def test_added_masks(constant: str, row: str) -> None:
    initializers = f"float zero = {{0}}, float low = {{{constant}}}"
    site = attention("b = Where(c, zero, low)\n e = Identity(b)\n s = Add(x, e)", BOOL, initializers)
    assert (site.mask, site.masked_row, site.verdict.action) == ("additive", row, "convert")


def test_an_added_minus_infinity() -> None:
    body = "one = Constant<value_float = 1.0>()\n nil = Constant<value_float = 0.0>()\n inf = Div(one, nil)\n"
    body += "low = Neg(inf)\n b = Where(c, nil, low)\n s = Add(b, x)"
    # Division is not followed: what is not proved is not a mask.
    assert attention(body, BOOL).mask == "unproven"
    graph = model("b = Where(c, zero, low)\n s = Add(b, x)\n p = Softmax(s)\n z = MatMul(p, v)",
                  inputs=f"{X}, {V}, bool[2,1,4,5] c", initializers="float zero = {0}, float low = {-1}")  # fmt: skip
    graph.graph.initializers["low"].const_value = ir.tensor(np.array(-np.inf, np.float32))
    site = only(graph)
    assert (site.mask, site.masked_row) == ("additive", "nan")


@pytest.mark.parametrize(
    ("body", "mask", "row"),
    [
        ("s = Where(c, x, low)", "where", "uniform"),
        ("s = Where(c, low, x)", "where", "uniform"),
        ("e = Expand(low, k)\n s = Where(c, x, e)", "where", "uniform"),
        ("s = Where(c, x, zero)", "none", "nan"),
        ("s = Where(c, x, y)", "unproven", "nan"),
        ("s = Add(x, y)", "unproven", "nan"),
        ("s = Add(x, bias)", "none", "nan"),
        ("s = Add(x, mixed)", "additive", "scores"),
        ("n = Not(c)\n f = Cast<to = 1>(n)\n b = Mul(f, low)\n s = Add(x, b)", "additive", "scores"),
        ("f = Cast<to = 1>(i)\n d = Sub(one, f)\n b = Mul(d, low)\n s = Add(x, b)", "additive", "scores"),
        ("d = Sub(one, y)\n b = Mul(d, low)\n s = Add(x, b)", "unproven", "nan"),
        ("w = Where(c, x, low)\n s = Add(w, bias)", "where", "scores"),
        ("w = Where(c, x, low)\n s = Add(w, y)", "where", "scores"),
        ("w = Where(c, x, low)\n r = Cast<to = 10>(w)\n s = Cast<to = 1>(r)", "where", "nan"),
        ("w = Where(c, x, low)\n s = Mul(w, one)", "where", "uniform"),
        ("g = Gather(table, i)\n s = Add(x, g)", "none", "nan"),
    ],
)  # fmt: skip
def test_mask_or_bias(body: str, mask: str, row: str) -> None:
    inputs = "bool[2,1,4,5] c, float[2,3,4,5] y, int64[2,1,4,5] i"
    initializers = (
        "float low = {-1e9}, float zero = {0}, float one = {1}, int64[4] k = {1,1,1,1}, "
        "float[5] bias = {0,-1,-2,-3,-4}, float[5] mixed = {0,-1,-2,-3,-1e9}, float[3] table = {0.5,-0.5,-2}"
    )
    site = attention(body, inputs=inputs, initializers=initializers)
    assert (site.mask, site.masked_row) == (mask, row)
    assert site.verdict.action == "convert"


def test_float16_minimum_does_not_absorb() -> None:
    inputs = "float16[2,3,4,5] x, float16[2,3,5,6] v, bool[2,1,4,5] c"
    body = "w = Where(c, zero, low)\n b = Cast<to = 10>(w)\n s = Add(x, b)\n p = Softmax(s)\n z = MatMul(p, v)"
    initializers = "float zero = {0}, float low = {-65504}"
    site = only(model(body, inputs=inputs, outputs="float16[2,3,4,6] z", initializers=initializers))
    # -65504 - 16 is -inf and -65504 + 16 is not -65504: neither `nan` nor `uniform` would be true.
    assert (site.mask, site.masked_row) == ("additive", "scores")


@pytest.mark.parametrize("where", ["w = Where(n, nil, p)", "m = Not(n)\n w = Where(m, p, nil)"])
def test_the_guard_makes_rows_of_nan_zero(where: str) -> None:
    body = f"p = Softmax(x)\n n = IsNaN(p)\n nil = Constant<value_float = 0.0>()\n {where}\n z = MatMul(w, v)"
    site = only(model(body))
    assert (site.guard, site.masked_row, site.role) == ("isnan-where", "zero", "attention")


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        # Someone reads the softmax beside the guard, the guard writes a one, the guard broadcasts.
        (
            "p = Softmax(x)\n n = IsNaN(p)\n w = Where(n, nil, p)\n z = MatMul(w, v)",
            "float[2,3,4,6] z, float[2,3,4,5] p",
        ),
        ("p = Softmax(x)\n n = IsNaN(p)\n w = Where(n, one, p)\n z = MatMul(w, v)", "float[2,3,4,6] z"),
        ("p = Softmax(x)\n n = IsNaN(p)\n w = Where(n, long, p)\n z = MatMul(w, v)", "float[1,2,3,4,6] z"),
    ],
)
def test_what_is_no_guard(body: str, outputs: str) -> None:
    initializers = "float nil = {0}, float one = {1}, float[1,1,1,1,1] long = {0}"
    site = only(model(body, outputs=outputs, initializers=initializers))
    assert (site.guard, site.masked_row) == ("none", "nan")


# Forms that are written out, or refused: none is skipped in silence


@pytest.mark.parametrize(
    ("body", "operator", "axis"),
    [
        ("z = LogSoftmax(x)", "LogSoftmax", -1),
        ("m = ReduceMax(x, a)\n d = Sub(x, m)\n e = Exp(d)\n t = ReduceSum(e, a)\n z = Div(e, t)",
         "Exp/ReduceSum/Div", -1),
        ("e = Exp(x)\n t = ReduceSum(e, a)\n z = Div(e, t)", "Exp/ReduceSum/Div", -1),
        ("e = Exp(x)\n t = ReduceSum<keepdims = 0>(e, a)\n u = Unsqueeze(t, a)\n w = Expand(u, k)\n z = Div(e, w)",
         "Exp/ReduceSum/Div", -1),
        ("e = Exp(x)\n f = Cast<to = 1>(e)\n t = ReduceSum(f, a)\n r = Reciprocal(t)\n z = Mul(r, f)",
         "Exp/ReduceSum/Reciprocal/Mul", -1),
        ("l = ReduceLogSumExp(x, a)\n d = Sub(x, l)\n z = Exp(d)", "ReduceLogSumExp/Sub/Exp", -1),
        ("e = Exp(x)\n t = ReduceSum(e, a)\n l = Log(t)\n d = Sub(x, l)\n z = Exp(d)", "ReduceLogSumExp/Sub/Exp", -1),
        ("l = ReduceLogSumExp(x, a)\n z = Sub(x, l)", "ReduceLogSumExp/Sub", -1),
        ("e = Pow(two, x)\n t = ReduceSum(e, a)\n z = Div(e, t)", "Exp/ReduceSum/Div", -1),
        ("e = Exp(x)\n t = ReduceSum(e, a)\n u = Add(t, two)\n z = Div(e, u)", "Exp/ReduceSum/Div", -1),
    ],
)  # fmt: skip
def test_forms_that_are_written_out(body: str, operator: str, axis: int) -> None:
    initializers = "int64[1] a = {-1}, int64[4] k = {1,1,1,5}, float two = {2}"
    graph = model(body, inputs=X, outputs="float[2,3,4,5] z", initializers=initializers)
    sites = locate(graph, all_sites=True, logarithms=True)
    assert [(site.id, site.operator, site.axis) for site in sites] == [("z", operator, axis)]
    assert sites[0].verdict.action == "convert"


@pytest.mark.parametrize("body", ["z = LogSoftmax(x)", "l = ReduceLogSumExp(x, a)\n z = Sub(x, l)"])
def test_a_logarithm_needs_a_method_that_gives_it(body: str) -> None:
    graph = model(body, inputs=X, outputs="float[2,3,4,5] z", initializers="int64[1] a = {-1}")
    site = only(graph, all_sites=True)
    assert (site.verdict.action, site.logarithm) == ("keep", True)
    assert site.verdict.reason.startswith("exact only: ")
    assert [s.verdict.action for s in locate(graph, all_sites=True, logarithms=["z"])] == ["convert"]
    assert [s.verdict.action for s in locate(graph, all_sites=True, logarithms=["y"])] == ["keep"]


@pytest.mark.parametrize(
    "body",
    [
        "t = ReduceSum(x, a)\n z = Div(x, t)",
        "e = Exp(x)\n f = Exp(e)\n t = ReduceSum(f, a)\n z = Div(e, t)",
        "z = Exp(x)",
    ],
)
def test_what_only_looks_like_a_softmax_is_none(body: str) -> None:
    graph = model(body, inputs=X, outputs="float[2,3,4,5] z", initializers="int64[1] a = {-1}")
    assert locate(graph) == ()


FUSED = [
    "GroupQueryAttention", "PackedAttention", "PackedMultiHeadAttention",
    "DecoderMaskedMultiHeadAttention", "QAttention", "QOrderedAttention", "QLinearSoftmax",
    "SparseAttention",
]  # fmt: skip


@pytest.mark.parametrize(
    ("domain", "operator", "action", "reason"),
    [
        ("", "Attention", "refuse", "lacks one of Q, K and V"),
        ("com.microsoft", "Attention", "refuse", "without all the inputs"),
        ("com.microsoft", "MultiHeadAttention", "refuse", "without heads"),
        ("ai.onnx.preview", "FlexAttention", "refuse", "not yet: "),
        *(("com.microsoft", name, "refuse", "not yet: ") for name in FUSED),
        ("com.microsoft", "MoE", "keep", "not yet: "),
        ("com.microsoft", "QMoE", "keep", "not yet: "),
        ("com.example", "Softmax", "refuse", "not known"),
        ("com.example", "FusedLogSoftmax", "refuse", "not known"),
        ("softq", "DeferredLog_b4", "keep", "replaced before"),
        ("", "Hardmax", "keep", "no exponential"),
    ],
)
def test_operators_with_a_softmax_inside_are_listed(domain: str, operator: str, action: str, reason: str) -> None:
    graph = model("p = Neg(x)\n z = MatMul(p, v)", opset=23)
    node = graph.graph[0]
    node.domain, node.op_type = domain, operator
    site = only(graph, all_sites=True)
    assert site.operator == (f"{domain}::{operator}" if domain else operator)
    assert site.verdict.action == action
    assert reason in site.verdict.reason
    assert "p" in site.verdict.reason


@pytest.mark.parametrize(
    ("domain", "operator", "usage"),
    [
        ("com.microsoft", "QLinearSoftmax", ("attention", "MatMul")),
        ("com.ms.internal.nhwc", "QLinearSoftmax", ("attention", "MatMul")),
        ("com.microsoft", "SparseAttention", ("attention", "itself")),
        ("com.microsoft", "PackedAttention", ("attention", "itself")),
    ],
)
def test_weights_of_a_bare_softmax_are_followed(domain: str, operator: str, usage: tuple[str, str]) -> None:
    """They are multiplied with the values in the next node; the result of an attention holds no weights."""
    graph = model("p = Neg(x)\n z = MatMul(p, v)", opset=23)
    node = graph.graph[0]
    node.domain, node.op_type = domain, operator
    site = only(graph, all_sites=True)
    assert (site.role, site.consumer) == usage


@pytest.mark.parametrize(
    ("domain", "operator"), [("", "LinearAttention"), ("com.example", "Softplus"), ("", "Softsign")]
)
def test_operators_without_a_softmax_are_not(domain: str, operator: str) -> None:
    graph = model("p = Neg(x)\n z = MatMul(p, v)", opset=27)
    graph.graph[0].domain, graph.graph[0].op_type = domain, operator
    assert locate(graph) == ()


# Containers, names


BRANCHES = """
z = If (c) <
  then_branch = t () => (float[2,3,4,6] a) { p = Softmax(x)
    a = MatMul(p, v) },
  else_branch = e () => (float[2,3,4,6] b) { p = Softmax(x)
    b = MatMul(p, v) }
>
"""


def test_bodies_are_searched() -> None:
    sites = locate(model(BRANCHES, inputs=f"{X}, {V}, bool c"))
    assert [site.id for site in sites] == ["z.then_branch/p", "z.else_branch/p"]
    assert [site.container for site in sites] == [("z.then_branch",), ("z.else_branch",)]
    assert {site.verdict.action for site in sites} == {"convert"}
    assert {site.shape for site in sites} == {(2, 3, 4, 5)}


def test_the_use_is_seen_across_the_border_of_a_body() -> None:
    body = """
    q = If (c) <
      then_branch = t () => (float[2,3,4,5] a) { a = Softmax(x) },
      else_branch = e () => (float[2,3,4,5] b) { b = Neg(x) }
    >
    z = MatMul(q, v)
    """
    assert only(model(body, inputs=f"{X}, {V}, bool c")).role == "attention"


FUNCTION = """
<domain: "local", opset_import: ["": 18]> Weigh <axis> (s, w) => (r) {
  p = Softmax<axis: int = @axis>(s)
  r = MatMul(p, w)
}
"""


def calls(*axes: str) -> ir.Model:
    body = "\n".join(f"z{i} = local.Weigh{f'<axis = {axis}>' if axis else ''}(x, v)" for i, axis in enumerate(axes))
    outputs = ", ".join(f"float[2,3,4,6] z{i}" for i in range(len(axes)))
    return model(body, outputs=outputs, domains="local", functions=FUNCTION)


def test_a_function_is_searched_once() -> None:
    site = only(calls("-1", "-1"))
    assert (site.id, site.container) == ("local::Weigh/p", ("local::Weigh",))
    assert (site.axis, site.role, site.verdict.action) == (-1, "attention", "convert")
    # Types and shapes come from the calls.
    assert (site.dtype, site.shape) == ("float32", (2, 3, 4, 5))


@pytest.mark.parametrize(("axes", "axis"), [(("3", "3"), -1), (("2",), -2), (("",), -1)])
def test_an_axis_that_all_calls_agree_on(axes: tuple[str, ...], axis: int) -> None:
    site = only(calls(*axes))
    assert (site.axis, site.verdict.action) == (axis, "convert")


@pytest.mark.parametrize("axes", [("-1", "2"), ("-1", "")])
def test_an_axis_that_calls_disagree_on_is_refused(axes: tuple[str, ...]) -> None:
    site = only(calls(*axes))
    assert site.verdict.action == "refuse"
    assert "different values" in site.verdict.reason


def test_double_scores_inside_a_function_are_refused() -> None:
    graph = model("z = local.Weigh<axis = -1>(x, v)", inputs="double[2,3,4,5] x, double[2,3,5,6] v",
                  outputs="double[2,3,4,6] z", domains="local", functions=FUNCTION)  # fmt: skip
    assert only(graph).verdict.action == "refuse"


def test_a_function_that_nothing_calls() -> None:
    graph = model("z = Neg(x)", inputs=X, outputs="float[2,3,4,5] z", domains="local", functions=FUNCTION)
    site = only(graph)
    assert site.verdict.action == "refuse"
    assert "nothing calls" in site.verdict.reason


def test_the_use_is_seen_across_calls() -> None:
    function = '<domain: "local", opset_import: ["": 18]> Weights (s) => (p) { p = Softmax(s) }'
    body = "q = local.Weights(x)\n z = MatMul(q, v)"
    site = only(model(body, domains="local", functions=function))
    assert (site.id, site.role) == ("local::Weights/p", "attention")


def test_missing_and_duplicate_names_get_their_own_ids() -> None:
    graph = model("p = Softmax(x)\n q = Softmax(x)\n r = Softmax(x)\n z = MatMul(p, v)")
    first, second, third, _ = graph.graph
    second.outputs[0].name = first.outputs[0].name
    third.outputs[0].name = ""
    ids = [site.id for site in locate(graph)]
    assert ids == ["p", "p#2", "Softmax#2"]
    assert [site.id for site in locate(graph)] == ids


def test_two_nodes_of_one_name_hold_two_containers() -> None:
    one = BRANCHES
    two = BRANCHES.replace("z = If", "y = If")
    graph = model(one + two, inputs=f"{X}, {V}, bool c", outputs="float[2,3,4,6] z, float[2,3,4,6] y")
    for node in graph.graph:
        node.name = "branch"
    assert [site.container[0] for site in locate(graph)] == [
        "branch.then_branch", "branch.else_branch", "branch.then_branch#2", "branch.else_branch#2",
    ]  # fmt: skip


def test_weights_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = model("w = MatMul(x, weight)\n s = Neg(w)\n p = Softmax(s)\n z = MatMul(p, v)",
                  initializers=f"float[5,5] weight = {{{','.join(['1'] * 25)}}}")  # fmt: skip

    def explode() -> ir.TensorProtocol:
        raise AssertionError("a weight was read")

    big = ir.LazyTensor(explode, dtype=ir.DataType.FLOAT, shape=ir.Shape([5000, 5000]), name="weight")
    graph.graph.initializers["weight"].const_value = big
    graph.graph.initializers["weight"].shape = ir.Shape([5000, 5000])
    graph.graph.inputs[0].shape = ir.Shape([2, 3, 4, 5000])
    monkeypatch.setattr(ir.LazyTensor, "tobytes", lambda self: explode())
    assert only(graph).shape == (2, 3, 4, 5000)


def test_the_sites_of_an_earlier_run_do_not_linger() -> None:
    graph = model("p = Softmax(x)\n z = MatMul(p, v)")
    locate(graph)
    graph.graph[0].op_type = "Neg"
    assert locate(graph) == ()
    assert all(META_KEY not in node.meta for node in ModelView(graph).nodes)


def test_site_ids_do_not_depend_on_the_run() -> None:
    graph = model(BRANCHES, inputs=f"{X}, {V}, bool c")
    again = ir.from_proto(onnx.ModelProto.FromString(ir.to_proto(graph).SerializeToString()))
    assert locate(graph) == locate(again)
