"""Write maxima and minima of truth values as those of integers, for consumers that know no others."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from softq.graph.bodies import has_input, parse_body
from softq.passes import BodyPass, PassEntry

_REDUCTIONS = frozenset({"ReduceMax", "ReduceMin"})


class RewriteBoolReductions(BodyPass):
    """Puts `ReduceMax` and `ReduceMin` of bool between casts to uint8, which has no value beyond them, and back."""

    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        if node.domain != "" or node.op_type not in _REDUCTIONS or node.inputs[0] is None:
            return None
        if node.inputs[0].dtype != ir.DataType.BOOL:
            return None
        inputs, defaults = ["x", "axes"] if has_input(node, 1) else ["x"], {"keepdims": 1, "noop_with_empty_axes": 0}
        flags = ", ".join(f"{name}: int = {node.attributes.get_int(name, d)}" for name, d in defaults.items())
        lines = [
            f"i = Cast <to: int = {int(ir.DataType.UINT8)}> (x)",
            f"r = {node.op_type} <{flags}> ({', '.join(['i', *inputs[1:]])})",
            f"y = Cast <to: int = {int(ir.DataType.BOOL)}> (r)",
        ]
        return parse_body(opset, inputs, ["y"], lines)


PASS = PassEntry("rewrite-bool-reductions", RewriteBoolReductions, "Reduce truth values as integers")
