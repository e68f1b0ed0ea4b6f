"""Operators of object detection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.compiler.frontend.converters.selections import chosen, compute, refuse_without
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.converters.sorting import order
from softq.compiler.frontend.onnx_node import Array, Converter, Node, constant
from softq.compiler.ops.suppression import SuppressOp
from softq.compiler.tir.symbolic import product


def _non_max_suppression(node: Node) -> list[relax.Expr]:
    boxes, scores, (images, classes, number) = node.tensor(0), node.tensor(1), node.shape(1)
    refuse_without(node, SuppressOp, str(boxes.ty.dtype))
    lines = product([images, classes])
    ranked = order(node, reshape(node, scores, [lines, number, 1]), descending=True)
    most, overlap, least = (
        reshape(node, node.tensor(i), [1]) if node.has(i) else constant(default) for i, default in _DEFAULTS.items()
    )
    operator = SuppressOp(bool(node.attributes.get("center_point_box", 0)), node.has(4))
    kept = node.call(
        f"suppress {operator.centers} {operator.above}",
        operator,
        [boxes, scores, ranked, most, overlap, least],
        ranked.ty,
    )
    flat = reshape(node, kept, [product([lines, number])])
    there = node.emit(relax.op.greater_equal(flat, relax.const(0, "int64")))

    def rows(at: Any, kept: Any, classes: Any, number: Any) -> Any:
        def element(i: Any, column: Any) -> Any:
            line = tirx.floordiv(at[i], number)
            where = tirx.Select(column == 0, tirx.floordiv(line, classes), tirx.floormod(line, classes))
            return tirx.if_then_else(column == 2, kept[at[i]], where)

        return te.compute([at.shape[0], 3], element, name="rows")

    return [compute(node, "rows", rows, chosen(node, there), flat, classes, number)]


_DEFAULTS: Mapping[int, Array] = {2: np.zeros(1, np.int64), 3: np.zeros(1, np.float32), 4: np.zeros(1, np.float32)}
"""The greatest number, the greatest overlap and the least score, by their input."""

CONVERTERS: Mapping[str, Converter] = {"NonMaxSuppression": _non_max_suppression}
