"""onnx's reference evaluator with a limit: the elements of each result are counted before it is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from softq.errors import InputError
from softq.limits import current

Array = NDArray[np.generic]

LIVE = 1 << 24
"""Elements that a run holds at a time, 128 MiB of float64: the results that are still read, and the next ones."""

_SMALL = 64
"""Elements of the largest operand whose values decide the shape of a result: one length, or number, per axis."""

_CHOOSING = {"Compress", "NonZero", "Unique"}
"""Operators that choose elements by their values: at most all of them."""

_SLOW = {"Erf": 16, "Gelu": 16, "Pow": 8, "Sigmoid": 4, "TopK": 8}
"""What an element costs, in units of 10 ns (measured), where it costs more than one."""

_SUMS = {"Attention", "AveragePool", "DFT", "GRU", "Gemm", "LSTM", "LpPool", "MatMul", "MaxPool", "RNN", "STFT"}
"""Operators that compute an element from many, as do operators with Conv or MatMul in their names."""


class TooLargeError(Exception):
    """A result would have too many elements, or its size is not known before it is computed."""


class Budget:
    """The elements that may be computed for a model; an element of a slow operator counts several times.

    Args:
        most: The maximum; None for that of `softq.limits`.

    Attributes:
        used: The elements that were computed.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most, self.used = most, 0

    def take(self, cost: int) -> None:
        """Count more elements as computed.

        Raises:
            InputError: the maximum is passed.
        """
        self.used += cost
        most = self._most or current().evaluated
        if self.used > most:
            raise InputError(
                f"telling which functions of scores the model writes out takes more than {most} computed elements "
                "(--limit-evaluated changes that)"
            )


class Reference:
    """A graph without bodies, evaluated node by node.

    Args:
        model: The model, of the default domain and of those of `operators`.
        budget: The budget of all runs.
        operators: Implementations to add to onnx's; if they have a domain, their result has the shape of the input.
    """

    def __init__(self, model: onnx.ModelProto, budget: Budget, operators: Sequence[type[OpRun]] = ()) -> None:
        evaluator = ReferenceEvaluator(model, new_ops=list(operators))
        self._constants: Mapping[str, Array] = evaluator.rt_inits_
        self._nodes = [(operation.onnx_node, operation) for operation in evaluator.rt_nodes_]
        self._outputs = [value.name for value in model.graph.output]
        self._imports = list(model.opset_import)
        self._budget = budget
        self._counts: dict[tuple[object, ...], int] = {}
        last = {name: k for k, (node, _) in enumerate(self._nodes) for name in (*node.input, *node.output)}
        self._read_last: list[list[str]] = [[] for _ in self._nodes]
        for name, k in last.items():
            if name not in self._outputs and name not in self._constants:
                self._read_last[k].append(name)

    def run(self, feed: Mapping[str, Array], most: int = LIVE) -> list[Array | None]:
        """Return the graph's outputs.

        Args:
            feed: The inputs.
            most: Elements that the run may hold at a time.

        Raises:
            TooLargeError: the run would hold more, or nothing tells how many a result has.
            InputError: the budget is used up.
            Exception: an operator fails, each in a way of its own.
        """
        values: dict[str, Array | None] = {"": None, **self._constants, **feed}
        for k, (node, operation) in enumerate(self._nodes):
            inputs = [values[name] for name in node.input]
            count = self._count(k, inputs)
            if count + sum(np.size(value) for value in values.values() if value is not None) > most:
                raise TooLargeError
            self._budget.take(_find_cost(node.op_type, inputs, count))
            values.update(zip(node.output, operation.run(*inputs), strict=False))
            for name in self._read_last[k]:
                values.pop(name, None)
        return [values[name] for name in self._outputs]

    def _count(self, index: int, inputs: Sequence[Array | None]) -> int:
        deciding = [None if x is None else (x.shape, x.dtype, x.tobytes() if x.size <= _SMALL else b"") for x in inputs]
        key = (index, *deciding)
        if key not in self._counts:
            self._counts[key] = _count_elements(self._nodes[index][0], inputs, self._imports)
        return self._counts[key]


def _count_elements(
    node: onnx.NodeProto, inputs: Sequence[Array | None], imports: Sequence[onnx.OperatorSetIdProto]
) -> int:
    """Return how many elements a node's results have, by onnx's inference of this node alone."""
    present = {name: x for name, x in zip(node.input, inputs, strict=True) if x is not None}
    whole = sum(x.size for x in present.values())
    if node.domain:
        return whole
    version = next(entry.version for entry in imports if entry.domain == node.domain)
    shapes = onnx.shape_inference.infer_node_outputs(
        onnx.defs.get_schema(node.op_type, version, node.domain), node,
        {
            name: onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in present.items()
        },
        {name: onnx.numpy_helper.from_array(x) for name, x in present.items() if x.size <= _SMALL},
        opset_imports=list(imports),
    )  # fmt: skip
    otherwise = whole if node.op_type in _CHOOSING else None
    sizes = [
        [dim.dim_value if dim.HasField("dim_value") else otherwise for dim in kind.tensor_type.shape.dim]
        for kind in shapes.values()
        if kind.tensor_type.HasField("shape")
    ]
    known = [[dim for dim in dims if dim is not None] for dims in sizes]
    if len(sizes) < len(list(filter(None, node.output))) or known != sizes:
        raise TooLargeError
    return sum(map(math.prod, known))


def _find_cost(operator: str, inputs: Sequence[Array | None], count: int) -> int:
    """Return the cost of a node that gives `count` elements, in units of 10 ns, at most."""
    present = [x for x in inputs if x is not None]
    if operator == "Einsum":
        return math.prod(x.size for x in present)
    if operator in _SUMS or "Conv" in operator or "MatMul" in operator:
        return count * max(math.prod(x.shape[1:]) for x in present)
    return count * _SLOW.get(operator, 1)
