"""`convert --fuse-attention`: attentions as functions around row functions, with unchanged results."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner

import softq
from softq.cli import main
from softq.passes.fuse_attentions import REFUSED_KEY, FuseAttentions
from tests.attention import run
from tests.fused import ATTENTIONS, DIMS, Attention
from tests.native import build_program

_NAMED = pytest.mark.parametrize("name", ATTENTIONS)


def _functions(model: onnx.ModelProto) -> dict[str, onnx.FunctionProto]:
    return {f.name: f for f in model.functions if f.name.startswith("Attention_")}


@_NAMED
def test_same_results(name: str) -> None:
    given = ATTENTIONS[name]
    model, feeds = given.model(), given.feeds(DIMS)
    plain, fused = softq.convert(model, bits=4), softq.convert(model, bits=4, fuse_attention=True)
    assert fused.warnings == ()
    (function,) = _functions(fused.model).values()
    # What is left of the graph is the call, and a past's joins.
    assert {n.op_type for n in fused.model.graph.node} - {function.name} <= {"Concat", "Cast", "Constant", "Unsqueeze"}
    own = {n.op_type for n in function.node if n.domain == ""} - {"Constant"}
    assert not given.operators or own == given.operators
    want = run(plain.model, feeds)
    np.testing.assert_array_equal(run(fused.model, feeds), want)
    assert np.isfinite(want).all()
    inline = softq.convert(model, bits=4, fuse_attention=True, inline=True).model
    assert not inline.functions
    np.testing.assert_array_equal(run(inline, feeds), want)


def test_numbers_stay_inputs_and_sites_share_a_function() -> None:
    lines = ATTENTIONS["plain"].lines
    again = re.sub(r"\b(scale|kt|scores|masked|p)\b", r"\1_2", lines).replace("(q,", "(out_1,")
    lines = lines.replace("out =", "out_1 =")
    twice = Attention(ATTENTIONS["plain"].inputs, lines + again, ATTENTIONS["plain"].out)
    model, feeds = twice.model(), twice.feeds(DIMS)
    plain, fused = (
        softq.convert(model, method="bias-corrected", calibration=[feeds], fuse_attention=fuse)
        for fuse in (False, True)
    )
    (function,) = _functions(fused.model).values()
    assert [i for i in function.input if i not in ("query", "key", "value")]
    calls = [n for n in fused.model.graph.node if n.op_type == function.name]
    assert len(calls) == 2
    assert [p.value for n in calls for p in n.metadata_props if p.key == "softq.site"] == [s.id for s in plain.sites]
    np.testing.assert_array_equal(run(fused.model, feeds), run(plain.model, feeds))


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("p2 = Softmax <axis: int = -1> (v) w = MatMul(v, p) out = Add(w, w)", "read by"),
        ("s = Softmax <axis: int = -1> (scores) a = MatMul(s, v) b = MatMul(s, q) out = Add(a, b)", "2 products"),
    ],
    ids=["right operand", "two products"],
)
def test_what_stays_is_named(lines: str, reason: str) -> None:
    if "scores" not in lines:
        lines = "p = Softmax <axis: int = -1> (q) w = MatMul(v, p) out = Identity(w)"
    square: dict[str, str] = dict.fromkeys(("scores", "q", "v"), "float[B,4,6,6]")
    model = Attention(square, lines, "float[B,4,6,6]").model()
    made = softq.convert(model, bits=4, fuse_attention=True, all_sites=True)
    assert not _functions(made.model)
    assert [reason in warning and "is not fused" in warning for warning in made.warnings] == [True]
    assert made.sites[0].id in made.warnings[0]


def test_command_line(tmp_path: Path) -> None:
    onnx.save(ATTENTIONS["added-mask"].model(), tmp_path / "model.onnx")
    out = tmp_path / "fused.onnx"
    done = CliRunner().invoke(main, ["convert", str(tmp_path / "model.onnx"), str(out), "--fuse-attention"])
    assert done.exit_code == 0, done.output
    assert _functions(onnx.load(out))
    (site,) = softq.inspect(out)
    assert site.verdict.action == "keep"
    assert "was replaced before, by softq::Attention_" in site.verdict.reason


@pytest.mark.parametrize("name", ["added-mask", "computed-groups", "side-by-side"])
def test_built_models_are_those_without_it(name: str) -> None:
    def steps(fuse: bool) -> list[tuple[str, str | None]]:
        converted = softq.convert(ATTENTIONS[name].model(), bits=4, fuse_attention=fuse).model
        return [(step.kernel, step.site) for step in build_program(converted).steps]

    assert steps(fuse=True) == steps(fuse=False)


def test_given_scores_are_fused_in_built_models() -> None:
    converted = softq.convert(ATTENTIONS["given-scores"].model(), bits=4).model
    (step,) = build_program(converted).steps
    assert step.kernel.startswith("softq_attention_")


def test_attentions_in_bodies_are_fused() -> None:
    plain = ATTENTIONS["plain"]
    inner = f"t () => ({plain.out} out_1) {{ {plain.lines.replace('out =', 'out_1 =')} }}"
    other = f"e () => ({plain.out} out_2) {{ out_2 = Identity(q) }}"
    lines = f"out = If (c) <then_branch = {inner}, else_branch = {other}>"
    given = Attention({**plain.inputs, "c": "bool[]"}, lines, plain.out)
    feeds = {**plain.feeds(DIMS), "c": np.array(True)}
    model, fused = (softq.convert(given.model(), bits=4, fuse_attention=fuse).model for fuse in (False, True))
    assert len(_functions(fused)) == 1
    np.testing.assert_array_equal(run(fused, feeds), run(model, feeds))


def test_what_others_read_inside_is_named() -> None:
    model = ir.from_proto(softq.convert(ATTENTIONS["plain"].model(), bits=4).model)
    (call,) = (node for node in model.graph if node.domain == "softq")
    model.graph.append(ir.node("Identity", [call.outputs[1]], name="reader"))
    FuseAttentions()(model)
    assert model.meta[REFUSED_KEY] == {"p": "p.normalizer, which is inside it, is read by reader"}
