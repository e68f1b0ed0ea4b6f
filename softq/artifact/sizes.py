"""Sizes as text for people and as C: each distinct operation is computed once, in a numbered place."""

from __future__ import annotations

from collections.abc import Sequence

from softq.artifact.program import Op, Program, Size
from softq.errors import SoftqError

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}

_INT64 = range(-(2**63), 2**63)


def to_text(size: Size) -> str:
    """Return a size as an expression such as `batch * 384`."""
    if not isinstance(size, Op):
        return str(size)
    if size.operator in _SIGNS:
        return f"{_operand(size.a)} {_SIGNS[size.operator]} {_operand(size.b)}"
    return f"{size.operator}({to_text(size.a)}, {to_text(size.b)})"


def _operand(size: Size) -> str:
    plain = not isinstance(size, Op) or size.operator not in _SIGNS
    return to_text(size) if plain else f"({to_text(size)})"


def dimensions(program: Program) -> tuple[str, ...]:
    """Return the names that the inputs' shapes bind, in the order of their first axes."""
    shapes = (program.tensors[number].shape for number in program.inputs)
    return tuple(dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, str)))


def all_dimensions(program: Program) -> tuple[str, ...]:
    """Return the names of all dimensions: those that the inputs bind, then those that data decide."""
    return (*dimensions(program), *program.measured)


class SizeTable:
    """The sizes of one driver: a reference in C for each, and the statements that compute them.

    Attributes:
        statements: The statements in their order, once all sizes are known.
    """

    def __init__(self, dims: Sequence[str]) -> None:
        self._dims = {name: number for number, name in enumerate(dims)}
        self._places: dict[Op, int] = {}
        self.statements: list[str] = []

    def reference(self, size: Size) -> str:
        """Return the initializer of a `struct sq_ref`.

        Raises:
            SoftqError: no input has such a dimension, or a number has more than 64 bits.
        """
        kind, value = self._kind(size)
        return f"{{SQ_{kind}, {value}}}"

    def value(self, size: Size) -> str:
        """Return the expression of a step's argument."""
        return self._expression(size, "s->")

    def _expression(self, size: Size, owner: str) -> str:
        kind, value = self._kind(size)
        return value if kind == "NUMBER" else f"{owner}{kind.lower()}[{value}]"

    def _kind(self, size: Size) -> tuple[str, str]:
        """Return what a size is, and its value or its number among those of its kind."""
        if isinstance(size, int):
            return "NUMBER", number(size)
        if isinstance(size, str):
            if size not in self._dims:
                known = ", ".join(self._dims) or "none"
                raise SoftqError(f"a size uses the dimension {size!r}, which no input has; there are: {known}")
            return "DIM", str(self._dims[size])
        if size not in self._places:
            a, b = self._expression(size.a, ""), self._expression(size.b, "")
            self._places[size] = len(self.statements)
            self.statements.append(f"size[{self._places[size]}] = sq_{size.operator}(&bad, {a}, {b});")
        return "SIZE", str(self._places[size])


def number(value: int) -> str:
    """Return an integer as a C constant that converts to int64_t.

    Raises:
        SoftqError: it has more than 64 bits.
    """
    if value not in _INT64:
        raise SoftqError(f"the size {value} has more than 64 bits")
    if -(2**31) < value < 2**31:
        return str(value)
    # The least number has no literal of its own in C.
    return f"INT64_C({value})" if value > -(2**63) else "(-INT64_MAX - 1)"
