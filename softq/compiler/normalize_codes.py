"""LayerNormalization of dequantized codes from sums of integers, as an operator that ONNX does not have.

Neither a zero point nor a scale changes a normalization, but for its epsilon: with x = (q - z) s

    (x - mean x) / sqrt(var x + epsilon) = (q - mean q) / sqrt(var q + epsilon / s^2).

Of n codes with the sums S of them and T of their squares that is (n q - S) / sqrt(n T - S^2 + n^2 epsilon / s^2), whose
integers are exact. The sums are the same in any order, so that rows are equal to the bit whoever adds them up.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import constant, producer
from softq.graph.view import Container
from softq.passes import NodePass
from softq.passes.fold_constants import LIMIT, fold
from softq.passes.rewriting.quantization import read_quantization

DOMAIN, OPERATOR = "softq.compiler", "NormalizeCodes"
"""`NormalizeCodes(codes, scale, bias)` with `axis` and `epsilon` is LayerNormalization of codes, in float32; scale and
bias, which may be missing, have the shape of a row."""

LONGEST = 1 << 15
"""Codes of a row at most: n q - S is below 2^24, so that float32 has it exactly."""

_LEAST, _MOST = np.finfo(np.float32).tiny, np.finfo(np.float32).max


class NormalizeCodes(NodePass):
    """Replaces LayerNormalization(DequantizeLinear(q)) by the normalization of q, of 8 bits with one constant scale."""

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        return node.op_type == "LayerNormalization" and container.function is None and _replace(node, container)


def _replace(node: ir.Node, container: Container) -> bool:
    source, result, graph = producer(node.inputs[0], "DequantizeLinear"), node.outputs[0], container.graph
    known = None if source is None else read_quantization(source)
    if source is None or known is None or known.scale.size > 1 or node.attributes.get_int("stash_type", 1) != 1:
        return False
    codes = source.inputs[0]
    if codes is None or codes.shape is None or any(map(_is_used, node.outputs[1:])):
        return False
    rank = len(codes.shape)
    axis = node.attributes.get_int("axis", -1) % rank
    sizes = [size for size in codes.shape[axis:] if isinstance(size, int)]
    epsilon = np.float64(node.attributes.get_float("epsilon", 1e-5)) / np.float64(known.scale) ** 2
    if len(sizes) != rank - axis or not 0 < (count := math.prod(sizes)) <= LONGEST:
        return False
    if not all(_is_float(value) and value.shape == ir.Shape(sizes) for value in node.inputs[1:] if value is not None):
        return False
    if not _is_float(result) or not _LEAST <= epsilon * count**2 <= _MOST:
        return False
    # As many numbers as a row has are cheap as floats; dequantized they would be anew for each row.
    for value in node.inputs[1:]:
        if (decode := producer(value, "DequantizeLinear")) is not None and constant(decode.inputs[0]) is not None:
            fold(decode, container, LIMIT)
    base = result.name or node.name or "normalized"
    made = ir.val(f"{base}.normalized", ir.DataType.FLOAT, result.shape, metadata_props=dict(result.metadata_props))
    attributes = [ir.AttrInt64("axis", axis), ir.AttrFloat32("epsilon", float(epsilon))]
    new = ir.Node(DOMAIN, OPERATOR, [codes, *node.inputs[1:]], attributes, outputs=[made], name=f"{base}.normalize")
    graph.insert_before(node, [new])
    graph.opset_imports[DOMAIN] = 1
    take_over(result, made)
    remove_if_unused(node)
    return True


def _is_float(value: ir.Value) -> bool:
    return value.dtype is ir.DataType.FLOAT


def _is_used(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()
