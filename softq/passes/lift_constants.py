"""Turn Constant nodes into initializers, whatever attribute holds the value."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.constants import become_constant
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
        tensor = _read_tensor(node)
        if tensor is not None:
            become_constant(node.outputs[0], tensor, container)
            container.body.remove(node, safe=True)
        return tensor is not None


def _read_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    if len(node.attributes) != 1:
        return None
    name, attribute = next(iter(node.attributes.items()))
    if attribute.is_ref():
        return None
    if name == "value":
        tensor = attribute.as_tensor()
        return None if tensor.dtype == ir.DataType.STRING else tensor
    if name in ("value_int", "value_ints"):
        return ir.tensor(np.array(attribute.value, np.int64))
    if name in ("value_float", "value_floats"):
        return ir.tensor(np.array(attribute.value, np.float32))
    return None


PASS = PassEntry("lift-constants", LiftConstants, "Turn Constant nodes into initializers")
