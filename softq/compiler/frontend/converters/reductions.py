"""Reductions: axes given, absent or none; integers stay integers.

Sums and products of float16 are of float32, and rounded once: a mean fits where its sum does not, and a sum of many
would stand still where its terms are less than half of its last bit. ONNX leaves it open; onnxruntime computes so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax

from softq.compiler.frontend.converters.pointwise import is_float
from softq.compiler.frontend.converters.shapes import axes_of
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.frontend.shape_folding import sizes
from softq.compiler.tir.symbolic import product
from softq.errors import RefusalError


def _reduce(node: Node, reduction: Callable[..., Any], x: relax.Expr) -> relax.Expr:
    """Return x reduced over the node's axes; x itself where there are none."""
    axes = _axes(node)
    dtype, keep = str(x.ty.dtype), bool(node.attributes.get("keepdims", 1))
    if not axes:
        return x
    if dtype in ("int8", "uint8") and reduction in (relax.op.sum, relax.op.prod):
        raise RefusalError(f"{node.operator} {node.name!r} of {dtype} has no kernel; ONNX defines it from 32 bits on")
    result = node.emit(reduction(x, axes, keep))
    return result if str(result.ty.dtype) == dtype else node.emit(relax.op.astype(result, dtype))


def _axes(node: Node) -> list[int]:
    rank = len(node.shape(0))
    given = axes_of(node) if node.has(1) or "axes" in node.attributes else []
    if not given and not node.attributes.get("noop_with_empty_axes", 0):
        return list(range(rank))
    return sorted(node.axis(a, rank) for a in given)


def _plain(reduction: Callable[..., Any]) -> Converter:
    return lambda node: [_reduce(node, reduction, node.tensor(0))]


def _sum_as_float32(function: Callable[[Node, relax.Expr], relax.Expr], floats_only: bool = False) -> Converter:
    """Return the converter of a function of the node's tensor, which it gets as float32 where it is of float16."""

    def convert(node: Node) -> list[relax.Expr]:
        x = node.tensor(0)
        dtype = str(x.ty.dtype)
        if floats_only and not is_float(x):
            raise RefusalError(f"{node.operator} {node.name!r} of {dtype} has no kernel; floating point is needed")
        if dtype != "float16":
            return [function(node, x)]
        return [node.emit(relax.op.astype(function(node, node.emit(relax.op.astype(x, "float32"))), dtype))]

    return convert


def _mean(node: Node, x: relax.Expr) -> relax.Expr:
    dims, dtype = node.shape(0), str(x.ty.dtype)
    total = _reduce(node, relax.op.sum, x)
    count = node.importer.written(sizes([product([dims[a] for a in _axes(node)])], ()), "int64")
    return node.emit(relax.op.divide(total, node.emit(relax.op.astype(count, dtype))))


def _sum_square(node: Node, x: relax.Expr) -> relax.Expr:
    return _reduce(node, relax.op.sum, node.emit(relax.op.multiply(x, x)))


def _log_sum_exp(node: Node, x: relax.Expr) -> relax.Expr:
    if not _axes(node):
        return x
    # The greatest is taken out, so that no exponential overflows; it is no number to subtract if it is infinite.
    greatest = node.emit(relax.op.max(x, _axes(node), True))
    finite = node.emit(relax.op.isfinite(greatest))
    base = node.emit(relax.op.where(finite, greatest, relax.const(0.0, str(x.ty.dtype))))
    exponentials = node.emit(relax.op.exp(node.emit(relax.op.subtract(x, base))))
    total = node.emit(relax.op.sum(exponentials, _axes(node), True))
    result = node.emit(relax.op.add(node.emit(relax.op.log(total)), base))
    return result if node.attributes.get("keepdims", 1) else node.emit(relax.op.squeeze(result, _axes(node)))


CONVERTERS: Mapping[str, Converter] = {
    "ReduceMax": _plain(relax.op.max),
    "ReduceMin": _plain(relax.op.min),
    "ReduceSum": _sum_as_float32(lambda node, x: _reduce(node, relax.op.sum, x)),
    "ReduceProd": _sum_as_float32(lambda node, x: _reduce(node, relax.op.prod, x)),
    "ReduceMean": _sum_as_float32(_mean),
    "ReduceSumSquare": _sum_as_float32(_sum_square),
    "ReduceL1": _sum_as_float32(lambda node, x: _reduce(node, relax.op.sum, node.emit(relax.op.abs(x)))),
    "ReduceL2": _sum_as_float32(lambda node, x: node.emit(relax.op.sqrt(_sum_square(node, x))), floats_only=True),
    "ReduceLogSum": _sum_as_float32(
        lambda node, x: node.emit(relax.op.log(_reduce(node, relax.op.sum, x))), floats_only=True
    ),
    "ReduceLogSumExp": _sum_as_float32(_log_sum_exp, floats_only=True),
}
