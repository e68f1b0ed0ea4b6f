"""A normalised model gives what it gave before, and what hangs in `node.meta` says the same once more.

Tolerance: the rewrites move elements and never compute, so float32 results may differ by the rounding of a softmax over
another axis alone: 1e-6, of weights that are at most 1.
"""

from __future__ import annotations

import itertools
import textwrap
from dataclasses import dataclass, replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx import checker, parser

from softq.errors import RefusalError
from softq.graph.view import ModelView
from softq.passes.locate import locate
from softq.passes.normalize import Normalize, normalize
from softq.passes.rewriting.canonical import CANONICAL_KEY, Canonical, Mask

Array = NDArray[np.generic]
Feeds = dict[str, Array]

X = "float[2,3,4,5] x"
EYE = np.broadcast_to(np.eye(5, dtype=np.float32), (2, 3, 5, 5)).copy()
"""Read as V, so that the result of the attention is the weights."""

F32_MIN = float(np.finfo(np.float32).min)


def adversarial(shape: tuple[int, ...] = (2, 3, 4, 5), seed: int = 0) -> NDArray[np.float32]:
    """Scores with rows of ties, of -inf alone, of one +inf, and of large and tiny numbers."""
    x = np.random.default_rng(seed).normal(0, 4, shape).astype(np.float32)
    flat = x.reshape(-1, shape[-1])
    flat[0] = 1.5
    flat[1] = -np.inf
    flat[2, 0], flat[2, 1:] = 80.0, -80.0
    flat[3, ::2] = -np.inf
    flat[4] *= 1e-30
    return x


def masks(shape: tuple[int, ...] = (2, 1, 4, 5), seed: int = 1) -> NDArray[np.bool_]:
    """True at masked positions; one row is all masked, one not at all."""
    hidden = np.random.default_rng(seed).random(shape) < 0.4
    rows = hidden.reshape(-1, shape[-1])
    rows[1], rows[2] = True, False
    rows[3], rows[3, 1] = True, False
    return hidden


def model(body: str, inputs: str, outputs: str, opset: int = 18, **more: str) -> onnx.ModelProto:
    domains = "".join(f', "{name}": 1' for name in more.get("domains", "").split())
    text = f'<ir_version: {3 if opset < 9 else 8}, opset_import: ["": {opset}{domains}]>\n g ({inputs}) => ({outputs})'
    text += " {\n" + textwrap.dedent(body) + "\n}" + more.get("functions", "")
    return parser.parse_model(text)


def run(proto: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # What onnxruntime would make of the graph is not what is under test.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, feeds)]


@dataclass(frozen=True)
class Normalized:
    """A normalised model, what its sites became, and the outputs of the original."""

    model: ir.Model
    canonical: list[Canonical]
    before: list[Array]

    @property
    def only(self) -> Canonical:
        assert len(self.canonical) == 1
        return self.canonical[0]


def same(got: list[Array], want: list[Array]) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=0, atol=1e-6)


def canonical_nodes(of: ir.Model) -> list[tuple[ir.Node, Canonical]]:
    found = [(node, node.meta.get(CANONICAL_KEY)) for node in ModelView(of).nodes]
    return [(node, canonical) for node, canonical in found if isinstance(canonical, Canonical)]


def check(proto: onnx.ModelProto, feeds: Feeds, all_sites: bool = True) -> Normalized:
    """Normalise, and assert all that has to hold of any normalised model."""
    before = run(proto, feeds)
    graph = ir.from_proto(proto)
    sites = locate(graph, all_sites=all_sites)
    Normalize()(graph)
    after = ir.to_proto(graph)
    checker.check_model(after, full_check=True)
    same(run(after, feeds), before)
    assert [o.name for o in after.graph.output] == [o.name for o in proto.graph.output]
    found = canonical_nodes(graph)
    assert {c.site.id for _, c in found} == {site.id for site in sites if site.verdict.action == "convert"}
    for node, canonical in found:
        assert (node.domain, node.op_type, node.attributes["axis"].as_int()) == ("", "Softmax", -1)
        assert canonical.site in sites
    assert graph.opset_imports[""] >= 18
    # Once more, with and without what the first run left in meta.
    assert not normalize(graph)
    again = ir.from_proto(after)
    locate(again, all_sites=all_sites)
    Normalize()(again)
    assert ir.to_proto(again).SerializeToString(deterministic=True) == after.SerializeToString(deterministic=True)
    return Normalized(graph, [c for _, c in found], before)


def probe(of: ir.Model, feeds: Feeds, *values: ir.Value) -> list[Array]:
    """The values that some inner values take."""
    of.graph.outputs.clear()
    for number, value in enumerate(values):
        out = ir.node("Identity", [value])
        out.outputs[0].name, out.outputs[0].type = (
            f"probe{len(of.graph)}_{number}",
            ir.TensorType(value.dtype or ir.DataType.FLOAT),
        )
        of.graph.append(out)
        of.graph.outputs.append(out.outputs[0])
    return run(ir.to_proto(of), feeds)


def meaning(normalized: Normalized, feeds: Feeds) -> NDArray[np.float64]:
    """What the weights are if one believes scores, mask, `masked_row` and `nan_becomes_zero` of the canonical form."""
    canonical = normalized.only
    parts = [canonical.scores] if canonical.mask is None else [canonical.scores, canonical.mask.condition]
    scores, *condition = probe(normalized.model, feeds, *parts)
    s = scores.astype(np.float64)
    valid = np.ones_like(s, bool)
    if canonical.mask is not None:
        valid = np.broadcast_to(condition[0] == canonical.mask.valid_when, s.shape)
    valid = valid & (s > -np.inf)
    shown = np.where(valid, s, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(shown - shown.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
    fill = {"nan": np.nan, "zero": 0.0, "uniform": 1 / s.shape[-1]}
    if canonical.mask is not None:
        p = np.where(valid.any(-1, keepdims=True), p, fill[canonical.site.masked_row])
    return np.nan_to_num(p, nan=0.0) if canonical.nan_becomes_zero else p


def believes(normalized: Normalized, feeds: Feeds) -> None:
    np.testing.assert_allclose(meaning(normalized, feeds), normalized.before[0].astype(np.float64), rtol=0, atol=1e-6)


# Axis and opset


@pytest.mark.parametrize(("opset", "axis"), list(itertools.product([1, 11, 12, 13, 18, 23], [0, 1, 2, 3, None])))
def test_every_axis_in_every_opset(opset: int, axis: int | None) -> None:
    attribute = "" if axis is None else f"<axis = {axis}>"
    proto = model(f"z = Softmax{attribute}(x)", X, "float[2,3,4,5] z", opset)
    x = np.nan_to_num(adversarial(), neginf=-20.0)
    result = check(proto, {"x": x})
    assert result.only.probabilities.name is not None
    # An axis of its own and a flattened one are different things: here the test could fail.
    last = np.exp(x - x.max(-1, keepdims=True))
    is_last = axis == 3 or (axis is None and opset >= 13)
    assert np.allclose(result.before[0], last / last.sum(-1, keepdims=True), atol=1e-6) == is_last


@pytest.mark.parametrize("axis", [-4, -3, -2, -1])
def test_a_negative_axis(axis: int) -> None:
    check(model(f"z = Softmax<axis = {axis}>(x)", X, "float[2,3,4,5] z", 18), {"x": adversarial()})
    check(model(f"z = Softmax<axis = {axis}>(x)", X, "float[2,3,4,5] z", 11), {"x": adversarial()})


def test_transposes_show_up_where_they_are_needed_and_nowhere_else() -> None:
    for axis, count in ((2, 2), (3, 0)):
        result = check(model(f"z = Softmax<axis = {axis}>(x)", X, "float[2,3,4,5] z"), {"x": adversarial()})
        assert sum(node.op_type == "Transpose" for node in result.model.graph) == count


def test_an_old_softmax_over_the_last_axis_stays_one_node() -> None:
    proto = model("y = Mul(x, x)\n z = Softmax<axis = 3>(y)", X, "float[2,3,4,5] z", 11)
    result = check(proto, {"x": np.abs(np.nan_to_num(adversarial(), neginf=0))})
    assert [node.op_type for node in result.model.graph] == ["Mul", "Softmax"]


def test_an_old_softmax_of_unknown_size_stays_one_node() -> None:
    proto = model("y = Reshape(x, k)\n z = Softmax<axis = 3>(y)", f"{X}, int64[4] k", "float[a,b,c,d] z", 11)
    result = check(proto, {"x": adversarial(), "k": np.array([3, 2, 5, 4])})
    assert [node.op_type for node in result.model.graph] == ["Reshape", "Softmax"]


def test_symbolic_sizes() -> None:
    proto = model("z = Softmax<axis = 1>(x)", "float[b,h,q,k] x", "float[b,h,q,k] z", 12)
    check(proto, {"x": adversarial()})


@pytest.mark.parametrize("shape", ["1,1,1,1", "2,0,4", "3,1", "7"])
def test_short_and_empty_rows(shape: str) -> None:
    x = np.random.default_rng(0).normal(size=[int(n) for n in shape.split(",")]).astype(np.float32)
    for axis in range(x.ndim):
        check(model(f"z = Softmax<axis = {axis}>(x)", f"float[{shape}] x", f"float[{shape}] z"), {"x": x})


def test_float16() -> None:
    proto = model("z = Softmax<axis = 1>(x)", "float16[2,3,4,5] x", "float16[2,3,4,5] z")
    check(proto, {"x": adversarial().astype(np.float16)})


# Masks


def where(scores: str, opset: int = 18) -> onnx.ModelProto:
    body = f"{scores}\n p = Softmax<axis = 3>(s)\n z = MatMul(p, v)"
    return model(body, f"{X}, float[2,3,5,5] v, bool[2,1,4,5] c", "float[2,3,4,5] z", opset)


def finite(seed: int = 0) -> NDArray[np.float32]:
    return np.nan_to_num(adversarial(seed=seed), neginf=-30.0)


def low(value: float) -> str:
    """A scalar constant; text knows no infinity."""
    if np.isinf(value):
        return "big = Constant<value = float {-3e38}>()\n low16 = Cast<to = 10>(big)\n low = Cast<to = 1>(low16)"
    return f"low = Constant<value = float {{{value!r}}}>()"


@pytest.mark.parametrize("opset", [11, 18, 23])
@pytest.mark.parametrize(
    ("value", "row"), [(-np.inf, "nan"), (-1e4, "uniform"), (-1e9, "uniform"), (F32_MIN, "uniform")]
)
@pytest.mark.parametrize("order", ["c, low, x", "c, x, low"])
def test_where_masks_are_lifted(opset: int, value: float, row: str, order: str) -> None:
    hidden = masks()
    feeds: Feeds = {"x": finite(), "v": EYE, "c": hidden if order == "c, low, x" else ~hidden}
    result = check(where(f"{low(value)}\n s = Where({order})", opset), feeds)
    canonical = result.only
    assert (canonical.site.mask, canonical.site.masked_row) == ("where", row)
    assert canonical.scores.name == "x"
    assert canonical.mask is not None
    assert (canonical.mask.condition.name, canonical.mask.valid_when) == ("c", order == "c, x, low")
    believes(result, feeds)


ZERO = "zero = Constant<value_float = 0.0>()"


@pytest.mark.parametrize("value", [-np.inf, F32_MIN, -1e30])
@pytest.mark.parametrize("shape", ["Identity(b)", "Expand(b, k)", "Unsqueeze(b2, a)"])
def test_added_masks_that_absorb_are_lifted(value: float, shape: str) -> None:
    body = f"{ZERO}\n {low(value)}\n k = Constant<value_ints = [2, 1, 4, 5]>()\n a = Constant<value_ints = [1]>()\n"
    body += f" c2 = Squeeze(c, a)\n b = Where(c, low, zero)\n b2 = Where(c2, low, zero)\n m = {shape}\n s = Add(m, x)"
    feeds: Feeds = {"x": finite(), "v": EYE, "c": masks()}
    result = check(where(body), feeds)
    canonical = result.only
    assert canonical.site.mask == "additive"
    assert canonical.site.masked_row == ("nan" if np.isinf(value) else "uniform")
    assert canonical.scores.name == "x"
    assert canonical.mask is not None
    believes(result, feeds)


def test_a_condition_right_behind_the_addend_is_taken_as_it_is() -> None:
    feeds: Feeds = {"x": finite(), "v": EYE, "c": masks()}
    for order, valid_when in (("c, low, zero", False), ("c, zero, low", True)):
        result = check(where(f"{ZERO}\n {low(-np.inf)}\n b = Where({order})\n s = Add(x, b)"), feeds)
        mask = result.only.mask
        assert mask is not None
        assert (mask.condition.name, mask.valid_when) == ("c", valid_when)
        believes(result, feeds)


@pytest.mark.parametrize("value", [-1e4, -1e9])
def test_other_finite_masks_stay_in_the_scores(value: float) -> None:
    body = f"{ZERO}\n {low(value)}\n b = Where(c, low, zero)\n s = Add(x, b)"
    feeds: Feeds = {"x": finite(), "v": EYE, "c": masks()}
    result = check(where(body), feeds)
    assert (result.only.site.mask, result.only.site.masked_row) == ("additive", "scores")
    assert (result.only.mask, result.only.scores.name) == (None, "s")
    believes(result, feeds)


def with_addend(addend: Array) -> onnx.ModelProto:
    proto = model("s = Add(x, m)\n p = Softmax(s)\n z = MatMul(p, v)", f"{X}, float[2,3,5,5] v", "float[2,3,4,5] z")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(addend), "m"))
    return proto


@pytest.mark.parametrize("value", [-np.inf, F32_MIN])
def test_a_constant_mask_becomes_a_boolean_constant(value: float) -> None:
    hidden = masks((4, 5))
    feeds: Feeds = {"x": finite(), "v": EYE}
    result = check(with_addend(np.where(hidden, value, 0).astype(np.float32)), feeds)
    mask = result.only.mask
    assert mask is not None
    assert mask.condition.const_value is not None
    np.testing.assert_array_equal(mask.condition.const_value.numpy(), ~hidden)
    believes(result, feeds)


def test_a_constant_bias_is_no_mask() -> None:
    slopes = -np.arange(5, dtype=np.float32) * np.array([[[0.5]], [[0.25]], [[0.125]]], np.float32)
    result = check(with_addend(slopes), {"x": adversarial(), "v": EYE})
    assert (result.only.site.mask, result.only.mask, result.only.scores.name) == ("none", None, "s")


def test_a_bias_with_minus_infinity_stays_an_addition() -> None:
    bias = np.where(np.triu(np.ones((4, 5)), 1) > 0, -np.inf, np.arange(20).reshape(4, 5)).astype(np.float32)
    feeds: Feeds = {"x": finite(), "v": EYE}
    result = check(with_addend(bias), feeds)
    assert (result.only.site.mask, result.only.site.masked_row, result.only.mask) == ("additive", "nan", None)
    believes(result, feeds)


def test_a_cast_behind_the_mask_is_repeated_for_the_scores() -> None:
    body = f"{low(-1e9)}\n w = Where(c, low, x)\n h = Cast<to = 10>(w)\n s = Cast<to = 1>(h)"
    feeds: Feeds = {"x": finite(), "v": EYE, "c": masks()}
    result = check(where(body), feeds)
    # In float16 -1e9 is -inf: the row is NaN though the mask was finite.
    assert (result.only.site.masked_row, result.only.scores.name) == ("nan", "x_unmasked_unmasked")
    believes(result, feeds)


def test_a_mask_that_broadcasts_the_scores_is_set_beside_the_masked_ones() -> None:
    body = f"{low(-np.inf)}\n s = Where(c, low, x)\n p = Softmax(s)\n z = MatMul(p, v)"
    proto = model(body, "float[1,5] x, float[2,3,5,5] v, bool[2,3,4,5] c", "float[2,3,4,5] z")
    feeds: Feeds = {"x": finite()[0, 0, :1], "v": EYE, "c": masks((2, 3, 4, 5))}
    result = check(proto, feeds)
    assert result.only.scores.name == "s"
    assert result.only.mask is not None
    believes(result, feeds)


def test_a_finite_mask_over_another_one_stays() -> None:
    body = f"{low(-1e9)}\n {low(-np.inf).replace('low ', 'inf ')}\n w = Where(d, inf, x)\n s = Where(c, low, w)\n"
    proto = model(body + " p = Softmax(s)\n z = MatMul(p, v)",
                  f"{X}, float[2,3,5,5] v, bool[2,1,4,5] c, bool[2,1,4,5] d", "float[2,3,4,5] z")  # fmt: skip
    hidden = masks()
    feeds: Feeds = {"x": finite(), "v": EYE, "c": hidden, "d": ~hidden}
    result = check(proto, feeds)
    # Where one mask ends the other begins: what is left of each row are its -1e9, and their softmax is what counts.
    assert result.only.mask is None
    believes(result, feeds)


def test_a_mask_before_another_axis_stays() -> None:
    body = f"{low(-np.inf)}\n s = Where(c, low, x)\n z = Softmax<axis = 2>(s)"
    result = check(model(body, f"{X}, bool[2,1,4,5] c", "float[2,3,4,5] z"), {"x": finite(), "c": masks()})
    assert result.only.mask is None


def test_the_comparison_of_meanings_can_fail() -> None:
    feeds: Feeds = {"x": finite(), "v": EYE, "c": masks()}
    result = check(where(f"{low(-np.inf)}\n s = Where(c, low, x)"), feeds)
    mask = result.only.mask
    assert mask is not None
    inverted = replace(result.only, mask=Mask(mask.condition, not mask.valid_when))
    with pytest.raises(AssertionError):
        believes(replace(result, canonical=[inverted]), feeds)
    uniform = replace(result.only, site=replace(result.only.site, masked_row="uniform"))
    with pytest.raises(AssertionError):
        believes(replace(result, canonical=[uniform]), feeds)


# Guards and what only hands on


def test_the_guard_is_recognised() -> None:
    body = f"{low(-np.inf)}\n {ZERO}\n s = Where(c, low, x)\n p = Softmax(s)\n n = IsNaN(p)\n w = Where(n, zero, p)\n"
    proto = model(body + " z = MatMul(w, v)", f"{X}, float[2,3,5,5] v, bool[2,1,4,5] c", "float[2,3,4,5] z")
    feeds: Feeds = {"x": finite(), "v": EYE, "c": masks()}
    feeds["x"][1, 2, 3, 4] = np.nan
    result = check(proto, feeds)
    canonical = result.only
    assert (canonical.probabilities.name, canonical.nan_becomes_zero) == ("w", True)
    assert (canonical.site.guard, canonical.site.masked_row) == ("isnan-where", "zero")
    assert not np.isnan(result.before[0]).any()


def test_what_only_hands_on_is_bypassed() -> None:
    body = (
        "p = Softmax(x)\n i = Identity(p)\n d = Dropout(i)\n j = Identity(d)\n h = Cast<to = 1>(j)\n z = MatMul(h, v)"
    )
    result = check(model(body, f"{X}, float[2,3,5,5] v", "float[2,3,4,5] z"), {"x": finite(), "v": EYE})
    assert [node.op_type for node in result.model.graph] == ["Softmax", "Cast", "MatMul"]
    assert result.only.probabilities.name == "p"


def test_a_dropout_behind_an_old_softmax() -> None:
    body = "p = Softmax<axis = 3>(x)\n d = Dropout(p)\n z = MatMul(d, v)"
    result = check(model(body, f"{X}, float[2,3,5,5] v", "float[2,3,4,5] z", 11), {"x": finite(), "v": EYE})
    assert "Dropout" not in [node.op_type for node in result.model.graph]


def test_a_dropout_that_may_train_stays() -> None:
    body = "p = Softmax(x)\n d = Dropout(p, r, t)\n z = MatMul(d, v)"
    proto = model(body, f"{X}, float[2,3,5,5] v, float r, bool t", "float[2,3,4,5] z")
    feeds: Feeds = {"x": finite(), "v": EYE, "r": np.array(0.5, np.float32), "t": np.array(False)}
    assert "Dropout" in [node.op_type for node in check(proto, feeds).model.graph]


def test_a_dropout_whose_mask_is_read_stays() -> None:
    body = "p = Softmax(x)\n d, m = Dropout(p)\n z = MatMul(d, v)"
    proto = model(body, f"{X}, float[2,3,5,5] v", "float[2,3,4,5] z, bool[2,3,4,5] m")
    assert "Dropout" in [node.op_type for node in check(proto, {"x": finite(), "v": EYE}).model.graph]


@pytest.mark.parametrize("axis", [1, 3])
def test_a_softmax_that_is_an_output_as_well(axis: int) -> None:
    body = f"p = Softmax<axis = {axis}>(x)\n i = Identity(p)\n z = MatMul(p, v)\n n = Neg(p)"
    proto = model(
        body, f"{X}, float[2,3,5,5] v", "float[2,3,4,5] z, float[2,3,4,5] p, float[2,3,4,5] i, float[2,3,4,5] n"
    )
    for opset in (11, 18):
        proto.opset_import[0].version = opset
        check(proto, {"x": finite(), "v": EYE})


def test_two_softmaxes_share_an_input() -> None:
    body = f"{low(-np.inf)}\n s = Where(c, low, x)\n p = Softmax(s)\n q = Softmax<axis = 2>(s)\n z = Add(p, q)"
    proto = model(body, f"{X}, bool[2,1,4,5] c", "float[2,3,4,5] z")
    result = check(proto, {"x": finite(), "c": masks()})
    assert [c.mask is None for c in result.canonical] == [False, True]


# Containers


def test_bodies_of_if() -> None:
    body = f"""
    {low(-np.inf)}
    z = If (c) <
      then_branch = t () => (float[2,3,4,5] a) {{ s = Where(m, low, x)
        p = Softmax(s)
        a = MatMul(p, v) }},
      else_branch = e () => (float[2,3,4,5] b) {{ p = Softmax<axis = 1>(x)
        b = MatMul(p, v) }}
    >
    """
    proto = model(body, f"{X}, float[2,3,5,5] v, bool[2,1,4,5] m, bool c", "float[2,3,4,5] z")
    for chosen in (True, False):
        feeds: Feeds = {"x": finite(), "v": EYE, "m": masks(), "c": np.array(chosen)}
        result = check(proto, feeds)
        assert [c.site.id for c in result.canonical] == ["z.then_branch/p", "z.else_branch/p"]
        assert result.canonical[0].mask is not None


def test_an_old_body() -> None:
    body = """
    z = If (c) <
      then_branch = t () => (float[2,3,4,5] a) { a = Softmax<axis = 3>(x) },
      else_branch = e () => (float[2,3,4,5] b) { b = Softmax(x) }
    >
    """
    for chosen in (True, False):
        feeds: Feeds = {"x": finite(), "c": np.array(chosen)}
        check(model(body, f"{X}, bool c", "float[2,3,4,5] z", 11), feeds)


def test_a_loop() -> None:
    body = """
    n = Constant<value = int64 {3}>()
    t = Constant<value = bool {1}>()
    z, all = Loop (n, t, x) <
      body = l (int64 i, bool go, float[2,3,4,5] state) => (bool on, float[2,3,4,5] next, float[2,3,4,5] p) {
        on = Identity(go)
        p = Softmax<axis = 1>(state)
        next = Add(p, x)
      }
    >
    """
    check(model(body, X, "float[2,3,4,5] z, float[3,2,3,4,5] all"), {"x": finite()})


FUNCTION = """
<domain: "local", opset_import: ["": 18]> Weigh <axis> (s, w) => (r) {
  low = Constant<value = float[5] {0, 0, 0, -3.4028234663852886e38, -3.4028234663852886e38}>()
  m = Add(s, low)
  p = Softmax<axis: int = @axis>(m)
  r = MatMul(p, w)
}
"""


@pytest.mark.parametrize(("axes", "lifted"), [((-1, 3), True), ((2, 2), False)])
def test_functions(axes: tuple[int, int], lifted: bool) -> None:
    body = f"y = local.Weigh<axis = {axes[0]}>(x, v)\n z = local.Weigh<axis = {axes[1]}>(y, v)"
    proto = model(body, f"{X}, float[2,3,5,5] v", "float[2,3,4,5] z", domains="local", functions=FUNCTION)
    if axes[0] != axes[1]:
        assert locate(ir.from_proto(proto))[0].verdict.action == "refuse"
        proto.graph.node[1].attribute[0].i = -1
    result = check(proto, {"x": finite(), "v": EYE})
    assert (result.only.mask is not None) == lifted
    function = next(iter(result.model.functions.values()))
    assert not function.graph.initializers


def test_functions_of_an_old_model_are_inlined_and_keep_their_sites() -> None:
    function = FUNCTION.replace('"": 18', '"": 12')
    body = "y = local.Weigh<axis = 3>(x, v)\n z = local.Weigh<axis = 3>(y, v)"
    proto = model(body, f"{X}, float[2,3,5,5] v", "float[2,3,4,5] z", 12, domains="local", functions=function)
    result = check(proto, {"x": finite(), "v": EYE})
    assert [c.site.id for c in result.canonical] == ["local::Weigh/p"] * 2


def test_a_function_without_shapes() -> None:
    function = '<domain: "local", opset_import: ["": 18]> Weights (s) => (p) { p = Softmax(s) }'
    body = "y = Reshape(x, k)\n q = local.Weights(y)\n z = MatMul(q, v)"
    proto = model(body, f"{X}, int64[n] k, float[2,3,5,5] v", "float[a,b,c,d] z", domains="local", functions=function)
    check(proto, {"x": finite(), "k": np.array([2, 3, 4, 5]), "v": EYE})


# What is not to be converted


def test_nothing_to_convert_changes_nothing() -> None:
    graph = ir.from_proto(model("z = Softmax(x)", X, "float[2,3,4,5] z", 11))
    before = ir.to_proto(graph).SerializeToString(deterministic=True)
    assert not Normalize()(graph).modified
    assert ir.to_proto(graph).SerializeToString(deterministic=True) == before


def test_a_site_that_is_kept_is_not_made_canonical() -> None:
    body = "p = Softmax(x)\n q = Softmax<axis = 1>(x)\n z = MatMul(p, v)"
    proto = model(body, f"{X}, float[2,3,5,5] v", "float[2,3,4,5] z, float[2,3,4,5] q")
    result = check(proto, {"x": finite(), "v": EYE}, all_sites=False)
    assert result.only.site.id == "p"
    assert "Transpose" not in [node.op_type for node in result.model.graph]


def test_modified_is_said_truthfully() -> None:
    full = "float[2,3,4,5] p"
    proto = model("p = Softmax<axis = -1>(x)\n z = MatMul(p, v)", f"{X}, float[2,3,5,5] v", f"float[2,3,4,5] z, {full}")
    graph = ir.from_proto(proto)
    assert not Normalize()(graph).modified
    proto.graph.node[0].attribute[0].i = 2
    assert Normalize()(ir.from_proto(proto)).modified


def test_a_stale_site_is_an_error_that_names_it() -> None:
    graph = ir.from_proto(model("p = Softmax(x)\n z = MatMul(p, v)", f"{X}, float[2,3,5,5] v", "float[2,3,4,5] z"))
    locate(graph)
    graph.graph[0].op_type = "Hardmax"
    with pytest.raises(RefusalError, match=r"site p: .*Hardmax"):
        normalize(graph)


def test_types_and_shapes_are_written_down_for_the_passes_behind() -> None:
    proto = model("s = Neg(x)\n p = Softmax(s)\n w = Neg(v)\n z = MatMul(p, w)",
                  "float16[2,3,4,5] x, float16[2,3,5,6] v", "float16[2,3,4,6] z")  # fmt: skip
    graph = ir.from_proto(proto)
    normalize(graph)
    values = {v.name: v for node in graph.graph for v in node.outputs}
    for name in ("s", "p", "w"):
        assert values[name].dtype == ir.DataType.FLOAT16
        assert values[name].shape is not None
