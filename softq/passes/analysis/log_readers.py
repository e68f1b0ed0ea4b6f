"""Where the logarithm of a softmax is taken so that it can be computed from the scores instead."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.graph.queries import is_float_cast, is_op

_MOVES = ("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Slice", "Gather")


@dataclass(frozen=True, eq=False)
class Logarithm:
    """A logarithm of some weights.

    Attributes:
        node: The `Log`.
        path: The nodes that move or cast the weights before it, in order.
    """

    node: ir.Node
    path: tuple[ir.Node, ...]


def find_logarithms(weights: ir.Value, path: tuple[ir.Node, ...] = ()) -> list[Logarithm]:
    """Return the logarithms that are taken of `weights` in their own graph, behind nodes that move or cast them."""
    found: list[Logarithm] = []
    for reader, index in weights.uses():
        if index != 0 or reader.graph is not weights.graph:
            continue
        if is_op(reader, "Log"):
            found.append(Logarithm(reader, path))
        elif is_op(reader, *_MOVES) or is_float_cast(reader):
            found += find_logarithms(reader.outputs[0], (*path, reader))
    return found
