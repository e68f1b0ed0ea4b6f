"""The rank of a value where shape inference gives up, as it does behind a Reshape to a computed shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from softq.graph.queries import is_op, operand, subgraphs

Dims = tuple[int | str | None, ...]

_ELEMENTWISE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mod", "Where", "And", "Or", "Xor", "Equal", "Greater", "Less"}
    | {"GreaterOrEqual", "LessOrEqual", "Identity", "Cast", "Dropout", "Neg", "Not", "Sqrt", "Exp", "Tanh", "Clip"}
    | {"Softmax", "LogSoftmax", "Slice", "Trilu", "IsNaN", "Erf", "Sigmoid", "Relu", "Log", "Reciprocal", "Abs"}
)
_FIRST_ONLY = frozenset(
    {"Slice", "Trilu", "Clip", "Dropout", "Softmax", "LogSoftmax", "Concat", "Split", "Pad", "Tile", "Resize", "CumSum"}
    | {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization", "LeakyRelu", "Elu"}
    | {"InstanceNormalization", "LayerNormalization", "Gelu", "HardSigmoid", "HardSwish", "QuantizeLinear", "PRelu"}
    | {"DequantizeLinear", "SimplifiedLayerNormalization", "Softplus", "Sin", "Cos", "Floor", "Ceil", "Round"}
)
"""Operators whose result has as many axes as their first operand."""

_MICROSOFT = frozenset(
    {"BiasGelu", "FastGelu", "FusedConv", "FusedMatMul", "Gelu", "QuickGelu", "QuantizeLinear", "DequantizeLinear"}
    | {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "RotaryEmbedding"}
)
"""Operators of `com.microsoft` that onnxruntime puts between those of ONNX."""


def find_rank(
    value: ir.Value, known: Callable[[ir.Value], Dims | None], memo: dict[ir.Value, int | None], depth: int = 64
) -> int | None:
    """Return the rank of `value` as the operators up to `depth` above it prove it, or None.

    Args:
        value: The value in question.
        known: Gives the shapes that need no proof.
        memo: Ranks found before; the new ones are added.
        depth: How many nodes to look up.
    """
    if value in memo:
        return memo[value]
    shape = known(value)
    rank = None if shape is None else len(shape)
    node = value.producer()
    if rank is None and is_op(node, "If", "Loop") and depth > 0:
        memo[value] = None
        ranks = {find_rank(v, known, memo, depth - 1) for v in _sources(node, value.index() or 0)}
        rank = ranks.pop() if len(ranks) == 1 else None
    elif rank is None and node is not None and _is_known(node) and depth > 0 and _is_first(value, node):
        memo[value] = None
        ranks = {v: find_rank(v, known, memo, depth - 1) for v in node.inputs if v is not None}
        rank = _rank_of(node, ranks, known)
    memo[value] = rank
    return rank


def _is_first(value: ir.Value, node: ir.Node) -> bool:
    """Say whether what is known of an operator's first result holds for a value."""
    return value is node.outputs[0] or node.op_type == "Split"


def _is_known(node: ir.Node) -> bool:
    return not node.domain or (node.domain == "com.microsoft" and node.op_type in _MICROSOFT)


def _sources(node: ir.Node | None, index: int) -> list[ir.Value]:
    """Return the values that an output of an If, or one that a Loop carries, can be."""
    assert node is not None, "the caller has an If or a Loop"
    bodies = [graph for _, graph in subgraphs(node)]
    if node.op_type == "If":
        return [body.outputs[index] for body in bodies if index < len(body.outputs)]
    # What a Loop collects has one axis more than the body's output.
    before = operand(node, 2 + index)
    return [] if before is None or index + 1 >= len(bodies[0].outputs) else [before, bodies[0].outputs[index + 1]]


def _rank_of(
    node: ir.Node, ranks: Mapping[ir.Value, int | None], known: Callable[[ir.Value], Dims | None]
) -> int | None:
    first = operand(node, 0)
    mine = None if first is None else ranks[first]
    if is_op(node, "Transpose"):
        perm = node.attributes.get("perm")
        return mine if perm is None or perm.is_ref() else len(perm.as_ints())
    if is_op(node, "Flatten", "Gemm"):
        return 2
    if is_op(node, "Squeeze", "Unsqueeze"):
        count = _count_axes(node, known)
        return None if mine is None or count is None else mine + (count if node.op_type == "Unsqueeze" else -count)
    if is_op(node, "Gather"):
        indices = operand(node, 1)
        theirs = None if indices is None else ranks[indices]
        return None if mine is None or theirs is None else mine - 1 + theirs
    if is_op(node, "Reshape", "Expand"):
        numbers = operand(node, 1)
        dims = None if numbers is None else known(numbers)
        target = dims[0] if dims is not None and len(dims) == 1 and isinstance(dims[0], int) else None
        if node.op_type == "Reshape":
            return target
        return None if target is None or mine is None else max(target, mine)
    if is_op(node, "MatMul") or node.op_type == "FusedMatMul":
        both = [rank for v in node.inputs if v is not None and (rank := ranks[v]) is not None]
        return max(both) if len(both) == 2 and min(both) >= 2 else None
    if node.op_type in _FIRST_ONLY or node.domain:
        return mine
    if node.op_type.startswith("Reduce"):
        keeps = node.attributes.get("keepdims")
        if keeps is None or (not keeps.is_ref() and keeps.as_int() == 1):
            return mine
        count = None if keeps.is_ref() else _count_axes(node, known)
        return None if mine is None or not count else mine - count
    if node.op_type in _ELEMENTWISE:
        found = [ranks[v] for v in node.inputs if v is not None]
        return max(r for r in found if r is not None) if found and None not in found else None
    return None


def _count_axes(node: ir.Node, known: Callable[[ir.Value], Dims | None]) -> int | None:
    """Return how many axes an operator names, in an attribute or in its second operand; None if that is not known."""
    axes = node.attributes.get("axes")
    if axes is not None:
        return None if axes.is_ref() else len(axes.as_ints())
    given = operand(node, 1)
    dims = None if given is None else known(given)
    return dims[0] if dims is not None and len(dims) == 1 and isinstance(dims[0], int) else None
