"""Graphs that go through onnx's converter side by side become what each does alone; one that is refused is named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, parser, version_converter

from softq.errors import RefusalError
from softq.graph import version_conversion
from softq.graph.version_conversion import convert_graphs
from softq.modelfile import as_model
from softq.passes.raise_opset import RaiseOpset

BODIES = {
    6: ["o0 = Dropout<is_test = 1>(i0)", "o0 = Add<axis = 1, broadcast = 1>(i0, i1)"],
    7: ["o0 = Upsample<scales = [1.0, 1.0, 2.0, 2.0]>(i0)", "o0 = BatchNormalization(i0, i1, i1, i1, i1)"],
    9: ["o0 = Slice<starts = [0, 1], ends = [1, 3], axes = [1, 2]>(i0)", "o0, o1 = TopK<k = 2, axis = 2>(i0)",
        "o0 = Clip<min = -0.5>(i0)", "o0 = Upsample(i0, sizes)"],
    10: ["o0 = Pad<pads = [0, 0, 1, 1, 0, 0, 1, 1], value = 2.5>(i0)", "o0 = Resize(i0, sizes)", "o0 = Clip(i0)"],
    11: ["o0, o1 = Split<axis = 2, split = [1, 3]>(i0)", "o0 = Dropout<ratio = 0.5>(i0)", "o0 = Softmax(i0)"],
    12: ["o0 = ReduceSum<axes = [1]>(i0)", "o0 = Softmax<axis = 1>(i0)", "o0 = Clip(i0, , i2)", "o0 = Relu(i0)",
         "o0 = Softmax<axis = -1>(i0)"],
    17: ["o0 = ReduceMax(i0)", "o0, o1 = Split<axis = 2>(i0)", "o0 = ReduceMean<axes = [-1, 1]>(i0)"],
}  # fmt: skip
"""Nodes whose operators changed in all the ways that the converter knows, by the operator set they are of."""


def graphs(version: int) -> list[onnx.GraphProto]:
    made: list[onnx.GraphProto] = []
    for body in BODIES[version]:
        results = ", ".join(f"float {name}" for name in ("o0", "o1") if name in body)
        constants = "<float[4] sizes = {1, 1, 2, 2}>" if "sizes" in body else ""
        graph = parser.parse_graph(
            f"n (float[1,2,4,3] i0, float[2] i1, float i2) => ({results}) {constants} {{ {body} }}"
        )
        read = set(graph.node[0].input)
        kept = [entry for entry in graph.input if entry.name in read]
        del graph.input[:]
        graph.input.extend(kept)
        made.append(graph)
    return made


def described(graph: onnx.GraphProto, given: onnx.GraphProto) -> list[object]:
    """Return nodes and initializers, with the names that the converter gives by the order in which they come."""
    ours = {name for node in given.node for name in (*node.input, *node.output)}
    numbers: dict[str, str] = {}
    for node in graph.node:
        for name in (*node.input, *node.output):
            numbers.setdefault(name, name if name in ours else f"#{len(numbers)}")
    found: list[object] = []
    for node in graph.node:
        attributes = [attribute.SerializeToString(deterministic=True) for attribute in node.attribute]
        names = [[numbers[name] for name in some] for some in (node.input, node.output)]
        found.append((node.op_type, node.name, names, attributes))
    return [*found, *((numbers.get(t.name), t.data_type, list(t.dims), t.raw_data) for t in graph.initializer)]


@pytest.mark.parametrize("version", BODIES)
def test_graphs_become_what_each_does_alone(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given, calls = graphs(version) * 3, count_calls(monkeypatch)
    together = list(convert_graphs(given, version, 18))
    assert calls == [len(given)]
    alone = [next(convert_graphs([graph], version, 18)) for graph in given]
    assert len(calls) == 1 + len(given)
    assert [described(one, graph) for one, graph in zip(together, given, strict=True)] == [
        described(one, graph) for one, graph in zip(alone, given, strict=True)
    ]


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each call of the converter adds how many nodes it is given."""
    calls: list[int] = []
    convert = version_converter.convert_version

    def counted(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
        calls.append(len(model.graph.node))
        return convert(model, target)

    monkeypatch.setattr(version_conversion.version_converter, "convert_version", counted)
    return calls


def sums(axes: Sequence[int]) -> onnx.ModelProto:
    """Return a model below operator set 13 of sums over tensors of different shapes, each over one axis."""
    nodes: list[onnx.NodeProto] = []
    for place, axis in enumerate(axes):
        nodes += [
            helper.make_node("Concat", [f"x{place}" if place else "x", "x"], [f"x{place + 1}"], axis=0),
            helper.make_node("ReduceSum", [f"x{place + 1}"], [f"y{place}"], name=f"sum{place}", axes=[axis]),
        ]
    nodes.append(helper.make_node("Sum", [f"y{place}" for place in range(len(axes))], ["y"]))
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3])]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 3])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, ir_version=7, opset_imports=[helper.make_opsetid("", 12)])


def test_many_different_nodes_are_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, count = count_calls(monkeypatch), 300
    model = as_model(sums([0] * count))
    RaiseOpset()(model)
    assert len(calls) <= 4, "each call takes 7 ms, however small the model is"
    x = np.array([[1, 2, 3]], np.float32)
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    # The k-th of them has k + 2 rows.
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * sum(range(2, count + 2)))


def test_one_that_is_refused_among_many_is_named() -> None:
    proto = sums([0] * 40)
    proto.graph.node.insert(46, helper.make_node("Upsample", [], ["z"], name="zero", height_scale=2.0, width_scale=2.0))
    proto.opset_import[0].version = 6
    with pytest.raises(RefusalError, match=r"node 'zero' \(Upsample\)"):
        RaiseOpset().call(ir.from_proto(proto))
