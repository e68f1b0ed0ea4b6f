"""Standard operators that have the type and shape of onnxruntime's own, so that ONNX can infer through them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir

from softq.graph.block_bodies import DOMAIN, LEAST_OPSET, POOLS, WIDTHS, fill, leave, resize
from softq.graph.bodies import conv_options, has_input, is_read, open_nodes, parse_body
from softq.graph.queries import constant_tensor
from softq.graph.view import ModelView

_DOMAIN = "com.microsoft"
_LEAST_OPSET = 13
"""From here on ReduceSum takes its axes as an input."""


def insert_stubs(model: ir.Model) -> None:
    """Replace the operators that are known here; their values mean nothing any more, their types and shapes do."""
    open_nodes(model, _body)
    for node in ModelView(model).nodes:
        if node.domain == DOMAIN and node.op_type in POOLS:
            node.domain = ""


def _body(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    if node.domain == DOMAIN:
        own = _IN_BLOCKS.get(node.op_type) if opset >= LEAST_OPSET else None
        lines = None if own is None else own(node, opset)
    else:
        make = _BODIES.get(node.op_type) if node.domain == _DOMAIN and opset >= _LEAST_OPSET else None
        lines = None if make is None else make(node)
    if lines is None:
        return None
    outputs = [f"o{place}" for place in range(len(node.outputs))]
    unknown = [place for place, name in enumerate(outputs) if not any(line.startswith(f"{name} =") for line in lines)]
    if any(is_read(node, place) for place in unknown):
        return None
    inputs = [f"i{place}" for place in range(len(node.inputs))]
    return parse_body(opset, inputs, outputs, [*lines, *(f"o{place} = Identity (o0)" for place in unknown)])


def _first(node: ir.Node) -> Sequence[str]:
    return ["o0 = Identity (i0)"]


def _sum(node: ir.Node) -> Sequence[str]:
    return ["o0 = Add (i0, i1)"] if has_input(node, 1) else _first(node)


def _skip(node: ir.Node) -> Sequence[str]:
    # The last of the four outputs is the sum that is normalised.
    return [*_sum(node), *(["o3 = Identity (o0)"] if is_read(node, 3) else [])]


def _embedding(node: ir.Node) -> Sequence[str]:
    # Inputs: input_ids, segment_ids, word_embedding, ...; outputs: the embedding, one int32 per sample, the sum.
    lines = ["o0 = Gather (i2, i0)", "middle = Constant <value: tensor = int64[1] {1}> ()"]
    lines += ["ids = Cast <to: int = 6> (i0)", "o1 = ReduceSum <keepdims: int = 0> (ids, middle)"]
    return [*lines, *(["o2 = Identity (o0)"] if is_read(node, 2) else [])]


def _attention(node: ir.Node) -> Sequence[str] | None:
    """Return lines for [batch, sequence, width of V] of an input [batch, sequence, width]."""
    sizes = node.attributes.get("qkv_hidden_sizes")
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    tensor = constant_tensor(weights)
    shape = tensor.shape if tensor is not None else None if weights is None else weights.shape
    columns = None if shape is None or len(shape) != 2 else shape[1]
    width = sizes.as_ints()[-1] if sizes is not None else columns // 3 if isinstance(columns, int) else None
    if width is None:
        return None
    numbers = {"first": 0, "last": width, "axis": 1}
    return [*_constants(numbers), "columns = Slice (i1, first, last, axis)", "o0 = MatMul (i0, columns)"]


def _multi_head_attention(node: ir.Node) -> Sequence[str] | None:
    """Return lines for [batch, queries, width of V] of query [batch, queries, ...] and value [batch, keys, width]."""
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None or value.shape is None or len(value.shape) != 3:
        return None
    return [
        *_constants({"a1": 1, "a2": 2}),
        "column = ReduceSum (i0, a2)",
        "row = ReduceSum (i2, a1)",
        "o0 = MatMul (column, row)",
    ]


def _fused_matmul(node: ir.Node) -> Sequence[str] | None:
    flags = {
        flag: bool(node.attributes.get_int(flag, 0)) for flag in ("transA", "transB", "transBatchA", "transBatchB")
    }
    if not any(flags.values()):
        return ["o0 = MatMul (i0, i1)"]
    # What stands last, and what is in front of it or, where the batch is transposed, of all axes.
    left = "ik"[:: -1 if flags["transA"] else 1]
    right = "kj"[:: -1 if flags["transB"] else 1]
    left = f"{left[0]}...{left[1]}" if flags["transBatchA"] else f"...{left}"
    right = f"{right[0]}...{right[1]}" if flags["transBatchB"] else f"...{right}"
    return [f'o0 = Einsum <equation: string = "{left},{right}->...ij"> (i0, i1)']


def _packed_matmul(node: ir.Node) -> Sequence[str]:
    """Return lines for [..., N] of [..., K], where the weights are packed."""
    inner, columns = node.attributes.get_int("K", 0), node.attributes.get_int("N", 0)
    lines = [f"shape = Constant <value: tensor = int64[2] {{{inner}, {columns}}}> ()"]
    return [*lines, "weights = ConstantOfShape (shape)", "typed = CastLike (weights, i0)", "o0 = MatMul (i0, typed)"]


def _grouped_attention(node: ir.Node) -> Sequence[str] | None:
    """Return lines for an output of the query's shape, or of the queries that stand beside keys and values in it."""
    if has_input(node, 1) and has_input(node, 2):
        return _first(node)
    query, heads = node.inputs[0], node.attributes.get_int("num_heads", 0)
    width = None if query is None or query.shape is None else query.shape[-1]
    parts = heads + 2 * node.attributes.get_int("kv_num_heads", 0)
    if not isinstance(width, int) or not heads:
        return None
    numbers = {"first": 0, "last": width // parts * heads, "axis": 2}
    return [*_constants(numbers), "o0 = Slice (i0, first, last, axis)"]


def _constants(numbers: Mapping[str, int]) -> list[str]:
    return [f"{name} = Constant <value: tensor = int64[1] {{{value}}}> ()" for name, value in numbers.items()]


def _convolution(node: ir.Node) -> Sequence[str]:
    return [f"o0 = Conv {conv_options(node)} (i0, i1)"]


def _into_blocks(node: ir.Node, opset: int) -> Sequence[str]:
    """Return lines for [batch, channels, ...], channels filled up to as many as a convolution behind it has."""
    for reader, place in node.outputs[0].uses():
        weights = reader.inputs[1] if reader.op_type == "Conv" and place == 0 else None
        count = None if weights is None or weights.shape is None else weights.shape[1]
        if isinstance(count, int):
            return fill(node, opset, "i0", max(WIDTHS) - 1, count * reader.attributes.get_int("group", 1), "o0")
    return fill(node, opset, "i0", 0, 0, "o0")


def _out_of_blocks(node: ir.Node, opset: int) -> Sequence[str]:
    return leave(node, opset, "i0", sys.maxsize, "o0")


_BODIES: Mapping[str, Callable[[ir.Node], Sequence[str] | None]] = {
    "Attention": _attention,
    "BiasGelu": _sum,
    "EmbedLayerNormalization": _embedding,
    "FastGelu": _first,
    "FusedConv": _convolution,
    "FusedMatMul": _fused_matmul,
    "Gelu": _first,
    "GroupQueryAttention": _grouped_attention,
    "MatMulNBits": _packed_matmul,
    "MultiHeadAttention": _multi_head_attention,
    "QuickGelu": _first,
    "RotaryEmbedding": _first,
    "SimplifiedLayerNormalization": _first,
    "SkipLayerNormalization": _skip,
    "SkipSimplifiedLayerNormalization": _skip,
}

_IN_BLOCKS: Mapping[str, Callable[[ir.Node, int], Sequence[str]]] = {
    "Conv": lambda node, opset: _convolution(node),
    "ReorderInput": _into_blocks,
    "ReorderOutput": _out_of_blocks,
    "Upsample": lambda node, opset: resize(node, opset, "i0", "o0"),
}
