"""Ranks behind a Reshape to a shape that the graph computes, against the ranks that onnxruntime finds."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import parser

import softq
from softq.graph.facts import Facts
from softq.graph.view import ModelView

# Five axes, of which shape inference knows nothing: not even how many numbers the target has.
HEAD = """<ir_version: 8, opset_import: ["": 11, "com.microsoft": 1]>
g (float[2, 120] x, int64[N] target, float[5, 7] w) => (y)
<int64 zero = {0}, int64[1] first = {0}, int64[1] second = {1}, int64[2, 2] places = {0, 1, 1, 0}> {
    r = Reshape (x, target)
    t = Transpose <perm = [2, 0, 3, 1, 4]> (r)
"""
LINES = {
    "transpose": "y = Identity (t)",
    "squeeze": "a = Slice (t, first, second, first) y = Squeeze <axes = [0]> (a)",
    "unsqueeze": "y = Unsqueeze <axes = [0, 3]> (t)",
    "gather": "y = Gather <axis = 0> (t, zero)",
    "gather of places": "y = Gather <axis = 3> (t, places)",
    "split": "a, b, c = Split <axis = 0> (t) y = Squeeze <axes = [0]> (c)",
    "product": "y = MatMul (t, w)",
    "reduction": "y = ReduceMean <axes = [1, -1], keepdims = 0> (t)",
    "flatten": "y = Flatten <axis = 2> (t)",
    "onnxruntime's": "a = com.microsoft.QuickGelu (t) y = com.microsoft.FusedMatMul (a, w)",
    "others": "a = LeakyRelu (t) b = Tile (a, ones) c = Elu (b) y = Concat <axis = 1> (c, t)",
}


def graph(lines: str) -> onnx.ModelProto:
    text = HEAD.replace("zero = {0},", "zero = {0}, float[2] row = {1, 1}, int64[5] ones = {1, 1, 1, 1, 1},").replace(
        "=> (y)", "=> (float y)"
    )
    proto = parser.parse_model(text + lines + "}")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


@pytest.mark.parametrize("lines", LINES.values(), ids=list(LINES))
def test_ranks_follow_where_inference_gives_up(lines: str) -> None:
    proto = graph(lines)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.zeros((2, 120), np.float32)
    expected = session.run(["y"], {"x": x, "target": np.array([2, 4, 3, 2, 5]), "w": np.zeros((5, 7), np.float32)})[0]
    model = ir.from_proto(proto)
    shape = Facts(ModelView(model)).shape(model.graph.outputs[0])
    assert shape is not None
    assert len(shape) == np.ndim(np.asarray(expected))


@pytest.mark.parametrize("lines", ["y = Squeeze (t)", "y = Reshape (t, target)", "y = MatMul (row, t)"])
def test_an_unknown_rank_stays_unknown(lines: str) -> None:
    model = ir.from_proto(graph(lines))
    shape = Facts(ModelView(model)).shape(model.graph.outputs[0])
    assert shape is None


def test_a_softmax_of_an_old_operator_set_over_the_last_axis_is_attention() -> None:
    lines = """
        q0 = Slice (t, first, second, first)
        q = Squeeze <axes = [0]> (q0)
        k = Gather <axis = 0> (t, zero)
        kt = Transpose <perm = [0, 1, 3, 2]> (k)
        s = MatMul (q, kt)
        p = Softmax <axis = 3> (s)
        y = MatMul (p, k)
    """
    (site,) = softq.inspect(graph(lines))
    assert (site.verdict.action, site.role) == ("convert", "attention")
