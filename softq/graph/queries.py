"""Questions about one node or one value: which operator, which operands, whether it is constant, and its name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from softq.modelfile.tensors import tensor_of

SAME_VALUES = frozenset({"Identity", "Cast", "CastLike", "Dropout"})
"""Operators that hand every element on where it is (`Dropout` only at inference: ask `is_passthrough`)."""

MOVES_ONLY = frozenset(
    {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Slice", "Gather", "Tile", "Split", "Concat"}
)
"""Operators whose result holds elements of their operands and nothing else."""

ANY_TYPE = MOVES_ONLY | {"Identity", "Shape", "Size", "If", "Loop", "Scan"}
"""Operators that do not care what elements are: moves, what gives sizes, and what runs bodies."""

_SAME_AS_ONNX = frozenset({("com.microsoft", "QuantizeLinear"), ("com.microsoft", "DequantizeLinear")})
"""Operators of onnxruntime's domain that equal those of ONNX, and take 16 bits in every operator set."""

_MOST = 256
"""Nodes above a constant that are looked at."""

_FEW = 64
"""Elements at most of a small constant."""

CONSTANT_LIMIT = 1 << 26
"""Bytes of the largest constant that is read to learn what its elements are: a causal mask of 4096 x 4096 floats."""


def subgraphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """Yield the graphs among a node's attributes with the attribute's name."""
    # The dictionary itself: this is asked of every node again and again.
    for name, attribute in node.attributes.data.items():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield name, attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            for index, graph in enumerate(attribute.as_graphs()):
                yield f"{name}[{index}]", graph


def operator_label(node: ir.Node) -> str:
    """Return the operator's name, with its domain if that is not the default one."""
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def node_label(node: ir.Node, index: int | None = None) -> str:
    """Return what a node is called in messages and paths: its name, else its first output, else `operator#index`."""
    if node.name:
        return node.name
    for output in node.outputs:
        if output.name:
            return output.name
    return f"{operator_label(node)}#{list(graph_of(node)).index(node) if index is None else index}"


def full_label(node: ir.Node) -> str:
    """Return the operator and the label of a node, as sentences name it: `Add of node sum`."""
    return f"{operator_label(node)} of node {node_label(node)}"


def unique_path(path: tuple[str, ...], taken: set[tuple[str, ...]]) -> tuple[str, ...]:
    """Return a path that is not taken, with a number if need be, and take it."""
    candidate, count = path, 1
    while candidate in taken:
        count += 1
        candidate = (*path[:-1], f"{path[-1]}#{count}")
    taken.add(candidate)
    return candidate


def graph_of(node: ir.Node) -> ir.Graph | ir.Function:
    """Return the graph of a node of a model."""
    assert node.graph is not None, "a node of a model belongs to a graph"
    return node.graph


def has_references(node: ir.Node) -> bool:
    """Return whether attributes of `node` are those of the function that holds it."""
    return any(attribute.is_ref() for attribute in node.attributes.values())


def comes_before(node: ir.Node, other: ir.Node) -> bool:
    """Return whether `node` comes before `other` in the same graph."""
    if node.graph is None or node.graph is not other.graph:
        return False
    return next(n for n in node.graph if n is node or n is other) is node


def is_op(node: ir.Node | None, *names: str) -> bool:
    """Return whether `node` is one of the named operators of the default domain, or one of `_SAME_AS_ONNX`."""
    if node is None or node.op_type not in names:
        return False
    return node.domain == "" or (node.domain, node.op_type) in _SAME_AS_ONNX


def producer(value: ir.Value | None, *names: str) -> ir.Node | None:
    """Return the node behind `value` if it is one of the named operators of the default domain."""
    node = None if value is None else value.producer()
    return node if is_op(node, *names) else None


def operand(node: ir.Node, index: int) -> ir.Value | None:
    """Return an input of `node`, None where it is absent."""
    if index >= len(node.inputs):
        return None
    value = node.inputs[index]
    return value if value is not None and (value.name != "" or value.producer() is not None) else None


def chain_above(value: ir.Value | None, *names: str) -> Iterator[ir.Value]:
    """Yield `value` and, while it comes from one of the named operators (any, without names), their first operands."""
    while value is not None:
        yield value
        node = value.producer()
        goes_on = node is not None and node.domain == "" and (not names or node.op_type in names)
        value = operand(node, 0) if node is not None and goes_on else None


def top_above(value: ir.Value | None, *names: str) -> ir.Value | None:
    """Return the last value of `chain_above`."""
    *_, top = None, *chain_above(value, *names)
    return top


def walk_above(value: ir.Value, enters: Callable[[ir.Node], bool], most: int) -> Iterator[ir.Value]:
    """Yield `value` and what it is computed from, the nearest first.

    Args:
        value: Where to begin.
        enters: Whether to go on above a node.
        most: How many values are enough.
    """
    found = {value}
    waiting = deque(found)
    yield value
    while waiting and len(found) < most:
        node = waiting.popleft().producer()
        for above in () if node is None or not enters(node) else node.inputs:
            if above is not None and above not in found:
                found.add(above)
                waiting.append(above)
                yield above


def cast_target(node: ir.Node) -> ir.DataType | None:
    """Return the type that a Cast of the default domain casts to; None for others, and where a function says it."""
    to = node.attributes.get("to") if is_op(node, "Cast") else None
    return None if to is None or to.is_ref() else ir.DataType(to.as_int())


def is_float_cast(node: ir.Node) -> bool:
    """Return whether `node` is a Cast to a float type."""
    target = cast_target(node)
    return target is not None and target.is_floating_point()


def is_passthrough(node: ir.Node | None, opset: int) -> bool:
    """Return whether `node` hands its first input on: Identity, or Dropout at inference whose mask is unused."""
    if node is None or not is_op(node, "Identity", "Dropout"):
        return False
    if node.op_type == "Identity":
        return True
    if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
        return False
    if opset < 7:
        # Versions 1 and 6 train unless told otherwise.
        is_test = node.attributes.get("is_test")
        return is_test is not None and not is_test.is_ref() and is_test.as_int() != 0
    training = operand(node, 2)
    if training is None:
        return True
    value = constant(training)
    return value is not None and value.size == 1 and not bool(value.reshape(-1)[0])


def constant(value: ir.Value | None, limit: int = CONSTANT_LIMIT) -> np.ndarray | None:
    """Return the elements of an initializer or of a `Constant` node of at most `limit` bytes, else None.

    An initializer that is also an input of its graph is a default that a caller may override, so it is no constant.
    """
    tensor = constant_tensor(value)
    if tensor is None or tensor.nbytes > limit or tensor.dtype == ir.DataType.STRING:
        return None
    return tensor.numpy()


def constant_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer that is no input, or of a `Constant` node, else None."""
    if value is None or value.is_graph_input():
        return None
    node = value.producer()
    if node is not None and (not is_op(node, "Constant") or has_references(node)):
        return None
    if node is not None and "sparse_value" in node.attributes:
        return None
    if node is not None and "value" in node.attributes:
        # `get_const_tensor` would rename the tensor, which may be that of a model which softq was lent.
        return tensor_of(node.attributes["value"])
    return ir.convenience.get_const_tensor(value)


def is_small(value: ir.Value) -> bool:
    """Return whether `value` is a constant of few elements: a scale, a fill value or a shape, and no mask."""
    tensor = constant_tensor(value)
    return tensor is not None and tensor.size <= _FEW


def is_constant(value: ir.Value | None, depth: int = 8) -> bool:
    """Return whether `value` is computed from constants alone, looking at most `depth` nodes up, at `_MOST` in all."""
    if value is None:
        return False
    waiting, seen = deque([(value, depth)]), {value}
    while waiting:
        above, left = waiting.popleft()
        if above.is_initializer():
            # Also as an input, which can be overridden: files before IR version 4 list every weight as one.
            continue
        node = above.producer()
        if node is None or any(True for _ in subgraphs(node)):
            return False
        if is_op(node, "Constant"):
            continue
        if node.op_type.startswith("Random") or node.op_type in {"Bernoulli", "Multinomial"}:
            return False
        inputs = {v for v in node.inputs if v is not None}
        if not inputs or left == 0 or len(seen) > _MOST:
            return False
        # Breadth first: a value is seen where most of the way up is left.
        new = inputs - seen
        seen |= new
        waiting += ((v, left - 1) for v in new)
    return True
