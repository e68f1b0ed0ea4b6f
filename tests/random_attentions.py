"""Random attentions: products, a softmax, and what may lie before, between and after them.

Concat, Pad, Slice and Gather change the lengths of rows, of queries and of heads; values have the length that the
weights have in the end, there may be several, and something in between may be an output. Lengths are numbers or names;
models with names run with several lengths, long ones among them. onnxruntime computes the whole model, without its
optimizations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tests.built import Array

FLOAT, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
TYPES: Mapping[int, str] = {FLOAT: "float32", I64: "int64", BOOL: "bool"}

Length = int | tuple[str, int]
"""A number, or how much longer than a named length."""

LENGTHS: Sequence[Mapping[str, int]] = (
    {"B": 2, "S": 5, "L": 33, "G": 4},
    {"B": 1, "S": 7, "L": 6, "G": 17},
    {"B": 1, "S": 70, "L": 301, "G": 9},
    {"B": 2, "S": 4, "L": 1500, "G": 70},
)
"""Lengths by name, one entry for each run; a model of fixed lengths has one run."""


@dataclass(frozen=True)
class DrawnAttention:
    """A random attention.

    Attributes:
        model: The model.
        feeds: The inputs of each run.
        wanted: The results of each run.
        coarse: By how much results may be off, as weights are rounded to 8 bits; 0 where nothing is rounded.
    """

    model: onnx.ModelProto
    feeds: Sequence[Mapping[str, Array]]
    wanted: Sequence[Mapping[str, Array]]
    coarse: float


@dataclass
class _Graph:
    rng: Random
    sizes: Sequence[Mapping[str, int]]
    named: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[tuple[str, int, list[Length]]] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    feeds: list[dict[str, Array]] = field(default_factory=list)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return its result's name."""
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def input(self, dims: Sequence[Length], dtype: int = FLOAT, high: Length = 2) -> str:
        """Return a new input, of integers below `high`; the first column of booleans is true."""
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, dtype, list(dims)))
        random = np.random.default_rng(self.rng.getrandbits(32))
        for feed, sizes in zip(self.feeds, self.sizes, strict=True):
            shape = [length_in(d, sizes) for d in dims]
            if dtype == FLOAT:
                feed[name] = random.standard_normal(shape).astype(np.float32)
                continue
            feed[name] = random.integers(0, length_in(high, sizes), shape).astype(TYPES[dtype])
            if dtype == BOOL:
                feed[name][..., 0] = True
        return name


def length_in(length: Length, sizes: Mapping[str, int]) -> int:
    """Return a length in a run."""
    return length if isinstance(length, int) else sizes[length[0]] + length[1]


@dataclass
class _Value:
    """A value whose last axes are heads, rows and columns, and before them a batch."""

    graph: _Graph
    name: str
    dims: list[Length]

    def then(self, operator: str, *more: str, **attributes: Any) -> None:
        self.name = self.graph.add(operator, self.name, *more, **attributes)

    def longer(self, axis: int, by: int) -> None:
        dim = self.dims[axis]
        self.dims[axis] = dim + by if isinstance(dim, int) else (dim[0], dim[1] + by)

    def least(self, axis: int) -> int:
        return min(length_in(self.dims[axis], sizes) for sizes in self.graph.sizes)


def _axis(x: _Value) -> int:
    """Return the axis that an operator changes: mostly columns."""
    return x.graph.rng.choice((-1, -1, -1, -1, -2, -3))


def _join(x: _Value, end: bool = False) -> None:
    g, axis, count = x.graph, -1 if end else _axis(x), x.graph.rng.randint(1, 3)
    other = [count if i - 4 == axis else d for i, d in enumerate(x.dims)]
    if g.rng.random() < 0.4:
        name = g.input(other)
    else:
        sinks = np.random.default_rng(g.rng.getrandbits(32)).standard_normal((1, length_in(other[1], {}), 1, 1))
        at = 4 + axis
        shape = g.add("Shape", x.name)
        parts = [g.add("Slice", shape, g.ints(0), g.ints(at)), g.ints(count)]
        parts += [g.add("Slice", shape, g.ints(at + 1), g.ints(4))] if axis < -1 else []
        name = g.add("Expand", g.constant(sinks.astype(np.float32)), g.add("Concat", *parts, axis=0))
    both = [x.name, name] if end or g.rng.random() < 0.7 else [name, x.name]
    x.name = g.add("Concat", *both, axis=axis)
    x.longer(axis, count)


def _pad(x: _Value, end: bool = False) -> None:
    g, axis = x.graph, -1 if end else _axis(x)
    before, after = g.rng.choice(((0, 1), (0, 3), (2, 0), (1, 1))[: 2 if end else 4])
    pads = [0] * 8
    pads[4 + axis], pads[8 + axis] = before, after
    x.then("Pad", g.ints(*pads), g.number(g.rng.choice((0.0, -2.0))))
    x.longer(axis, before + after)


def _cut(x: _Value, end: bool = False) -> None:
    g, axis = x.graph, -1 if end else _axis(x)
    if x.least(axis) < (2 if axis == -3 else 4):
        return
    ranges = ((0, -1), (1, 2**40), (0, -2), (1, -1), (2, 2**62))
    first, last = g.rng.choice(((0, -1), (0, -2)) if end else ranges[: 2 if axis == -3 else 5])
    x.then("Slice", g.ints(first), g.ints(last), g.ints(axis))
    x.longer(axis, min(last, 0) - first)


def _gather(x: _Value) -> None:
    g, axis = x.graph, _axis(x)
    least = x.least(axis)
    if axis == -1 and g.rng.random() < 0.5:
        x.then("Gather", g.input([("G", 0)], I64, least), axis=-1)
        x.dims[-1] = ("G", 0)
        return
    count = g.rng.randint(1, min(least, 4)) if axis != -3 else least
    x.then("Gather", g.ints(*g.rng.sample(range(least), count)), axis=axis)
    x.dims[axis] = count


def _scale(x: _Value) -> None:
    g = x.graph
    x.then(g.rng.choice(("Mul", "Div", "Mul")), g.number(g.rng.choice((0.5, 0.35, 2.0))))


def _cap(x: _Value) -> None:
    x.then("Tanh")
    x.then("Mul", x.graph.number(3.0))


def _masked(x: _Value) -> None:
    g = x.graph
    dims = [1 if g.rng.random() < 0.4 else d for d in x.dims]
    dims = dims[g.rng.choice((0, 0, 2)) :]
    if g.rng.random() < 0.5:
        x.then("Add", g.input(dims))
    else:
        x.name = g.add("Where", g.input(dims, BOOL), x.name, g.number(g.rng.choice((-1e9, -np.inf))))


def _kept(x: _Value) -> None:
    g = x.graph
    x.then("Mul", g.input([1 if g.rng.random() < 0.4 else d for d in x.dims]))


def _restore(x: _Value) -> None:
    """Add what gives columns their first number again at their end."""
    g, dim = x.graph, x.dims[-1]
    more = 0 if isinstance(dim, int) else dim[1]
    if more > 0:
        x.then("Slice", g.ints(0), g.ints(-more), g.ints(-1))
    elif more < 0:
        x.then("Pad", g.ints(*[0] * 7, -more), g.number(0.0))
    x.longer(-1, -more)


_Change = Callable[[_Value], None]
_MOVES: Sequence[_Change] = (_join, _join, _pad, _cut, _cut, _gather)
_AT_END: Sequence[_Change] = (
    partial(_join, end=True), partial(_join, end=True), partial(_pad, end=True), partial(_cut, end=True)
)  # fmt: skip
_SAME: Sequence[_Change] = ()
_BEFORE: Sequence[_Change] = (_scale, _masked, _masked, _cap)
_AFTER: Sequence[_Change] = (_kept,)
_LAST: Sequence[_Change] = (*_MOVES, _scale, _kept)


def draw_attention(rng: Random) -> DrawnAttention:
    """Return a random attention."""
    named, rounded = rng.random() < 0.5, rng.random() < 0.15
    sizes = rng.sample(LENGTHS, 3) if named else [rng.choice(LENGTHS)]
    g = _Graph(rng, sizes, named, feeds=[{} for _ in sizes])
    heads, width = rng.choice((1, 2, 3)), rng.choice((1, 4, 5, 8))
    x = _scores(g, heads, width, rounded)
    before, after = rng.choice(((_MOVES, _MOVES), (_SAME, _SAME), (_AT_END, _AT_END), (_AT_END, _SAME)))
    _apply(x, (*before, *_BEFORE), rng.choice((0, 1, 1, 2, 2, 3, 4)))
    x.then("Softmax", axis=-1)
    _apply(x, (*after, *_AFTER), rng.choice((0, 0, 1, 1, 2, 3)))
    if before is _AT_END:
        _restore(x)
    if rounded:
        _round(x, 1 / 255, 0)
    for _ in range(rng.choice((1, 1, 1, 2))):
        y = _Value(g, x.name, list(x.dims))
        _multiply(y, rounded)
        _apply(y, _LAST, rng.choice((0, 0, 1, 2)))
        _leave(y)
    return _finish(g, 0.1 if rounded else 0.0)


def _apply(x: _Value, choices: Sequence[Callable[[_Value], None]], count: int) -> None:
    for _ in range(count):
        x.graph.rng.choice(choices)(x)
        if x.graph.rng.random() < 0.08:
            x.graph.outputs.append(x.name)


def _round(x: _Value, scale: float, zero: int) -> None:
    """Add the nodes that round a value to 8 bits."""
    g = x.graph
    given = g.number(scale), g.constant(np.array(zero, np.uint8))
    x.then("QuantizeLinear", *given)
    x.then("DequantizeLinear", *given)


def _scores(g: _Graph, heads: int, width: int, rounded: bool) -> _Value:
    rng = g.rng
    dims: list[Length] = [("B", 0), heads, ("S", 0), ("L", 0)]
    if rng.random() < 0.15:
        return _Value(g, g.input(dims), dims)
    shared = rng.random() < 0.15
    q = _Value(g, "", [("B", 0), heads, ("S", 0), width])
    if rng.random() < 0.25:
        q.name = g.add("Transpose", g.input([("B", 0), ("S", 0), heads, width]), perm=[0, 2, 1, 3])
    else:
        q.name = g.input(q.dims)
    lead: list[Length] = [("B", 0) if rng.random() < 0.9 else 1, 1 if shared else heads]
    if rng.random() < 0.5:
        k = _Value(g, g.input([*lead, width, ("L", 0)]), [])
    else:
        k = _Value(g, g.input([*lead, ("L", 0), width]), [])
        k.then("Transpose", perm=[0, 1, 3, 2])
    if rounded:
        _round(q, 0.03, 128)
        _round(k, 0.03, rng.choice((0, 120, 128)))
    return _Value(g, g.add("MatMul", q.name, k.name), dims)


def _multiply(x: _Value, rounded: bool) -> None:
    """Add the product with values, which have as many rows as there are columns."""
    g, rng = x.graph, x.graph.rng
    length, columns = x.dims[-1], rng.choice((1, 3, 8, 20))
    lead: list[Length] = [("B", 0), x.dims[1] if rng.random() < 0.8 else 1]
    if isinstance(length, int) or length[1] == 0:
        v = _Value(g, g.input([*lead, length, columns]), [])
    else:
        v = _Value(g, g.input([*lead, (length[0], 0), columns]), [])
        if length[1] < 0:
            v.then("Slice", g.ints(0), g.ints(length[1]), g.ints(-2))
        else:
            v.then("Pad", g.ints(*[0] * 6, length[1], 0), g.number(0.0))
    if rounded:
        _round(v, 0.03, rng.choice((0, 120, 128)))
    x.then("MatMul", v.name)
    x.dims[-1] = columns


def _leave(x: _Value) -> None:
    """Make a value an output, perhaps with its heads next to one another."""
    g = x.graph
    if g.rng.random() < 0.3:
        x.then("Transpose", perm=[0, 2, 1, 3])
        if g.rng.random() < 0.5:
            x.then("Reshape", g.ints(0, 0, -1))
    g.outputs.append(x.name)


def _finish(g: _Graph, coarse: float) -> DrawnAttention:
    def written(length: Length) -> int | str:
        if isinstance(length, int) or not g.named:
            return length_in(length, g.sizes[0])
        return length[0] + (f"_{length[1]}" if length[1] else "")

    infos = [helper.make_tensor_value_info(name, dtype, list(map(written, dims))) for name, dtype, dims in g.inputs]
    outputs = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(g.outputs)]
    graph = helper.make_graph(g.nodes, "attention", infos, outputs, g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = [dict(zip(names, map(np.asarray, session.run(None, feed)), strict=True)) for feed in g.feeds]
    return DrawnAttention(model, g.feeds, wanted, coarse)
