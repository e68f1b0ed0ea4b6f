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
        modified, main = False, ModelView(model).containers[0]
        for name, value in list(model.graph.initializers.items()):
            orders = {_find_order(node) if node.graph is model.graph else None for node in value.consumers()}
            order, tensor = next(iter(orders), None), value.const_value
            if tensor is None or value.is_graph_input() or value.is_graph_output() or len(orders) != 1 or order is None:
                continue
            if tensor.dtype == ir.DataType.STRING or tensor.dtype.bitwidth < 8:
                continue
            for node in list(value.consumers()):
                become_constant(node.outputs[0], _transpose(tensor, order), main)
                remove_if_unused(node)
            del model.graph.initializers[name]
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
