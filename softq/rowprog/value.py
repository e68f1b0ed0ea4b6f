"""Values of a program under construction: Python's operators on them make the nodes of their trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softq.errors import UsageError
from softq.rowprog.program import Node, Number
from softq.rowprog.types import DType, Kind

if TYPE_CHECKING:
    from softq.rowprog.trace import Trace


class Value:
    """A value of a program under construction: a row, or one number a row."""

    __slots__ = ("node", "trace")

    def __init__(self, trace: Trace, node: Node) -> None:
        self.trace = trace
        self.node = node

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.node.dtype

    @property
    def kind(self) -> Kind:
        """Row, scalar or table."""
        return self.node.kind

    def __add__(self, other: Operand) -> Value:
        return self.trace.binary("add", self, other)

    def __radd__(self, other: Number) -> Value:
        return self.trace.binary("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.trace.binary("sub", self, other)

    def __rsub__(self, other: Number) -> Value:
        return self.trace.binary("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.trace.binary("mul", self, other)

    def __rmul__(self, other: Number) -> Value:
        return self.trace.binary("mul", other, self)

    def __neg__(self) -> Value:
        return self.trace.binary("sub", 0, self)

    def __lshift__(self, other: Operand) -> Value:
        return self.trace.binary("shl", self, other)

    def __rshift__(self, other: Operand) -> Value:
        return self.trace.binary("shr", self, other)

    def __lt__(self, other: Operand) -> Value:
        return self.trace.binary("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return self.trace.binary("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self.trace.binary("lt", other, self)

    def __ge__(self, other: Operand) -> Value:
        return self.trace.binary("le", other, self)

    def __and__(self, other: Operand) -> Value:
        return self.trace.binary("and", self, other)

    def __or__(self, other: Operand) -> Value:
        return self.trace.binary("or", self, other)

    def __invert__(self) -> Value:
        return self.trace.unary("not", self)

    def eq(self, other: Operand) -> Value:
        """Return where the two are equal. Python's `==` stays identity, so that values can be dictionary keys."""
        return self.trace.binary("eq", self, other)

    def __bool__(self) -> bool:
        raise UsageError("a traced value has no truth value: a row program has no branches; use select")

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.dtype.value} {self.node.op}>"


Operand = Value | Number
