"""Parameters that are tensors: known while importing, or numbers that the model computes while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from softq.artifact.program import Limit
from softq.compiler.frontend.onnx_node import Node
from softq.compiler.frontend.shape_folding import static
from softq.compiler.tir.symbolic import Dim, expression, least, plain, simplified, size
from softq.errors import RefusalError


def known_numbers(node: Node, position: int) -> NDArray[np.int64] | None:
    """Return the integers of an input, flat, or None where they are not known before the run."""
    known = node.importer.sizes.get(node.inputs[position])
    if known is not None:
        numbers = static(known[0])
        return None if numbers is None else numbers.ravel()
    array = node.array(position)
    return None if array is None else array.ravel().astype(np.int64)


def known_axes(node: Node) -> list[int] | None:
    """Return the axes that a node names by its second input or by its attribute; None if the run decides them."""
    given = known_numbers(node, 1) if node.has(1) else np.array(node.attributes.get("axes", ()), np.int64)
    return None if given is None else [int(a) for a in given.ravel()]


def flat_numbers(node: Node, position: int) -> relax.Expr:
    """Return an input of integers as an int64 tensor [n].

    Raises:
        RefusalError: it has several axes, or is of other numbers.
    """
    x, dims = node.tensor(position), node.shape(position)
    if len(dims) > 1 or not str(x.ty.dtype).startswith(("int", "uint")):
        name = node.inputs[position]
        raise RefusalError(
            f"{node.operator} {node.name!r}: {name!r} is {x.ty.dtype}{dims}; expected a list of integers"
        )
    if str(x.ty.dtype) != "int64":
        x = node.emit(relax.op.astype(x, "int64"))
    return x if dims else node.emit(relax.op.reshape(x, [1]))


def count_of(node: Node, numbers: relax.Expr) -> int:
    """Return how many elements a list has.

    Raises:
        RefusalError: the run decides it.
    """
    (count,) = (plain(d) for d in numbers.ty.shape.values)
    if not isinstance(count, int):
        raise RefusalError(f"{node.operator} {node.name!r}: how many axes it names is known only during the run")
    return count


def length_between(node: Node, low: Dim, high: Dim) -> Dim:
    """Return how many numbers there are from one size to another: none where the second is less.

    Where only axes without elements make it less, these end the run: lengths stay what others are compared with.
    """
    length = simplified(expression(high) - expression(low))
    if least(length) >= 0:
        return length
    if least(length, 1) < 0:
        return simplified(tirx.max(expression(length), 0))
    node.require(Limit(size(length), 0, 2**40, f"{node.operator} {node.name} ends before it begins"))
    return length


Argument: TypeAlias = "relax.Expr | Sequence[Dim]"
"""A tensor, or dimensions: a function of TVM's has variables of its own for those of the model."""


def emit(node: Node, name: str, function: Callable[..., Any], *arguments: Argument) -> relax.Expr:
    """Return the result of a function of tensors and lists of dimensions, as TVM's tensor expression."""
    given = [x if isinstance(x, relax.Expr) else [expression(plain(d)) for d in x] for x in arguments]
    return node.importer.bb.emit_te(function, *given, primfunc_name_hint=name)


def table(
    node: Node, name: str, rows: Sequence[Callable[..., Any]], *arguments: Argument, dtype: str = "int64"
) -> relax.Expr:
    """Return a tensor of so many elements, each an expression of tensors' elements and dimensions.

    It is never computed again within the loops that read it: what is seen in another shape is not fused.
    """

    def compute(*given: Any) -> Any:
        def element(at: Any, _: Any) -> Any:
            values = [expression(row(*given)).astype(dtype) for row in rows]
            result = values[-1]
            for position, value in reversed(list(enumerate(values[:-1]))):
                result = tirx.Select(at == position, value, result)
            return result

        return te.compute([expression(len(rows)), expression(1)], element, name=name)

    return node.emit(relax.op.reshape(emit(node, name, compute, *arguments), [len(rows)]))


def integer(value: int) -> Any:
    """Return a number as TVM has it."""
    return tirx.IntImm("int64", value)


def total(values: Sequence[Any]) -> Any:
    """Return a sum."""
    result = integer(0)
    for value in values:
        result = result + value
    return result


def one_if(condition: Any) -> Any:
    """Return 1 where a condition holds, else 0."""
    return tirx.Select(condition, integer(1), integer(0))


@dataclass(frozen=True)
class AxisFlags:
    """Axes that the run decides.

    Attributes:
        flags: int64 [rank], 1 for each axis that is named.
        named: How many axes are named.
        chosen: The flags as dimensions.
    """

    flags: relax.Expr
    named: Dim
    chosen: tuple[tirx.Var, ...]

    def others(self, node: Node, dims: Sequence[Dim]) -> list[Dim]:
        """Return the lengths of the axes that are not named, in their order."""
        count, rank = self.named, len(dims)
        if not isinstance(count, int):
            raise RefusalError(f"{node.operator} {node.name!r}: how many axes it names is known only during the run")
        if count == rank:
            return []

        def length(place: int) -> Callable[[Any], Any]:
            def element(flags: Any, lengths: Any) -> Any:
                found = [
                    tirx.Select(
                        tirx.And(flags[i] == 0, i - total([flags[j] for j in range(i)]) == place),
                        lengths[i],
                        integer(0),
                    )
                    for i in range(place, rank)
                ]
                return total(found)

            return element

        lengths = table(node, "lengths", [length(place) for place in range(rank - count)], self.flags, dims)
        return list(node.importer.measure(lengths))


def axis_flags(node: Node, axes: relax.Expr, rank: int, none_is_all: bool) -> AxisFlags:
    """Return which axes of so many a list names; an axis that there is not, or twice, ends the run.

    Args:
        node: The node.
        axes: int64 [n].
        rank: How many axes there are.
        none_is_all: Whether an empty list names all of them.
    """
    (count,) = (plain(d) for d in axes.ty.shape.values)

    def counted(given: Any) -> Any:
        k = te.reduce_axis((integer(0), given.shape[0]), "k")

        def element(axis: Any) -> Any:
            return te.sum(one_if(tirx.Or(given[k] == axis, given[k] == axis - rank)), axis=k)

        return te.compute([integer(rank)], element, name="named")

    named = emit(node, "named", counted, axes)

    def flag(axis: int) -> Callable[[Any], Any]:
        def element(times: Any, length: Any) -> Any:
            every = [times[i] for i in range(rank)]
            once = tirx.all(*(t <= 1 for t in every), total(every) == length[0])
            value = tirx.Select(once, times[axis], integer(-1))
            return tirx.Select(length[0] == 0, integer(1), value) if none_is_all else value

        return element

    flags = table(node, "flags", [flag(axis) for axis in range(rank)], named, [count])
    return AxisFlags(flags, count, tuple(node.importer.measure(flags)))
