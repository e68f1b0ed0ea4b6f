"""Write powers with a constant exponent as products, roots and reciprocals, and give Pow one type.

`x^2 = x*x` and `x^3 = x*x*x` are what onnxruntime computes too. `x^-1 = 1/x` and `x^(1/2) = sqrt(x)` are the correctly
rounded results, from which `pow` of a C library may differ in the last bit; only `pow(-0, 0.5) = +0` and
`pow(-inf, 0.5) = inf` are other values than those of the root (-0 and NaN).
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from softq.graph.bodies import parse_body
from softq.graph.queries import constant
from softq.passes import BodyPass, PassEntry

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)
_PRODUCTS = {
    1.0: ["y = Identity (x)"],
    2.0: ["y = Mul (x, x)"],
    3.0: ["s = Mul (x, x)", "y = Mul (s, x)"],
}
_FRACTIONS = {0.5: ["y = Sqrt (x)"], -1.0: ["y = Reciprocal (x)"]}


class RewritePow(BodyPass):
    """Rewrites `Pow` with a constant exponent of 1, 2, 3, 0.5 or -1; other integer exponents become floats."""

    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        if node.domain != "" or node.op_type != "Pow" or len(node.inputs) != 2:
            return None
        base, exponent = node.inputs
        if base is None or exponent is None or base.dtype is None:
            return None
        real = base.dtype in _FLOATS
        array = constant(exponent, limit=64)
        # The exponent has part in the shape of the result: a longer shape than that of the base would be lost.
        if array is not None and array.size == 1 and (array.ndim == 0 or _rank(base) >= array.ndim):
            lines = {**_PRODUCTS, **(_FRACTIONS if real else {})}.get(float(array.reshape(-1)[0]))
            if lines is not None:
                return parse_body(opset, ["x", "e"], ["y"], lines)
        if real and exponent.dtype is not None and exponent.dtype.is_integer():
            cast = f"f = Cast <to: int = {int(base.dtype)}> (e)"
            return parse_body(opset, ["x", "e"], ["y"], [cast, "y = Pow (x, f)"])
        return None


def _rank(value: ir.Value) -> int:
    return -1 if value.shape is None else len(value.shape)


PASS = PassEntry("rewrite-pow", RewritePow, "Write powers as products, roots and reciprocals")
