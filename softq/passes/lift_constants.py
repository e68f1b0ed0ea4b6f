"""Turn Constant nodes into initializers, whatever attribute holds the value."""

from __future__ import annotations

import onnx_ir as ir

from softq.graph.constants import become_constant
from softq.graph.queries import constant_tensor
from softq.graph.view import Container
from softq.passes import NodePass, PassEntry


class LiftConstants(NodePass):
    """Turns Constant nodes of graphs and bodies into initializers of the same name.

    Functions know no initializers, so theirs stay, as do strings and sparse tensors.
    """

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        # A body's own outputs must come from a node.
        if node.op_type != "Constant" or container.function or (container.path and node.outputs[0].is_graph_output()):
            return False
        tensor = constant_tensor(node.outputs[0]) if len(node.attributes) == 1 else None
        if tensor is None or tensor.dtype == ir.DataType.STRING:
            return False
        become_constant(node.outputs[0], tensor, container)
        container.body.remove(node, safe=True)
        return True


PASS = PassEntry(
    "lift-constants", LiftConstants, "Turn Constant nodes into initializers", frozenset({("", "Constant")})
)
