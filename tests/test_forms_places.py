"""Where a softmax stands: its guards, its readers, its layout, the types around it, and the containers it is in."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import softq
from tests.forms import Feeds, build, check, keep, normal, run

X, V = "float[2,3,4,5] x", "float[2,3,5,6] v"


# Guards

GUARDS = {
    "isnan": "n = IsNaN(p); w = Where(n, o, p)",
    "not isnan": "n = IsNaN(p); t = Not(n); w = Where(t, p, o)",
    "isnan, then cast": "n = IsNaN(p); q = Where(n, o, p); w = Cast<to = 1>(q)",
    "dropout, then isnan": "d = Dropout(p); n = IsNaN(d); w = Where(n, o, d)",
    "cast, then isnan": "c = Cast<to = 1>(p); n = IsNaN(c); w = Where(n, o, c)",
    "maximum is -inf": "m = ReduceMax[-1](s); n = Equal(m, i); w = Where(n, o, p)",
    "all are -inf": """
        e = Equal(s, i); f = Cast<to = 6>(e); l = ReduceMin[-1](f); n = Cast<to = 9>(l); w = Where(n, o, p)""",
    "mask has none": "f = Cast<to = 6>(keep); l = ReduceMax[-1](f); a = Cast<to = 9>(l); w = Where(a, p, o)",
    "times the mask": "f = Cast<to = 1>(keep); n = IsNaN(p); q = Where(n, o, p); w = Mul(q, f)",
    "guarded, and read": "n = IsNaN(p); q = Where(n, o, p); h = IsNaN(p); j = Where(h, o, p); w = Add(q, j)",
    "guard of ones": "one = 1.0; n = IsNaN(p); w = Where(n, one, p)",
}


@pytest.mark.parametrize("guard", GUARDS.values(), ids=list(GUARDS))
def test_guards(guard: str) -> None:
    body = f"i = -inf; o = 0.0; s = Where(keep, x, i); p = Softmax<axis = -1>(s); {guard}; z = MatMul(w, v)"
    proto = build(body, f"{X}, {V}, bool[2,1,4,5] keep", "float[2,3,4,6] z")
    check(proto, {"x": normal(2, 3, 4, 5), "v": normal(2, 3, 5, 6), "keep": keep()})


# Sinks

SINKS = {
    "one for all": ("sink = -0.5; k = [2, 3, 4, 1]; e = Expand(sink, k)", ""),
    "one per head": ("k = [2, 3, 4, 1]; e = Expand(sinks, k)", "float[3,1,1] sinks"),
    "masked scores": ("k = [2, 3, 4, 1]; e = Expand(sinks, k)", "float[3,1,1] sinks, bool[2,1,4,5] keep"),
}


@pytest.mark.parametrize(("sink", "inputs"), SINKS.values(), ids=list(SINKS))
def test_sinks(sink: str, inputs: str) -> None:
    masked = "i = -inf; s = Where(keep, x, i)" if "keep" in inputs else "s = Identity(x)"
    body = f"{sink}; {masked}; c = Concat<axis = -1>(s, e); q = Softmax(c); a = [0]; b = [5]; d = [-1]\n"
    body += "p = Slice(q, a, b, d); z = MatMul(p, v)"
    proto = build(body, ", ".join([X, V, inputs] if inputs else [X, V]), "float[2,3,4,6] z")
    feeds: Feeds = {"x": normal(2, 3, 4, 5), "v": normal(2, 3, 5, 6)}
    feeds |= {"sinks": normal(3, 1, 1)} if "sinks" in inputs else {}
    feeds |= {"keep": keep()} if "keep" in inputs else {}
    sites = check(proto, feeds)
    assert sites[0].role == "attention"


# Readers

READERS = {
    "attention": ("z = MatMul(p, v)", "float[2,3,4,6] z", "attention"),
    "attention, transposed": (
        "t = Transpose<perm = [0,1,3,2]>(p); u = Transpose<perm = [0,1,3,2]>(v); z = MatMul(u, t)",
        "float[2,3,6,4] z",
        "attention",
    ),
    "graph output": ("z = Identity(p)", "float[2,3,4,5] z", "classifier"),
    "log": ("z = Log(p)", "float[2,3,4,5] z", "other"),
    "sum": ("z = ReduceSum(p)", "float[1,1,1,1] z", "other"),
    "top-p": ("a = Constant<value = int64 {3}>(); z = CumSum(p, a)", "float[2,3,4,5] z", "sampler"),
    "convolution": ("z = Conv(p, w)", "float[2,1,4,5] z", "detector"),
    "quantized": (
        "c = 0.00392156862745098; q = QuantizeLinear(p, c); d = DequantizeLinear(q, c); z = MatMul(d, v)",
        "float[2,3,4,6] z",
        "attention",
    ),
    "maximum": ("z = ReduceMax[-1](p)", "float[2,3,4,1] z", "other"),
}


@pytest.mark.parametrize(("reader", "outputs", "role"), READERS.values(), ids=list(READERS))
def test_readers(reader: str, outputs: str, role: str) -> None:
    proto = build(f"p = Softmax(x); {reader}", f"{X}, {V}, float[1,3,1,1] w", outputs)
    feeds: Feeds = {"x": normal(2, 3, 4, 5), "v": normal(2, 3, 5, 6), "w": normal(1, 3, 1, 1)}
    # A code of 8 bits may step over where it is rounded.
    atol = 0.02 if "Quantize" in reader else 1e-6
    sites = check(proto, feeds, atol=atol)
    assert sites[0].role == role


def test_a_softmax_of_chosen_scores_is_a_router() -> None:
    body = "k = [2]; s, j = TopK(x, k); p = Softmax(s); z = Mul(p, s)"
    sites = check(build(body, X, "float[2,3,4,2] z"), {"x": normal(2, 3, 4, 5)})
    assert sites[0].role == "router"


# Layout

_LAST, _BACK = "t = Transpose<perm = [0, 2, 3, 1]>(x)", "z = Transpose<perm = [0, 3, 1, 2]>(p)"
LAYOUTS = {
    "transposes": f"{_LAST}; p = Softmax<axis = -1>(t); {_BACK}",
    "transposes, other axis": f"{_LAST}; p = Softmax<axis = 1>(t); {_BACK}",
    "reshapes": "k = [6, 20]; r = Reshape(x, k); p = Softmax(r); n = Shape(x); z = Reshape(p, n)",
    "flatten": "f = Flatten<axis = 2>(x); p = Softmax(f); n = Shape(x); z = Reshape(p, n)",
    "shared input": "p = Softmax<axis = 1>(x); q = Softmax<axis = 3>(x); z = Add(p, q)",
    "in a row": "p = Softmax<axis = 1>(x); z = Softmax<axis = 3>(p)",
    "of itself": "p = Softmax<axis = 2>(x); z = Mul(p, p)",
}


@pytest.mark.parametrize("body", LAYOUTS.values(), ids=list(LAYOUTS))
def test_layouts(body: str) -> None:
    count = body.count("Softmax")
    check(build(body, X, "float[2,3,4,5] z"), {"x": normal(2, 3, 4, 5)}, count=count)


WRITTEN = "m = ReduceMax[-1](x); d = Sub(x, m); e = Exp(d); t = ReduceSum[-1](e); z = Div(e, t)"
SHAPES = ["1", "2", "3,1", "3,2", "1,1,1,1", "4096", "3,5000", "2,70000", "0,3", "2,0,4"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "body", ["z = Softmax<axis = -1>(x)", "z = LogSoftmax<axis = -1>(x)", WRITTEN, "z = Softmax<axis = 0>(x)"]
)
def test_long_short_and_empty_rows(shape: str, body: str) -> None:
    x = normal(*map(int, shape.split(",")))
    # The greatest difference that a sum of 70,000 terms in another order makes: 2^-24 a term, most of it averaged out.
    check(build(body, f"float[{shape}] x", f"float[{shape}] z"), {"x": x}, rtol=1e-4)


@pytest.mark.parametrize("body", ["z = Softmax<axis = -1>(x)", "z = LogSoftmax<axis = -1>(x)"])
def test_rows_without_elements(body: str) -> None:
    proto = build(body, "float[n,k] x", "float[n,k] z")
    for shape in ((2, 0), (0, 0), (0, 4)):
        check(proto, {"x": normal(*shape)})


@pytest.mark.parametrize("body", ["z = Softmax<axis = -1>(x)", "z = LogSoftmax<axis = -1>(x)", WRITTEN])
def test_nan_stays_in_its_row(body: str) -> None:
    x = normal(4, 1)
    x[1] = np.nan
    check(build(body, "float[4,1] x", "float[4,1] z"), {"x": x})
    wide = normal(4, 6)
    wide[2, 3], wide[3] = np.nan, -np.inf
    check(build(body, "float[4,6] x", "float[4,6] z"), {"x": wide})


def test_a_row_of_unknown_length_over_what_is_proved() -> None:
    proto = build("z = Softmax(x)", "float[a,n] x", "float[a,n] z")
    for length in (1, 4097, 65537):
        x = normal(2, length)
        got = run(softq.convert(proto, method="exact", all_sites=True, max_length=70000).model, {"x": x})[0]
        np.testing.assert_allclose(got, run(proto, {"x": x})[0], rtol=1e-4)


def test_large_logits_keep_their_logarithms() -> None:
    # ONNX's own test_logsoftmax_large_number: the logarithm of a weight would be -inf, or have lost its digits.
    x = np.array([[0, 1, 2, 3], [10000, 10001, 10002, 10003], [0, -90, -110, -5000]], np.float32)
    for body in ("z = LogSoftmax(x)", "p = Softmax(x); z = Log(p)", "l = ReduceLogSumExp[-1](x); z = Sub(x, l)"):
        proto = build(body, "float[3,4] x", "float[3,4] z")
        got = run(softq.convert(proto, method="exact", all_sites=True).model, {"x": x})[0]
        y = x.astype(np.float64)
        y -= y.max(-1, keepdims=True)
        np.testing.assert_allclose(got, y - np.log(np.exp(y).sum(-1, keepdims=True)), rtol=1e-6, atol=1e-6)


# Double


@pytest.mark.parametrize(
    "body", ["z = Softmax<axis = -1>(s)", "z = Softmax<axis = 1>(s)", "z = LogSoftmax(s)", WRITTEN.replace("(x", "(s")]
)
@pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float64).min, -1e9])
def test_double_in_float32(body: str, low: float) -> None:
    proto = build(f"s = Where(keep, x, low); {body}", "double[2,3,4,5] x, bool[2,1,4,5] keep", "double[2,3,4,5] z")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(low), "low"))
    x = normal(2, 3, 4, 5, dtype=np.float64) + 1e9
    check(proto, {"x": x, "keep": keep()}, rtol=1e-5, allow_float32=True)
    refused = softq.inspect(proto, method="exact", all_sites=True)[0].verdict
    assert refused.action == "refuse"
    assert "--allow-float32" in refused.reason
