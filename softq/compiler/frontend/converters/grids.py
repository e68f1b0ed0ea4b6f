"""AffineGrid: the places of an image of which an affine map makes another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax, te, tirx

from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.frontend.parameters import emit, integer
from softq.compiler.tir.symbolic import plain


def _affine_grid(node: Node) -> list[relax.Expr]:
    lengths = [plain(d) for d in node.sizes(1).ravel()]
    batch, inner, aligned = lengths[0], lengths[2:], bool(node.attributes.get("align_corners", 0))
    count = len(inner)

    def compute(theta: Any, shape: Any) -> Any:
        dtype = theta.dtype

        def element(*at: Any) -> Any:
            result = theta[at[0], at[-1], integer(count)]
            # The first coordinate is the one along the last axis.
            for place in range(count):
                axis = count - place
                i, length = at[axis].astype(dtype), shape[axis].astype(dtype)
                one, two = tirx.const(1, dtype), tirx.const(2, dtype)
                along = i * (two / (length - one)) - one if aligned else (i * two + one) / length - one
                result = result + theta[at[0], at[-1], integer(place)] * along
            return result

        return te.compute(shape, element, name="grid")

    return [emit(node, "grid", compute, node.tensor(0), [batch, *inner, count])]


CONVERTERS: Mapping[str, Converter] = {"AffineGrid": _affine_grid}
