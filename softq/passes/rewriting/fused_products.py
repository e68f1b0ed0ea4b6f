"""Opening onnxruntime's product with its transpositions and factor (FusedMatMul) where scores come from it."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import is_op
from softq.graph.rewriter import Rewriter
from softq.graph.signatures import refuse_unsupported
from softq.passes.rewriting.attention_regions import ELEMENTWISE


def open_fused_product(rewriter: Rewriter, call: ir.Node) -> None:
    """Write the FusedMatMul that scores come from as Transpose, MatMul and Mul, if there is one.

    One that transposes axes of its batch stays, and so does one whose operands' shapes or types are not known.

    Args:
        rewriter: Of the model.
        call: What takes the scores.
    """
    for node in list(_above(call.inputs[0])):
        batched = any(node.attributes.get_int(f"transBatch{side}", 0) for side in "AB") or refuse_unsupported(node, 0)
        shapes = [rewriter.facts.shape(value) for value in node.inputs]
        kind = rewriter.facts.dtype(node.inputs[0])
        if batched or kind is None or len(shapes) != 2 or any(shape is None or len(shape) < 2 for shape in shapes):
            continue
        operands = [_operand(rewriter, node, position) for position in range(2)]
        out, name = node.outputs[0], node.outputs[0].name or "product"
        shape, factor = rewriter.facts.shape(out), node.attributes.get_float("alpha", 1.0)
        result = rewriter.add(node, "MatMul", operands, f"{name}.product", kind, shape, node.name or "")
        if factor != 1.0:
            number = rewriter.add_number(node, factor, kind, f"{name}.alpha")
            result = rewriter.add(node, "Mul", [result, number], f"{name}.scaled", kind, shape)
        take_over(out, result)
        remove_if_unused(node)


def _above(value: ir.Value | None) -> Iterator[ir.Node]:
    """Yield each FusedMatMul that a value comes from by elementwise operators alone."""
    node = None if value is None else value.producer()
    if node is None:
        return
    if (node.domain, node.op_type) == ("com.microsoft", "FusedMatMul"):
        yield node
    elif is_op(node, *ELEMENTWISE):
        for source in node.inputs:
            yield from _above(source)


def _operand(rewriter: Rewriter, node: ir.Node, position: int) -> ir.Value:
    """Return an operand as MatMul takes it."""
    value, side = node.inputs[position], "AB"[position]
    assert value is not None, "its shape is known"
    if not node.attributes.get_int(f"trans{side}", 0):
        return value
    shape = rewriter.facts.shape(value)
    assert shape is not None, "it was asked for"
    axes = list(range(len(shape)))
    turned = (*shape[:-2], shape[-1], shape[-2])
    name = f"{value.name or 'operand'}.turned"
    perm = [*axes[:-2], axes[-1], axes[-2]]
    return rewriter.add(node, "Transpose", [value], name, rewriter.facts.dtype(value), turned, perm=perm)
