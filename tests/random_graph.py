"""Random graphs of the operators that a built model takes; `random_operators` says how a node of each is drawn.

A graph is a row of nodes; each takes values that are there, of a type and a shape that suit it, and adds its results.
Half of the graphs give axes names: those of one length have one name, so that lengths which are equal are known to be.
Functions that jump (Floor, comparisons, Cast to integers) take values that come exactly from the inputs: a difference
in the last bit before them would be a difference of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.built import Array

FLOAT, DOUBLE, I32, I64, BOOL, U8, I8 = (
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8,
    TensorProto.INT8,
)  # fmt: skip
NUMPY: dict[int, str] = {
    FLOAT: "float32", DOUBLE: "float64", I32: "int32", I64: "int64", BOOL: "bool", U8: "uint8", I8: "int8",
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A value of the graph.

    Attributes:
        name: Its name.
        dtype: ONNX's number of its element type.
        shape: Its shape in this graph.
        exact: Whether it is an input with its elements moved at most.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    exact: bool


@dataclass
class Graph:
    """A graph while it is drawn."""

    rng: Random
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[Drawn] = field(default_factory=list)
    inputs: list[Drawn] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def pick(
        self, dtypes: Sequence[int] = (FLOAT,), least: int = 0, exact: bool = False, rank: int | None = None
    ) -> Drawn:
        """Return a value of one of these types, with so many axes at least, or a new input."""
        fits = [
            v
            for v in self.values
            if v.dtype in dtypes and len(v.shape) >= least and (rank is None or len(v.shape) == rank)
        ]
        fits = [v for v in fits if v.exact or not exact]
        if fits and self.rng.random() < 0.85:
            return self.rng.choice(fits[-4:] if self.rng.random() < 0.6 else fits)
        axes = rank if rank is not None else max(least, self.rng.choice((1, 2, 2, 3, 3, 4)))
        return self.input(self.rng.choice(list(dtypes)), [self.rng.choice((1, 2, 3, 5, 7)) for _ in range(axes)])

    def input(self, dtype: int, shape: Sequence[int]) -> Drawn:
        """Return a new input."""
        value = Drawn(f"x{len(self.inputs)}", dtype, tuple(shape), True)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def like(self, value: Drawn, dtype: int | None = None) -> Drawn:
        """Return a value that broadcasts with another: one of its shape, an input with some axes of length 1."""
        dtype = value.dtype if dtype is None else dtype
        same = [v for v in self.values if v.dtype == dtype and v.shape == value.shape]
        if same and self.rng.random() < 0.6:
            return self.rng.choice(same)
        shape = [1 if self.rng.random() < 0.3 else d for d in value.shape][self.rng.choice((0, 0, 1)) :]
        return self.input(dtype, shape)

    def constant(self, array: Array) -> str:
        """Return the name of a new initializer."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *numbers: int) -> str:
        """Return the name of a new initializer of int64."""
        return self.constant(np.array(numbers, np.int64))

    def add(
        self,
        operator: str,
        inputs: Sequence[Drawn | str],
        shapes: Sequence[tuple[int, ...]],
        dtype: int,
        moves: bool = False,
        **attributes: Any,
    ) -> None:
        """Add a node; `moves` says that its results are the first input's elements."""
        names = [v if isinstance(v, str) else v.name for v in inputs]
        exact = moves and all(v.exact for v in inputs if isinstance(v, Drawn))
        results = [Drawn(f"v{len(self.nodes)}_{i}", dtype, shape, exact) for i, shape in enumerate(shapes)]
        self.nodes.append(helper.make_node(operator, names, [v.name for v in results], **attributes))
        self.values += results


def broadcast(*values: Drawn) -> tuple[int, ...]:
    """Return the shape to which values broadcast."""
    return np.broadcast_shapes(*(v.shape for v in values))


Draw = Callable[[Graph], None]


def draw_graph(operators: Mapping[str, Draw], rng: Random) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a random model of these operators, with inputs for it."""
    g = Graph(rng)
    wanted = rng.randint(3, 8)
    for _ in range(10 * wanted):
        if len(g.nodes) >= wanted:
            break
        operators[rng.choice(list(operators))](g)
    named = rng.random() < 0.5
    read = {name for node in g.nodes for name in node.input}
    outputs = [v for v in g.values if v.name not in read and v not in g.inputs]

    def info(value: Drawn) -> onnx.ValueInfoProto:
        shape = [f"n{d}" if named and d > 1 else d for d in value.shape]
        return helper.make_tensor_value_info(value.name, value.dtype, shape)

    graph = helper.make_graph(
        g.nodes, "random", [info(v) for v in g.inputs],
        [helper.make_tensor_value_info(v.name, v.dtype, [None] * len(v.shape)) for v in outputs], g.constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, {v.name: _data(v, rng) for v in g.inputs}


def _data(value: Drawn, rng: Random) -> Array:
    random = np.random.default_rng(rng.getrandbits(32))
    if value.dtype in (FLOAT, DOUBLE):
        return random.standard_normal(value.shape).astype(NUMPY[value.dtype])
    high = 2 if value.dtype == BOOL else 5
    return random.integers(0, high, value.shape).astype(NUMPY[value.dtype])
