"""Remove what nothing reads: nodes, optional outputs, initializers and softq's own functions."""

from __future__ import annotations

import onnx_ir as ir
from onnx import defs

from softq.graph.bodies import is_read
from softq.graph.view import Container, ModelView
from softq.passes import PassEntry


class DropUnused(ir.passes.InPlacePass):
    """Removes nodes without readers, names of optional outputs without readers, and initializers without readers.

    Inputs and outputs of the model stay, and so does an initializer that is an input.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Remove them; `modified` says whether there were any."""
        modified = False
        view = ModelView(model)
        # Inner graphs come after the nodes that hold them, and may read what is around.
        for container in reversed(view.containers):
            for node in reversed(list(container.body)):
                if any(is_read(node, k) for k in range(len(node.outputs))):
                    modified |= _forget_outputs(node, container)
                else:
                    container.body.remove(node, safe=True)
                    modified = True
        for container in view.containers:
            initializers = container.graph.initializers
            for name, value in list(initializers.items()):
                if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
                    del initializers[name]
                    modified = True
        return ir.passes.PassResult(model, modified)


def _forget_outputs(node: ir.Node, container: Container) -> bool:
    if node.domain != "" or len(node.outputs) < 2 or node.attributes.get_int("training_mode", 0) != 0:
        # In training, the number of its outputs decides what BatchNormalization computes.
        return False
    try:
        schema = defs.get_schema(node.op_type, container.opset, "")
    except defs.SchemaError:
        return False
    modified = False
    for k, (value, formal) in enumerate(zip(node.outputs, schema.outputs, strict=False)):
        if formal.option == defs.OpSchema.FormalParameterOption.Optional and value.name and not is_read(node, k):
            value.name = ""
            modified = True
    length = len(node.outputs)
    while length > 1 and not node.outputs[length - 1].name:
        length -= 1
    if length < len(node.outputs):
        node.resize_outputs(length)
        modified = True
    return modified


PASS = PassEntry("drop-unused", DropUnused, "Remove what nothing reads")
