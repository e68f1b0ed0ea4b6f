"""Moving the factor of an attention from behind the product of queries and keys to the queries in front of it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.queries import constant, graph_of, is_op, producer
from softq.graph.rewriter import Rewriter
from softq.passes.rewriting.attention_regions import NotFusedError, find_products
from softq.profiles.reading import MOVES


def move_factor(rewriter: Rewriter, softmax: ir.Node) -> bool:
    """Multiply the queries instead of the scores, and return whether there was one positive number to move.

    Codes of the queries stay what they are, but for rounding: what is quantized is multiplied, and so is the scale.
    """
    try:
        region = find_products(softmax, coded=True)
    except NotFusedError:
        return False
    first = region.first
    scaled = region.elementwise[1] if first is not None and len(region.elementwise) > 1 else None
    if first is None or scaled is None or scaled.outputs[0].is_graph_output():
        return False
    factor = _factor(first.outputs[0], scaled)
    if factor is None or not _multiply(rewriter, first, factor):
        return False
    scaled.outputs[0].replace_all_uses_with(first.outputs[0])
    graph_of(scaled).remove(scaled, safe=True)
    rewriter.modified = True
    return True


def _factor(product: ir.Value, scaled: ir.Node) -> float | None:
    """Return the one positive number by which a node multiplies a product that nobody else reads."""
    if product.is_graph_output() or len(product.uses()) != 1 or not is_op(scaled, "Mul", "Div"):
        return None
    if is_op(scaled, "Div") and scaled.inputs[0] is not product:
        return None
    array = next((constant(value) for value in scaled.inputs if value is not product), None)
    # Scores have two axes at least: such a number gives them no more.
    if array is None or array.size != 1 or array.ndim > 2:
        return None
    number = float(array.item())
    factor = number if is_op(scaled, "Mul") else 1 / number if number else 0.0
    return factor if 2.0**-100 < factor < 2.0**100 else None


def _multiply(rewriter: Rewriter, product: ir.Node, factor: float) -> bool:
    queries = product.inputs[0]
    above, decode = queries, None
    while above is not None and len(above.uses()) == 1:
        node = above.producer()
        if is_op(node, "DequantizeLinear"):
            decode = node
        if node is None or not is_op(node, *MOVES):
            break
        above = node.inputs[0]
    dtype = rewriter.facts.dtype(queries)
    if queries is None or dtype is None:
        return False
    if decode is None:
        scaled = _times(rewriter, product, queries, factor)
        product.replace_input_with(0, scaled)
        return True
    quantize = producer(decode.inputs[0], "QuantizeLinear")
    scale = constant(decode.inputs[1])
    if scale is None or scale.size != 1:
        return False
    if quantize is not None:
        given = constant(quantize.inputs[1])
        if len(quantize.outputs[0].uses()) != 1 or given is None or not np.array_equal(given, scale):
            return False
        source = quantize.inputs[0]
        assert source is not None, "it is what is quantized"
        quantize.replace_input_with(0, _times(rewriter, quantize, source, factor))
    step, kind = float(scale.item()) * factor, _type_of(rewriter, decode)
    for node in (quantize, decode):
        if node is not None:
            node.replace_input_with(1, rewriter.add_number(node, step, kind, "queries.scale"))
    return True


def _type_of(rewriter: Rewriter, decode: ir.Node) -> ir.DataType:
    dtype = rewriter.facts.dtype(decode.inputs[1])
    assert dtype is not None, "it is that of a constant"
    return dtype


def _times(rewriter: Rewriter, before: ir.Node, value: ir.Value, factor: float) -> ir.Value:
    dtype, name = rewriter.facts.dtype(value), value.name or "queries"
    assert dtype is not None, "it is that of the operands of a product"
    number = rewriter.add_number(before, factor, dtype, f"{name}.factor")
    return rewriter.add(before, "Mul", [value, number], f"{name}.scaled", dtype, rewriter.facts.shape(value))
