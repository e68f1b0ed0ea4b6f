"""Biases of quantized products as floats: they take as many bytes as their int32, and no arithmetic in every run."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.constants import become_constants
from softq.graph.queries import constant, operand
from softq.graph.view import Container
from softq.passes import NodePass
from softq.passes.fold_constants import LIMIT


class FoldBiases(NodePass):
    """Replaces DequantizeLinear of constants of int32, with float32 scales, by its result: (x - zero point) scale."""

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        return node.op_type == "DequantizeLinear" and container.function is None and _fold(node, container)


def _fold(node: ir.Node, container: Container) -> bool:
    codes, scale = constant(node.inputs[0], LIMIT), constant(operand(node, 1), LIMIT)
    point = operand(node, 2)
    zero = np.zeros((), np.int32) if point is None else constant(point, LIMIT)
    if codes is None or scale is None or zero is None or node.attributes.get_int("block_size", 0):
        return False
    axis = node.attributes.get_int("axis", 1)
    if (codes.dtype, scale.dtype) != (np.int32, np.float32):
        return False
    if max(scale.size, zero.size) > 1 and not -codes.ndim <= axis < codes.ndim:
        return False
    numbers = [_along(x, axis, codes.ndim) for x in (zero, scale)]
    whole = codes.astype(np.int64) - numbers[0].astype(np.int64)
    if np.abs(whole).max(initial=0) > np.iinfo(np.int32).max:
        return False
    return become_constants(node, [whole.astype(np.float32) * numbers[1].astype(np.float32)], container)


def _along(numbers: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """Return one number for all, or those of an axis in the form in which they are applied."""
    if numbers.size == 1:
        return numbers.reshape(())
    return numbers.reshape([-1 if i == axis % rank else 1 for i in range(rank)])
