"""Operators on the bits of elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx

from softq.compiler.frontend.converters.pointwise import number
from softq.compiler.frontend.converters.selections import compute
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.errors import RefusalError


def _bit_shift(node: Node) -> list[relax.Expr]:
    x, by = node.tensor(0), node.tensor(1)
    dtype = str(x.ty.dtype)
    width = np.dtype(dtype).itemsize * 8
    # A shift by the width or more, or by less than 0, is undefined for processors; all bits are gone then.
    inside = node.emit(relax.op.less(by, number(by, width)))
    if dtype.startswith("int"):
        inside = node.emit(relax.op.logical_and(inside, node.emit(relax.op.greater_equal(by, number(by, 0)))))
    safe = node.emit(relax.op.where(inside, by, number(by, 0)))
    if node.attributes["direction"] == "LEFT":
        return [node.emit(relax.op.where(inside, node.emit(relax.op.left_shift(x, safe)), number(x, 0)))]
    gone = number(x, 0)
    if dtype.startswith("int"):
        # What comes in from the left is the sign.
        gone = node.emit(relax.op.right_shift(x, number(x, width - 1)))
    return [node.emit(relax.op.where(inside, node.emit(relax.op.right_shift(x, safe)), gone))]


def _bit_cast(node: Node) -> list[relax.Expr]:
    x = node.tensor(0)
    wanted = onnx.helper.tensor_dtype_to_np_dtype(node.attributes["to"]).name
    if np.dtype(str(x.ty.dtype)).itemsize != np.dtype(wanted).itemsize:
        raise RefusalError(f"BitCast {node.name!r} from {x.ty.dtype} to {wanted}, which are not of the same width")
    if str(x.ty.dtype) == wanted:
        return [x]
    if "bool" in (str(x.ty.dtype), wanted):
        return [node.emit(relax.op.astype(x, wanted))]

    def bits(x: Any) -> Any:
        return te.compute(x.shape, lambda *at: tirx.reinterpret(wanted, x[at]), name="bits")

    return [compute(node, "bits", bits, x)]


CONVERTERS: Mapping[str, Converter] = {"BitShift": _bit_shift, "BitCast": _bit_cast}
