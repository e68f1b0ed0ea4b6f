"""Compute queries, keys and values each by a product of its own, where a model computes them as one and splits them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import onnx_ir as ir

from softq.graph.edits import take_over
from softq.graph.patterns import matches
from softq.graph.queries import is_op
from softq.graph.view import Container
from softq.passes import NodePass, PassEntry

_PLAIN = "MatMul(left, weight)"
_PRODUCTS = f"{_PLAIN} | Add(product := {_PLAIN}, bias) | Add(bias, product := {_PLAIN})"


@dataclass(frozen=True)
class _Product:
    """A product with a constant matrix, perhaps with a constant vector added, whose columns are split.

    Attributes:
        nodes: What computes it, from the end on.
        left: What is multiplied.
        weight: The matrix.
        bias: The vector.
        bias_first: Whether the vector is the first term of the sum.
    """

    nodes: tuple[ir.Node, ...]
    left: ir.Value
    weight: ir.Value
    bias: ir.Value | None
    bias_first: bool


class SplitProducts(NodePass):
    """Replaces Split(x W + b) along the columns by a product for each part, if nothing else reads the product.

    The parts need no copy then, and what follows each of them can be computed with its product. Every column is
    computed as before. The matrix is cut when it is read; one that something else reads stays whole.
    """

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        product = None if container.function or container.path else _find_product(node)
        lengths = [_last_dim(out) for out in node.outputs]
        if product is None or not all(isinstance(length, int) and length > 0 for length in lengths):
            return False
        ends = [0, *accumulate(length for length in lengths if isinstance(length, int))]
        if ends[-1] != _last_dim(product.weight):
            return False
        for out, (start, end) in zip(node.outputs, pairwise(ends), strict=True):
            _write(container.graph, node, product, out, start, end)
        container.graph.remove([node, *product.nodes], safe=True)
        for value in (product.weight, product.bias):
            if value is not None and value.name is not None:
                del container.graph.initializers[value.name]
        return True


def _find_product(node: ir.Node) -> _Product | None:
    """Return the product whose columns a node splits, if it alone does."""
    source = node.inputs[0] if is_op(node, "Split") else None
    if source is None or source.shape is None or any(out.is_graph_output() for out in node.outputs):
        return None
    axis = node.attributes.get("axis")
    if (0 if axis is None else axis.as_int()) not in (-1, len(source.shape) - 1):
        return None
    for found in matches(source, _PRODUCTS):
        left, weight, bias = found["left"], found["weight"], found.get("bias")
        results = list(dict.fromkeys([source, found.get("product", source)]))
        if any(len(value.uses()) != 1 or value.is_graph_output() for value in results):
            return None
        if bias is not None and (not _is_weight(bias, 1) or _last_dim(bias) != _last_dim(weight)):
            continue
        if left.const_value is None and _is_weight(weight, 2):
            nodes = [reader for value in results if (reader := value.producer()) is not None]
            return _Product(tuple(nodes), left, weight, bias, bias is nodes[0].inputs[0])
    return None


def _is_weight(value: ir.Value | None, rank: int) -> bool:
    if value is None or value.const_value is None or not value.is_initializer():
        return False
    if value.is_graph_input() or value.is_graph_output() or len(value.uses()) != 1:
        return False
    return len(value.const_value.shape) == rank and value.const_value.dtype.bitwidth >= 8


def _last_dim(value: ir.Value) -> int | None:
    shape = value.shape if value.const_value is None else value.const_value.shape
    dims = [] if shape is None else list(shape)
    return dims[-1] if dims and isinstance(dims[-1], int) else None


def _write(graph: ir.Graph, node: ir.Node, product: _Product, out: ir.Value, start: int, end: int) -> None:
    name = out.name or "part"
    result = ir.node("MatMul", [product.left, _cut(graph, product.weight, f"{name}.weight", start, end)], name=name)
    nodes = [result]
    if product.bias is not None:
        inner = result.outputs[0]
        inner.name, inner.type, inner.shape = f"{name}.product", out.type, out.shape
        terms = [inner, _cut(graph, product.bias, f"{name}.bias", start, end)]
        nodes.append(ir.node("Add", terms[::-1] if product.bias_first else terms, name=f"{name}.sum"))
    graph.insert_before(node, nodes)
    new = nodes[-1].outputs[0]
    new.name, new.type = f"{name}.new", out.type
    new.metadata_props.update(out.metadata_props)
    take_over(out, new)


def _cut(graph: ir.Graph, value: ir.Value, name: str, start: int, end: int) -> ir.Value:
    """Return an initializer with some columns of another, which are cut when they are read."""
    tensor = value.const_value
    assert tensor is not None
    dims = [*tensor.shape.numpy()[:-1], end - start]

    def read() -> ir.TensorProtocol:
        return ir.Tensor(np.ascontiguousarray(tensor.numpy()[..., start:end]), dtype=tensor.dtype)

    part = ir.val(name, const_value=ir.LazyTensor(read, tensor.dtype, ir.Shape(dims), name=name))
    graph.register_initializer(part)
    return part


PASS = PassEntry("split-products", SplitProducts, "Compute the parts of a split product by products of their own")
