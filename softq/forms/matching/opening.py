"""Writing a standard Softmax in the place of one that is written out, or inside a fused operator.

The body of a fused operator takes its place, and the softmax in it is found again by a mark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx
import onnx_ir as ir

from softq.errors import RefusalError
from softq.forms import Open
from softq.forms.matching.exponentials import Decomposed, Exponential, read_number
from softq.forms.matching.layout_ops import is_plain
from softq.graph.bodies import open_nodes
from softq.graph.edits import remove_if_unused, take_over
from softq.graph.facts import Facts, drop_inferred_names
from softq.graph.patterns import matches
from softq.graph.queries import node_label, operator_label
from softq.graph.ranks import Dims
from softq.graph.rewriter import Rewriter
from softq.graph.view import ModelView

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64

_MARK = "softq.opened"
"""Metadata key that leads from the Softmax of a body to the node that had the body; it goes when it was read."""

Body = Callable[[ir.Node, int, Facts], onnx.FunctionProto | None]
"""Returns what a node is short for in an operator set."""


class Opener:
    """Writes a softmax in front of one node and lets it take that node's place."""

    def __init__(self, rewriter: Rewriter, node: ir.Node) -> None:
        self._rewriter, self._facts, self._node = rewriter, rewriter.facts, node
        self._stem = node.outputs[0].name or node_label(node)

    def open(self, found: Decomposed, *, logarithm: bool) -> ir.Node:
        """Give every reader of the node the softmax, behind copies of the nodes that move it; return the softmax.

        Args:
            found: What the node is the last node of; what it alone kept alive goes.
            logarithm: Whether the result is the logarithm of the weights.
        """
        old = self._node.outputs[0]
        value = self._strike_out(self._scale(found), found.exponential)
        assert found.axes is not None, "a row of unknown axes is refused"
        if len(found.axes) != 1:
            softmax, value = self._write_over_several(value, found.axes)
        elif found.added:
            softmax, value = self._write_with_sink(value, found.axes[0], math.log(found.added))
        else:
            softmax, value = self._write(value, found.axes[0])
        if logarithm:
            value = self._add("Log", [value], "log", self._dtype(value), self._facts.shape(value))
        for moving in found.moved.path:
            value = self._copy(moving, value)
        wanted, got = self._facts.dtype(old), self._facts.dtype(value)
        if wanted is not None and got is not None and wanted != got:
            value = self._add("Cast", [value], "cast", wanted, self._facts.shape(value), to=int(wanted))
        softmax.name = self._node.name
        known = self._facts.shape(old)
        if old.shape is None and known is not None and wanted is not None:
            # Annotated, as inference may not see through the new nodes, and other forms are opened after this one.
            value.type, old.shape = ir.TensorType(wanted), ir.Shape(drop_inferred_names(known))
        take_over(old, value)
        remove_if_unused(self._node)
        return softmax

    def _scale(self, found: Decomposed) -> ir.Value:
        """Return the scores times the logarithm of the base of their exponentials."""
        factor = 1.0 if found.exponential is None else found.exponential.factor
        if factor == 1:
            return found.scores
        for product in matches(found.scores, "Mul(factor, x) | Mul(x, factor)"):
            other = read_number(product["factor"])
            # 2^(x * log2(e)): the two constants were rounded once each.
            near = other is not None and math.isclose(other * factor, 1.0, rel_tol=2.0**-22)
            if near and self._facts.shape(product["x"]) == self._facts.shape(found.scores):
                return product["x"]
        dtype, shape = self._dtype(found.scores), self._facts.shape(found.scores)
        return self._add("Mul", [found.scores, self._number(factor, dtype, "factor")], "scores", dtype, shape)

    def _strike_out(self, scores: ir.Value, exponential: Exponential | None) -> ir.Value:
        """Return the scores with -inf where their exponentials do not count."""
        if exponential is None or exponential.mask is None:
            return scores
        condition, dtype = exponential.mask, self._dtype(scores)
        own, other = self._facts.shape(scores), self._facts.shape(condition)
        if self._facts.dtype(condition) != _BOOL:
            condition = self._add("Cast", [condition], "counts", _BOOL, other, to=int(_BOOL))
        low = self._number(-math.inf, dtype, "minus_infinity")
        if exponential.keeps_nan:
            nan = self._add("IsNaN", [scores], "nan", _BOOL, own)
            condition = self._add("Or", [condition, nan], "counting", _BOOL, _broadcast(own, other))
        operands = [condition, scores, low] if exponential.counts_when else [condition, low, scores]
        return self._add("Where", operands, "masked", dtype, _broadcast(own, other))

    def _write(self, scores: ir.Value, axis: int, shape: Dims | None = None) -> tuple[ir.Node, ir.Value]:
        """Write a softmax over one axis of scores; return its node, and the weights."""
        shape = self._facts.shape(scores) if shape is None else shape
        weights = self._add("Softmax", [scores], "softmax", self._dtype(scores), shape, axis=axis)
        softmax = weights.producer()
        assert softmax is not None, "it was written just now"
        return softmax, weights

    def _write_with_sink(self, scores: ir.Value, axis: int, sink: float) -> tuple[ir.Node, ir.Value]:
        """Write a softmax of rows with one element more, of score `sink`, whose weight is dropped."""
        dtype, shape = self._dtype(scores), self._facts.shape(scores)
        rank = None if shape is None else len(shape)
        first, one, at = self._ints([0], "first"), self._ints([1], "one"), self._ints([axis], "axis")
        # The shape of the column: that of the scores, with 1 on the axis.
        whole = self._add("Shape", [scores], "shape", _INT64, (rank,))
        length = self._add("Gather", [whole, at], "length", _INT64, (1,))
        # ONNX below opset 18 does not mention negative indices here; they count from the end, as everywhere.
        column = self._add("ScatterElements", [whole, at, one], "column", _INT64, (rank,), axis=0)
        value = self._number(sink, dtype, "sink_score")
        narrow = None if shape is None else tuple(1 if i - len(shape) == axis else d for i, d in enumerate(shape))
        sinks = self._add("Expand", [value, column], "sink", dtype, narrow)
        wide = None if shape is None else tuple(
            (d + 1 if isinstance(d, int) else None) if i - len(shape) == axis else d for i, d in enumerate(shape)
        )  # fmt: skip
        longer = self._add("Concat", [scores, sinks], "with_sink", dtype, wide, axis=axis)
        softmax, weights = self._write(longer, axis, wide)
        return softmax, self._add("Slice", [weights, first, length, at], "without_sink", dtype, shape)

    def _write_over_several(self, scores: ir.Value, axes: tuple[int, ...]) -> tuple[ir.Node, ir.Value]:
        shape, dtype = self._facts.shape(scores), self._dtype(scores)
        assert shape is not None, "several axes are known only where the rank is"
        rank = len(shape)
        rest = [i for i in range(rank) if i - rank not in axes]
        order = [*rest, *(a + rank for a in axes)]
        turned, is_turned = tuple(shape[i] for i in order), order != list(range(rank))
        value = self._add("Transpose", [scores], "rows", dtype, turned, perm=order) if is_turned else scores
        whole = self._add("Shape", [value], "rows_shape", _INT64, (rank,))
        bounds = self._ints([0], "first"), self._ints([len(rest)], "cut")
        lead = self._add("Slice", [whole, *bounds], "lead", _INT64, (len(rest),))
        bounds = self._ints([len(rest)], "from"), self._ints([rank], "end")
        tail = self._add("Slice", [whole, *bounds], "tail", _INT64, (len(axes),))
        # Not -1: beside an axis of length 0 that could be anything.
        length = self._add("ReduceProd", [tail], "length", _INT64, (1,), keepdims=1)
        flat = self._add("Concat", [lead, length], "flat", _INT64, (len(rest) + 1,), axis=0)
        sizes = [size for a in axes if isinstance(size := shape[a], int)]
        flat_shape = (*turned[: len(rest)], math.prod(sizes) if len(sizes) == len(axes) else None)
        value = self._add("Reshape", [value, flat], "flat_scores", dtype, flat_shape, allowzero=1)
        softmax, value = self._write(value, -1, flat_shape)
        value = self._add("Reshape", [value, whole], "weights", dtype, turned, allowzero=1)
        back = [order.index(i) for i in range(rank)]
        return softmax, self._add("Transpose", [value], "back", dtype, shape, perm=back) if is_turned else value

    def _copy(self, node: ir.Node, value: ir.Value) -> ir.Value:
        dtype = self._facts.dtype(node.outputs[0]) if node.op_type == "Cast" else self._facts.dtype(value)
        shape = self._facts.shape(value) if is_plain((node,)) else self._facts.shape(node.outputs[0])
        copy = ir.Node("", node.op_type, [value, *node.inputs[1:]], [*node.attributes.values()])
        return self._rewriter.insert(self._node, copy, f"{self._stem}_{node.op_type.lower()}", dtype, shape)

    def _add(
        self,
        operator: str,
        inputs: Sequence[ir.Value],
        suffix: str,
        dtype: ir.DataType | None,
        shape: Dims | None,
        **attributes: int | Sequence[int],
    ) -> ir.Value:
        name = f"{self._stem}_{suffix}"
        return self._rewriter.add(self._node, operator, inputs, name, dtype, shape, "", **attributes)

    def _number(self, value: float, dtype: ir.DataType, suffix: str) -> ir.Value:
        return self._rewriter.add_number(self._node, value, dtype, f"{self._stem}_{suffix}")

    def _ints(self, values: Sequence[int], suffix: str) -> ir.Value:
        return self._rewriter.add_ints(self._node, values, f"{self._stem}_{suffix}")

    def _dtype(self, value: ir.Value) -> ir.DataType:
        dtype = self._facts.dtype(value)
        assert dtype is not None, "scores of unknown type are refused"
        return dtype


def _broadcast(first: Dims | None, second: Dims | None) -> Dims | None:
    """Return the shape of two operands together, with None where it is not known."""
    if first is None or second is None:
        return None
    rank = max(len(first), len(second))
    one, other = ((1,) * (rank - len(s)) + s for s in (first, second))
    return tuple(
        b if a == 1 else a if b in {1, a} else a if isinstance(a, int) else None
        for a, b in zip(one, other, strict=True)
    )


def make_body_opener(body_of: Body) -> Open:
    """Return what replaces operators that hold one softmax each by their bodies; see `Form.open`."""

    def open_all(model: ir.Model, nodes: Sequence[ir.Node]) -> list[ir.Node]:
        facts = Facts(ModelView(model))
        bodies = {node: body_of(node, facts.view.container_of(node).opset, facts) for node in nodes}
        for place, (node, body) in enumerate(bodies.items()):
            if body is None:
                raise RefusalError(f"node {node_label(node)}: there is no body for this {operator_label(node)}")
            softmax = next(inner for inner in body.node if inner.op_type == "Softmax")
            softmax.metadata_props.add(key=_MARK, value=str(place))
        open_nodes(model, lambda node, _: bodies.get(node))
        marked = {node.metadata_props.pop(_MARK, None): node for node in ModelView(model).nodes}
        return [marked[str(place)] for place in range(len(nodes))]

    return open_all
