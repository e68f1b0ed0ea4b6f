"""Following the bounds of values through a model, bodies and functions included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from softq.graph.growth.operators import follow
from softq.graph.growth.sizes import ENDLESS, MOST_AXES, NOTHING, Size, declare, join

_LONG = 1 << 22
"""Elements of values of one axis, and axes of all values, that inference may follow: some 60 bytes each."""

_MOST_NESTED = 16
"""Nodes that put types into one another."""

_NESTING = ("Sequence", "Optional", "SplitToSequence", "ConcatFromSequence")


class _TooMuchError(Exception):
    pass


def may_explode(model: onnx.ModelProto) -> bool:
    """Return whether inference could do more than a bounded amount of work for each node."""
    walk = _Walk(model)
    try:
        _Scope(walk).read_graph(model.graph)
    except _TooMuchError:
        return True
    return False


class _Walk:
    """What all scopes of a model share: its functions, what their calls give, and how much is left."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.called: dict[tuple[object, ...], list[Size]] = {}
        self._left, self._nested = _LONG, _MOST_NESTED

    def count(self, size: Size) -> Size:
        """Count a value against what is left."""
        self._left -= size.high + (size.dim if size.low <= 1 <= size.high else 0)
        if size.high > MOST_AXES or self._left < 0:
            raise _TooMuchError
        return size

    def nest(self) -> None:
        """Count a node that puts a type into another."""
        self._nested -= 1
        if self._nested < 0:
            raise _TooMuchError


class _Scope:
    """The values of the main graph, or of one call of a function, with those of the bodies inside."""

    def __init__(self, walk: _Walk) -> None:
        self._walk = walk
        self._sizes: dict[str, Size] = {}
        self._constants: dict[str, TensorProto] = {}

    def read_graph(self, graph: onnx.GraphProto) -> None:
        """Enter the values of a graph."""
        for tensor in graph.initializer:
            self._hold(tensor.name, tensor)
        for value in graph.input:
            self._put(value.name, declare(value.type, self._sizes.get(value.name, NOTHING)))
        declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        for node in graph.node:
            self._enter(node, declared)

    def read_call(self, function: onnx.FunctionProto, given: Sequence[Size]) -> list[Size]:
        """Enter the values of a function for bounds of its inputs, and return those of its outputs."""
        for name, size in zip(function.input, given, strict=False):
            self._put(name, size)
        for node in function.node:
            self._enter(node, {})
        return [self._sizes.get(name, NOTHING) for name in function.output]

    def _put(self, name: str, size: Size) -> None:
        # Bodies beside one another may use a name for different values: then for each what holds for all.
        before = self._sizes.get(name)
        self._sizes[name] = self._walk.count(size if before is None else join(before, size))

    def _hold(self, name: str, tensor: TensorProto) -> None:
        if self._constants.setdefault(name, tensor) is not tensor and self._constants[name] != tensor:
            raise _TooMuchError
        rank, dim = len(tensor.dims), max(tensor.dims, default=0)
        self._put(name, Size(rank, rank, dim if rank == 1 else 0, dim))

    def _enter(self, node: onnx.NodeProto, declared: Mapping[str, onnx.TypeProto]) -> None:
        if node.op_type == "Constant" and not node.domain and len(node.output):
            tensors = [attribute.t for attribute in node.attribute if attribute.name == "value"]
            if tensors:
                self._hold(node.output[0], tensors[0])
                return
        found = self._follow(node)
        for place, name in enumerate(node.output):
            size = found[place] if place < len(found) else found[-1] if found else NOTHING
            if name in self._constants:
                raise _TooMuchError
            self._put(name, declare(declared[name], size) if name in declared else size)

    def _follow(self, node: onnx.NodeProto) -> Sequence[Size]:
        if node.domain not in ("", "ai.onnx"):
            function = self._walk.functions.get((node.domain, node.op_type, node.overload))
            return [] if function is None else self._call(function, node)
        if node.op_type.startswith(_NESTING):
            self._walk.nest()
        bodies = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
        if bodies:
            return self._follow_bodies(node, bodies)
        given = [self._sizes.get(name, NOTHING) for name in node.input if name]
        return [follow(node, given, partial(self._numbers, node), partial(self._value, node))]

    def _call(self, function: onnx.FunctionProto, node: onnx.NodeProto) -> list[Size]:
        given = [
            self._sizes.get(name, NOTHING)._replace(value=self._value(node, place))
            for place, name in enumerate(node.input)
        ]
        key = (function.domain, function.name, function.overload, *given)
        if key not in self._walk.called:
            self._walk.called[key] = _Scope(self._walk).read_call(function, given)
        return self._walk.called[key]

    def _follow_bodies(self, node: onnx.NodeProto, bodies: Sequence[onnx.GraphProto]) -> list[Size]:
        found: list[Size] = []
        given = [self._sizes.get(name, NOTHING) for name in node.input]
        states = [NOTHING, *given[1:]] if node.op_type == "Loop" else given
        for body in bodies:
            for value, size in zip(body.input, states, strict=False):
                self._put(value.name, size)
            self.read_graph(body)
            results = [self._sizes.get(value.name, NOTHING) for value in body.output][node.op_type == "Loop" :]
            for place, size in enumerate(results):
                # What is collected has one axis more.
                size = size._replace(low=0, high=size.high + (node.op_type != "If"), least=0)
                found[place : place + 1] = [join(found[place], size) if place < len(found) else size]
        return found

    def _numbers(self, node: onnx.NodeProto, place: int) -> Sequence[float] | None:
        tensor = self._constants.get(node.input[place]) if place < len(node.input) else None
        if tensor is None or tensor.data_type in (TensorProto.STRING, TensorProto.UNDEFINED):
            return None
        try:
            numbers = numpy_helper.to_array(tensor).reshape(-1).astype(np.float64)
        except Exception:  # What onnx cannot read it does not follow.
            return None
        return [min(max(float(n), -ENDLESS), ENDLESS) if n == n else 0.0 for n in numbers]

    def _value(self, node: onnx.NodeProto, place: int) -> int:
        name = node.input[place] if place < len(node.input) else ""
        if name not in self._constants:
            return self._sizes.get(name, NOTHING).value
        if self._constants[name].data_type not in (TensorProto.INT64, TensorProto.INT32):
            return 0
        return int(max(map(abs, self._numbers(node, place) or ()), default=0))
