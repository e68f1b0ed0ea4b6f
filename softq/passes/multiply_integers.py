"""Compute products of dequantized matrices by products of their integers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import producer
from softq.graph.view import Container
from softq.passes import NodePass, PassEntry
from softq.passes.rewriting.quantization import Quantization, read_quantization

_MOST = (1 << 31) - 1
"""The greatest sum."""


class MultiplyIntegers(NodePass):
    """Replaces MatMul(DequantizeLinear(a), DequantizeLinear(b)) by MatMulInteger(a, b) times the scales' product.

    Of 8-bit integers with one constant scale each, of b also one for each column. The sums are exact; each is rounded
    to float32 once and multiplied once, so that the result is within 2^-23 of the real number, which the product of
    floats is not. Where the length of the sums is known, those that 32 bits may not hold stay as they are; where it is
    not, whoever runs the operator answers for it, as ONNX has it.
    """

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        return node.op_type == "MatMul" and container.function is None and _replace(node, container)


def _replace(node: ir.Node, container: Container) -> bool:
    sources = [source for value in node.inputs if (source := producer(value, "DequantizeLinear")) is not None]
    if len(sources) != 2:
        return False
    a, b = map(read_quantization, sources)
    codes = [source.inputs[0] for source in sources]
    if a is None or b is None or a.scale.size > 1 or not _fits(codes, a, b):
        return False
    graph, result = container.graph, node.outputs[0]
    base = result.name or node.name or "product"
    zeros = [_number(graph, f"{base}.{side}_zero", np.array(kind.zero, kind.dtype.numpy()))
             for side, kind in (("a", a), ("b", b))]  # fmt: skip
    tape, shape = Tape(), result.shape
    total = ir.val(f"{base}.sum", ir.DataType.INT32, shape)
    tape.op("MatMulInteger", [*codes, *zeros], name=f"{base}.integers", output=total)
    wide = ir.val(f"{base}.wide", ir.DataType.FLOAT, shape)
    tape.op("Cast", [total], {"to": int(ir.DataType.FLOAT)}, name=f"{base}.cast", output=wide)
    unit = _number(graph, f"{base}.unit", np.asarray(a.scale * b.scale, np.float32))
    real = ir.val(f"{base}.new", ir.DataType.FLOAT, shape, metadata_props=dict(result.metadata_props))
    tape.op("Mul", [wide, unit], name=f"{base}.real", output=real)
    graph.insert_before(node, tape.nodes)
    take_over(result, real)
    remove_if_unused(node)
    return True


def _fits(codes: list[ir.Value | None], a: Quantization, b: Quantization) -> bool:
    unit = np.multiply(a.scale, b.scale, dtype=np.float32)
    if not bool((unit >= np.finfo(np.float32).tiny).all() and np.isfinite(unit).all()):
        return False
    left, right = (None if value is None else value.shape for value in codes)
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return False
    return all(not isinstance(d, int) or d * a.reach * b.reach <= _MOST for d in (left[-1], right[-2]))


def _number(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    value = ir.val(name, const_value=ir.tensor(array, name=name))
    graph.register_initializer(value)
    return value


PASS = PassEntry("multiply-integers", MultiplyIntegers, "Multiply quantized matrices as integers")
