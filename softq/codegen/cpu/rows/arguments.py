"""What the kernel of a row program is given: its parameters, what of them all rows share, and the memory of a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.common.patterns import check_nibbles, everything, fenced, output_type
from softq.codegen.cpu.rows.accumulators import REDUCTIONS
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.integers import long_division
from softq.codegen.cpu.rows.load_store import Line, RowMemory, place_stored_rows, written
from softq.codegen.cpu.rows.processor import Processor
from softq.codegen.cpu.rows.rules import RULES
from softq.codegen.cpu.rows.short_forms import least_maximums
from softq.codegen.cpu.rows.tables import Table, constant_table, given_table, least_entry_type
from softq.codegen.cpu.rows.tir import Local, Memory, cast, opaque, type_name
from softq.rowprog.phases import phases
from softq.rowprog.program import Node, Program, param_of, table_of, table_size, walk
from softq.rowprog.ranges import prove
from softq.rowprog.types import DType, Kind

CONSTANTS = "softq.constants"
"""Attribute of a function whose last parameters point to constant arrays: these by the names of the parameters."""

PROVED = "softq.proved"
"""Attribute of a function whose integers are proved to fit their types."""

_STRIDES = ("valid_outer", "valid_head", "valid_query", "valid_element")


class Arguments:
    """The parameters, declared in their order, and what is computed of them before the first row.

    Args:
        whole: The program, all of whose inputs and run-time parameters the kernel takes.
        program: The same with the outputs that it writes.
        processor: What it is for.
        longest: Greatest length of a row that the proof covers.
        nibbles: Names of outputs that are written two elements per byte.
    """

    def __init__(
        self, whole: Program, program: Program, processor: Processor, longest: int, nibbles: Collection[str]
    ) -> None:
        self.program, self.passes, self._nibbles = program, phases(program), nibbles
        self._stored = place_stored_rows(program, self.passes, nibbles)
        self.scratch_rows = max((row.slot + 1 for row in self._stored.values() if row.output is None), default=0)
        proof = prove(whole, max_length=longest)
        for name in nibbles:
            check_nibbles(program, name, proof)
        self.processor, self.index = processor, processor.index
        types = {"scores": type_name(whole.scores)} | ({"valid": "uint8"} if whole.masked else {})
        types |= {f"param_{param.name}": _held(param.dtype) for param in whole.params}
        types |= {f"output_{name}": _held(output_type(program, name)) for name in program.outputs}
        types |= {"scratch": "uint64"} if self.scratch_rows else {}
        pointers = {label: script.arg(label, script.handle(name)) for label, name in types.items()}
        numbers = ["length", "heads", "queries", *_STRIDES * whole.masked, "begin", "end"]
        given = {name: script.arg(name, script.int64()) for name in numbers}
        constant = [node for node in _tables(program) if node.op == "table" and processor.machine.in_flash]
        # Tables of the same entries are one.
        alike = {node: (least_entry_type(node), table_of(node)) for node in constant}
        labels = {entries: f"table_{i}" for i, entries in enumerate(dict.fromkeys(alike.values()))}
        tables = {label: name for (name, _), label in labels.items()}
        pointers |= {label: script.arg(label, script.handle(name)) for label, name in tables.items()}
        types |= tables
        # All parameters come before the first statement.
        memory = {label: Memory.behind(pointers[label], name, self.index) for label, name in types.items()}
        self._scores, self._valid, self._scratch = memory["scores"], memory.get("valid"), memory.get("scratch")
        self._params = {param.name: memory[f"param_{param.name}"] for param in whole.params}
        self._outputs = {name: memory[f"output_{name}"] for name in program.outputs}
        given_tables = {node: memory[labels[entries]] for node, entries in alike.items()}
        self.constants = {labels[entries]: _array(node) for node, entries in alike.items()}
        sizes = {name: self.position(cast(value, "int64", self.index, 1)) for name, value in given.items()}
        self.length, self._heads, self._queries = sizes["length"], sizes["heads"], sizes["queries"]
        self.begin, self._end = sizes["begin"], sizes["end"]
        self.strides = [sizes[name] for name in _STRIDES * whole.masked]
        self.along = True
        """Whether the mask has an element for each of the row's, in the form that is emitted.

        Rows of which a mask says one thing alone are not worth the time that more code takes to compile.
        """
        self.numbers = self.count_rows()
        self.kernel = KernelContext(
            processor=processor,
            longest=longest,
            proof=proof,
            rules=RULES,
            fenced=fenced(program),
            length=self.length,
            params=self._params,
            head=tirx.const(0, self.index),
            operators=max(len(phase.rows) for phase in self.passes),
            starts=least_maximums(program) if processor.machine.in_flash else {},
        )
        for node in _tables(program):
            if node.op == "table":
                self.kernel.tables[node] = constant_table(node, self.index, given_tables.get(node))
            elif param_of(node).scope == "site":
                self.kernel.tables[node] = self._given_table(node, tirx.const(0, self.index))
        self._common = Emission(self.kernel)
        scalars = [node for node in program.nodes() if node.kind is Kind.SCALAR and node.op in ("length", "param")]
        self._of_head = [node for node in scalars if node.op == "param" and _is_of_head(node)]
        self._common.compute(*(node for node in scalars if node not in self._of_head))
        self.rows = self.position(tirx.Sub(self._end, self.begin))

    def position(self, x: Expr) -> Expr:
        """Return a position or size that may be used many times."""
        return Local.of(x, self.index, 1).get()

    def count_rows(self, start: Expr | None = None) -> RowNumber:
        """Return new counters that stand at a row, by default the first one."""
        return RowNumber(self.processor, self.begin if start is None else start, self._heads, self._queries)

    def start_row(self, numbers: RowNumber, row: Expr) -> tuple[KernelContext, RowMemory, Emission]:
        """Return what belongs to a row: the kernel with its head's tables, its memory, and the place of its scalars."""
        head = self.position(numbers.head.get())  # as it is now: the counters go on
        kernel = replace(self.kernel, head=head, tables=dict(self.kernel.tables))
        for node in _tables(self.program):
            if node.op == "param" and _is_of_head(node):
                start = tirx.Mul(kernel.head, tirx.const(table_size(node), self.index))
                kernel.tables[node] = self._given_table(node, start)
        scalars = Emission(kernel, self._common)
        scalars.compute(*self._of_head)
        return kernel, self.memory_of(numbers, row), scalars

    def memory_of(self, numbers: RowNumber, row: Expr) -> RowMemory:
        """Return the memory of a row."""
        base = self.position(tirx.Mul(row, self.length))
        slots: list[Line] = []
        if self._scratch is not None:
            first = tirx.Mul(base, tirx.const(self.scratch_rows, self.index))
            for k in range(self.scratch_rows):
                at = tirx.Add(first, tirx.Mul(self.length, tirx.const(k, self.index)))
                slots.append(Line(self._scratch, self.position(at)))
        valid = None
        if self._valid is not None:
            valid = Line(self._valid, self.position(numbers.dot(self.strides[:3])), alike=not self.along)
        outputs = {name: Line(memory, base) for name, memory in self._outputs.items()}
        for name in self._nibbles:
            bytes_of = script.shift_right(tirx.Add(self.length, tirx.const(1, self.index)), tirx.const(1, self.index))
            outputs[name] = Line(self._outputs[name], self.position(tirx.Mul(row, bytes_of)), nibbles=True)
        scores = Line(self._scores, base)
        if self.processor.machine.in_c:
            # Compilers of C keep fewer positions where rows have pointers of their own.
            scores = scores.alone()
            outputs = {name: line.alone() for name, line in outputs.items() if self._is_row(name)}
        return RowMemory(scores, valid, outputs, self._stored, slots)

    def _is_row(self, name: str) -> bool:
        return self.program.outputs[name].kind is Kind.ROW

    def write_scalars(self, scalars: Emission, row: Expr, names: Iterable[str], filled: bool = False) -> None:
        """Write numbers of a row, or of as many rows from it on as the scalars have lanes.

        `filled` says that rows have elements, without which sums are the same in all of them.
        """
        for name in names:
            node, held = self.program.outputs[name], self._outputs[name]
            if node.kind is Kind.SCALAR:
                x = written(scalars, node, held.name)
                lanes = scalars.lanes
                held.store(x if filled and _is_reduced(node) else opaque(x, held.name, lanes, row), row, lanes)

    def _given_table(self, node: Node, start: Expr) -> Table:
        padded = self.processor.is_x86 or bool(self.processor.shuffle)
        return given_table(self._params[param_of(node).name], start, table_size(node), padded)


class RowNumber:
    """The number of a row on the leading axes: counters that go along with the rows; only the first row is divided."""

    def __init__(self, processor: Processor, first: Expr, heads: Expr, queries: Expr) -> None:
        self._index, self._limits = processor.index, (heads, queries)

        def divide(a: Expr, b: Expr) -> Expr:
            # Not every processor of 32 bits divides; the compiler's library would be called.
            return long_division(a, b, processor.index, 1) if processor.is_32_bit else script.truncdiv(a, b)

        block = self._local(divide(first, queries))
        self.query = self._local(tirx.Sub(first, tirx.Mul(block.get(), queries)))
        self.outer = self._local(divide(block.get(), heads))
        self.head = self._local(tirx.Sub(block.get(), tirx.Mul(self.outer.get(), heads)))

    def dot(self, strides: Sequence[Expr]) -> Expr:
        """Return the position of the row in an array with these strides."""
        counters = (self.outer, self.head, self.query)
        return reduce(tirx.Add, [tirx.Mul(c.get(), s) for c, s in zip(counters, strides, strict=True)])

    def next(self) -> None:
        """Go to the next row."""
        zero, one = tirx.const(0, self._index), tirx.const(1, self._index)
        heads, queries = self._limits
        self.query.set(tirx.Add(self.query.get(), one))
        with script.If(tirx.EQ(self.query.get(), queries)), script.Then():
            self.query.set(zero)
            self.head.set(tirx.Add(self.head.get(), one))
            with script.If(tirx.EQ(self.head.get(), heads)), script.Then():
                self.head.set(zero)
                self.outer.set(tirx.Add(self.outer.get(), one))

    def set(self, other: RowNumber) -> None:
        """Go where other counters stand."""
        for mine, its in ((self.outer, other.outer), (self.head, other.head), (self.query, other.query)):
            mine.set(its.get())

    def _local(self, x: Expr) -> Local:
        return Local.of(x, self._index, 1)


def _array(node: Node) -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(np.array(table_of(node), least_entry_type(node)))


def _held(dtype: DType) -> str:
    return "uint8" if dtype is DType.BOOL else type_name(dtype)


def _is_reduced(node: Node) -> bool:
    """Say whether a number is made of a row's elements; what is not, LLVM may see to be the same in all rows."""
    return any(n.op in REDUCTIONS for n in walk([node]))


def _is_of_head(node: Node) -> bool:
    return param_of(node).scope == "head"


def _tables(program: Program) -> Iterator[Node]:
    yield from dict.fromkeys(node for node in everything(program) if node.kind is Kind.TABLE)
