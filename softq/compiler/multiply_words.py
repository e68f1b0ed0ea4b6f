"""Products of 16-bit integers and dequantized bytes, as an operator that ONNX does not have."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import is_op, producer
from softq.graph.view import ModelView
from softq.passes.rewriting.quantization import read_quantization

DOMAIN, OPERATOR = "softq.compiler", "MatMulWords"
"""`MatMulWords(a, b, zero)` is the product of a, int16, and b less its zero point, bytes, as float32."""


class MultiplyWords(ir.passes.InPlacePass):
    """Replaces MatMul(Cast(a), DequantizeLinear(b)) with a of int16 by `MatMulWords` times the scale.

    Of b with one constant scale, or one for each column; sums are nearer to the exact ones than those of floats.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace them; `modified` says whether there were any."""
        nodes = [node for node in ModelView(model).nodes if is_op(node, "MatMul") and node.graph is model.graph]
        replaced = [node for node in nodes if _replace(node, model.graph)]
        if replaced:
            model.graph.opset_imports[DOMAIN] = 1
        return ir.passes.PassResult(model, bool(replaced))


def _replace(node: ir.Node, graph: ir.Graph) -> bool:
    cast, decode = producer(node.inputs[0], "Cast"), producer(node.inputs[1], "DequantizeLinear")
    words = None if cast is None else cast.inputs[0]
    known = None if decode is None else read_quantization(decode)
    if words is None or words.dtype is not ir.DataType.INT16 or decode is None or known is None:
        return False
    result = node.outputs[0]
    base = result.name or node.name or "product"
    zero, unit = (
        ir.val(f"{base}.{name}", const_value=ir.tensor(array, name=f"{base}.{name}"))
        for name, array in (("zero", np.array([known.zero], known.dtype.numpy())), ("unit", known.scale))
    )
    graph.register_initializer(zero)
    graph.register_initializer(unit)
    total, real = (ir.val(f"{base}.{name}", ir.DataType.FLOAT, result.shape) for name in ("sum", "new"))
    product = ir.Node(DOMAIN, OPERATOR, [words, decode.inputs[0], zero], outputs=[total], name=f"{base}.words")
    scaled = ir.node("Mul", [total, unit], outputs=[real], name=f"{base}.real")
    real.metadata_props.update(result.metadata_props)
    graph.insert_before(node, [product, scaled])
    take_over(result, real)
    remove_if_unused(node)
    return True
