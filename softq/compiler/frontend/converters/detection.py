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
from softq.compiler.ops.regions import RegionsOp
from softq.compiler.ops.suppression import SuppressOp
from softq.compiler.tir.symbolic import expression, product


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


def _roi_align(node: Node) -> list[relax.Expr]:
    x, regions, images = (node.tensor(i) for i in range(3))
    dtype, given = str(x.ty.dtype), node.attributes
    if dtype == "float16":
        x, regions = (node.emit(relax.op.astype(v, "float32")) for v in (x, regions))
    refuse_without(node, RegionsOp, str(x.ty.dtype))
    operator = RegionsOp(
        given.get("mode", "avg") == "max",
        given.get("coordinate_transformation_mode", "half_pixel") == "half_pixel",
        int(given.get("sampling_ratio", 0)),
        float(given.get("spatial_scale", 1.0)),
    )
    size = [int(given.get(f"output_{axis}", 1)) for axis in ("height", "width")]
    shape = [expression(d) for d in (node.shape(1)[0], node.shape(0)[1], *size)]
    ty = relax.TensorType(shape, str(x.ty.dtype))
    found = node.call(node.importer.new_name("regions"), operator, [x, regions, images], ty)
    return [found if dtype == str(x.ty.dtype) else node.emit(relax.op.astype(found, dtype))]


CONVERTERS: Mapping[str, Converter] = {"NonMaxSuppression": _non_max_suppression, "RoiAlign": _roi_align}
