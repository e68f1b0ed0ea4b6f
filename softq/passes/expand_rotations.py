"""Open onnxruntime's RotaryEmbedding into standard operators: pairs of a head's numbers turned by their position."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from softq.forms.matching.rotations import numbers, turn
from softq.graph.bodies import parse_body
from softq.passes import BodyPass, PassEntry
from softq.passes.expand_contrib import DOMAIN


class ExpandRotations(BodyPass):
    """Opens RotaryEmbedding; one of packed batches, scaled, or of shapes that are not known stays."""

    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        if (node.domain, node.op_type) != (DOMAIN, "RotaryEmbedding") or opset < 18:
            return None
        shapes = [None if value is None or value.shape is None else list(value.shape) for value in node.inputs[:3]]
        x, positions, cosines = shapes
        given = {n: node.attributes.get_int(n, 0) for n in ("num_heads", "rotary_embedding_dim", "interleaved")}
        if x is None or positions is None or cosines is None or len(x) not in (3, 4):
            return None
        width, heads = x[-1], given["num_heads"]
        if len(x) == 3:
            width = cosines[-1] if not heads else width
            width = None if not isinstance(width, int) else width // heads if heads else width * 2
        turned = given["rotary_embedding_dim"] or width
        if not isinstance(width, int) or not isinstance(turned, int):
            return None
        lines = [numbers("split", 0, 0, -1, width), "h = Reshape (x, split)"]
        if len(x) == 4:
            lines = ["h = Transpose <perm: ints = [0, 2, 1, 3]> (x)"]
        lines += _angles(len(positions))
        source = "h"
        if turned < width:
            lines += [numbers("parts", turned, width - turned), "turning, rest = Split <axis: int = 3> (h, parts)"]
            source = "turning"
        lines += turn(source, turned, bool(given["interleaved"]))
        lines.append("all = Concat <axis: int = 3> (both, rest)" if turned < width else "all = Identity (both)")
        if len(x) == 4:
            lines.append("y = Transpose <perm: ints = [0, 2, 1, 3]> (all)")
        else:
            lines += [numbers("joined", 0, 0, -1), "y = Reshape (all, joined)"]
        return parse_body(opset, ["x", "position_ids", "cos_cache", "sin_cache"], ["y"], lines)


def _angles(rank: int) -> list[str]:
    """Return lines for cosines and sines, [batch or nothing, sequence, 1, half]; one position is that of the first."""
    lines = ["places = Identity (position_ids)"]
    if rank < 2:
        lines = [
            "zero = Constant <value: tensor = int64 {0}> ()",
            "one = Constant <value: tensor = int64 {1}> ()",
            "length = Shape (h)",
            "count = Gather (length, one)",
            "steps = Range (zero, count, one)",
            "places = Add (position_ids, steps)",
        ]
    lines.append(numbers("head", -2))
    for name in ("cos", "sin"):
        lines += [f"{name}_at = Gather ({name}_cache, places)", f"{name} = Unsqueeze ({name}_at, head)"]
    return lines


PASS = PassEntry(
    "expand-rotations",
    ExpandRotations,
    "Open onnxruntime's RotaryEmbedding into standard operators",
    frozenset({(DOMAIN, "RotaryEmbedding")}),
)
