"""The values of a program while a kernel is written: names of variables at one place, a row's or an element's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from softq.codegen.common.carriers import carrier
from softq.codegen.gpu.dialect.text import BOOL, F32, I32, Text, converted, literal
from softq.rowprog.program import Node, Program, number_of
from softq.rowprog.ranges import Proof
from softq.rowprog.types import Kind

Rule = Callable[["Emission", Node], str]


@dataclass
class KernelContext:
    """What all places of a kernel share.

    Attributes:
        text: Its lines.
        proof: The intervals, which decide the types.
        rules: How each operator is written.
        fenced: Products that must not be contracted with what they are used in.
        params: The memory of each parameter.
        tables: How an entry of each table is read, from the text of its position.
    """

    text: Text
    proof: Proof
    rules: Mapping[str, Rule]
    fenced: frozenset[Node]
    params: Mapping[str, str]
    tables: dict[Node, Callable[[str], str]] = field(default_factory=dict)

    def interval(self, node: Node) -> tuple[int, int]:
        """Return what an integer lies in; rows are computed only where they have elements."""
        found = (self.proof.filled if node.kind is Kind.ROW else self.proof.intervals)[node]
        return (int(found.low), int(found.high)) if found.low <= found.high else (0, 0)

    def type_of(self, node: Node) -> str:
        """Return the type that a value is computed in: of 32 bits if it may be."""
        if not node.dtype.is_integer:
            return F32 if node.dtype.is_float else BOOL
        return integer(*self.interval(node))

    def common(self, node: Node) -> str:
        """Return the type that holds the result and the operands of an operator with operands of one type."""
        if not node.args[-1].dtype.is_integer:
            return self.type_of(node.args[-1])
        found = [self.interval(v) for v in (node, *node.args) if v.dtype.is_integer]
        return integer(min(low for low, _ in found), max(high for _, high in found))


def integer(low: int, high: int) -> str:
    """Return the integer type that holds an interval."""
    bits = 32 if -(1 << 31) <= low and high < 1 << (31 if low < 0 else 32) else 64
    return f"{carrier(low, high, bits)[0]}{bits}"


class Emission:
    """Values at one place: of the row if `at` is empty, else of the element at that position.

    Args:
        kernel: What all places share.
        outer: The place whose values are seen here.
        at: The element's position.
    """

    def __init__(self, kernel: KernelContext, outer: Emission | None = None, at: str = "") -> None:
        self.kernel = kernel
        self.at = at
        self._outer = outer
        self._values: dict[Node, tuple[str, str]] = {}

    @classmethod
    def of_row(cls, kernel: KernelContext, program: Program) -> Emission:
        """Return a program's row with the scalars that come from outside."""
        place = cls(kernel)
        for node in program.nodes():
            if node.kind is Kind.SCALAR and node.op in ("length", "param"):
                place.compute(node)
        return place

    def bind(self, node: Node, text: str, name: str) -> None:
        """Let a node be what this text says, of this type."""
        self._values[node] = (text, name)

    def keep(self, node: Node, text: str) -> None:
        """Remember the value of a node in a variable."""
        name = self.kernel.type_of(node)
        self._values[node] = (self.kernel.text.define(name, text), name)

    def compute(self, node: Node) -> None:
        """Write a value whose operands are there."""
        if node.op != "const" and self._found(node) is None:
            self.keep(node, self.kernel.rules[node.op](self, node))

    def arg(self, node: Node, name: str | None = None) -> str:
        """Return a value in this type, by default its own."""
        name = name or self.kernel.type_of(node)
        if node.op == "const":
            return literal(number_of(node), name)
        if node.op == "index":
            return converted(self.at, I32, name)
        found = self._found(node)
        assert found is not None, node
        return converted(found[0], found[1], name)

    def _found(self, node: Node) -> tuple[str, str] | None:
        if node in self._values:
            return self._values[node]
        return None if self._outer is None else self._outer._found(node)
