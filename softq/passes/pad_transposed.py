"""Say by pads what a transposed convolution says by the shape of its result.

The pads are those that ONNX gives for `output_shape`, as onnxruntime takes them: where the result is longer than all
that the windows reach, the rest is zeros behind it.
"""

from __future__ import annotations

import onnx_ir as ir

from softq.graph.view import Container
from softq.passes import NodePass, PassEntry


class PadTransposed(NodePass):
    """Writes pads for `output_shape`; a ConvTranspose on axes whose lengths are not known stays."""

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        wanted = node.attributes.get("output_shape") if node.op_type == "ConvTranspose" else None
        x, weights = (*node.inputs[:2], None, None)[:2]
        if wanted is None or wanted.is_ref() or x is None or weights is None or x.shape is None:
            return False
        lengths, kernel = list(x.shape)[2:], [] if weights.shape is None else list(weights.shape)[2:]
        rank = len(lengths)
        # Some have the batch and the channels in front.
        after = list(wanted.as_ints())[-rank:] if rank else []
        if not rank or len(after) != rank or len(kernel) != rank:
            return False
        strides, dilations = (_numbers(node, name, [1] * rank) for name in ("strides", "dilations"))
        added = _numbers(node, "output_padding", [0] * rank)
        # By the text SAME_UPPER has the odd element behind, all others in front.
        upper = node.attributes.get_string("auto_pad", "NOTSET") == "SAME_UPPER"
        before, behind = list[int](), list[int]()
        for i in range(rank):
            length, size = lengths[i], kernel[i]
            if not isinstance(length, int) or not isinstance(size, int):
                return False
            reach = strides[i] * (length - 1) + added[i] + (size - 1) * dilations[i] + 1
            total = reach - after[i]
            if total < 0:
                added[i] -= total
                total = 0
            less, more = total // 2, total - total // 2
            before.append(less if upper else more)
            behind.append(more if upper else less)
        for name in ("output_shape", "auto_pad"):
            node.attributes.pop(name, None)
        node.attributes["pads"] = ir.AttrInt64s("pads", [*before, *behind])
        node.attributes["output_padding"] = ir.AttrInt64s("output_padding", added)
        return True


def _numbers(node: ir.Node, name: str, default: list[int]) -> list[int]:
    given = node.attributes.get(name)
    return default if given is None else list(given.as_ints())


PASS = PassEntry("pad-transposed", PadTransposed, "Give transposed convolutions pads for the shape of their result")
