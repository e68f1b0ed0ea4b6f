"""Computing what stands between the codes of an attention in float16: both products, and the softmax between them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import cast_target, constant, graph_of, is_op
from softq.graph.rewriter import Rewriter
from softq.passes.rewriting.attention_regions import Region
from softq.profiles.reading import MOVES

NARROW = ir.DataType.FLOAT16

_MASK = 32768.0
"""How far from 0 what is added to scores may be: it fits, and e^-32768 is 0. Lower ones would become -inf, and a row of
them NaN."""

_CODES = ("QuantizeLinear", "DequantizeLinear")


def narrow(rewriter: Rewriter, region: Region) -> bool:
    """Compute an attention in float16, with a Cast in front of each operand and one behind, and return whether it is.

    Numbers of codes get a scale of float16; what is added to scores, or written over them, is cut off at -32768.

    Args:
        rewriter: Of the model, whose opset is 19 at least: before, codes have scales of float32 alone.
        region: The attention, with its first product.
    """
    first, second = region.first, region.second
    dtype = rewriter.facts.dtype(second.outputs[0])
    if first is None or dtype is not ir.DataType.FLOAT:
        return False
    chain = [first, *region.elementwise[1:], region.call]
    between = [node for node in region.nodes if node not in chain and _comes_before(node, second)]
    inside = {out for node in (*chain, *between) for out in node.outputs}
    for node in (*chain, *between, second):
        for position, value in enumerate(node.inputs):
            if value is None or value in inside or rewriter.facts.dtype(value) is not ir.DataType.FLOAT:
                continue
            operand = (node is first) or (node is second)
            made = _operand(rewriter, node, value) if operand else _narrow(rewriter, node, value, cut=True)
            node.replace_input_with(position, made)
            remove_if_unused(value.producer())
        if is_op(node, "Cast") and cast_target(node) is ir.DataType.FLOAT:
            node.attributes["to"] = ir.AttrInt64("to", int(NARROW))
        for out in node.outputs:
            if rewriter.facts.dtype(out) is ir.DataType.FLOAT:
                out.type = ir.TensorType(NARROW)
    product, name = second.outputs[0], second.outputs[0].name or "values"
    widen = ir.node("Cast", [product], {"to": int(dtype)}, name=rewriter.fresh(f"{name}/widen"))
    widen.outputs[0].type = ir.TensorType(dtype)
    graph_of(second).insert_after(second, widen)
    take_over(product, widen.outputs[0], except_by=widen)
    product.name = rewriter.fresh(f"{name}.narrow")
    rewriter.modified = True
    return True


def _comes_before(node: ir.Node, second: ir.Node) -> bool:
    """Say whether a node of the region stands in front of its second product."""
    pending, seen = [second], set[ir.Node]()
    while pending:
        for value in pending.pop().inputs:
            above = None if value is None else value.producer()
            if above is node:
                return True
            if above is not None and above not in seen and above.graph is second.graph:
                seen.add(above)
                pending.append(above)
    return False


def _operand(rewriter: Rewriter, before: ir.Node, value: ir.Value) -> ir.Value:
    """Return an operand of a product in float16: where it is made of codes, these are decoded so."""
    node = value.producer()
    name, shape = value.name or "operand", rewriter.facts.shape(value)
    if node is not None and is_op(node, *MOVES):
        source = node.inputs[0]
        assert source is not None, "it is what is moved"
        moved = _operand(rewriter, before, source)
        copy = ir.Node("", node.op_type, [moved, *node.inputs[1:]], list(node.attributes.values()))
        return rewriter.insert(before, copy, f"{name}.narrow", NARROW, shape)
    scale = constant(node.inputs[1]) if node is not None and is_op(node, "DequantizeLinear") else None
    if node is None or scale is None:
        return _narrow(rewriter, before, value, cut=False)
    codes, *others = node.inputs[0], *node.inputs[2:]
    assert codes is not None, "it is what is decoded"
    step = _constant(rewriter, before, scale, f"{name}.scale")
    copy = ir.Node(node.domain, "DequantizeLinear", [codes, step, *others], list(node.attributes.values()))
    return rewriter.insert(before, copy, f"{name}.narrow", NARROW, shape)


def _narrow(rewriter: Rewriter, before: ir.Node, value: ir.Value, *, cut: bool) -> ir.Value:
    name, shape, array = value.name or "value", rewriter.facts.shape(value), constant(value)
    if array is not None and is_op(before, *_CODES):
        return _constant(rewriter, before, array, f"{name}.narrow")
    if cut:
        limits = [rewriter.add_number(before, limit, ir.DataType.FLOAT, f"{name}.limit") for limit in (-_MASK, _MASK)]
        value = rewriter.add(before, "Clip", [value, *limits], f"{name}.cut", ir.DataType.FLOAT, shape)
    return rewriter.add(before, "Cast", [value], f"{name}.narrow", NARROW, shape, to=int(NARROW))


def _constant(rewriter: Rewriter, before: ir.Node, array: np.ndarray, name: str) -> ir.Value:
    tensor = ir.Tensor(array.astype(np.float16), dtype=NARROW)
    return rewriter.add(before, "Constant", [], name, NARROW, array.shape, value=tensor)
