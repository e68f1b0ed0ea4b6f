"""Convolutions of dequantized images as convolutions of their integers, for processors that fuse what follows sums."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import constant, operand, producer
from softq.graph.view import Container
from softq.passes import NodePass
from softq.passes.rewriting.quantization import GREATEST_SUM, add_number, read_quantization, unit_of


class ConvolveIntegers(NodePass):
    """Replaces Conv(DequantizeLinear(x), DequantizeLinear(w)) by ConvInteger(x, w) times the scales' product.

    As `passes.multiply_integers` does for matrices: of 8-bit integers with one constant scale each, of w also one for
    each channel of the result, whose bias is constant. Groups of channels stay as they are.
    """

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        return node.op_type == "Conv" and container.function is None and _replace(node, container)


def _replace(node: ir.Node, container: Container) -> bool:
    sources = [producer(value, "DequantizeLinear") for value in node.inputs[:2]]
    if sources[0] is None or sources[1] is None or node.attributes.get_int("group", 1) != 1:
        return False
    x, w = (source.inputs[0] for source in sources if source is not None)
    if x is None or w is None or x.shape is None or w.shape is None or w.shape.is_dynamic():
        return False
    rank, sizes = len(w.shape), [int(size) for size in w.shape.numpy()]
    a, b = read_quantization(sources[0]), read_quantization(sources[1], -rank)
    if a is None or b is None or a.scale.size > 1 or math.prod(sizes[1:]) * a.reach * b.reach > GREATEST_SUM:
        return False
    unit, term = unit_of(a, b), operand(node, 2)
    bias = None if term is None else constant(term)
    if unit is None or (term is not None and (bias is None or bias.dtype != np.float32)):
        return False
    graph, result, channels = container.graph, node.outputs[0], [-1, *[1] * (rank - 2)]
    base, tape, shape = result.name or node.name or "image", Tape(), result.shape
    zeros = [add_number(graph, f"{base}.{side}_zero", np.array(kind.zero, kind.dtype.numpy()))
             for side, kind in (("x", a), ("w", b))]  # fmt: skip
    total = ir.val(f"{base}.sum", ir.DataType.INT32, shape)
    tape.op("ConvInteger", [x, w, *zeros], dict(node.attributes), name=f"{base}.integers", output=total)
    real = ir.val(f"{base}.wide", ir.DataType.FLOAT, shape)
    tape.op("Cast", [total], {"to": int(ir.DataType.FLOAT)}, name=f"{base}.cast", output=real)
    numbers = [("Mul", "unit", unit), *([("Add", "bias", bias)] if bias is not None else [])]
    for name, what, array in numbers:
        made = ir.val(f"{base}.{name}", ir.DataType.FLOAT, shape)
        given = [real, add_number(graph, f"{base}.{what}", np.ascontiguousarray(array).reshape(channels))]
        tape.op(name, given, name=f"{base}.{what}_applied", output=made)
        real = made
    real.metadata_props.update(result.metadata_props)
    graph.insert_before(node, tape.nodes)
    take_over(result, real)
    remove_if_unused(node)
    return True
