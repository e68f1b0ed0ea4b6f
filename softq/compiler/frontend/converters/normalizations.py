"""Normalizations: of layers with their statistics, of batches by their own, and by a norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tvm import relax

from softq.compiler.frontend.converters.pointwise import number
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.tir.symbolic import Dim, expression, plain
from softq.errors import RefusalError


def _moments(node: Node, x: relax.Expr, axes: Sequence[int]) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Return the mean over axes, which stay with length 1, the elements less it, and the mean of their squares."""
    mean = node.emit(relax.op.mean(x, list(axes), keepdims=True))
    centred = node.emit(relax.op.subtract(x, mean))
    return mean, centred, node.emit(relax.op.mean(node.emit(relax.op.multiply(centred, centred)), list(axes), True))


def _reciprocal_deviation(node: Node, variance: relax.Expr) -> relax.Expr:
    epsilon = number(variance, node.attributes.get("epsilon", 1e-5))
    root = node.emit(relax.op.sqrt(node.emit(relax.op.add(variance, epsilon))))
    return node.emit(relax.op.divide(number(variance, 1), root))


def _layer_norm(node: Node) -> list[relax.Expr] | None:
    given, dims = node.tensor(0), node.shape(0)
    axis, dtype = node.axis(node.attributes.get("axis", -1), len(dims)), str(given.ty.dtype)
    if not any(node.outputs[1:]):
        scale = node.shape(1)
        # TVM's importer makes the bias that is left out, of a length that must be a number.
        if node.has(2) or len(scale) != len(dims) - axis or all(isinstance(plain(d), int) for d in scale):
            return None
        nothing = node.emit(relax.op.zeros(relax.ShapeExpr([expression(d) for d in scale]), dtype))
        epsilon = node.attributes.get("epsilon", 1e-5)
        axes = list(range(axis, len(dims)))
        return [node.emit(relax.op.nn.layer_norm(given, node.tensor(1), nothing, axes, epsilon))]
    x = given if dtype in ("float32", "float64") else node.emit(relax.op.astype(given, "float32"))
    mean, centred, variance = _moments(node, x, range(axis, len(dims)))
    reciprocal = _reciprocal_deviation(node, variance)
    y = node.emit(relax.op.multiply(centred, reciprocal))
    y = y if dtype == str(y.ty.dtype) else node.emit(relax.op.astype(y, dtype))
    y = node.emit(relax.op.multiply(y, node.tensor(1)))
    if node.has(2):
        y = node.emit(relax.op.add(y, node.tensor(2)))
    statistics = [mean, reciprocal]
    if dtype == "float64":
        statistics = [node.emit(relax.op.astype(value, "float32")) for value in statistics]
    return [y, *statistics]


def _known_batch_norm(node: Node) -> list[relax.Expr] | None:
    """Return x a + b with the numbers of each channel computed now, if they are known."""
    x, rank = node.tensor(0), len(node.shape(0))
    arrays = [node.array(position) for position in range(1, 5)]
    known = [np.asarray(array, np.float64) for array in arrays if array is not None]
    if len(known) < 4 or str(x.ty.dtype) not in ("float32", "float64") or rank < 2:
        return None
    scale, shift, mean, variance = known
    factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    pair = (
        constant(np.asarray(array, str(x.ty.dtype)).reshape(-1, *[1] * (rank - 2)))
        for array in (factor, shift - mean * factor)
    )
    return [node.emit(relax.op.add(node.emit(relax.op.multiply(x, next(pair))), next(pair)))]


def _batch_norm(node: Node) -> list[relax.Expr] | None:
    if not node.attributes.get("training_mode", 0):
        if any(node.outputs[1:]):
            raise RefusalError(f"BatchNormalization {node.name!r} has further outputs only in training mode")
        return _known_batch_norm(node)
    x, dims = node.tensor(0), node.shape(0)
    column: list[Dim] = [dims[1], *[1] * (len(dims) - 2)]
    mean, centred, variance = _moments(node, x, [i for i in range(len(dims)) if i != 1])
    y = node.emit(relax.op.multiply(centred, _reciprocal_deviation(node, variance)))
    y = node.emit(relax.op.multiply(y, reshape(node, node.tensor(1), column)))
    y = node.emit(relax.op.add(y, reshape(node, node.tensor(2), column)))
    momentum = node.attributes.get("momentum", 0.9)
    running = [
        node.emit(
            relax.op.add(
                node.emit(relax.op.multiply(before, number(before, momentum))),
                node.emit(relax.op.multiply(reshape(node, now, [dims[1]]), number(before, 1 - momentum))),
            )
        )
        for before, now in ((node.tensor(3), mean), (node.tensor(4), variance))
    ]
    return [y, *running]


def _lp_normalization(node: Node) -> list[relax.Expr]:
    x = node.tensor(0)
    axis, p = node.axis(node.attributes.get("axis", -1), len(node.shape(0))), node.attributes.get("p", 2)
    if p == 1:
        norm = node.emit(relax.op.sum(node.emit(relax.op.abs(x)), [axis], True))
    else:
        norm = node.emit(relax.op.sqrt(node.emit(relax.op.sum(node.emit(relax.op.multiply(x, x)), [axis], True))))
    # A row of zeros stays one.
    nothing = node.emit(relax.op.equal(norm, number(x, 0)))
    return [node.emit(relax.op.divide(x, node.emit(relax.op.where(nothing, number(x, 1), norm))))]


CONVERTERS: Mapping[str, Converter] = {
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "LpNormalization": _lp_normalization,
}
