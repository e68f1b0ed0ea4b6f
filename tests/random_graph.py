"""Random graphs of the operators that a built model takes; `random_operators` says how a node of each is drawn.

A graph is a row of nodes; each takes values that are there, of a type and a shape that suit it, and adds its results.
onnxruntime computes them at once, node by node, and they are what the built model is compared with. Where onnxruntime
has no kernel, ONNX's reference computes them.
Half of the graphs give axes names: those of one length have one name, so that lengths which are equal are known to be.
Functions that jump (Floor, comparisons, Cast to integers) take values that come exactly from the inputs: a difference
in the last bit before them would be a difference of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from tests.built import Array

FLOAT, DOUBLE, HALF, I32, I64, BOOL, U8, I8 = (
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL,
    TensorProto.UINT8, TensorProto.INT8,
)  # fmt: skip
NUMPY: dict[int, str] = {
    FLOAT: "float32", DOUBLE: "float64", HALF: "float16", I32: "int32", I64: "int64", BOOL: "bool", U8: "uint8",
    I8: "int8",
}  # fmt: skip

_NEWEST = 26
"""The newest operator set of which onnxruntime runs models."""
_LARGEST = 20_000
"""Elements of a value; a node that gives more is not taken, else nodes that enlarge make graphs slow."""


Fixed = bool | tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Drawn:
    """A value of the graph.

    Attributes:
        name: Its name; empty for an input that is left out.
        array: Its elements.
        exact: Whether it is an input with its elements moved at most.
        fixed: Whether its lengths are written as numbers, for an input, or for which of its axes.
    """

    name: str
    array: Array
    exact: bool = True
    fixed: Fixed = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.array.shape

    @property
    def dtype(self) -> int:
        """ONNX's number of its element type."""
        return helper.np_dtype_to_tensor_dtype(self.array.dtype)


NOTHING = Drawn("", np.zeros(0))
"""An optional input that is left out."""


@dataclass
class Graph:
    """A graph while it is drawn.

    Attributes:
        rng: What it is drawn by.
        opset: Its operator set.
        ends: Results that no other node takes.
        loose: Names of the ends that may be one off: integers that were rounded.
    """

    rng: Random
    opset: int = 21
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[Drawn] = field(default_factory=list)
    inputs: list[Drawn] = field(default_factory=list)
    constants: list[Drawn] = field(default_factory=list)
    ends: list[Drawn] = field(default_factory=list)
    loose: set[str] = field(default_factory=set)

    def pick(
        self, dtypes: Sequence[int] = (FLOAT,), least: int = 0, exact: bool = False, rank: int | None = None
    ) -> Drawn:
        """Return a value of one of these types, with so many axes at least and no axis of no length, or a new input."""
        fits = [
            v
            for v in self.values
            if v.dtype in dtypes and len(v.shape) >= least and 0 not in v.shape and rank in (None, len(v.shape))
        ]
        fits = [v for v in fits if v.exact or not exact]
        if fits and self.rng.random() < 0.85:
            return self.rng.choice(fits[-4:] if self.rng.random() < 0.6 else fits)
        axes = rank if rank is not None else max(least, self.rng.choice((1, 2, 2, 3, 3, 4)))
        return self.input(self.rng.choice(list(dtypes)), [self.rng.choice((1, 2, 3, 5, 7)) for _ in range(axes)])

    def input(self, dtype: int, shape: Sequence[int], fixed: Fixed = False) -> Drawn:
        """Return a new input."""
        return self.given(self.data(dtype, shape), fixed)

    def given(self, array: Array, fixed: Fixed = True) -> Drawn:
        """Return a new input with these elements; other nodes take it if not all of its axes are fixed."""
        value = Drawn(f"x{len(self.inputs)}", np.asarray(array), True, fixed)
        self.inputs.append(value)
        self.values += [] if fixed is True else [value]
        return value

    def data(self, dtype: int, shape: Sequence[int]) -> Array:
        """Return random elements."""
        random = np.random.default_rng(self.rng.getrandbits(32))
        if dtype in (FLOAT, DOUBLE, HALF):
            return np.asarray(random.standard_normal(tuple(shape))).astype(NUMPY[dtype])
        return np.asarray(random.integers(0, 2 if dtype == BOOL else 5, tuple(shape))).astype(NUMPY[dtype])

    def fix(self, *axes: int) -> Fixed:
        """Return that all axes are fixed, or those that meet a constant whose lengths are numbers."""
        return True if self.rng.random() < 0.5 else axes

    def like(self, value: Drawn, dtype: int | None = None) -> Drawn:
        """Return a value that broadcasts with another: one of its shape, an input with some axes of length 1."""
        dtype = value.dtype if dtype is None else dtype
        same = [v for v in self.values if v.dtype == dtype and v.shape == value.shape]
        if same and self.rng.random() < 0.6:
            return self.rng.choice(same)
        shape = [1 if self.rng.random() < 0.3 else d for d in value.shape][self.rng.choice((0, 0, 1)) :]
        return self.input(dtype, shape)

    def constant(self, array: Any, dtype: int | None = None) -> Drawn:
        """Return a new initializer."""
        array = np.asarray(array) if dtype is None else np.asarray(array, NUMPY[dtype])
        self.constants.append(Drawn(f"c{len(self.constants)}", array))
        return self.constants[-1]

    def weight(self, *shape: int, dtype: int = FLOAT) -> Drawn:
        """Return random elements that are an initializer, or an input of a fixed shape."""
        array = self.data(dtype, shape)
        return self.given(array) if self.rng.random() < 0.3 else self.constant(array)

    def ints(self, *numbers: int) -> Drawn:
        """Return a new initializer of int64."""
        return self.constant(np.array(numbers, np.int64))

    def add(
        self,
        operator: str,
        inputs: Sequence[Drawn],
        results: int = 1,
        moves: bool = False,
        last: bool = False,
        reference: bool = False,
        captured: Sequence[Drawn] = (),
        **attributes: Any,
    ) -> list[Drawn]:
        """Add a node and return its results.

        Args:
            operator: Its name, behind its domain and `::` if that is not ONNX's own.
            inputs: What it takes.
            results: How many results it has.
            moves: Whether its results are its inputs' elements.
            last: Whether no other node may take its results; integers among them may be one off.
            reference: Whether ONNX's reference computes the results, and not onnxruntime.
            captured: What the bodies among its attributes take from around them.
            attributes: Its attributes.
        """
        domain, _, name = operator.rpartition("::")
        names = [f"v{len(self.nodes)}_{i}" for i in range(results)]
        node = helper.make_node(name, [v.name for v in inputs], names, domain=domain, **attributes)
        arrays = _compute(node, [*inputs, *captured], self.opset, reference)
        made = [Drawn(n, array, moves and all(v.exact for v in inputs)) for n, array in zip(names, arrays, strict=True)]
        if any(v.array.size > _LARGEST for v in made):
            return made
        self.nodes.append(node)
        for value in made:
            numbers = value.array.dtype.kind == "f" and value.array[np.isfinite(value.array)]
            # Differences of large numbers have none of the digits that two programs have in common.
            if last or (numbers is not False and np.abs(numbers).max(initial=0) > 1e4):
                self.ends.append(value)
                self.loose |= {value.name} if last else set()
            else:
                self.values.append(value)
        return made


def _compute(node: onnx.NodeProto, inputs: Sequence[Drawn], opset: int, reference: bool) -> list[Array]:
    feeds = {v.name: v.array for v in inputs if v.name}
    infos = [helper.make_tensor_value_info(v.name, v.dtype, v.shape) for v in inputs if v.name]
    infos = list({info.name: info for info in infos}.values())
    graph = helper.make_graph([node], "node", infos, [onnx.ValueInfoProto(name=name) for name in node.output])

    def model(version: int) -> onnx.ModelProto:
        return helper.make_model(graph, opset_imports=_domains(version), ir_version=10)

    if not reference and (node.domain or not is_absent(node.op_type, min(opset, _NEWEST))):
        try:
            session = onnxruntime.InferenceSession(
                model(min(opset, _NEWEST)).SerializeToString(), _options(), providers=["CPUExecutionProvider"]
            )
            return [np.asarray(value) for value in session.run(None, feeds)]
        except NoKernel:
            pass
    with np.errstate(all="ignore"):
        return [np.asarray(value) for value in ReferenceEvaluator(model(opset)).run(None, feeds)]


@cache
def _options() -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return options


def _domains(opset: int) -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]


@cache
def is_absent(operator: str, opset: int) -> bool:
    """Say whether an operator set lacks an operator of ONNX's own; onnxruntime keeps some of its own beside them."""
    if not defs.has(operator):
        return False
    try:
        return defs.get_schema(operator, opset).deprecated
    except defs.SchemaError:
        return True


Draw = Callable[[Graph], None]


@dataclass(frozen=True)
class DrawnModel:
    """A random model.

    Attributes:
        model: The model.
        feeds: Its inputs.
        wanted: Its results.
        loose: Names of the results that may be one off where they are integers.
    """

    model: onnx.ModelProto
    feeds: Mapping[str, Array]
    wanted: Mapping[str, Array]
    loose: frozenset[str]


def draw_graph(operators: Mapping[str, Draw], old: Mapping[str, Draw], rng: Random) -> DrawnModel:
    """Return a random model of these operators; few are of an operator set of long ago, and of what it had."""
    opset = rng.choice((9, 10)) if rng.random() < 0.03 else rng.choice((21, 21, 21, 23, 24, 26, 28))
    chosen = operators if opset > 10 else old
    chosen = {name: draw for name, draw in chosen.items() if "::" in name or not is_absent(name, opset)}
    g = Graph(rng, opset)
    wanted = rng.randint(3, 8)
    for _ in range(10 * wanted):
        if len(g.nodes) >= wanted:
            break
        chosen[rng.choice(list(chosen))](g)
    return finish(g, rng.random() < 0.5)


def finish(g: Graph, named: bool) -> DrawnModel:
    """Return the model of a graph; `named` says whether axes of inputs have names instead of lengths."""
    read = {name for node in g.nodes for name in _read(node)}
    outputs = [v for v in (*g.values, *g.ends) if v.name not in read and v not in g.inputs]

    def info(value: Drawn) -> onnx.ValueInfoProto:
        rank = len(value.shape)
        fixed = value.fixed if isinstance(value.fixed, tuple) else range(rank) if value.fixed else ()
        numbers = {axis % rank for axis in fixed}
        shape = [f"n{d}" if named and d > 1 and i not in numbers else d for i, d in enumerate(value.shape)]
        return helper.make_tensor_value_info(value.name, value.dtype, shape)

    graph = helper.make_graph(
        g.nodes, "random", [info(v) for v in g.inputs],
        [helper.make_tensor_value_info(v.name, v.dtype, [None] * len(v.shape)) for v in outputs],
        [numpy_helper.from_array(v.array, v.name) for v in g.constants],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=_domains(g.opset), ir_version=10)
    feeds, wanted = ({v.name: v.array for v in values} for values in (g.inputs, outputs))
    return DrawnModel(model, feeds, wanted, frozenset(g.loose))


def _read(node: onnx.NodeProto) -> list[str]:
    return [*node.input, *(name for a in node.attribute for inner in a.g.node for name in _read(inner))]
