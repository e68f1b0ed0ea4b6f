"""The values of a part of a graph, in float64 whatever its types are: what it means, before it is rounded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from softq.forms.matching.exponentials import read_number
from softq.forms.substitutes.reference import OPERATORS, REAL, Expm1, Log1p
from softq.forms.substitutes.regions import ELEMENTWISE, Region
from softq.graph.constants import to_lone_proto
from softq.graph.facts import Facts
from softq.graph.patterns import matches
from softq.graph.queries import constant, operand, producer
from softq.graph.ranks import Dims
from softq.graph.reference import Array, Budget, Reference

Rows = NDArray[np.float64]

_LARGEST = 1 << 20
"""Bytes of the largest constant that a function may hold."""

_MOST = 1 << 21
"""Elements of the largest tensor that a function is evaluated on."""

MOST_ANSWERED = 22_000_000
"""Elements of all rows that a function is evaluated on, with all heads: 32 heads of rows of 4,096 take 800 MB."""

_LONGEST = 1 << 19
"""Elements of one row with all heads: a method is compared on that many at a time, with all its steps in memory."""

_HEADS = 1 << 10
"""The largest number of heads for which a constant may have a number each."""

_ODD = 7919
"""Stands in for an unknown length. No row has this length, so a result that depends on it has the wrong shape."""

_FUSED = (
    (Log1p.__name__, 1, "Log(total := Add(y, one)) | Log(total := Add(one, y))"),
    (Log1p.__name__, 1, "Log(total := Sum(y, one)) | Log(total := Sum(one, y))"),
    (Expm1.__name__, 1, "Sub(Exp(y), one)"),
    (Expm1.__name__, -1, "Add(Exp(y), one) | Add(one, Exp(y)) | Sum(Exp(y), one) | Sum(one, Exp(y))"),
)
"""Pairs of operators that are one of `reference`, with the number that `one` is."""

_LAID_OUT = {"Shape", "Reshape", "Expand", "ConstantOfShape", "Tile", "ScatterElements"}


@dataclass(frozen=True)
class Exported:
    """A part of a graph as ONNX, self-contained: equal parts are equal.

    Attributes:
        model: One graph to `y` from `x`, the shapes `shape0`, `shape1`, ..., and the boolean `mask` if there is one,
            serialized.
        shape: Shape of `x` as far as the model knows it, of two axes or more.
        shapes: Shapes of the values outside of which it reads the shape.
        numbers: The float constants in it that are one number, or one number per head.
        laid_out: Whether it may depend on more of a shape than the length of the row.
        counts: Whole numbers that it takes the greatest of a row by.
        mask: The type of what says inside which positions take part; empty if nothing does.
        swallows: Whether it takes the logarithm of a sum with 1, which where it runs hides a small number.
    """

    model: bytes
    shape: Dims
    shapes: tuple[Dims, ...]
    numbers: tuple[tuple[float, ...], ...]
    laid_out: bool
    counts: tuple[int, ...]
    swallows: bool
    mask: Literal["", "bool", "float64"]


def export_region(region: Region, facts: Facts) -> Exported | None:
    """Return a region as ONNX, None where its shapes or constants are not known."""
    shape = facts.shape(region.entry)
    shapes = tuple(known for value in region.shapes if (known := facts.shape(value)) is not None)
    if shape is None or len(shape) < 2 or len(shapes) < len(region.shapes):
        return None
    # Only where the result has the shape of the scores can nothing have been repeated by a constant.
    keeps_shape = None not in shape and facts.shape(region.result) == shape
    names: dict[int, str] = {id(region.entry): "x"}
    names |= {id(value): f"shape{i}" for i, value in enumerate(region.shapes)}
    names |= {id(region.mask): "mask"} if region.mask is not None else {}
    graph = onnx.GraphProto(name="function")
    numbers: list[tuple[float, ...]] = []
    for node in region.nodes:
        for value in node.inputs:
            if value is not None and id(value) not in names:
                array = constant(value)
                if array is not None and keeps_shape:
                    array = _shorten(array, value, region)
                if array is None or array.nbytes > _LARGEST:
                    return None
                names[id(value)] = f"v{len(names)}"
                graph.initializer.append(onnx.numpy_helper.from_array(_widen(array), names[id(value)]))
                numbers += _read_numbers(array)
        for value in node.outputs:
            names[id(value)] = f"v{len(names)}"
        joined = _fuse(node, names)
        if joined is not None:
            graph.node.append(joined)
        elif node.op_type == "Shape" and any(node.inputs[0] is value for value in region.shapes):
            _append_part_of_shape(graph, node, names)
        else:
            _append(graph, node, names)
    inputs = ["x", *(f"shape{i}" for i in range(len(shapes))), *(["mask"] if region.mask is not None else [])]
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in inputs)
    graph.output.append(onnx.ValueInfoProto(name=names[id(region.result)]))
    opset = facts.view.container_of(region.nodes[-1]).opset
    imports = [onnx.OperatorSetIdProto(domain=domain, version=v) for domain, v in (("", opset), (REAL, 1))]
    model = onnx.ModelProto(ir_version=10, graph=graph, opset_import=imports)
    laid_out = any(node.op_type in _LAID_OUT for node in region.nodes)
    counts = [constant(operand(node, 1)) for node in region.nodes if node.op_type == "TopK"]
    return Exported(
        model.SerializeToString(deterministic=True),
        shape,
        shapes,
        tuple(dict.fromkeys(numbers)),
        laid_out,
        tuple(int(k.reshape(-1)[0]) for k in counts if k is not None and k.size == 1),
        any(node.op_type == Log1p.__name__ for node in graph.node),
        "" if region.mask is None else "bool" if facts.dtype(region.mask) == ir.DataType.BOOL else "float64",
    )


def _shorten(array: Array, value: ir.Value, region: Region) -> Array:
    """Return one element of a constant that has the same everywhere, if all that read it repeat what is short.

    Exporters write such constants, of the shape of the scores, for what was a number.
    """
    readers = [node for node in region.nodes if any(read is value for read in node.inputs)]
    if array.size < 2 or not all(node.op_type in ELEMENTWISE for node in readers):
        return array
    first = array.reshape(-1)[:1]
    return first.reshape((1,) * array.ndim) if np.array_equal(array, np.broadcast_to(first, array.shape)) else array


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def _widen(array: Array) -> Array:
    return array.astype(np.float64) if _is_float(array) else array


def _read_numbers(array: Array) -> list[tuple[float, ...]]:
    one_a_head = array.size == 1 or (array.ndim >= 3 and array.size == array.shape[-3] <= _HEADS)
    return [tuple(map(float, array.reshape(-1)))] if _is_float(array) and one_a_head and array.size else []


def _append(graph: onnx.GraphProto, node: ir.Node, names: Mapping[int, str]) -> None:
    inputs = ["" if value is None else names[id(value)] for value in node.inputs]
    made = to_lone_proto(node, inputs, [names[id(value)] for value in node.outputs])
    if node.op_type == "ConstantOfShape" and not made.attribute:  # float32 by default
        made.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(np.zeros(1))))
    for attribute in made.attribute:
        if attribute.name == "to" and ir.DataType(attribute.i).is_floating_point():
            attribute.i = onnx.TensorProto.DOUBLE
        if node.op_type == "ConstantOfShape" and attribute.name == "value":
            wide = _widen(onnx.numpy_helper.to_array(attribute.t))
            attribute.t.CopyFrom(onnx.numpy_helper.from_array(wide, "value"))
    graph.node.append(made)


def _fuse(node: ir.Node, names: Mapping[int, str]) -> onnx.NodeProto | None:
    """Return ln(1 + y) for a Log of such a sum, and e^y - 1 for that difference; None for anything else.

    1 swallows a small y in any type, which is rounding and not what the function is.
    """
    for kind, one, pattern in _FUSED:
        for found in matches(node.outputs[0], pattern):
            total = producer(found.get("total"), "Sum") or node
            if len(total.inputs) < 3 and read_number(found["one"]) == one and id(found["y"]) in names:
                outputs = [names[id(value)] for value in node.outputs]
                return onnx.NodeProto(op_type=kind, domain=REAL, input=[names[id(found["y"])]], output=outputs)
    return None


def _append_part_of_shape(graph: onnx.GraphProto, node: ir.Node, names: Mapping[int, str]) -> None:
    assert node.inputs[0] is not None, "a shape is of something"
    out = names[id(node.outputs[0])]
    bounds = {"start": node.attributes.get_int("start", 0), "end": node.attributes.get_int("end", 2**31)}
    for name, bound in bounds.items():
        graph.initializer.append(onnx.numpy_helper.from_array(np.array([bound], np.int64), f"{out}.{name}"))
    inputs = [names[id(node.inputs[0])], *(f"{out}.{name}" for name in bounds)]
    graph.node.append(onnx.NodeProto(op_type="Slice", input=inputs, output=[out]))


@dataclass(frozen=True)
class RowLayout:
    """How rows are laid into the tensor that a function takes.

    Attributes:
        shape: The tensor's shape.
        has_heads: Whether the last axis but two is that of the heads: the same scores stand beside each other there.
        shapes: The shapes outside.
        is_own: Whether the shape is the function's own, and not one of as many rows as are wanted.
    """

    shape: tuple[int, ...]
    has_heads: bool
    shapes: tuple[tuple[int, ...], ...]
    is_own: bool

    def of(self, rows: int) -> RowLayout:
        """Return the layout for fewer rows, where their number is free."""
        return (
            self if self.is_own else replace(self, shape=(*self.shape[:-2], min(rows, self.shape[-2]), self.shape[-1]))
        )


def make_layout(function: Exported, length: int, rows: int, *, is_own: bool) -> RowLayout | None:
    """Return a shape for rows of a length: for as many rows as are wanted, or the function's own; None if too large."""
    *before, last = function.shape
    heads = before[-2] if len(before) >= 3 else None
    symbols: dict[object, int] = {last: length} if isinstance(last, str) else {}
    if is_own:
        symbols |= {d: 2 for d in before if isinstance(d, str) and d not in symbols}

    def bound(dims: Dims, otherwise: int) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else symbols.get(d, otherwise) for d in dims)

    row = length * (heads if isinstance(heads, int) else 1)
    if row > _LONGEST or row * rows > MOST_ANSWERED:
        return None
    rows = min(rows, max(1, _MOST // max(row, 1)))
    lead = (1,) * (len(before) - 1) if not isinstance(heads, int) else (*(1,) * (len(before) - 2), heads)
    shape = (*(bound(tuple(before), 2) if is_own else (*lead, rows)), length)
    if is_own and math.prod(shape) > _MOST:
        return None
    return RowLayout(shape, isinstance(heads, int), tuple(bound(dims, _ODD) for dims in function.shapes), is_own)


class Evaluator:
    """Computes the values of a function of rows.

    Args:
        function: The function.
        budget: The budget that pays for the elements that it computes.
        counts_when: Of one with a mask inside, what the mask is where a position takes part. Such a function hides
            what is -inf in the rows, which to it itself are other numbers.
    """

    def __init__(self, function: Exported, budget: Budget, counts_when: bool = True) -> None:
        self._mask, self._counts_when = function.mask, counts_when
        self._session = Reference(onnx.ModelProto.FromString(function.model), budget, OPERATORS)

    def rows(self, x: Rows, layout: RowLayout) -> Rows:
        """Return the function of rows [R, N] for each head, [heads, R, N].

        Raises:
            ValueError: the result has not the shape of the scores.
        """
        heads = layout.shape[-3] if layout.has_heads else 1
        if not len(x):
            return np.zeros((heads, 0, layout.shape[-1]))
        held = math.prod(layout.shape[:-1]) // heads
        found = [self._block(x[at : at + held], layout, heads, held) for at in range(0, len(x), held)]
        return np.concatenate(found, axis=1)[:, : len(x)]

    def _block(self, x: Rows, layout: RowLayout, heads: int, held: int) -> Rows:
        full = np.concatenate([x, np.repeat(x[-1:], held - len(x), axis=0)])
        *lead, queries, length = layout.shape
        if layout.has_heads:
            tensor = full.reshape(*lead[:-1], 1, queries, length)
            tensor = np.broadcast_to(tensor, layout.shape)
        else:
            tensor = full.reshape(layout.shape)
        feed: dict[str, Array] = {"x": np.ascontiguousarray(tensor)}
        if self._mask:
            hidden = np.isneginf(tensor)
            feed["mask"] = (hidden != self._counts_when).astype(self._mask)
            feed["x"] = np.where(hidden, np.random.default_rng(2).normal(size=length) * 3, tensor)
        feed |= {f"shape{i}": np.array(shape, np.int64) for i, shape in enumerate(layout.shapes)}
        with np.errstate(all="ignore"):
            (y,) = map(np.asarray, self._session.run(feed))
        if y.shape != layout.shape:
            raise ValueError(f"{y.shape} is not {layout.shape}")
        out = np.moveaxis(y, -3, 0) if layout.has_heads else y[None]
        return out.reshape(heads, held, length)[:, : len(x)].astype(np.float64)
