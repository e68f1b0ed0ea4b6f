"""Standard operators that have the type and shape of onnxruntime's own, so that ONNX can infer through them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir

from softq.graph.bodies import conv_options, has_input, is_read, open_nodes, parse_body, pool_options
from softq.graph.queries import constant_tensor
from softq.graph.signatures import find_signature

_DOMAIN = "com.microsoft"
_LEAST_OPSET = 13
"""From here on ReduceSum takes its axes as an input."""


def insert_stubs(model: ir.Model) -> None:
    """Replace the operators that are known here; their values mean nothing any more, their types and shapes do."""
    open_nodes(model, _body)


def _body(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    make = _BODIES.get(node.op_type, _read_types) if node.domain == _DOMAIN else _read_types
    lines = None if opset < _LEAST_OPSET else make(node)
    if lines is None:
        return None
    outputs = [f"o{place}" for place in range(len(node.outputs))]
    unknown = [place for place, name in enumerate(outputs) if not any(line.startswith(f"{name} =") for line in lines)]
    if any(is_read(node, place) for place in unknown):
        return None
    inputs = [f"i{place}" for place in range(len(node.inputs))]
    return parse_body(opset, inputs, outputs, [*lines, *(f"o{place} = Identity (o0)" for place in unknown)])


def _read_types(node: ir.Node) -> Sequence[str] | None:
    """Return the lines that the table of signatures has."""
    signature = find_signature(node.domain, node.op_type, _LEAST_OPSET)
    if signature is None or not signature.types:
        return None
    numbers = {name: node.attributes.get_int(name, 0) for name in re.findall(r"{(\w+)}", signature.types)}
    return signature.types.format(**numbers).split("; ")


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


def _grouped_attention(node: ir.Node) -> Sequence[str] | None:
    """Return lines for an output of the query's shape, or of the queries that stand beside keys and values in it."""
    if has_input(node, 1) and has_input(node, 2):
        return ["o0 = Identity (i0)"]
    query, heads = node.inputs[0], node.attributes.get_int("num_heads", 0)
    width = None if query is None or query.shape is None else query.shape[-1]
    parts = heads + 2 * node.attributes.get_int("kv_num_heads", 0)
    if not isinstance(width, int) or not heads:
        return None
    numbers = {"first": 0, "last": width // parts * heads, "axis": 2}
    return [*_constants(numbers), "o0 = Slice (i0, first, last, axis)"]


def _quantized_gemm(node: ir.Node) -> Sequence[str]:
    turned = ", ".join(f"{name}: int = {node.attributes.get_int(name, 0)}" for name in ("transA", "transB"))
    lines = ["a = CastLike (i0, i1)", "b = CastLike (i3, i1)", f"product = Gemm <{turned}> (a, b)"]
    return [*lines, "o0 = CastLike (product, i8)" if has_input(node, 8) else "o0 = Identity (product)"]


def _pool(node: ir.Node, operator: str, channels_last: bool = False) -> Sequence[str] | None:
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    options = "" if operator.startswith("Global") else pool_options(node)
    if not channels_last and not node.attributes.get_int("channels_last", 0):
        return [f"o0 = {operator} {options} (i0)"]
    rank = None if shape is None else len(shape)
    front, back = ([0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]) if rank else ([], [])
    turned = [f"front = Transpose <perm: ints = {front}> (i0)", f"pooled = {operator} {options} (front)"]
    return [*turned, f"o0 = Transpose <perm: ints = {back}> (pooled)"] if rank else None


def _concat(node: ir.Node) -> Sequence[str]:
    parts = ", ".join(f"i{place}" for place in range(2, len(node.inputs), 3))
    return [f"o0 = Concat <axis: int = {node.attributes.get_int('axis', 0)}> ({parts})"]


def _mean(node: ir.Node) -> Sequence[str]:
    axes = node.attributes.get_ints("axes", ())
    numbers = f"int64[{len(axes)}] {{{', '.join(map(str, axes))}}}"
    lines = [f"axes = Constant <value: tensor = {numbers}> ()"]
    return [*lines, f"o0 = ReduceSum <keepdims: int = {node.attributes.get_int('keepdims', 1)}> (i0, axes)"]


def _recurrence(node: ir.Node) -> Sequence[str]:
    hidden, direction = node.attributes.get_int("hidden_size", 0), node.attributes.get_string("direction", "forward")
    options = f'hidden_size: int = {hidden}, direction: string = "{direction}"'
    return [f"y, h, c = LSTM <{options}> (i0, i0, i0)", "o0 = Identity (y)", "o1 = Identity (h)", "o2 = Identity (c)"]


def _constants(numbers: Mapping[str, int]) -> list[str]:
    return [f"{name} = Constant <value: tensor = int64[1] {{{value}}}> ()" for name, value in numbers.items()]


def _convolution(node: ir.Node) -> Sequence[str]:
    return [f"o0 = Conv {conv_options(node)} (i0, i1)"]


_BODIES: Mapping[str, Callable[[ir.Node], Sequence[str] | None]] = {
    "Attention": _attention,
    "DynamicQuantizeLSTM": _recurrence,
    "FusedConv": _convolution,
    "FusedMatMul": _fused_matmul,
    "GroupQueryAttention": _grouped_attention,
    "MultiHeadAttention": _multi_head_attention,
    "NhwcMaxPool": lambda node: _pool(node, "MaxPool", channels_last=True),
    "QGemm": _quantized_gemm,
    "QLinearAveragePool": lambda node: _pool(node, "MaxPool"),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": lambda node: _pool(node, "GlobalMaxPool"),
    "QLinearReduceMean": _mean,
    "QuantizeLinear": lambda node: ["o0 = CastLike (i0, i2)" if has_input(node, 2) else "o0 = Cast <to: int = 2> (i0)"],
}
