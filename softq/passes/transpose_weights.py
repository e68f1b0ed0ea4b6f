"""Store large constants in the order in which they are read, instead of transposing them in every run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from softq.graph.constants import become_constant
from softq.graph.edits import remove_if_unused
from softq.graph.queries import is_op
from softq.graph.view import ModelView
from softq.passes import PassEntry


class TransposeWeights(ir.passes.InPlacePass):
    """Replaces the Transpose of an initializer that nothing else reads by an initializer in the other order.

    Its data are transposed when they are read, so nothing is copied here. An initializer that is also read otherwise,
    as a word embedding that is the output layer too, would have to be stored twice: it stays.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace them; `modified` says whether there were any."""
        modified = False
        for container in ModelView(model).containers:
            if container.function is not None or container.path:
                continue
            for name, value in list(container.graph.initializers.items()):
                orders = {_find_order(node) if node.graph is container.graph else None for node in value.consumers()}
                order = next(iter(orders), None)
                if value.const_value is None or value.is_graph_input() or value.is_graph_output():
                    continue
                if len(orders) != 1 or order is None or value.const_value.dtype.bitwidth < 8:
                    continue
                if value.const_value.dtype == ir.DataType.STRING:
                    continue
                for node in list(value.consumers()):
                    become_constant(node.outputs[0], _transpose(value.const_value, order), container)
                    remove_if_unused(node)
                del container.graph.initializers[name]
                modified = True
        return ir.passes.PassResult(model, modified)


def _find_order(node: ir.Node) -> tuple[int, ...] | None:
    source = node.inputs[0] if node.inputs else None
    if not is_op(node, "Transpose") or source is None or source.const_value is None:
        return None
    perm = node.attributes.get("perm")
    if perm is not None and perm.is_ref():
        return None
    rank = len(source.const_value.shape)
    return tuple(reversed(range(rank))) if perm is None else tuple(perm.as_ints())


def _transpose(tensor: ir.TensorProtocol, order: Sequence[int]) -> ir.TensorProtocol:
    dims = tensor.shape.numpy()

    def read() -> ir.TensorProtocol:
        return ir.Tensor(np.transpose(tensor.numpy(), order), dtype=tensor.dtype)

    return ir.LazyTensor(read, tensor.dtype, ir.Shape([dims[axis] for axis in order]), name=tensor.name)


PASS = PassEntry("transpose-weights", TransposeWeights, "Store transposed constants instead of transposing them")
