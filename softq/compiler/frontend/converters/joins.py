"""Concat of tensors whose other axes are known to be equal at run time only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import relax

from softq.artifact.program import Limit
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.ops.data_movement import JoinOp
from softq.compiler.tir.symbolic import Dim, equal, expression, plain, simplified, size
from softq.errors import RefusalError


def _concat(node: Node) -> list[relax.Expr]:
    tensors = [node.tensor(position) for position in range(len(node.inputs))]
    shapes = [[plain(d) for d in node.shape(position)] for position in range(len(node.inputs))]
    axis = node.axis(node.attributes["axis"], len(shapes[0]))
    if any(len(shape) != len(shapes[0]) for shape in shapes):
        raise RefusalError(f"Concat {node.name!r}: its inputs have other numbers of axes: {shapes}")
    common = [_common([shape[i] for shape in shapes]) for i in range(len(shapes[0]))]
    parts: list[relax.Expr] = []
    for tensor, shape in zip(tensors, shapes, strict=True):
        wanted = [*common[:axis], shape[axis], *common[axis + 1 :]]
        for i, (here, there) in enumerate(zip(shape, wanted, strict=True)):
            if i != axis and not equal(here, there):
                if isinstance(here, int) and isinstance(there, int):
                    raise RefusalError(f"Concat {node.name!r}: axis {i} has {here} elements and {there}")
                apart = simplified(expression(here) - expression(there))
                because = f"Concat {node.name} has inputs of {here} and {there} on axis {i}, which must be equal"
                node.require(Limit(size(apart), 0, 0, because))
        same = all(equal(here, there) for here, there in zip(shape, wanted, strict=True))
        parts.append(tensor if same else node.emit(relax.op.reshape(tensor, [expression(d) for d in wanted])))
    if len(parts) == 1:
        return parts
    float32 = all(str(part.ty.dtype) == "float32" for part in parts)
    if float32 and axis == 1 and len(shapes[0]) == _IMAGE and node.importer.supports(JoinOp, "float32"):
        # TVM would do with its copy what is done to the elements before it, which their own kernels do as well.
        total = simplified(sum((expression(shape[1]) for shape in shapes), start=expression(0)))
        dims = [expression(d) for d in (common[0], total, *common[2:])]
        return [node.call("join", JoinOp(), parts, relax.TensorType(dims, "float32"))]
    return [node.emit(relax.op.concat(parts, axis=axis))]


_IMAGE = 4
"""Axes of images: batch, channels, rows, columns."""


def _common(dims: Sequence[Dim]) -> Dim:
    """Return what all of these are to be: the number, if one is."""
    numbers = {d for d in dims if isinstance(d, int)}
    return min(numbers) if numbers else dims[0]


CONVERTERS: Mapping[str, Converter] = {"Concat": _concat}
"""By operator."""
