"""Softmaxes of which only the order is used: no method takes their place, and no result changes.

Results are compared with the original in onnxruntime: positions exactly, weights within 1e-6 (another order).
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

import softq
from softq.passes.drop_argmax import DropArgmax
from softq.passes.fuse_topk import FuseTopk
from softq.plans import load_plan

X = np.random.default_rng(3).normal(0, 3, (4, 6, 8)).astype(np.float32)


def model(body: str, outputs: str, opset: int = 18) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[4,6,8] x) => ({outputs}) {{\n'
    return parser.parse_model(text + textwrap.dedent(body) + "\n}")


def run(proto: onnx.ModelProto) -> list[np.ndarray]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, {"x": X})]


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def same(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    onnx.checker.check_model(after, full_check=True)
    for a, b in zip(run(before), run(after), strict=True):
        np.testing.assert_array_equal(a, b) if a.dtype.kind == "i" else np.testing.assert_allclose(a, b, 1e-6, 1e-6)


ROUTER = """
    k = Constant <value: tensor = int64[1] {3}> ()
    p = Softmax <axis: int = AXIS> (x)
    v, i = TopK <axis: int = AXIS> (p, k)
    a = Constant <value: tensor = int64[1] {AXIS}> ()
    s = ReduceSum (v, a)
    w = Div (v, s)
"""


@pytest.mark.parametrize("axis", [-1, 2, 1, 0])
@pytest.mark.parametrize("attributes", ["", ", keepdims: int = 0", ", select_last_index: int = 1"])
def test_an_argmax_is_taken_of_the_scores(axis: int, attributes: str) -> None:
    body = f"p = Softmax <axis: int = {axis}> (x)\n y = ArgMax <axis: int = {axis}{attributes}> (p)"
    before = model(body, f"int64[{','.join('abc'[: 2 if 'keep' in attributes else 3])}] y")
    result = softq.convert(before)
    assert operators(result.model) == ["ArgMax"]
    (site,) = result.sites
    assert (site.verdict.action, site.rewrite) == ("convert", "drop-argmax")
    assert result.plan.rewrites == {site.id: "drop-argmax"}
    same(before, result.model)


@pytest.mark.parametrize("axis", [-1, 1])
def test_a_router_takes_the_softmax_of_its_few_scores(axis: int) -> None:
    before = model(ROUTER.replace("AXIS", str(axis)), "float[a,b,c] w, int64[a,b,c] i")
    result = softq.convert(before)
    assert operators(result.model) == ["Constant", "TopK", "Softmax"]
    assert result.plan.rewrites == {result.sites[0].id: "fuse-topk"}
    same(before, result.model)


def test_positions_alone_need_no_softmax() -> None:
    body = "k = Constant <value: tensor = int64[1] {3}> ()\n p = Softmax (x)\n v, i = TopK (p, k)"
    before = model(body, "int64[a,b,c] i")
    result = softq.convert(before)
    assert operators(result.model) == ["Constant", "TopK"]
    same(before, result.model)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("p = Softmax (x)\n y = ArgMax <axis: int = 0> (p)", "int64[a,b,c] y"),
        ("p = Softmax (x)\n y = ArgMax (p)", "int64[a,b,c] y"),
        ("p = Softmax (x)\n y = ArgMax <axis: int = -1> (p)", "int64[a,b,c] y, float[4,6,8] p"),
        ("p = Softmax (x)\n y = ArgMin <axis: int = -1> (p)", "int64[a,b,c] y"),
        (ROUTER.replace("AXIS", "-1"), "float[a,b,c] w, float[a,b,c] v, int64[a,b,c] i"),
        (ROUTER.replace("AXIS", "-1").replace("ReduceSum (", "ReduceSum <keepdims: int = 1> (").replace("{-1}", "{0}"),
         "float[a,b,c] w"),
        (ROUTER.replace("AXIS", "-1").replace("TopK <", "TopK <largest: int = 0, "), "float[a,b,c] w"),
        ("k = Constant <value: tensor = int64[1] {3}> ()\n p = Softmax (x)\n v, i = TopK (p, k)", "float[a,b,c] v"),
        ("p = Softmax (x)\n h = Cast <to: int = 10> (p)\n y = ArgMax <axis: int = -1> (h)", "int64[a,b,c] y"),
    ],
)  # fmt: skip
def test_where_more_than_the_order_is_used_the_softmax_stays(body: str, outputs: str) -> None:
    before = model(body, outputs)
    result = softq.convert(before)
    assert "Softmax" in operators(result.model)
    assert not result.plan.rewrites
    assert result.sites[0].verdict.action == "keep"


def test_a_site_that_is_named_gets_the_method() -> None:
    before = model("p = Softmax (x)\n y = ArgMax <axis: int = -1> (p)", "int64[a,b,c] y")
    result = softq.convert(before, method="exact", sites=["p"])
    assert [site.method for site in result.plan.sites] == ["exact"]
    assert not result.plan.rewrites
    same(before, result.model)


def test_a_plan_repeats_it(tmp_path: Path) -> None:
    body = (
        ROUTER.replace("AXIS", "-1")
        + "\n q = Softmax (x)\n t = Transpose <perm: ints = [0,2,1]> (x)\n y = MatMul (q, t)"
    )
    before = model(body, "float[a,b,c] w, float[4,6,6] y")
    untouched = before.SerializeToString(deterministic=True)
    first = softq.convert(before)
    assert before.SerializeToString(deterministic=True) == untouched
    (tmp_path / "plan.json").write_text(first.plan.to_text())
    plan = load_plan(tmp_path / "plan.json")
    assert (set(plan.rewrites), [site.id for site in plan.sites]) == ({"p"}, ["q"])
    again = softq.convert(before, plan=plan)
    assert again.model.SerializeToString(deterministic=True) == first.model.SerializeToString(deterministic=True)

    values = json.loads(first.plan.to_text())
    values["sites"] = []
    (tmp_path / "plan.json").write_text(json.dumps(values))
    only = softq.convert(before, plan=tmp_path / "plan.json").model
    assert operators(only).count("Softmax") == 2
    assert not only.functions
    values["rewrites"] = {"q": "fuse-topk"}
    (tmp_path / "plan.json").write_text(json.dumps(values))
    with pytest.raises(softq.RefusalError, match="fuse-topk does not apply to site q"):
        softq.convert(before, plan=tmp_path / "plan.json")
    values["rewrites"] = {"p": 3}
    (tmp_path / "plan.json").write_text(json.dumps(values))
    with pytest.raises(softq.InputError, match="rewrites: p is 3"):
        softq.convert(before, plan=tmp_path / "plan.json")


def test_the_passes_work_alone() -> None:
    from onnx_ir import serde

    before = model(ROUTER.replace("AXIS", "-1") + "\n q = Softmax (x)\n y = ArgMax <axis: int = -1> (q)",
                   "float[a,b,c] w, int64[a,b,c] y")  # fmt: skip
    work = serde.from_proto(before)
    assert DropArgmax()(work).modified
    assert FuseTopk()(work).modified
    assert not DropArgmax()(work).modified
    after = serde.to_proto(work)
    assert operators(after).count("Softmax") == 1
    same(before, after)


def test_ties_by_rounding_and_infinite_scores() -> None:
    body = "p = Softmax (x)\n y = ArgMax <axis: int = -1> (p)"
    before = model(body.replace("(x)", "(x)"), "int64[a,b,c] y")
    after = softq.convert(before).model
    x = np.full((4, 6, 8), -np.inf, np.float32)
    x[..., 5] = 2.0
    x[0, 0] = np.array([-200, -100, -100.5, -300, -1e30, -np.inf, -150, -101], np.float32)
    session = ort.InferenceSession(after.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(np.asarray(found)[..., 0], x.argmax(-1))
