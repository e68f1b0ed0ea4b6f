"""Compute products of dequantized matrices by products of their integers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import operand, producer
from softq.graph.view import Container
from softq.passes import NodePass, PassEntry
from softq.passes.rewriting.quantization import (
    GREATEST_SUM,
    Quantization,
    add_number,
    read_quantization,
    unit_of,
)


class MultiplyIntegers(NodePass):
    """Replaces MatMul(DequantizeLinear(a), DequantizeLinear(b)) by MatMulInteger(a, b) times the scales' product.

    Of 8-bit integers with one constant scale each, of b also one for each column. The sums are exact; each is rounded
    to float32 once and multiplied once, so that the result is within 2^-23 of the real number, which the product of
    floats is not. A Gemm of such operands is the same, with its factors and its third operand behind it. Where the
    length of the sums is known, those that 32 bits may not hold stay as they are; where it is not, whoever runs the
    operator answers for it, as ONNX has it.
    """

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        return node.op_type in ("MatMul", "Gemm") and container.function is None and _replace(node, container)


def _replace(node: ir.Node, container: Container) -> bool:
    sources = [source for value in node.inputs[:2] if (source := producer(value, "DequantizeLinear")) is not None]
    if len(sources) != 2 or node.attributes.get_int("transA", 0):
        return False
    transposed = bool(node.attributes.get_int("transB", 0))
    a, b = read_quantization(sources[0]), read_quantization(sources[1], -2 if transposed else -1)
    left, right = (source.inputs[0] for source in sources)
    if a is None or b is None or a.scale.size > 1 or left is None or right is None:
        return False
    if not _fits(left, right, transposed, a, b):
        return False
    graph, result = container.graph, node.outputs[0]
    base = result.name or node.name or "product"
    zeros = [add_number(graph, f"{base}.{side}_zero", np.array(kind.zero, kind.dtype.numpy()))
             for side, kind in (("a", a), ("b", b))]  # fmt: skip
    tape, shape = Tape(), result.shape
    if transposed:
        turned = ir.val(f"{base}.turned", b.dtype, None if right.shape is None else ir.Shape(list(right.shape)[::-1]))
        tape.op("Transpose", [right], {"perm": [1, 0]}, name=f"{base}.transpose", output=turned)
        right = turned
    total = ir.val(f"{base}.sum", ir.DataType.INT32, shape)
    tape.op("MatMulInteger", [left, right, *zeros], name=f"{base}.integers", output=total)
    wide = ir.val(f"{base}.wide", ir.DataType.FLOAT, shape)
    tape.op("Cast", [total], {"to": int(ir.DataType.FLOAT)}, name=f"{base}.cast", output=wide)
    unit = add_number(graph, f"{base}.unit", np.asarray(a.scale * b.scale, np.float32))
    real = ir.val(f"{base}.real", ir.DataType.FLOAT, shape)
    tape.op("Mul", [wide, unit], name=f"{base}.scale", output=real)
    real = _add(tape, graph, node, real)
    real.metadata_props.update(result.metadata_props)
    graph.insert_before(node, tape.nodes)
    take_over(result, real)
    remove_if_unused(node)
    return True


def _add(tape: Tape, graph: ir.Graph, node: ir.Node, product: ir.Value) -> ir.Value:
    """Append what a Gemm does with a product, and return the result; a MatMul does nothing."""
    term, base, shape = operand(node, 2), product.name, product.shape
    terms = [(product, "alpha"), *([(term, "beta")] if term is not None else [])]
    for at, (value, name) in enumerate(terms):
        factor = node.attributes.get_float(name, 1.0)
        if factor != 1.0:
            scaled = ir.val(f"{base}.{name}_times", ir.DataType.FLOAT, value.shape)
            given = [value, add_number(graph, f"{base}.{name}", np.array(factor, np.float32))]
            tape.op("Mul", given, name=f"{base}.{name}_scale", output=scaled)
            terms[at] = scaled, name
    if len(terms) == 1:
        return terms[0][0]
    total = ir.val(f"{base}.added", ir.DataType.FLOAT, shape)
    tape.op("Add", [value for value, _ in terms], name=f"{base}.add", output=total)
    return total


def _fits(left: ir.Value, right: ir.Value, transposed: bool, a: Quantization, b: Quantization) -> bool:
    if unit_of(a, b) is None:
        return False
    shapes = left.shape, right.shape
    if any(shape is None or len(shape) < 2 for shape in shapes):
        return False
    inner = [shape[place] for shape, place in zip(shapes, (-1, -1 if transposed else -2), strict=True) if shape]
    return all(not isinstance(d, int) or d * a.reach * b.reach <= GREATEST_SUM for d in inner)


PASS = PassEntry("multiply-integers", MultiplyIntegers, "Multiply quantized matrices as integers")
