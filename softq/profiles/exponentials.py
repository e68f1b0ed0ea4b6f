"""Weights as codes of exponentials: integers from 0 to 255 with scale 1, divided by their sum behind the product.

    w = p * 255 / max(p) = 255 e^(x - max x), codes of it with scale 1, and output = (w V) / sum(w)

A softmax that is rounded to codes with one scale keeps little of a long row, whose weights are all small. These have a
row's greatest weight at the greatest code, whatever its length, and their rounding is in the sum that divides.
"""

from __future__ import annotations

import onnx_ir as ir

from softq.forms.matching.guards import look_behind
from softq.graph.edits import take_over
from softq.graph.queries import constant, graph_of, is_op
from softq.graph.rewriter import Rewriter
from softq.passes.rewriting.attention_regions import Region
from softq.passes.rewriting.tensor_codes import Codes, add_codes, add_sum

_AXES_ARE_AN_INPUT = 18
"""The first version of the default domain whose ReduceMax takes axes as an input."""

_GREATEST = {ir.DataType.UINT8: 255.0}


def write_exponentials(rewriter: Rewriter, region: Region, codes: Codes, scale: float) -> bool:
    """Write codes of exponentials between a softmax and its product with values, and return whether that was possible.

    Args:
        rewriter: Of the model, whose opset is 13 at least.
        region: The attention; nothing that computes stands between the softmax and its product.
        codes: What they are; their zero is 0.
        scale: What one code stands for, before the division.
    """
    softmax, second = region.call, region.second
    weights = look_behind(softmax.outputs[0], rewriter.facts).weights
    dtype, shape = rewriter.facts.dtype(weights), rewriter.facts.shape(weights)
    if dtype is None or second.inputs[0] is not weights or len(weights.uses()) != 1 or codes.dtype not in _GREATEST:
        return False
    # All of it stands in front of the product; what divides, behind it.
    add, name = rewriter.add, weights.name or "weights"
    row = None if shape is None else (*shape[:-1], 1)
    axes = rewriter.add_ints(second, [-1], f"{name}.axes")
    if rewriter.facts.view.container_of(softmax).opset >= _AXES_ARE_AN_INPUT:
        top = add(second, "ReduceMax", [weights, axes], f"{name}.top", dtype, row)
    else:
        top = add(second, "ReduceMax", [weights], f"{name}.top", dtype, row, axes=[-1])
    greatest = rewriter.add_number(second, _GREATEST[codes.dtype] * scale, dtype, f"{name}.greatest")
    factor = add(second, "Div", [greatest, top], f"{name}.factor", dtype, row)
    exponentials = add(second, "Mul", [weights, factor], f"{name}.exponentials", dtype, shape)
    step = rewriter.add_number(second, scale, dtype, f"{name}.scale")
    decoded = add_codes(rewriter, second, exponentials, (step, step), codes, name)
    own = add(second, "ReduceSum", [weights, axes], f"{name}.own", dtype, row)
    total = add_sum(rewriter, second, decoded, own, name)
    second.replace_input_with(0, decoded)
    product = second.outputs[0]
    divide = ir.node("Div", [product, total], name=rewriter.fresh(f"{name}/divide"))
    divide.outputs[0].type = product.type
    graph_of(second).insert_after(second, divide)
    take_over(product, divide.outputs[0], except_by=divide)
    product.name = rewriter.fresh(f"{name}.product")
    return True


def find_exponentials(weights: ir.Value) -> ir.Node | None:
    """Return the QuantizeLinear that makes codes of a softmax's exponentials, if its weights become such."""
    tops = [node for node in weights.consumers() if is_op(node, "ReduceMax")]
    scaled = [node for node in weights.consumers() if is_op(node, "Mul") and node.inputs[0] is weights]
    if len(tops) != 1 or len(scaled) != 1:
        return None
    factor = scaled[0].inputs[1]
    divide = None if factor is None else factor.producer()
    readers = scaled[0].outputs[0].consumers()
    if divide is None or not is_op(divide, "Div") or divide.inputs[1] is not tops[0].outputs[0]:
        return None
    if constant(divide.inputs[0]) is None or len(readers) != 1 or not is_op(readers[0], "QuantizeLinear"):
        return None
    return readers[0]
