"""Importing odd models: equal to onnxruntime, or one sentence that names what is at fault."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import softq
from tests.native import Array, Executor, build_program

pytest.importorskip("tvm")

Dims = Sequence[int | str | None]
X = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def value(name: str, dims: Dims | None = None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, ["n", 5] if dims is None else dims)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    *weights: onnx.TensorProto,
    opset: int = 18,
    domain: str = "",
) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, weights), opset_imports=opsets, ir_version=10
    )


def assert_equal(model: onnx.ModelProto, inputs: dict[str, Array]) -> None:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    found = Executor(build_program(model))(inputs)
    for output, wanted in zip(session.get_outputs(), expected, strict=True):
        np.testing.assert_allclose(found[output.name].astype(np.float64), np.asarray(wanted), rtol=1e-5, atol=1e-6)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", ["batch size", "n+1", "2*n", "ünï", "-1", "begin", 'n"; drop', "elem_offset", None])
def test_any_name_of_a_dimension_will_do(name: str | None) -> None:
    nodes = [node("Softmax", "x", "y"), node("Concat", "y w", "z", axis=0)]
    model = model_of(nodes, [value("x", [name, 5]), value("w", ["rows", 5])], [value("z", [None, 5])])
    assert_equal(model, {"x": X, "w": X[:1]})


def test_axes_of_length_0_and_inputs_without_axes() -> None:
    nodes = [node("Concat", "x y", "t", axis=1), node("Mul", "t s", "z")]
    model = model_of(nodes, [value("x", [2, 0]), value("y", [2, 5]), value("s", [])], [value("z", [2, 5])])
    assert_equal(model, {"x": X[:, :0], "y": X, "s": np.array(2, np.float32)})


@pytest.mark.parametrize("length", [5, 300])
def test_outputs_that_are_inputs_weights_or_given_twice(length: int) -> None:
    x = np.resize(X, (2, length)).astype(np.float32)
    weight = numpy_helper.from_array(x[0], "w")
    outputs = [value(name, ["n", length]) for name in ("z", "x", "z", "y")] + [value("w", [length])]
    nodes = [node("Add", "x w", "z"), node("Identity", "z", "y")]
    inputs = [value("x", ["n", length]), value("w", [length]), value("unused", ["m"], TensorProto.INT64)]
    model = model_of(nodes, inputs, outputs, weight)
    found = Executor(build_program(model))({"x": x, "unused": np.arange(3)})
    for name, wanted in {"z": x + x[0], "y": x + x[0], "x": x, "w": x[0]}.items():
        np.testing.assert_array_equal(found[name], wanted)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("opset", [7, 11, 13, 17, 20, 23, 25])
def test_operator_sets(opset: int) -> None:
    nodes = [node("Softmax", "x", "y", axis=1), node("Relu", "y", "z")]
    assert_equal(model_of(nodes, [value("x")], [value("z")], opset=opset), {"x": X})


def test_a_softmax_and_its_division_are_one_kernel() -> None:
    program = build_program(model_of([node("Softmax", "x", "z")], [value("x")], [value("z")]))
    assert len(program.steps) == 1


def test_names_of_nodes_and_values_may_be_odd() -> None:
    nodes = [helper.make_node("Exp", ["x y/;"], ["é::0"], name="1"), helper.make_node("Neg", ["é::0"], ["%z"])]
    assert_equal(model_of(nodes, [value("x y/;")], [value("%z")]), {"x y/;": X})


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.arange(1500, dtype=np.float32).reshape(300, 5), "w")
    model = model_of([node("MatMul", "w x", "z")], [value("x", [5, "n"])], [value("z", [300, "n"])], weight)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    found = Executor(build_program(tmp_path / "m.onnx"))({"x": X.T.copy()})["z"]
    np.testing.assert_allclose(found.astype(np.float64), numpy_helper.to_array(weight) @ X.T, rtol=1e-5, atol=1e-3)


SEQUENCE = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, ["n"])
REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    "all that is missing": (
        model_of(
            [node("ImageDecoder", "x", "z"), node("Bernoulli", "x", "y")],
            [value("x", ["n", "n"])],
            [value("z", []), value("y")],
        ),
        r"ImageDecoder \(first at 'z'\); Bernoulli 'y' draws random numbers; ",
    ),
    "foreign Softmax": (
        model_of([node("Softmax", "x", "z", domain="other")], [value("x")], [value("z")], domain="other"),
        r"other::Softmax \(first at 'z'\)",
    ),
    "sequence": (
        model_of(
            [node("SequenceConstruct", "x x", "s"), node("ConcatFromSequence", "s", "z", axis=0)],
            [value("x")],
            [value("z")],
        ),
        "SequenceConstruct .* ConcatFromSequence",
    ),
    "sequence input": (
        model_of([node("SequenceLength", "s", "z")], [SEQUENCE], [value("z", [], TensorProto.INT64)]),
        "input 's' is no tensor but sequence",
    ),
    "string": (
        model_of([node("Exp", "x", "z")], [value("x"), value("u", ["n"], TensorProto.STRING)], [value("z")]),
        "input 'u' is string; inputs and outputs are one of",
    ),
    "unknown rank": (
        model_of([node("Exp", "x", "z")], [helper.make_tensor_value_info("x", 1, None)], [value("z")]),
        "input 'x' has an unknown number of axes",
    ),
    "nine axes": (model_of([node("Exp", "x", "z")], [value("x", [1] * 9)], [value("z", [1] * 9)]), "has 9 axes"),
    "an axis that is not there": (
        model_of(
            [node("Gather", "x i", "z", axis=5)],
            [value("x"), value("i", [1], 7)],
            [helper.make_empty_tensor_value_info("z")],
        ),
        "Gather 'z': axis 5 of a tensor with 2 axes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_built_is_one_sentence(name: str) -> None:
    model, message = REFUSED[name]
    with pytest.raises(softq.RefusalError, match=message) as caught:
        build_program(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["no plan", "edited"])
def test_functions_that_are_not_those_of_the_plan_are_refused(damage: str) -> None:
    plain = model_of([node("Softmax", "x", "z")], [value("x")], [value("z")])
    model = ir.from_proto(softq.convert(plain, method="log2", all_sites=True).model)
    (function,) = list(model.functions.values())
    if damage == "no plan":
        model.metadata_props.clear()
    else:
        next(n for n in function if n.op_type in ("Sub", "Add", "Mul", "Max")).op_type = "Min"
    with pytest.raises(softq.RefusalError, match=rf"function {function.domain}::{function.name} is not"):
        build_program(model)


@pytest.mark.parametrize("operator", ["MaxPool", "Unknown"])
def test_tvm_says_nothing_behind_an_error(operator: str, capfd: pytest.CaptureFixture[str]) -> None:
    # One is refused while blocks are open, the other before there are any.
    attributes = {"kernel_shape": [2, 2]} if operator == "MaxPool" else {}
    model = model_of([node(operator, "x", "y", **attributes)], [value("x")], [value("y", [2, "k"], TensorProto.INT64)])
    with pytest.raises(softq.RefusalError):
        build_program(model)
    gc.collect()
    assert capfd.readouterr().err == ""
