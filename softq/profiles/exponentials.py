"""Weights as codes of exponentials: integers from 0 to 255 with scale 1, divided by their sum behind the product.

    w = p * 255 / max(p) = 255 e^(x - max x), codes of it with scale 1, and output = (w V) / sum(w)

A softmax that is rounded to codes with one scale keeps little of a long row, whose weights are all small. These have a
row's greatest weight at the greatest code, whatever its length, and their rounding is in the sum that divides.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.edits import take_over
from softq.graph.queries import constant, graph_of, is_op, producer
from softq.graph.rewriter import Rewriter
from softq.passes.rewriting.attention_regions import Region
from softq.passes.rewriting.tensor_codes import Codes, add_codes, add_sum

_AXES_ARE_AN_INPUT = 18
"""The first version of the default domain whose ReduceMax takes axes as an input."""

_LEAST = 2.0**-14
"""At most the greatest weight of a row of up to 16,384 elements, and a number of float16. Longer flat rows have fewer
codes, by whose sum they are divided all the same."""

_GREATEST = {ir.DataType.UINT8: 255.0}


def write_exponentials(rewriter: Rewriter, region: Region, codes: Codes, scale: float) -> bool:
    """Write codes of exponentials between a softmax and its product with values, and return whether that was possible.

    Args:
        rewriter: Of the model, whose opset is 13 at least.
        region: The attention; between the softmax and its product stands at most what makes rows zeros.
        codes: What they are; their zero is 0.
        scale: What one code stands for, before the division.
    """
    softmax, second = region.call, region.second
    weights = second.inputs[0]
    if weights is None or not _is_of(weights, softmax) or codes.dtype not in _GREATEST:
        return False
    dtype, shape = rewriter.facts.dtype(weights), rewriter.facts.shape(weights)
    if dtype is None or len(weights.uses()) != 1:
        return False
    # All of it stands in front of the product; what divides, behind it.
    add, name = rewriter.add, weights.name or "weights"
    row = None if shape is None else (*shape[:-1], 1)
    axes = rewriter.add_ints(second, [-1], f"{name}.axes")
    if rewriter.facts.view.container_of(softmax).opset >= _AXES_ARE_AN_INPUT:
        top = add(second, "ReduceMax", [weights, axes], f"{name}.top", dtype, row)
    else:
        top = add(second, "ReduceMax", [weights], f"{name}.top", dtype, row, axes=[-1])
    # A row of zeros stays one: its codes are 0, and what divides their product is not.
    least = rewriter.add_number(second, _LEAST, dtype, f"{name}.least")
    present = add(second, "Max", [top, least], f"{name}.present", dtype, row)
    greatest = rewriter.add_number(second, _GREATEST[codes.dtype] * scale, dtype, f"{name}.greatest")
    factor = add(second, "Div", [greatest, present], f"{name}.factor", dtype, row)
    exponentials = add(second, "Mul", [weights, factor], f"{name}.exponentials", dtype, shape)
    step = rewriter.add_number(second, scale, dtype, f"{name}.scale")
    decoded = add_codes(rewriter, second, exponentials, (step, step), codes, name)
    own = add(second, "ReduceSum", [weights, axes], f"{name}.own", dtype, row)
    total = add_sum(rewriter, second, decoded, own, name, least=step)
    second.replace_input_with(0, decoded)
    product = second.outputs[0]
    divide = ir.node("Div", [product, total], name=rewriter.fresh(f"{name}/divide"))
    divide.outputs[0].type = product.type
    graph_of(second).insert_after(second, divide)
    take_over(product, divide.outputs[0], except_by=divide)
    product.name = rewriter.fresh(f"{name}.product")
    return True


def _is_of(weights: ir.Value, softmax: ir.Node) -> bool:
    """Say whether weights are those of a softmax, perhaps with rows of zeros."""
    node = weights.producer()
    if node is None or node is softmax:
        return node is softmax
    if is_op(node, "Where"):
        zeros = [constant(value) for value in node.inputs[1:2]]
        return all(zero is not None and not np.any(zero) for zero in zeros) and _is_of_input(node, 2, softmax)
    return is_op(node, "Identity", "Dropout") and _is_of_input(node, 0, softmax)


def _is_of_input(node: ir.Node, position: int, softmax: ir.Node) -> bool:
    value = node.inputs[position]
    if value is None or value.is_graph_output():
        return False
    # A guard against NaN looks at the weights, too.
    alone = all(one is node or (is_op(one, "IsNaN") and list(one.outputs[0].consumers()) == [node])
                for one in value.consumers())  # fmt: skip
    return alone and _is_of(value, softmax)


def find_exponentials(product: ir.Node) -> ir.Node | None:
    """Return the QuantizeLinear that makes codes of exponentials, if the weights of a product are such."""
    decode = producer(product.inputs[0], "DequantizeLinear")
    code = None if decode is None else producer(decode.inputs[0], "QuantizeLinear")
    scaled = None if code is None else producer(code.inputs[0], "Mul")
    divide = None if scaled is None else producer(scaled.inputs[1], "Div")
    present = None if divide is None else producer(divide.inputs[1], "Max")
    top = None if present is None else producer(present.inputs[0], "ReduceMax")
    if scaled is None or divide is None or top is None or top.inputs[0] is not scaled.inputs[0]:
        return None
    return None if constant(divide.inputs[0]) is None else code
