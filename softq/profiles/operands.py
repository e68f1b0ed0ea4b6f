"""Codes of what an attention multiplies, and of scores: bringing those that there are close to the product, and new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from softq.graph.edits import remove_if_unused
from softq.graph.queries import constant, producer
from softq.graph.rewriter import Rewriter
from softq.passes.rewriting.attention_regions import Region
from softq.passes.rewriting.tensor_codes import add_codes, add_scale
from softq.profiles.checks import Products
from softq.profiles.ranges import Range, find_codes
from softq.profiles.reading import SiteView

_LEAST_NARROW = 2.0**-14
"""The least float16 that is not subnormal."""


def operands_without_codes(view: SiteView, region: Region, rule: Products) -> Iterator[tuple[str, ir.Node, int]]:
    """Yield the operands that a rule asks codes of and that have none: what each is called, its product, its place."""
    if view.products is None or region.first is None:
        return
    places = {"queries": (region.first, 0), "keys": (region.first, 1), "values": (region.second, 1)}
    for name, operand in view.products.items():
        if operand.codes is None and not rule.takes(operand):
            yield name, *places[name]


def bring_codes_close(rewriter: Rewriter, product: ir.Node, position: int) -> bool:
    """Move codes instead of the numbers made of them, if a Transpose stands between these and a product or a softmax.

    Returns:
        Whether there was one.
    """
    move = producer(product.inputs[position], "Transpose")
    decode = None if move is None else producer(move.inputs[0], "DequantizeLinear")
    scale = None if decode is None else constant(decode.inputs[1])
    if move is None or decode is None or scale is None or scale.size != 1:
        return False
    codes, moved = decode.inputs[0], move.outputs[0]
    assert codes is not None, "it is what is decoded"
    name = moved.name or "operand"
    dtype, shape = rewriter.facts.dtype(codes), rewriter.facts.shape(moved)
    turn = ir.Node("", "Transpose", [codes], list(move.attributes.values()))
    turned = rewriter.insert(product, turn, f"{name}.codes", dtype, shape)
    others = [value for value in decode.inputs[1:] if value is not None]
    number = rewriter.add(product, "DequantizeLinear", [turned, *others], f"{name}.decoded", moved.dtype, shape)
    product.replace_input_with(position, number)
    remove_if_unused(move)
    return True


def code(
    rewriter: Rewriter, node: ir.Node, position: int, dtype: ir.DataType, ranges: Mapping[str, Range], *, scores: bool
) -> bool:
    """Put codes, and the numbers that they stand for, in front of an input of a node; return whether that is possible.

    Args:
        rewriter: Of the model.
        node: The product, or the softmax.
        position: Which of its inputs.
        dtype: Type of the codes.
        ranges: Ranges by the names of tensors; where there is none, the model computes the scale.
        scores: Whether they are scores, of which differences alone count.
    """
    source = node.inputs[position]
    kind = rewriter.facts.dtype(source)
    if source is None or (kind is not ir.DataType.FLOAT and kind is not ir.DataType.FLOAT16):
        return False
    name, found = source.name or "operand", ranges.get(str(source.name))
    signed = dtype not in (ir.DataType.UINT8, ir.DataType.UINT16)
    centred = found is None or (signed and not (scores and dtype is ir.DataType.INT8))
    number, codes = find_codes(found or Range(-1.0, 1.0), dtype, centred=centred)
    if found is not None:
        number = max(number, _LEAST_NARROW) if kind is ir.DataType.FLOAT16 else number
        scale = rewriter.add_number(node, number, kind, f"{name}.scale")
    elif kind is ir.DataType.FLOAT:
        scale = add_scale(rewriter, node, source, round(1 / number), name)
    else:
        return False
    node.replace_input_with(position, add_codes(rewriter, node, source, (scale, scale), codes, name))
    return True
