"""Determinants, and remainders as ONNX defines them."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

from softq.compiler.frontend.converters.pointwise import is_float, number
from softq.compiler.frontend.converters.selections import refuse_without
from softq.compiler.frontend.converters.shapes import broadcast_shape, expand, reshape
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.ops.arithmetic import DetOp, RemainderOp
from softq.compiler.tir.symbolic import expression, product


def _det(node: Node) -> list[relax.Expr]:
    x, dims = node.tensor(0), node.shape(0)
    dtype = str(x.ty.dtype)
    if dtype == "float16":
        x = node.emit(relax.op.astype(x, "float32"))
    refuse_without(node, DetOp, str(x.ty.dtype))
    matrices = reshape(node, x, [product(dims[:-2]), *dims[-2:]])
    ty = relax.TensorType([expression(product(dims[:-2]))], str(x.ty.dtype))
    found = reshape(node, node.call("det", DetOp(), [matrices], ty), dims[:-2])
    return [found if dtype == str(x.ty.dtype) else node.emit(relax.op.astype(found, dtype))]


def _mod(node: Node) -> list[relax.Expr] | None:
    a, b = node.tensor(0), node.tensor(1)
    if not is_float(a):
        return None
    refuse_without(node, RemainderOp, "float64")
    dtype, shape = str(a.ty.dtype), broadcast_shape(node, node.shape(0), node.shape(1))
    # A remainder of float16 or float32 is a number of that type, too.
    a, b = (expand(node, x if dtype == "float64" else node.emit(relax.op.astype(x, "float64")), shape) for x in (a, b))
    rest = node.call("remainder", RemainderOp(), [a, b], relax.TensorType([expression(d) for d in shape], "float64"))
    if not node.attributes.get("fmod", 0):
        zero = number(b, 0)
        below = [node.emit(relax.op.less(x, zero)) for x in (rest, b)]
        other = node.emit(relax.op.not_equal(*(node.emit(relax.op.astype(x, "int8")) for x in below)))
        raised = node.emit(relax.op.where(other, node.emit(relax.op.add(rest, b)), rest))
        # Nothing that is left has the divisor's sign.
        signed = node.emit(relax.op.where(below[1], number(b, -0.0), zero))
        rest = node.emit(relax.op.where(node.emit(relax.op.equal(rest, zero)), signed, raised))
    return [rest if dtype == "float64" else node.emit(relax.op.astype(rest, dtype))]


def _sum(node: Node) -> list[relax.Expr]:
    """Add one after another: TVM's importer writes every input in the shape of the result first."""
    total, *others = map(node.tensor, range(len(node.inputs)))
    for other in others:
        total = node.emit(relax.op.add(total, other))
    return [total]


CONVERTERS: Mapping[str, Converter] = {"Det": _det, "Mod": _mod, "Sum": _sum}
