"""Writing a standard Softmax in the place of what a form recognised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from softq.forms.matching.exponentials import number
from softq.forms.matching.facts import Facts, named
from softq.forms.matching.layout_ops import is_plain
from softq.forms.matching.ranks import Dims
from softq.graph.edits import remove_if_unused, take_over
from softq.graph.names import Names
from softq.graph.queries import ModelView, node_label, operand, producer

Attributes = Mapping[str, int | float | Sequence[int] | str | ir.TensorProtocol]


@dataclass(frozen=True, eq=False)
class Row:
    """What the softmax to be written is of.

    Attributes:
        scores: The scores.
        axes: The axes of a row, counted from the end.
        factor: What the scores are multiplied by first.
        mask: Scores count where this (boolean, or a number that is 0 or 1) is `counts_when`; None if all do.
        counts_when: See `mask`.
        keeps_nan: Whether a score that is NaN counts in any case.
        sink: The score of one more element of each row, which takes a part of the weight and is dropped; None if none.
    """

    scores: ir.Value
    axes: tuple[int, ...]
    factor: float = 1.0
    mask: ir.Value | None = None
    counts_when: bool = True
    keeps_nan: bool = False
    sink: float | None = None


class Opener:
    """Writes softmaxes into one model."""

    def __init__(self, model: ir.Model) -> None:
        self.facts = Facts(ModelView(model))
        self._names = Names(model)
        self._pending: list[ir.Node] = []

    def open(self, node: ir.Node, row: Row, path: Sequence[ir.Node], logarithm: bool = False) -> ir.Node:
        """Give every reader of `node` the softmax of `row`, behind copies of the nodes on `path`; return the softmax.

        Args:
            node: The last node of what is replaced; what it alone kept alive goes.
            row: The row.
            path: What moves the weights from the layout of the row to that of the result.
            logarithm: Whether the result is the logarithm of the weights.
        """
        old = node.outputs[0]
        stem = old.name or node_label(node)
        softmax, value = self._softmax(row, stem)
        if logarithm:
            value = self._like("Log", [value], value, f"{stem}_log")
        for moving in path:
            value = self._copy(moving, value, stem)
        wanted, got = self.facts.dtype(old), self.facts.dtype(value)
        if wanted is not None and got is not None and wanted != got:
            value = self._node("Cast", [value], {"to": int(wanted)}, wanted, self.facts.shape(value), f"{stem}_cast")
        assert node.graph is not None, "a node of a model belongs to a graph"
        softmax.name = node.name
        node.graph.insert_before(node, self._pending)
        self._pending = []
        known = self.facts.shape(old)
        if old.shape is None and known is not None and wanted is not None:
            # What is written now, inference may see through no longer, and other forms are still to be opened.
            value.type, old.shape = ir.TensorType(wanted), ir.Shape(named(known))
        take_over(old, value)
        remove_if_unused(node)
        return softmax

    def _softmax(self, row: Row, stem: str) -> tuple[ir.Node, ir.Value]:
        """Append a softmax over the axes of `row`; return its node, and the weights in the layout of the scores."""
        scores = self._scaled(row, stem)
        if row.mask is not None:
            scores = self._masked(scores, row, row.mask, stem)
        if row.axes == (-1,) or len(row.axes) == 1:
            axis = row.axes[0]
            if row.sink is None:
                value = self._like("Softmax", [scores], scores, f"{stem}_softmax", {"axis": axis})
                return self._pending[-1], value
            return self._with_sink(scores, axis, row.sink, stem)
        return self._over_several(scores, row.axes, stem)

    def _scaled(self, row: Row, stem: str) -> ir.Value:
        if row.factor == 1:
            return row.scores
        product = producer(row.scores, "Mul")
        for index in (0, 1) if product is not None else ():
            assert product is not None
            factor, other = number(operand(product, index)), operand(product, 1 - index)
            # 2^(x * log2(e)): the two constants were rounded once each.
            near = factor is not None and math.isclose(factor * row.factor, 1.0, rel_tol=2.0**-22)
            if near and other is not None and self.facts.shape(other) == self.facts.shape(row.scores):
                return other
        factor = self._constant(row.factor, self._dtype(row.scores), f"{stem}_factor")
        return self._like("Mul", [row.scores, factor], row.scores, f"{stem}_scores")

    def _masked(self, scores: ir.Value, row: Row, mask: ir.Value, stem: str) -> ir.Value:
        condition = mask
        if self.facts.dtype(mask) != ir.DataType.BOOL:
            condition = self._node(
                "Cast",
                [mask],
                {"to": int(ir.DataType.BOOL)},
                ir.DataType.BOOL,
                self.facts.shape(mask),
                f"{stem}_counts",
            )
        low = self._constant(-math.inf, self._dtype(scores), f"{stem}_minus_infinity")
        mine, other = self.facts.shape(scores), self.facts.shape(mask)
        if row.keeps_nan:
            boolean = ir.DataType.BOOL
            nan = self._node("IsNaN", [scores], {}, boolean, mine, f"{stem}_nan")
            condition = self._node("Or", [condition, nan], {}, boolean, _broadcast(mine, other), f"{stem}_counting")
        operands = [condition, scores, low] if row.counts_when else [condition, low, scores]
        return self._node("Where", operands, {}, self._dtype(scores), _broadcast(mine, other), f"{stem}_masked")

    def _with_sink(self, scores: ir.Value, axis: int, sink: float, stem: str) -> tuple[ir.Node, ir.Value]:
        """Give each row one element more, and drop its weight."""
        dtype, shape = self._dtype(scores), self.facts.shape(scores)
        rank = None if shape is None else len(shape)
        place = [axis]
        first = self._ints([0], f"{stem}_first")
        one, at = self._ints([1], f"{stem}_one"), self._ints(place, f"{stem}_axis")
        # The shape of the column: that of the scores, with 1 on the axis.
        whole = self._node("Shape", [scores], {}, ir.DataType.INT64, (rank,), f"{stem}_shape")
        length = self._node("Gather", [whole, at], {}, ir.DataType.INT64, (1,), f"{stem}_length")
        # Below opset 18 a scatter by negative index is not told; it counts from the end as everywhere.
        column = self._node(
            "ScatterElements", [whole, at, one], {"axis": 0}, ir.DataType.INT64, (rank,), f"{stem}_column"
        )
        value = self._constant(sink, dtype, f"{stem}_sink_score")
        narrow = None if shape is None else tuple(1 if i - len(shape) == axis else d for i, d in enumerate(shape))
        sinks = self._node("Expand", [value, column], {}, dtype, narrow, f"{stem}_sink")
        wide = None if shape is None else tuple(
            (d + 1 if isinstance(d, int) else None) if i - len(shape) == axis else d for i, d in enumerate(shape)
        )  # fmt: skip
        longer = self._node("Concat", [scores, sinks], {"axis": axis}, dtype, wide, f"{stem}_with_sink")
        weights = self._node("Softmax", [longer], {"axis": axis}, dtype, wide, f"{stem}_softmax")
        softmax = self._pending[-1]
        kept = self._node("Slice", [weights, first, length, at], {}, dtype, shape, f"{stem}_without_sink")
        return softmax, kept

    def _over_several(self, scores: ir.Value, axes: tuple[int, ...], stem: str) -> tuple[ir.Node, ir.Value]:
        """Lay several axes into one row and back."""
        shape, dtype = self.facts.shape(scores), self._dtype(scores)
        assert shape is not None, "several axes are known only where the rank is"
        rank = len(shape)
        rest = [i for i in range(rank) if i - rank not in axes]
        order = [*rest, *(a + rank for a in axes)]
        value = scores
        turned = tuple(shape[i] for i in order)
        if order != list(range(rank)):
            value = self._node("Transpose", [value], {"perm": order}, dtype, turned, f"{stem}_rows")
        whole = self._node("Shape", [value], {}, ir.DataType.INT64, (rank,), f"{stem}_rows_shape")
        lead = self._node(
            "Slice",
            [whole, self._ints([0], f"{stem}_first"), self._ints([len(rest)], f"{stem}_cut")],
            {}, ir.DataType.INT64, (len(rest),), f"{stem}_lead",
        )  # fmt: skip
        tail = self._node(
            "Slice",
            [whole, self._ints([len(rest)], f"{stem}_from"), self._ints([rank], f"{stem}_end")],
            {}, ir.DataType.INT64, (len(axes),), f"{stem}_tail",
        )  # fmt: skip
        # Not -1: beside an axis of length 0 that could be anything.
        length = self._node("ReduceProd", [tail], {"keepdims": 1}, ir.DataType.INT64, (1,), f"{stem}_length")
        flat = self._node("Concat", [lead, length], {"axis": 0}, ir.DataType.INT64, (len(rest) + 1,), f"{stem}_flat")
        sizes = [shape[a] for a in axes]
        known = math.prod(d for d in sizes if isinstance(d, int)) if all(isinstance(d, int) for d in sizes) else None
        flat_shape = (*(shape[i] for i in rest), known)
        value = self._node("Reshape", [value, flat], {"allowzero": 1}, dtype, flat_shape, f"{stem}_flat_scores")
        value = self._node("Softmax", [value], {"axis": -1}, dtype, flat_shape, f"{stem}_softmax")
        softmax = self._pending[-1]
        value = self._node("Reshape", [value, whole], {"allowzero": 1}, dtype, turned, f"{stem}_weights")
        if order != list(range(rank)):
            back = [order.index(i) for i in range(rank)]
            value = self._node("Transpose", [value], {"perm": back}, dtype, shape, f"{stem}_back")
        return softmax, value

    def _copy(self, node: ir.Node, value: ir.Value, stem: str) -> ir.Value:
        """Append a copy of a node that moves, with another first operand."""
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        dtype = self.facts.dtype(node.outputs[0]) if node.op_type == "Cast" else self.facts.dtype(value)
        shape = self.facts.shape(value) if is_plain((node,)) else self.facts.shape(node.outputs[0])
        kept = ir.Node("", node.op_type, [value, *node.inputs[1:]], [*node.attributes.values()])
        del attributes
        return self._append(kept, dtype, shape, f"{stem}_{node.op_type.lower()}")

    def _like(
        self, operator: str, inputs: Sequence[ir.Value], like: ir.Value, stem: str, attributes: Attributes | None = None
    ) -> ir.Value:
        return self._node(operator, inputs, attributes or {}, self._dtype(like), self.facts.shape(like), stem)

    def _node(
        self,
        operator: str,
        inputs: Sequence[ir.Value],
        attributes: Attributes,
        dtype: ir.DataType | None,
        shape: Dims | None,
        stem: str,
    ) -> ir.Value:
        return self._append(ir.node(operator, inputs, dict(attributes)), dtype, shape, stem)

    def _append(self, node: ir.Node, dtype: ir.DataType | None, shape: Dims | None, stem: str) -> ir.Value:
        value = node.outputs[0]
        value.name = self._names.fresh(stem)
        node.name = value.name
        if dtype is not None:
            value.type = ir.TensorType(dtype)
            value.shape = None if shape is None else ir.Shape(named(shape))
        self._pending.append(node)
        return value

    def _constant(self, value: float, dtype: ir.DataType, stem: str) -> ir.Value:
        array = np.array(value, dtype=dtype.numpy())
        return self._node("Constant", [], {"value": ir.Tensor(array, dtype=dtype)}, dtype, (), stem)

    def _ints(self, values: Sequence[int], stem: str) -> ir.Value:
        array = np.array(values, dtype=np.int64)
        return self._node("Constant", [], {"value": ir.tensor(array)}, ir.DataType.INT64, (len(values),), stem)

    def _dtype(self, value: ir.Value) -> ir.DataType:
        dtype = self.facts.dtype(value)
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
