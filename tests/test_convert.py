"""Converted models against NumPy: masks, guards, types, opsets, containers, and the guarantees of `convert`."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

import softq
from softq.methods import METHODS
from softq.passes.normalize import Normalize
from softq.rowprog import run as interpret
from tests.attention import Feed, attention, inputs, run, softmax64

WHERE = "inf = Constant <value_float = -inf> ()  masked = Where(keep, scores, inf)"
WHERE_FINITE = "low = Constant <value_float = -1e9> ()  masked = Where(keep, scores, low)"
ADD = """inf = Constant <value_float = -inf> ()  zero = Constant <value_float = 0.0> ()
         bias = Where(keep, zero, inf)  masked = Add(scores, bias)"""
ADD_FINITE = """low = Constant <value_float = -10000.0> ()  zero = Constant <value_float = 0.0> ()
                bias = Where(keep, zero, low)  masked = Add(scores, bias)"""
GUARD = "nan = IsNaN(raw)  none = Constant <value_float = 0.0> ()  p = Where(nan, none, raw)"
MASKS = {"where": WHERE, "where-finite": WHERE_FINITE, "add": ADD, "add-finite": ADD_FINITE}


def masked_scores(feed: Feed, mask: str) -> NDArray[np.float32]:
    """The scores that the softmax of the original model sees."""
    scores, keep = feed["scores"].astype(np.float32), feed.get("keep")
    if keep is None:
        return scores
    low = {"where": -np.inf, "where-finite": -1e9, "add": -np.inf, "add-finite": -1e4}[mask]
    hidden = np.float32(low) if mask.startswith("where") else (scores + np.float32(low))
    return np.where(keep, scores, hidden).astype(np.float32)


def by_interpreter(
    method: str, settings: dict[str, int | float | str], scores: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Probabilities of a method on scores whose masked elements are -inf or far below."""
    chosen = METHODS.get(method)
    options = chosen.resolve(chosen.configure(settings), False)
    out = interpret(chosen.program(options), scores)
    if "probabilities" in out:
        return out["probabilities"].astype(np.float64)
    with np.errstate(invalid="ignore"):
        return out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)


@pytest.mark.quick_cases(100)
@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("mask", [None, *MASKS])
@pytest.mark.parametrize("method", sorted(METHODS.entries()))
def test_masks_and_guards(method: str, mask: str | None, guard: bool) -> None:
    model = attention(mask=MASKS[mask] if mask else "", behind=GUARD if guard else "")
    feed = inputs(keep=mask is not None)
    converted = softq.convert(model, method=method, allow_substitute=True).model
    onnx.checker.check_model(converted, full_check=True)
    p = by_interpreter(method, {}, masked_scores(feed, mask or ""))
    if guard:
        p = np.where(np.isnan(p), 0, p)
    expected = p @ feed["v"].astype(np.float64)
    if mask in ("where", "add") and not guard:
        assert np.all(np.isnan(expected[:, :, 0]))  # the first query's keys are all masked: it stays undefined
    np.testing.assert_allclose(run(converted, feed), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mask", [None, *MASKS])
def test_exact_gives_what_the_original_gives(mask: str | None) -> None:
    model = attention(mask=MASKS[mask] if mask else "")
    feed = inputs(keep=mask is not None)
    converted = softq.convert(model, method="exact").model
    np.testing.assert_allclose(run(converted, feed), run(model, feed), rtol=1e-5, atol=1e-6)


def test_scores_that_are_nan_or_infinite() -> None:
    model = attention(keys="7")
    feed = inputs()
    feed["scores"][0, 0, 0, 3] = np.nan
    feed["scores"][0, 1, 1, 2] = np.inf
    feed["scores"][0, 1, 2, :] = -np.inf
    got = run(softq.convert(model, bits=4).model, feed)
    assert np.all(np.isnan(got[0, 0, 0]))
    np.testing.assert_allclose(got[0, 1, 1], feed["v"][0, 1, 2], rtol=1e-6)
    assert np.all(np.isnan(got[0, 1, 2]))
    assert not np.any(np.isnan(got[1:]))


@pytest.mark.quick_cases(60)
@pytest.mark.parametrize("opset", range(18, 27))
@pytest.mark.parametrize("method", sorted(METHODS.entries()))
def test_every_opset_passes_the_checker(method: str, opset: int) -> None:
    model = attention(opset=opset, ir_version=8 if opset < 19 else 10, mask=WHERE)
    result = softq.convert(model, method=method, allow_substitute=True).model
    onnx.checker.check_model(result, full_check=True)
    assert {o.domain: o.version for o in result.opset_import} == {"": opset, "softq": 1}
    assert all({o.version for o in f.opset_import if o.domain == ""} == {opset} for f in result.functions)
    reference = softq.convert(attention(mask=WHERE), method=method, allow_substitute=True).model
    ours, theirs = (run(one, inputs(keep=True))[:, :, 1:] for one in (result, reference))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("opset", [7, 11, 12, 13, 17])
def test_older_opsets_are_raised_to_18(opset: int) -> None:
    model = attention(opset=opset, ir_version=7)
    result = softq.convert(model, method="exact").model
    assert {o.domain: o.version for o in result.opset_import} == {"": 18, "softq": 1}
    np.testing.assert_allclose(run(result, inputs()), run(model, inputs()), rtol=1e-5, atol=1e-6)


def test_float16_is_computed_in_float32_and_given_back_as_float16() -> None:
    model = attention(dtype="float16")
    feed = inputs(dtype="float16")
    # Times weights of up to 2^15 this is far outside float16.
    feed["v"] = (feed["v"].astype(np.float32) * 3000).astype(np.float16)
    converted = softq.convert(model, bits=4).model
    onnx.checker.check_model(converted, full_check=True)
    got = run(converted, feed)
    assert got.dtype == np.float16
    p = by_interpreter("deferred-log", {"bits": 4}, feed["scores"].astype(np.float32))
    np.testing.assert_allclose(got, p @ feed["v"].astype(np.float64), rtol=2e-3, atol=2)


def test_double_is_refused_with_the_reason() -> None:
    model = attention(dtype="double")
    assert softq.inspect(model)[0].verdict.action == "refuse"
    with pytest.raises(softq.RefusalError, match="double"):
        softq.convert(model, require=True)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -2])
def test_any_axis(axis: int) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 3, 4, 5] x) => (float[2, 3, 4, 5] y) {{ y = Softmax <axis = {axis}> (x) }}"""
    model = onnx.parser.parse_model(text)
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)
    converted = softq.convert(model, method="exact", all_sites=True).model
    expected = np.moveaxis(softmax64(np.moveaxis(x, axis, -1)), -1, axis)
    np.testing.assert_allclose(run(converted, {"x": x}), expected, rtol=1e-6)


def test_a_softmax_that_is_also_an_output_keeps_its_name_and_its_product() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 5, 7] x, float[2, 7, 4] v) => (float[2, 5, 4] out, float[2, 5, 7] p)
    { p = Softmax <axis = -1> (x)  out = MatMul(p, v) }"""
    model = onnx.parser.parse_model(text)
    result = softq.convert(model, all_sites=True)
    converted = result.model
    assert [o.name for o in converted.graph.output] == ["out", "p"]
    rng = np.random.default_rng(0)
    feed = {"x": rng.normal(size=(2, 5, 7)).astype(np.float32), "v": rng.normal(size=(2, 7, 4)).astype(np.float32)}
    p = by_interpreter("deferred-log", {"bits": 4}, feed["x"])
    np.testing.assert_allclose(run(converted, feed), p @ feed["v"], rtol=1e-5, atol=1e-6)


def test_a_model_local_function_is_converted_inside() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
    g (float[2, 5, 7] x, float[2, 7, 4] v) => (float[2, 5, 4] out) { out = local.mix(x, v) }
    <domain: "local", opset_import: ["" : 18]>
    mix (s, v) => (o) { p = Softmax <axis = -1> (s)  o = MatMul(p, v) }"""
    model = onnx.parser.parse_model(text)
    result = softq.convert(model, bits=4)
    assert len(result.plan.sites) == 1
    onnx.checker.check_model(result.model, full_check=True)
    rng = np.random.default_rng(0)
    feed = {"x": rng.normal(size=(2, 5, 7)).astype(np.float32), "v": rng.normal(size=(2, 7, 4)).astype(np.float32)}
    p = by_interpreter("deferred-log", {"bits": 4}, feed["x"])
    np.testing.assert_allclose(run(result.model, feed), p @ feed["v"], rtol=1e-5, atol=1e-6)
    inlined = softq.convert(model, bits=4, inline=True).model
    assert [f.name for f in inlined.functions] == ["mix"]
    np.testing.assert_array_equal(run(inlined, feed), run(result.model, feed))


def test_the_division_stands_behind_the_product() -> None:
    graph = softq.convert(attention(), bits=4).model.graph
    order = [node.op_type for node in graph.node]
    assert order.index("MatMul") < order.index("Div")
    assert "Softmax" not in order


def test_deferred_rows_sum_to_one() -> None:
    feed = inputs(keys=64)
    feed["v"] = np.ones_like(feed["v"])
    got = run(softq.convert(attention(), bits=2).model, feed)
    np.testing.assert_allclose(got, 1, rtol=1e-6)


def test_the_argument_is_never_changed(tmp_path: Path) -> None:
    proto = attention(mask=ADD, behind=GUARD)
    before = copy.deepcopy(proto)
    assert isinstance(softq.convert(proto, bits=3).model, onnx.ModelProto)
    assert proto == before
    model = ir.from_proto(proto)
    assert isinstance(softq.convert(model, bits=3).model, ir.Model)
    assert ir.to_proto(model) == ir.to_proto(ir.from_proto(before))
    onnx.save(proto, tmp_path / "m.onnx")
    stored = (tmp_path / "m.onnx").read_bytes()
    assert isinstance(softq.convert(tmp_path / "m.onnx").model, ir.Model)
    assert (tmp_path / "m.onnx").read_bytes() == stored


def test_sites_that_are_not_chosen_stay_as_they_are() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 7, 7] x, float[2, 7, 7] v) => (float[2, 7, 7] probabilities) {
        p = Softmax <axis = -1> (x)  mixed = MatMul(p, v)
        q = Softmax <axis = -1> (mixed)  again = MatMul(q, v)
        probabilities = Softmax <axis = 1> (again)
    }"""
    model = onnx.parser.parse_model(text)
    assert [s.verdict.action for s in softq.inspect(model)] == ["convert", "convert", "keep"]

    def left(result: softq.Conversion[onnx.ModelProto]) -> list[str]:
        return [n.output[0] for n in result.model.graph.node if n.op_type == "Softmax"]

    assert left(softq.convert(model)) == ["probabilities"]
    assert left(softq.convert(model, sites=["q"])) == ["p", "probabilities"]
    assert left(softq.convert(model, all_sites=True)) == []
    plan = softq.convert(model, sites=["p"]).plan
    assert left(softq.convert(model, plan=plan)) == ["q", "probabilities"]


def test_a_row_longer_than_the_proof_is_refused() -> None:
    assert softq.convert(attention(keys="262143"), bits=4).plan.sites
    with pytest.raises(softq.ProofError, match=r"site raw: .*262144"):
        softq.convert(attention(keys="262144"), bits=4)
    with pytest.raises(softq.ProofError, match="300000"):
        softq.convert(attention(), bits=4, max_length=300000)
    assert softq.convert(attention(), bits=4, settings={"weight_bits": 12}, max_length=300000).plan.sites


def test_one_function_serves_every_site_with_the_same_settings() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 7, 7] x, float[2, 7, 7] v) => (float[2, 7, 7] again) {
        p = Softmax <axis = -1> (x)  mixed = MatMul(p, v)
        q = Softmax <axis = -1> (mixed)  again = MatMul(q, v)
    }"""
    functions = softq.convert(onnx.parser.parse_model(text), bits=4, settings={"r": 1}).model.functions
    assert [f.name for f in functions] == ["DeferredLog_b4_r1"]


def test_calibration_fits_a_number_that_lowers_the_error() -> None:
    model, rng = attention(keys="33"), np.random.default_rng(2)
    data = [{"scores": (rng.normal(size=(4, 2, 5, 33)) * 3).astype(np.float32),
             "v": rng.normal(size=(4, 2, 33, 4)).astype(np.float32)} for _ in range(8)]  # fmt: skip
    test = {k: v[:4] for k, v in data.pop().items()}

    def error(result: softq.Conversion[onnx.ModelProto]) -> float:
        return float(np.linalg.norm(run(result.model, test) - run(model, test)))

    coarse = softq.convert(model, bits=2, settings={"r": 0.25})
    site = softq.convert(model, bits=2, calibration=data)
    head = softq.convert(model, bits=2, settings={"r": "head"}, calibration=data)
    fitted = head.plan.sites[0].fitted["r"]
    assert isinstance(fitted, tuple)
    assert len(fitted) == 2
    assert site.plan.sites[0].options["r"] == "site"
    assert error(site) < 0.95 * error(coarse)
    assert error(head) < 0.95 * error(coarse)
    again = softq.convert(model, bits=2, calibration=data)
    assert again.plan == site.plan


def test_a_plan_for_other_weights_warns() -> None:
    def with_weight(value: float) -> onnx.ModelProto:
        model = attention()
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((4, 4), value, np.float32), "w"))
        model.graph.node.append(onnx.helper.make_node("MatMul", ["out", "w"], ["last"]))
        model.graph.output[0].name = "last"
        return model

    plan = softq.convert(with_weight(1), bits=4).plan
    assert not softq.convert(with_weight(1), plan=plan).warnings
    assert "other weights" in softq.convert(with_weight(2), plan=plan).warnings[0]


def test_names_that_the_model_has_already_are_not_given_again() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 7, 7] x, float[2, 7, 7] v) => (float[2, 7, 7] "p.weights", float[2, 7, 7] "p.normalizer") {
        p = Softmax <axis = -1> (x)
        "p.weights" = MatMul(p, v)
        "p.normalizer" = Exp("p.weights")
    }"""
    model = onnx.parser.parse_model(text)
    result = softq.convert(model, method="exact").model
    onnx.checker.check_model(result, full_check=True)
    assert [o.name for o in result.graph.output] == ["p.weights", "p.normalizer"]
    rng = np.random.default_rng(0)
    feed: dict[str, NDArray[np.generic]] = {k: rng.normal(size=(2, 7, 7)).astype(np.float32) for k in ("x", "v")}
    np.testing.assert_allclose(run(result, feed), run(model, feed), rtol=1e-5, atol=1e-6)


def test_a_plan_without_sites_converts_nothing() -> None:
    plan = softq.convert(attention(), bits=4).plan
    empty = softq.Plan(plan.softq, plan.graph, plan.weights, ())
    result = softq.convert(attention(), plan=empty)
    assert "no sites" in result.warnings[0]
    assert [n.op_type for n in result.model.graph.node] == [n.op_type for n in attention().graph.node]


def test_a_cast_that_is_no_float_is_not_looked_through() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 4] x, int32[4, 3] v) => (int32[2, 3] y) { p = Softmax(x)  c = Cast <to = 6> (p)  y = MatMul(c, v) }"""
    model = onnx.parser.parse_model(text)
    feed: dict[str, NDArray[np.generic]] = {"x": np.zeros((2, 4), np.float32), "v": np.ones((4, 3), np.int32)}
    converted = softq.convert(model, method="exact", all_sites=True).model
    np.testing.assert_array_equal(run(converted, feed), run(model, feed))


def test_a_function_of_the_same_name_is_not_taken_for_softqs() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "softq" : 1]>
    g (float[2, 5, 7] x, float[2, 7, 4] v) => (float[2, 5, 4] out, float[2, 5, 7] other)
    { p = Softmax <axis = -1> (x)  out = MatMul(p, v)  other, unused = softq.DeferredLog_b4_r1(x) }
    <domain: "softq", opset_import: ["" : 18]>
    DeferredLog_b4_r1 (scores) => (weights, normalizer) { weights = Exp(scores)  normalizer = Exp(scores) }"""
    with pytest.raises(softq.RefusalError, match="another body already"):
        softq.convert(onnx.parser.parse_model(text), bits=4, settings={"r": 1})


def test_a_normalized_model_can_be_converted_without_being_changed() -> None:
    model = ir.from_proto(attention(mask=WHERE))
    Normalize()(model)
    before = ir.to_proto(model)
    converted = ir.to_proto(softq.convert(model, bits=4).model)
    onnx.checker.check_model(converted, full_check=True)
    assert ir.to_proto(model) == before
    feed = inputs(keep=True)
    np.testing.assert_array_equal(run(converted, feed), run(softq.convert(attention(mask=WHERE), bits=4).model, feed))


@pytest.mark.slow
def test_as_many_programs_as_sites() -> None:
    nodes = "\n".join(f"p{i} = Softmax <axis = -1> (x)  y{i} = MatMul(p{i}, x)" for i in range(300))
    outputs = ", ".join(f"float[4, 4] y{i}" for i in range(300))
    text = f'<ir_version: 8, opset_import: ["" : 18]> g (float[4, 4] x) => ({outputs}) {{ {nodes} }}'
    model = onnx.parser.parse_model(text)
    plan = softq.convert(model, method="uniform").plan
    sites = tuple(replace(s, options={**s.options, "top": 0.5 + i / 1000}) for i, s in enumerate(plan.sites))
    assert len(softq.convert(model, plan=replace(plan, sites=sites)).model.functions) == 300


@pytest.mark.parametrize(("r", "message"), [((0.5, 0.6, 0.7), "r has 3 numbers.*2 heads"), ((), "empty list")])
def test_numbers_a_head_are_counted(r: tuple[float, ...], message: str) -> None:
    plan = softq.convert(attention(), bits=4).plan
    site = replace(plan.sites[0], options={**plan.sites[0].options, "r": "head"}, fitted={"r": r})
    with pytest.raises(softq.SoftqError, match=message):
        softq.convert(attention(), plan=replace(plan, sites=(site,)))


def test_numbers_a_head_need_heads() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[B, 5] x) => (float[B, 5] y) { y = Softmax <axis = -1> (x) }"""
    data = [{"x": np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)}]
    with pytest.raises(softq.RefusalError, match="no head axis"):
        softq.convert(onnx.parser.parse_model(text), settings={"r": "head"}, calibration=data, all_sites=True)


def test_calibration_that_cannot_be_used_is_refused() -> None:
    feed = inputs(batch=2)
    feed["scores"] = np.full_like(feed["scores"], -np.inf)
    with pytest.raises(softq.InputError, match="no row to fit on"):
        softq.convert(attention(), bits=2, calibration=[feed])
    feed = inputs(batch=2)
    feed["v"][0, 0, 0, 0] = np.inf
    with pytest.raises(softq.InputError, match="not finite"):
        softq.convert(attention(), bits=2, calibration=[feed])


def test_nothing_superfluous_is_left() -> None:
    for mask in MASKS.values():
        model = softq.convert(attention(mask=mask, behind=GUARD), bits=4).model
        read = {name for node in model.graph.node for name in node.input} | {o.name for o in model.graph.output}
        assert all(any(name in read for name in node.output) for node in model.graph.node)


def test_a_vector_behind_the_weights_is_no_v() -> None:
    """The quotients of [r, 1] would spread the products [r] to [r, r]: the division stays in front of them."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]> g (float[r,n] x, float[n] v) => (float[r] y) {
            p = Softmax (x)
            y = MatMul (p, v)
        }""")
    converted = softq.convert(model, method="deferred-log", bits=4, all_sites=True).model
    feed = {"x": np.zeros((3, 4), np.float32), "v": np.arange(4, dtype=np.float32)}
    np.testing.assert_array_equal(run(converted, feed), np.full(3, 1.5, np.float32))


def test_converted_models_share_no_function() -> None:
    first, second = (softq.convert(ir.from_proto(attention())).model for _ in range(2))
    assert first.functions.keys() == second.functions.keys()
    for key in first.functions:
        assert first.functions[key] is not second.functions[key]


@pytest.mark.parametrize("given", [{"sites": "raw"}, {"masks": "raw"}])
def test_one_text_is_not_read_letter_by_letter(given: dict[str, str]) -> None:
    (what,) = given
    for call in (softq.convert, softq.inspect):
        with pytest.raises(softq.UsageError, match=f"^{what} is 'raw'; expected a list of such$"):
            call(attention(), **given)  # pyright: ignore[reportArgumentType]
