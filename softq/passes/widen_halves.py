"""Compute in float32 what a model computes in 16 bits, each result rounded: what such types mean on processors."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.edits import take_over
from softq.graph.queries import ANY_TYPE, graph_of
from softq.passes import PassEntry

_KEPT = ANY_TYPE | {"Cast", "CastLike", "QuantizeLinear", "DequantizeLinear"}
_SUMS = frozenset(
    {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "AveragePool", "GlobalAveragePool", "LpPool", "GlobalLpPool",
     "CumSum"}
)  # fmt: skip
"""Operators whose sums TVM makes in the type of the elements; of reductions and normalizations they are float32."""

_TYPE_ATTRIBUTES = ("dtype", "stash_type", "softmax_precision")
_BFLOAT16, _FLOAT16, _FLOAT = ir.DataType.BFLOAT16, ir.DataType.FLOAT16, ir.DataType.FLOAT


class WidenHalves(ir.passes.InPlacePass):
    """Puts casts to float32 before each operator of bfloat16 and casts back behind it; weights become float32.

    What moves or converts elements stays. A result is the float32 operator's, rounded to bfloat16 once, as that of
    onnxruntime and of ONNX's reference.

    Args:
        sums: Whether the same is done to products and sums of float16: in float16 one of 4,096 ones is 2,048.
    """

    def __init__(self, sums: bool = True) -> None:
        super().__init__()
        self.sums = sums

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Put them there; `modified` says whether there was anything to widen."""
        modified = False
        wide: dict[tuple[ir.Value, ir.Graph | ir.Function], ir.Value] = {}
        for node in list(model.graph.all_nodes()):
            narrow = self._narrow_types(node)
            if _BFLOAT16 in narrow:
                modified |= _widen_attributes(node)
            for position, value in enumerate(node.inputs):
                if value is not None and value.dtype in narrow:
                    node.replace_input_with(position, _widened(node, value, wide))
                    modified = True
            for value in node.outputs:
                if value.dtype in narrow:
                    _round(node, value)
                    modified = True
        return ir.passes.PassResult(model, modified)

    def _narrow_types(self, node: ir.Node) -> tuple[ir.DataType, ...]:
        standard = node.domain in ("", "ai.onnx")
        if standard and node.op_type in _KEPT:
            return ()
        return (_BFLOAT16, _FLOAT16) if self.sums and standard and node.op_type in _SUMS else (_BFLOAT16,)


def _widen_attributes(node: ir.Node) -> bool:
    found = False
    for name, attribute in list(node.attributes.items()):
        if name in _TYPE_ATTRIBUTES and attribute.type is ir.AttributeType.INT and attribute.as_int() == _BFLOAT16:
            node.attributes[name] = ir.AttrInt64(name, int(_FLOAT))
            found = True
        elif attribute.type is ir.AttributeType.TENSOR and attribute.as_tensor().dtype is _BFLOAT16:
            node.attributes[name] = ir.AttrTensor(name, ir.tensor(attribute.as_tensor().numpy().astype(np.float32)))
            found = True
    return found


def _widened(node: ir.Node, value: ir.Value, wide: dict[tuple[ir.Value, ir.Graph | ir.Function], ir.Value]) -> ir.Value:
    """Return a value as float32; in each graph it is cast once."""
    constant, owner = value.const_value, value.graph
    weight = constant is not None and value.is_initializer() and isinstance(owner, ir.Graph)
    graph = owner if weight and owner is not None else graph_of(node)
    if (value, graph) in wide:
        return wide[value, graph]
    result = wide[value, graph] = ir.val(f"{value.name}.float32", _FLOAT, value.shape)
    if constant is not None and isinstance(graph, ir.Graph) and weight:
        result.const_value = ir.tensor(constant.numpy().astype(np.float32), name=result.name)
        graph.register_initializer(result)
    else:
        cast = ir.node("Cast", [value], {"to": int(_FLOAT)}, outputs=[result], name=f"{result.name}.cast")
        graph.insert_before(node, cast)
    return result


def _round(node: ir.Node, value: ir.Value) -> None:
    assert value.dtype is not None, "what is not narrow is not rounded"
    rounded = ir.val(value.name, value.dtype, value.shape)
    cast = ir.node("Cast", [value], {"to": int(value.dtype)}, outputs=[rounded], name=f"{value.name}.round")
    graph_of(node).insert_after(node, cast)
    take_over(value, rounded, except_by=cast)
    value.name, value.type = f"{rounded.name}.float32", ir.TensorType(_FLOAT)


PASS = PassEntry(
    "widen-halves", WidenHalves, "Compute in float32 what a model computes in bfloat16, and sums of float16"
)
