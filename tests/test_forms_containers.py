"""Forms in the containers that ONNX has: bodies of Loop, If and Scan, functions in functions, overloads; and names."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import parser

import softq
from tests.forms import build, check, normal, run

X = "float[2,3,4,5] x"

WRITTEN_FUNCTION = """
<domain: "local", opset_import: ["": 18]> Weigh (s) => (r) {
  a = Constant<value_ints = [-1]>()
  m = ReduceMax(s, a)
  d = Sub(s, m)
  e = Exp(d)
  t = ReduceSum(e, a)
  q = Div(e, t)
  l = Log(q)
  r = Neg(l)
}
"""


def test_a_written_out_softmax_in_a_function() -> None:
    body = "y = local.Weigh(x); z = local.Weigh(y)"
    proto = build(body, X, "float[2,3,4,5] z", functions=WRITTEN_FUNCTION, domains="local")
    check(proto, {"x": normal(2, 3, 4, 5)})


def test_functions_in_functions() -> None:
    functions = """
    <domain: "local", opset_import: ["": 18, "local": 1]> Outer <axis> (s) => (r) {
      q = local.Inner<axis: int = @axis>(s)
      r = Mul(q, s)
    }
    <domain: "local", opset_import: ["": 18]> Inner <axis> (s) => (p) { p = Softmax<axis: int = @axis>(s) }
    """
    proto = build("z = local.Outer<axis = 2>(x)", X, "float[2,3,4,5] z", functions=functions, domains="local")
    sites = check(proto, {"x": normal(2, 3, 4, 5)})
    assert sites[0].axis == -2


def test_overloads_have_their_own_sites() -> None:
    proto = build(
        "y = local.Weigh<axis = 3>(x); z = local.Weigh<axis = 1>(y)", X, "float[2,3,4,5] z", domains="local", opset=21
    )
    for overload, node in zip(("last", "first"), proto.graph.node, strict=True):
        body = [
            onnx.helper.make_node("Softmax", ["s"], ["p"]),
        ]
        axis = onnx.AttributeProto(name="axis", ref_attr_name="axis", type=onnx.AttributeProto.INT)
        body[0].attribute.append(axis)
        function = onnx.helper.make_function(
            "local", "Weigh", ["s"], ["p"], body, [onnx.helper.make_opsetid("", 21)], ["axis"]
        )
        function.overload = node.overload = overload
        proto.functions.append(function)
    sites = check(proto, {"x": normal(2, 3, 4, 5)}, count=2)
    assert [site.axis for site in sites] == [-1, -3]
    assert len({site.id for site in sites}) == 2


NESTED = """
  n = Constant<value = int64 {2}>()
  t = Constant<value = bool {1}>()
  y, ys = Loop (n, t, x) <
    body = l (int64 i, bool go, float[2,3,4,5] s) => (bool on, float[2,3,4,5] next, float[2,3,4,5] p) {
      on = Identity(go)
      a = Constant<value_ints = [-1]>()
      e = Exp(s)
      u = ReduceSum(e, a)
      p = Div(e, u)
      next = If (go) <
        then_branch = b () => (float[2,3,4,5] q) { q = Softmax<axis = 1>(s) },
        else_branch = c () => (float[2,3,4,5] r) { r = LogSoftmax(s) }
      >
    }
  >
  last, z = Scan (o, y) <
    num_scan_inputs = 1,
    body = h (float state, float[3,4,5] piece) => (float out, float[3,4,5] w) {
      out = Identity(state)
      w = Softmax<axis = 0>(piece)
    }
  >
"""


def test_scan_and_loop_and_if() -> None:
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]>\n'
        f"g ({X}, float o) => (float[2,3,4,5] z, float[2,2,3,4,5] ys, float last) {{{NESTED}}}"
    )
    sites = check(proto, {"x": normal(2, 3, 4, 5), "o": np.array(0, np.float32)}, count=4)
    assert sorted(site.form for site in sites) == ["exp-over-sum", "log-softmax", "softmax", "softmax"]


def test_names_that_are_missing_or_given_twice() -> None:
    proto = build("p = Softmax<axis = 1>(x); q = Softmax<axis = 2>(p); z = Softmax(q)", X, "float[2,3,4,5] z")
    want = run(proto, feeds := {"x": normal(2, 3, 4, 5)})[0]
    # onnxruntime takes no node names that are given twice; what softq writes has none.
    proto.graph.node[0].name = proto.graph.node[1].name = "same"
    result = softq.convert(proto, method="exact", all_sites=True)
    assert [site.id for site in result.sites] == ["p", "q", "z"]
    np.testing.assert_allclose(run(result.model, feeds)[0], want, rtol=1e-5)


def test_a_foreign_softmax_stays() -> None:
    proto = build("p = Softmax(x); z = com.example.Softmax(p)", X, "float[2,3,4,5] z", domains="com.example")
    result = softq.convert(proto, method="exact", all_sites=True)
    assert [site.verdict.action for site in result.sites] == ["convert", "refuse"]
    assert ("com.example", "Softmax") in [(node.domain, node.op_type) for node in result.model.graph.node]
