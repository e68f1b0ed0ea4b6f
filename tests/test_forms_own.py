"""Attention whose weights are another function than the softmax: what is recognised gives what the model gave."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import parser

import softq
from softq.errors import RefusalError, UsageError
from tests.attention import Feed, run

SHAPE = "float[2, 3, 5, 4]"
TYPES = {"float": 1, "float16": 10, "double": 11}


def model(function: str, *, between: str = "w = Identity (f)", mask: str = "m = Identity (s)", dtype: str = "float",
          scores: str = "t = Transpose <perm = [0, 1, 3, 2]> (k)  r = MatMul (q, t)", out: str = "y",
          ) -> onnx.ModelProto:  # fmt: skip
    four = SHAPE.replace("float", dtype)
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g ({four} q, {four} k, {four} v, float[5, 5] bias) => ({dtype}[2, 3, 5, {5 if out == "f" else 4}] {out})
          <float one_half = {{0.5}}, float five = {{5.0}}>
        {{
            half = Cast <to = {TYPES[dtype]}> (one_half)
            {scores}
            s = Mul (r, half)
            {mask}
            f = {function} (m)
            {between}
            y = MatMul (w, v)
        }}""")


def direct(function: str, dtype: str = "float") -> onnx.ModelProto:
    """The weights go into the product as they are."""
    made = model(function, between="", dtype=dtype)
    made.graph.node[-1].input[0] = "f"
    return made


def feed(dtype: str = "float32") -> dict[str, NDArray[np.generic]]:
    rng = np.random.default_rng(0)
    made: dict[str, NDArray[np.generic]] = {
        name: (rng.normal(size=(2, 3, 5, 4)) * 2).astype(dtype) for name in ("q", "k", "v")
    }
    return made | {"bias": np.zeros((5, 5), np.float32)}


def same(original: onnx.ModelProto, method: str, given: Feed, error: float) -> None:
    before = copy.deepcopy(original)
    result = softq.convert(original, method=method)
    assert original == before
    assert [site.method for site in result.plan.sites] == [method]
    onnx.checker.check_model(result.model, full_check=True)
    assert not [n for n in result.model.graph.node if n.op_type in ("Relu", "Sigmoid")]
    np.testing.assert_allclose(run(result.model, given), run(original, given), rtol=error, atol=error)


@pytest.mark.parametrize(("function", "method", "error"), [("Relu", "relu", 1e-6), ("Sigmoid", "sigmoid", 3e-6)])
@pytest.mark.parametrize("between", ["w = Div (f, five)", "w = Mul (f, one_half)"])
@pytest.mark.parametrize("low", [-np.inf, -1e4, -1e9])
def test_what_the_graph_holds_is_converted_without_a_flag(
    function: str, method: str, error: float, between: str, low: float
) -> None:
    given = feed()
    given["bias"] = np.triu(np.full((5, 5), low), 1).astype(np.float32)
    given["bias"][3] = low  # a row of which nothing takes part: zeros, as the function has it
    same(model(function, between=between, mask="m = Add (s, bias)"), method, given, error)


@pytest.mark.parametrize(("function", "method"), [("Relu", "relu"), ("Sigmoid", "sigmoid")])
def test_right_before_the_product_and_with_nan(function: str, method: str) -> None:
    made, given = direct(function), feed()
    same(made, method, given, 3e-6)
    given["q"][0, 0, 2, 1] = np.nan
    same(made, method, given, 3e-6)
    assert np.sum(np.isnan(run(softq.convert(made, method=method).model, given))) == 4


def test_other_methods_leave_it_as_it_is() -> None:
    made = model("Relu", between="w = Div (f, five)")
    (site,) = softq.inspect(made)
    assert (site.form, site.role, site.verdict.action) == ("written-function", "attention", "keep")
    assert "the function of the method relu" in site.verdict.reason
    for method in (None, "sigmoid", "taylor"):
        assert softq.convert(made, method=method).plan.sites == ()
    assert softq.inspect(made, method="relu")[0].verdict.action == "convert"


def test_a_plan_for_it_needs_no_flag_and_cannot_change_it() -> None:
    made = model("Relu", between="w = Div (f, five)")
    first = softq.convert(made, method="relu")
    assert softq.convert(made, plan=first.plan).model == first.model
    (planned,) = first.plan.sites
    edited = replace(first.plan, sites=(replace(planned, options={**planned.options, "power": 2}),))
    with pytest.raises(
        UsageError, match=r"holds the function relu with power=1, divisor=5\.0, eps=0\.0, .*; given is power=2"
    ):
        softq.convert(made, plan=edited)
    with pytest.raises(UsageError, match="given is divisor=6"):
        softq.convert(made, method="relu", settings={"divisor": 6})
    swapped = replace(first.plan, sites=(replace(planned, method="sigmoid", options={"bias": 0.0}),))
    with pytest.raises(RefusalError, match="cannot be converted"):
        softq.convert(made, plan=swapped)


@pytest.mark.parametrize("made", [
    model("Relu", scores="t = Transpose <perm = [0, 1, 3, 2]> (k)  r = MatMul (q, t)",
          between="w = Softmax (f)"),
    model("Relu", scores="t = Transpose <perm = [0, 1, 3, 2]> (k)  z = MatMul (q, t)  r = Tanh (z)",
          between="w = Div (f, half)"),
    model("Relu", between="a = Mul (f, r)  w = Add (a, f)"),
    model("Relu", between="a = ReduceSum <keepdims = 1> (f)  w = Div (f, a)"),
    model("Tanh", between="w = Div (f, five)"),
    model("Relu", between="w = Div (f, five)", out="f"),
], ids=["softmax-behind", "function-between", "two-readers", "row-sum", "tanh", "graph-output"])  # fmt: skip
def test_what_is_not_certain_is_not_recognised(made: onnx.ModelProto) -> None:
    assert not [site for site in softq.inspect(made, method="relu") if site.function is not None]


def test_layers_and_linear_attention_are_none() -> None:
    made = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2, 5, 4] x, float[2, 4, 3] kv) => (float[2, 5, 3] y)
        { layer = Constant <value = float[4, 4] {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}> ()
          h = MatMul (x, layer)  f = Relu (h)  y = MatMul (f, kv) }""")
    assert softq.inspect(made, method="relu") == ()


def test_double_is_refused_and_float16_is_converted() -> None:
    (site,) = softq.inspect(model("Relu", between="w = Div (f, five)", dtype="double"), method="relu")
    assert (site.verdict.action, "double" in site.verdict.reason) == ("refuse", True)
    same(direct("Relu", "float16"), "relu", feed("float16"), 2e-3)
