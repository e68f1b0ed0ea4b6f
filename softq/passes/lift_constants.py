"""Turn Constant nodes into initializers, whatever attribute holds the value."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.constants import become_constant
from softq.graph.queries import ModelView, is_op
from softq.passes import PassEntry


class LiftConstants(ir.passes.InPlacePass):
    """Turns Constant nodes of graphs and bodies into initializers of the same name.

    Functions know no initializers, so theirs stay, as do strings and sparse tensors.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Lift them; `modified` says whether there were any."""
        modified = False
        for container in ModelView(model).containers:
            if container.function is not None:
                continue
            for node in list(container.body):
                # A body's own outputs must come from a node.
                inner = container.path and node.outputs[0].is_graph_output()
                tensor = _tensor(node) if is_op(node, "Constant") and not inner else None
                if tensor is not None:
                    become_constant(node.outputs[0], tensor, container)
                    container.body.remove(node, safe=True)
                    modified = True
        return ir.passes.PassResult(model, modified)


def _tensor(node: ir.Node) -> ir.TensorProtocol | None:
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


PASS = PassEntry("lift-constants", LiftConstants, "turn Constant nodes into initializers")
