"""Rules for onnxscript's rewriter: what they replace, what they leave and why, and the same numbers as `convert`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import softq
from softq.errors import RefusalError, UsageError
from softq.passes.defer_normalizer import DeferNormalizer
from tests.attention import inputs, run

rewriter = pytest.importorskip("onnxscript.rewriter")

from softq.integrations.onnxscript import softmax_rules  # noqa: E402


def reasons(model: ir.Model, **options: Any) -> list[str]:
    """Return why each softmax stays, as onnxscript's tracer reports it."""
    tracer = rewriter.MatchingTracer()
    softmax_rules(bits=4, **options).apply_to_model(model, tracer=tracer)
    return [match.match_result.reason for matches in tracer.best_matches_map.values() for match in matches]


def rewrite(model: onnx.ModelProto, *, count: int = 1, defer: bool = True, **options: Any) -> onnx.ModelProto:
    work = ir.from_proto(model)
    assert softmax_rules(**options).apply_to_model(work) == count
    assert not defer or DeferNormalizer()(work).modified
    made = ir.to_proto(work)
    onnx.checker.check_model(made, full_check=True)
    return made


def direct(dtype: str = "float", rows: int | str = "K", opset: int = 18, axis: int = -1) -> onnx.ModelProto:
    """Return Softmax -> MatMul with v."""
    return onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : {opset}]>
    attention ({dtype}[batch, 2, 5, {rows}] scores, {dtype}[batch, 2, {rows}, 4] v) => ({dtype}[batch, 2, 5, 4] out)
    {{ raw = Softmax <axis = {axis}> (scores) out = MatMul(raw, v) }}""")


@pytest.mark.parametrize("method", ["deferred-log", "uniform", "i-exp", "exact"])
def test_numbers_are_those_of_convert(method: str) -> None:
    feed = inputs()
    feed["scores"][0, 0, 0, :3] = -np.inf
    expected = run(softq.convert(direct(), method=method).model, feed)
    made = rewrite(direct(), method=method)
    assert np.array_equal(run(made, feed), expected)
    assert not np.array_equal(expected, run(direct(), feed))
    assert [function.domain for function in made.functions] == ["softq"]


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("consmax", {}, "drop-in"),
        ("deferred-log", {"r": "head"}, "fitted on data"),
        ("log2", {"bits": 40}, "bits is 40"),
        ("lgo2", {}, "unknown method 'lgo2'"),
    ],
)
def test_what_is_no_rule(method: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        softmax_rules(method, settings=settings)


@pytest.mark.parametrize("length", [-1, 0, 2**31])
def test_lengths_that_no_row_has(length: int) -> None:
    with pytest.raises(UsageError, match=f"max_length is {length}; allowed is 1 to 2147483647"):
        softmax_rules(max_length=length)


def test_half_precision() -> None:
    model = direct("float16", rows=7)
    made, feed = rewrite(model, bits=4), inputs(dtype="float16")
    assert run(made, feed).dtype == np.float16
    assert np.array_equal(run(made, feed), run(softq.convert(model, bits=4).model, feed))


HEAD = """<ir_version: 8, opset_import: ["" : 18]>
    head (float[batch, 10] scores) => (float[batch, 10] p) { p = Softmax (scores) }"""


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        (onnx.parser.parse_model(HEAD), {}, "its weights are not multiplied with values"),
        (direct(opset=17), {}, "the model has opset 17; allowed is 18 to"),
        (direct(axis=1), {}, "it reduces axis 1, which is not known to be the last"),
        (direct("double"), {}, "its scores are of type DOUBLE"),
        (direct(rows=70_000), {}, "its rows have 70000 elements; the proof covers 65536"),
        (direct(rows=70), {"max_length": 69}, "its rows have 70 elements; the proof covers 69"),
    ],
)
def test_what_stays_and_why(model: onnx.ModelProto, options: dict[str, Any], reason: str) -> None:
    work = ir.from_proto(model)
    (said,) = reasons(work, **options)
    assert said.startswith(reason)
    assert softmax_rules(bits=4, **options).apply_to_model(work) == 0
    assert not work.functions


def test_everywhere_and_last_axis_by_number() -> None:
    head = onnx.parser.parse_model(HEAD)
    feed = {"scores": np.random.default_rng(0).normal(size=(3, 10)).astype("f")}
    made = rewrite(head, everywhere=True, defer=False, bits=8)
    assert np.array_equal(run(made, feed), run(softq.convert(head, bits=8, all_sites=True).model, feed))
    assert len(rewrite(direct(axis=3)).functions) == 1


def test_in_functions_and_bodies_and_only_once() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18, "own" : 1]>
    g (float[2, 5, 7] scores, float[2, 7, 4] v, bool which) => (float[2, 5, 4] out) {
        out = If (which) <
            then_branch = a () => (float[2, 5, 4] x) { p = Softmax (scores) x = MatMul (p, v) },
            else_branch = b () => (float[2, 5, 4] y) { y = own.mix (scores, v) } >
    }
    <opset_import: ["" : 18], domain: "own">
    mix (s, w) => (z) { q = Softmax (s) z = MatMul (q, w) }""")
    work = ir.from_proto(model)
    for value in next(iter(work.functions.values())).inputs:
        value.dtype = ir.DataType.FLOAT
    rules = softmax_rules(bits=4, settings={"r": 1})
    assert rules.apply_to_model(work) == 2
    assert rules.apply_to_model(work) == 0
    made = ir.to_proto(work)
    assert sorted(function.domain for function in made.functions) == ["own", "softq"]
    rng = np.random.default_rng(0)
    feed = {"scores": rng.normal(size=(2, 5, 7)).astype("f"), "v": rng.normal(size=(2, 7, 4)).astype("f")}
    one, other = (run(made, {**feed, "which": np.array(which)}) for which in (True, False))
    assert np.array_equal(one, other)
    assert 0 < np.abs(one - run(model, {**feed, "which": np.array(True)})).max() < 0.3


@pytest.mark.parametrize(
    ("opset", "softmax", "reason"),
    [
        # With opset 11 it reduces axis 1 and all behind it.
        (11, "Softmax (s)", "it is in a function of opset 11; the model has opset 18"),
        (18, "Softmax <axis: int = @axis> (s)", "its axis is an attribute of the function that it is in"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_what_stays_in_functions(opset: int, softmax: str, reason: str, nested: bool) -> None:
    mix = f"q = {softmax} z = MatMul (q, w)"
    if nested:
        other = "else_branch = b () => (y) { y = MatMul (s, w) }"
        mix = f"z = If (c) <then_branch = a () => (x) {{ q = {softmax} x = MatMul (q, w) }}, {other}>"
    work = ir.from_proto(
        onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18, "own" : 1]>
    g (float[2, 5, 7] scores, float[2, 7, 4] v, bool c) => (float[2, 5, 4] out) {{
        out = own.mix <axis = 1> (scores, v, c) }}
    <opset_import: ["" : {opset}], domain: "own">
    mix <axis> (s, w, c) => (z) {{ {mix} }}""")
    )
    for value in next(iter(work.functions.values())).inputs:
        value.dtype, value.shape = ir.DataType.FLOAT, ir.Shape([2, 5, 7])
    assert reasons(work) == [reason]
    assert softmax_rules(bits=4).apply_to_model(work) == 0


def test_a_function_with_another_proof_stays() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 7] s, float[7, 4] v, float[2, 7] t) => (float[2, 4] out, float[2, 7] p) {
        q = Softmax (s) out = MatMul (q, v) p = Softmax (t) }""")
    work = ir.from_proto(model)
    assert softmax_rules(bits=4, max_length=100).apply_to_model(work) == 1
    before = ir.to_proto(work).graph.SerializeToString()
    with pytest.raises(RefusalError, match="with another body already"):
        softmax_rules(bits=4, max_length=10_000, everywhere=True).apply_to_model(work)
    assert ir.to_proto(work).graph.SerializeToString() == before
