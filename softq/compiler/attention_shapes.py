"""Lengths of an attention's operands: what its calls say, and what follows from products where they say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import onnx_ir as ir

from softq.graph.facts import drop_inferred_names, to_dims
from softq.graph.queries import constant_tensor, is_op
from softq.passes.replace import FUNCTION_DOMAIN

Dims: TypeAlias = "list[int | str]"

_OPEN = "open "
"""What names of lengths begin with that nothing is known of."""


def common_dims(shapes: Sequence[ir.Shape], name: str) -> Dims:
    """Return dimensions that hold for several shapes: numbers where all are equal, else names.

    Axes whose lengths agree in every one have one name, in all values of the same calls.
    """
    dims: Dims = []
    for axis, each in enumerate(zip(*(drop_inferred_names(to_dims(shape)) or () for shape in shapes), strict=True)):
        first = each[0]
        if first is None or None in each:
            dims.append(f"{_OPEN}{name} {axis}")
        else:
            dims.append(first if len(set(each)) == 1 else "|".join(map(str, each)))
    return dims


def solve(function: ir.Function, given: Sequence[Dims]) -> list[Dims]:
    """Return dimensions of a function's inputs in which open lengths that must be equal have one name.

    Args:
        function: The function.
        given: Dimensions of its inputs.
    """
    solver = _Solver()
    known: dict[ir.Value, Dims | None] = dict(zip(function.inputs, given, strict=True))
    for node in function:
        results = solver.results(node, [[] if v is None else known.get(v) for v in node.inputs])
        known.update(zip(node.outputs, results, strict=False))
    numbers: dict[str, str] = {}
    return [[_named(solver.find(dim), numbers) for dim in dims] for dims in given]


def _named(dim: int | str, numbers: dict[str, str]) -> int | str:
    if isinstance(dim, int):
        return dim
    return numbers.setdefault(dim, f"d{len(numbers)}" if not dim.isidentifier() else dim)


class _Solver:
    """Open lengths that were found to be others."""

    def __init__(self) -> None:
        self._other: dict[str, int | str] = {}

    def find(self, dim: int | str) -> int | str:
        while isinstance(dim, str) and dim in self._other:
            dim = self._other[dim]
        return dim

    def join(self, a: int | str, b: int | str) -> None:
        """Take two lengths for one, if one of them is open."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        if isinstance(a, str) and a.startswith(_OPEN):
            self._other[a] = b
        elif isinstance(b, str) and b.startswith(_OPEN):
            self._other[b] = a

    def results(self, node: ir.Node, given: Sequence[Dims | None]) -> list[Dims | None]:
        """Return the dimensions of a node's results, after learning what it demands."""
        first = given[0] if given else None
        if node.domain == FUNCTION_DOMAIN:
            return [first] + [None if first is None else [*first[:-1], 1]] * (len(node.outputs) - 1)
        if is_op(node, "Transpose") and first is not None:
            perm = node.attributes.get("perm")
            order = range(len(first))[::-1] if perm is None else perm.as_ints()
            return [[first[i] for i in order]]
        if is_op(node, "MatMul"):
            return [self._product(first, given[1])]
        if is_op(node, "Constant"):
            tensor = constant_tensor(node.outputs[0])
            return [None if tensor is None else list(map(int, tensor.shape))]
        if is_op(node, "Unsqueeze", "Expand", "Reshape", "Shape", "Concat"):
            return [None]
        return [self._broadcast(given)]

    def _product(self, a: Dims | None, b: Dims | None) -> Dims | None:
        if a is None or b is None or min(len(a), len(b)) < 2:
            return None
        self.join(a[-1], b[-2])
        if len(a) == len(b):
            for x, y in zip(a[:-2], b[:-2], strict=True):
                self.join(x, y)
        return [*(a if len(a) >= len(b) else b)[:-2], a[-2], b[-1]]

    def _broadcast(self, given: Sequence[Dims | None]) -> Dims | None:
        known = [dims for dims in given if dims is not None]
        if len(known) < len(given):
            return None
        rank = max(map(len, known), default=0)
        axes = [[dims[axis] for dims in known if len(dims) >= -axis] for axis in range(-rank, 0)]
        return [next((dim for dim in axis if dim != 1), 1) for axis in axes]
