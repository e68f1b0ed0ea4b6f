"""The values of a program as they are emitted: scalars of a row, or the elements in the lanes of a vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from tvm.ir import Expr

from softq.codegen.common import carriers
from softq.codegen.cpu.rows.processor import Processor
from softq.codegen.cpu.rows.tables import Table
from softq.codegen.cpu.rows.tir import BOOL, F32, Local, Memory, broadcast, cast, const, type_name, vector
from softq.rowprog.program import Node, number_of
from softq.rowprog.ranges import Proof
from softq.rowprog.types import Kind

Rule = Callable[["Emission", Node], Expr]


@dataclass
class KernelContext:
    """What all emissions of one kernel share.

    Attributes:
        processor: What it is for.
        longest: Greatest number of elements of a row.
        proof: The intervals, which decide the carriers.
        rules: What emits each operator.
        fenced: Products that must not be contracted with what they are used in.
        length: Number of elements of a row, as an index.
        params: Memory of each run-time parameter, by name.
        head: The number of the row's head, as an index.
        operators: Of the pass that computes most of an element.
        tables: How each table is looked up.
        row_tables: Values that are looked up in tables of the row at hand, and at which byte.
        starts: Numbers that the maximums of rows begin with, where nothing asks for a lesser one.
    """

    processor: Processor
    longest: int
    proof: Proof
    rules: Mapping[str, Rule]
    fenced: frozenset[Node]
    length: Expr
    params: Mapping[str, Memory]
    head: Expr
    operators: int
    tables: dict[Node, Table] = field(default_factory=dict)
    row_tables: Mapping[Node, tuple[Table, Node]] = field(default_factory=dict)
    starts: Mapping[Node, float] = field(default_factory=dict)

    def looked_up(self, node: Node) -> tuple[Table, Node] | None:
        """Return in which table a value is looked up, and at what; None if it is computed."""
        if node in self.row_tables:
            return self.row_tables[node]
        return (self.tables[node.args[0]], node.args[1]) if node.op == "lut" else None

    @property
    def index(self) -> str:
        """The type of positions."""
        return self.processor.index


@dataclass(eq=False)
class Emission:
    """Values at one place: of the row if `bits` is 0, else of `lanes` elements from a position on.

    Attributes:
        kernel: What all places share.
        outer: The place whose scalars are seen here.
        lanes: Number of elements.
        bits: Width of the carriers; 0 at places where integers have the types that the program names.
        at: Position of the first element.
        counted: Which lanes sums take in; None if all.
        left: How many elements there are from the position on, where that decides which lanes are counted. The other
            lanes hold anything then.
        masked: Whether the other lanes are behind the row's last element: they repeat its first one.
        elsewhere: Gives a row value that is not there: from another width, or from memory.
        zeros: The zeros above the first bit of numbers.
    """

    kernel: KernelContext
    outer: Emission | None = None
    _: KW_ONLY
    lanes: int = 1
    bits: int = 0
    at: Expr | None = None
    counted: Local | None = None
    left: Expr | None = None
    masked: bool = False
    elsewhere: Callable[[Emission, Node], Expr] | None = None
    zeros: dict[Node, Local] = field(init=False, default_factory=dict)
    _values: dict[Node, Local] = field(init=False, default_factory=dict)

    @property
    def processor(self) -> Processor:
        """What the code is for."""
        return self.kernel.processor

    # Types

    @property
    def fits_words(self) -> bool:
        """Whether each integer is computed in as many words as its own values need: where code is to be short."""
        return self.processor.machine.in_flash and self.lanes == 1

    def interval(self, *nodes: Node) -> tuple[int, int]:
        """Return what the integer values among some lie in here: elements belong to rows that have some."""
        if self.bits:
            return carriers.filled_interval(nodes, self.kernel.proof)
        return carriers.whole_interval(nodes, self.kernel.proof)

    def type_of(self, node: Node) -> str:
        """Return the type that a value is computed in here."""
        if node.dtype.is_integer and self.fits_words:
            return carriers.word(*self.interval(node))
        if node.dtype.is_integer and self.bits:
            return carriers.carrier(*carriers.interval(node, self.kernel.proof), self.bits)
        return type_name(node.dtype)

    def modular(self, node: Node) -> str:
        """Return the type in which a sum, a difference or a product is computed.

        Integers wrap, so that the width of the result is enough for the operands too; in C they must not.
        """
        if node.dtype.is_integer and self.fits_words:
            return carriers.word(*self.interval(node, *node.args))
        return self.type_of(node)

    def common(self, node: Node) -> str:
        """Return the type that holds the operands and the result of an operator with operands of one type."""
        operand = node.args[-1]
        if operand.dtype.is_integer and self.fits_words:
            if self.bits and carriers.limit(node, self.kernel.proof) is not None:
                return carriers.word(*carriers.common(node, self.kernel.proof))
            return carriers.word(*self.interval(node, *node.args))
        if operand.dtype.is_integer and self.bits:
            return carriers.carrier(*carriers.common(node, self.kernel.proof), self.bits)
        return type_name(operand.dtype)

    # Values

    def keep(self, node: Node, x: Expr) -> Local:
        """Remember the value of a node."""
        self._values[node] = Local.of(x, self.type_of(node), self.lanes)
        return self._values[node]

    def bind(self, node: Node, local: Local) -> None:
        """Let a node be what stands in this memory."""
        self._values[node] = local

    def has(self, node: Node) -> bool:
        """Say whether the value of a node is there."""
        return node in self._values

    def compute(self, *nodes: Node) -> None:
        """Emit values in an order in which the operands of each are there."""
        for node in nodes:
            if node not in self._values and node.op != "const":
                self.keep(node, self.kernel.rules[node.op](self, node))

    def value(self, node: Node) -> Expr:
        """Return a value in the type that it has here."""
        return self.arg(node, self.type_of(node))

    def arg(self, node: Node, name: str) -> Expr:
        """Return a value in this type, in all lanes."""
        if node.op == "const":
            return const(number_of(node), name, self.lanes)
        if node in self._values:
            local = self._values[node]
            x = local.get()
            x = x if local.name == name else self.convert(x, local.name, name)
            return broadcast(x, self.lanes) if local.lanes < self.lanes else x
        if node.kind is Kind.ROW and node.op == "index":
            return self.kernel.rules["index"](self, node)
        if node.kind is Kind.ROW and self.elsewhere is not None:
            self.keep(node, self.elsewhere(self, node))
            return self.arg(node, name)
        assert self.outer is not None, node
        return broadcast(self.outer.arg(node, name), self.lanes)

    def operand(self, node: Node, at: int, name: str | None = None) -> Expr:
        """Return an operand, by default in the type that it has here."""
        return self.arg(node.args[at], name or self.type_of(node.args[at]))

    def of_row(self, node: Node) -> Expr:
        """Return a number of the row in its own type."""
        assert self.outer is not None
        return self.outer.arg(node, type_name(node.dtype))

    def convert(self, x: Expr, old: str, new: str) -> Expr:
        """Return integers in another integer type; they wrap."""
        assert not {BOOL, F32} & {old, new}, (old, new)
        return cast(x, old, new, self.lanes)

    def vector(self, name: str) -> str:
        """Return the type of values of this place whose elements have the given type."""
        return vector(name, self.lanes)

    def share(self, x: Expr, name: str) -> Expr:
        """Return a value that may be used many times."""
        return Local.of(x, name, self.lanes).get()

    def const(self, value: float, name: str) -> Expr:
        """Return a constant in all lanes."""
        return const(value, name, self.lanes)
