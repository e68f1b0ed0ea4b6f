"""Write maxima and minima of truth values as those of integers, for consumers that know no others."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from softq.graph.bodies import body_of, given, open_nodes
from softq.passes import PassEntry

_REDUCTIONS = frozenset({"ReduceMax", "ReduceMin"})


class RewriteBoolReductions(ir.passes.InPlacePass):
    """Puts `ReduceMax` and `ReduceMin` of bool between casts to int32 and back."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite them; `modified` says whether there were any."""
        return ir.passes.PassResult(model, open_nodes(model, _body))


def _body(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    if node.domain != "" or node.op_type not in _REDUCTIONS or node.inputs[0] is None:
        return None
    if node.inputs[0].dtype != ir.DataType.BOOL or any(a.is_ref() for a in node.attributes.values()):
        return None
    inputs = ["x", "axes"] if given(node, 1) else ["x"]
    flags = ", ".join(
        f"{name}: int = {node.attributes.get_int(name, default)}"
        for name, default in (("keepdims", 1), ("noop_with_empty_axes", 0))
    )
    return body_of(
        opset,
        inputs,
        ["y"],
        [
            f"i = Cast <to: int = {int(ir.DataType.INT32)}> (x)",
            f"r = {node.op_type} <{flags}> ({', '.join(['i', *inputs[1:]])})",
            f"y = Cast <to: int = {int(ir.DataType.BOOL)}> (r)",
        ],
    )


PASS = PassEntry("rewrite-bool-reductions", RewriteBoolReductions, "reduce truth values as integers")
