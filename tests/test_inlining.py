"""Opening functions: what onnx-ir's pass gives, in a time that grows with what comes out."""

import time

import onnx_ir as ir
import pytest
from onnx import parser
from onnx_ir.passes.common import InlinePass

from softq.graph.inlining import InlineCalls

MODEL = """<ir_version: 8, opset_import: ["": 18, "d": 1]>
g (float[N] x, bool c) => (float[N] y) {
    t = d.outer(x)
    t_2 = d.outer(t)
    [named] u = d.inner(t_2)
    v = If(c) <then_branch = a () => (float[N] w) { w = d.outer(u) },
               else_branch = b () => (float[N] w_2) { w_2 = d.inner(u) }>
    y = d.inner(v)
}
<opset_import: ["": 18, "d": 1], domain: "d">
outer (x) => (y) { [named] t = d.inner(x)  u = Neg(t)  y = d.inner(u) }
<opset_import: ["": 18], domain: "d">
inner (x) => (y) { t = Abs(x)  c = Constant<value = bool {1}>()
    y = If(c) <then_branch = a () => (float[N] w) { w = Neg(t) }, else_branch = b () => (float[N] z) { z = Exp(t) }> }
"""


def test_it_writes_what_onnx_ir_writes() -> None:
    ours, theirs = (ir.from_proto(parser.parse_model(MODEL)) for _ in range(2))
    assert InlineCalls()(ours).modified
    InlinePass()(theirs)
    assert not ours.functions
    assert str(ir.to_proto(ours).graph) == str(ir.to_proto(theirs).graph)


def test_a_function_that_is_called_often_is_opened_in_time() -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18, "d": 1]> g (float[N] x) => (float[N] y) { y = d.f(x) }'
        '<opset_import: ["": 18], domain: "d"> f (x) => (y) { t = Abs(x) y = Neg(t) }'
    )
    for number in range(12_000):
        model.graph.node.add(domain="d", op_type="f", input=["x"], output=[f"z{number}"])
    start = time.process_time()
    InlineCalls()(ir.from_proto(model))
    # onnx-ir's own pass tries 72 million names for each value of the body.
    assert time.process_time() - start < 10


def test_mismatched_operator_sets_are_an_error() -> None:
    model = ir.from_proto(parser.parse_model(MODEL))
    for function in model.functions.values():
        function.opset_imports[""] = 17
    with pytest.raises(ValueError, match="Opset mismatch"):
        InlineCalls()(model)
