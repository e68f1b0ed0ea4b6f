"""Write both products of each attention around a replaced softmax on 8-bit integers, as QuantizeLinear and its inverse.

    q, k, v: codes u8 with zero point 128, scale = max |x| / 127 of the whole tensor, computed where the model runs
    weights: codes u8 with zero point 0, scale 1 where they are integers up to 255, else (the greatest weight) / 255
    output = (weights x V) / (sum of the weights that were multiplied)

Scores and output are float32; onnxruntime fuses each product with what stands in front of it into one on integers
(MatMulIntegerToFloat). Codes are unsigned on either side of a product: x86-64 processors without VNNI add two products
of unsigned and signed bytes in 16 bits, which saturate; onnxruntime takes another kernel for unsigned ones. With scales
of the tensors at hand no value is cut off and nothing has to be calibrated. A value that is infinite or NaN makes the
scale NaN, and with it all that is decoded.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import constant, graph_of, is_op, node_label
from softq.graph.rewriter import Rewriter
from softq.passes import PassEntry
from softq.passes.rewriting.attention_regions import NotFusedError, find_products
from softq.passes.rewriting.calls import ROW_KEY, RowCall
from softq.passes.rewriting.fused_products import open_fused_product
from softq.passes.rewriting.tensor_codes import LEAST_REACH, Codes, add_codes, add_scale, add_sum
from softq.passes.smooth_keys import smooth

FLOATS_KEY = "softq.floats"
"""Key under which `quantize-attentions` leaves, in the meta of a model, why attentions stayed: sentences by site."""

GREATEST_CODE = 255
_ZERO, _REACH = 128, 127
_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class QuantizeAttentions(ir.passes.InPlacePass):
    """Quantizes Q, K, the weights and V of each attention whose softmax was replaced by weights with their sum."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Quantize them; `modified` says whether there were any."""
        refused: dict[str, str] = {}
        rewriter = Rewriter(model)
        for call in list(rewriter.facts.view.nodes):
            row = call.meta.get(ROW_KEY)
            if not isinstance(row, RowCall):
                continue
            open_fused_product(rewriter, call)
            try:
                _Attention(rewriter, call, row).quantize()
            except NotFusedError as error:
                refused[row.site] = str(error)
        model.meta[FLOATS_KEY] = refused
        return ir.passes.PassResult(model, rewriter.modified)


def find_weight_scale(row: RowCall) -> float:
    """Return what one code of 8-bit weights stands for.

    Raises:
        NotFusedError: the call gives no weights that are known to lie in a range from 0 on.
    """
    if row.greatest is None or not np.isfinite(row.greatest):
        raise NotFusedError("its method gives no weights that are known to lie in a range from 0 on, with their sum")
    return 1.0 if row.integers and row.greatest <= GREATEST_CODE else row.greatest / GREATEST_CODE


class _Attention:
    """An attention that is rewritten; everything that can refuse does so before anything is written."""

    def __init__(self, rewriter: Rewriter, call: ir.Node, row: RowCall) -> None:
        self._rewriter, self._row, self._call = rewriter, row, call
        self._scale = find_weight_scale(row)
        region = find_products(call)
        if region.first is None:
            raise NotFusedError("its scores are no product of queries and keys, or others read them")
        self._region, self._first, self._second = region, region.first, region.second
        if self._second.inputs[0] is not call.outputs[0]:
            raise NotFusedError("its division stands in front of the product with values")
        if isinstance(call.graph, ir.Function):
            raise NotFusedError("it stands in a function of the model")
        for node in (self._first, self._second):
            for value in node.inputs:
                kind = rewriter.facts.dtype(value)
                if kind not in _TYPES:
                    name = "of an unknown type" if kind is None else kind.name.lower()
                    raise NotFusedError(f"an operand of {node_label(node)} is {name}")

    def quantize(self) -> None:
        """Rewrite both products."""
        rewriter, first = self._rewriter, self._first
        smooth(rewriter, self._region)
        factor, scores = self._find_factor()
        operands = [self._quantize_tensor(first, 0, factor), self._quantize_tensor(first, 1)]
        kind, shape = rewriter.facts.dtype(scores), rewriter.facts.shape(scores)
        name, wide = scores.name or "scores", ir.DataType.FLOAT
        result = rewriter.add(first, "MatMul", operands, f"{name}.float", wide, shape, node_label(first))
        if kind not in (None, wide):
            result = rewriter.add(first, "Cast", [result], f"{name}.narrow", kind, shape, to=int(kind))
        take_over(scores, result)
        remove_if_unused(scores.producer())
        self._second.replace_input_with(1, self._quantize_tensor(self._second, 1))
        self._quantize_weights()

    def _find_factor(self) -> tuple[float, ir.Value]:
        """Return the number by which all scores are multiplied right behind their product, and what is the result."""
        first, *behind = self._region.elementwise
        scores, node = first.outputs[0], behind[0] if behind else None
        if node is None or not is_op(node, "Mul", "Div") or (node.op_type == "Div" and node.inputs[0] is not scores):
            return 1.0, scores
        array = next((constant(other) for other in node.inputs if other is not scores), None)
        number = 0.0 if array is None or array.size != 1 else float(array.item())
        if not LEAST_REACH <= abs(number) <= 1 / LEAST_REACH:
            return 1.0, scores
        return (number if node.op_type == "Mul" else 1 / number), node.outputs[0]

    def _quantize_tensor(self, product: ir.Node, position: int, factor: float = 1.0) -> ir.Value:
        """Return an operand after codes of its own scale, times a factor, in float32."""
        source = product.inputs[position]
        assert source is not None, "its type is known"
        add, facts, name, kind = self._rewriter.add, self._rewriter.facts, source.name or "operand", ir.DataType.FLOAT
        if facts.dtype(source) is not kind:
            source = add(product, "Cast", [source], f"{name}.wide", kind, facts.shape(source), to=int(kind))
        scale = back = add_scale(self._rewriter, product, source, _REACH, name)
        if factor != 1.0:
            number = self._rewriter.add_number(product, factor, kind, f"{name}.factor")
            back = add(product, "Mul", [scale, number], f"{name}.unit", kind, ())
        return add_codes(self._rewriter, product, source, (scale, back), Codes(ir.DataType.UINT8, _ZERO), name)

    def _quantize_weights(self) -> None:
        call, weights = self._call, self._call.outputs[0]
        # Readers of the sum may stand in front of the product: a node for a while keeps the place behind the call.
        after = ir.Node("", "Identity", [], name=f"{call.name}.after")
        graph_of(call).insert_after(call, after)
        name = weights.name or "weights"
        scale = self._rewriter.add_number(after, self._scale, ir.DataType.FLOAT, f"{name}.scale")
        decoded = add_codes(self._rewriter, after, weights, (scale, scale), Codes(ir.DataType.UINT8, 0), name)
        self._second.replace_input_with(0, decoded)
        if self._scale != 1.0:
            self._sum_again(after, decoded)
        graph_of(call).remove(after)

    def _sum_again(self, after: ir.Node, decoded: ir.Value) -> None:
        """Divide by the sum of the weights that are multiplied; where the method's own sum is NaN it stays so."""
        old = self._call.outputs[1]
        readers = list(old.uses())
        new = add_sum(self._rewriter, after, decoded, old, old.name or "normalizer")
        for reader, position in readers:
            reader.replace_input_with(position, new)


PASS = PassEntry("quantize-attentions", QuantizeAttentions, "Write both products of attentions on 8-bit integers")
