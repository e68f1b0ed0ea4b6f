"""The kernel of a row program: its signature, the loop over rows, and what is computed once a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from softq.artifact.machine import Cpu
from softq.codegen.common.patterns import check_nibbles, everything, fenced, output_type
from softq.codegen.cpu.rows.accumulators import REDUCTIONS
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.load_store import Line, RowMemory, written
from softq.codegen.cpu.rows.pipeline import Pipeline, split_stages
from softq.codegen.cpu.rows.processor import Processor
from softq.codegen.cpu.rows.row_loop import RowLoop
from softq.codegen.cpu.rows.row_number import RowNumber
from softq.codegen.cpu.rows.rules import RULES
from softq.codegen.cpu.rows.short_rows import ShortRows
from softq.codegen.cpu.rows.stored_rows import count_scratch_rows, place_stored_rows
from softq.codegen.cpu.rows.tables import Table, constant_table, given_table
from softq.codegen.cpu.rows.tir import Local, Memory, cast, opaque, type_name
from softq.rowprog.onnx.emitter import output_names
from softq.rowprog.phases import Phase, phases
from softq.rowprog.program import Node, Program, param_of, walk
from softq.rowprog.ranges import prove
from softq.rowprog.types import DType, Kind

_SCRATCH_BYTES = 8
_AHEAD_BYTES = 2**19
"""Rows up to which the next one is asked for: it and what is written must stay in a cache of a megabyte."""

_STRIDES = ("valid_outer", "valid_head", "valid_query", "valid_element")


@dataclass(frozen=True)
class RowKernel:
    """The kernel of a row program.

    Attributes:
        symbol: Its name.
        function: The function, with pointers and integers as parameters.
        parameters: Names of the run-time parameters in their order.
        outputs: Names of the outputs in their order.
        scratch_bytes: If not 0, the last pointer is scratch of so many bytes for each element of all rows.
    """

    symbol: str
    function: tirx.PrimFunc
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    scratch_bytes: int = 0


def row_kernel(
    program: Program,
    machine: Cpu,
    *,
    symbol: str,
    max_length: int,
    outputs: Sequence[str] | None = None,
    nibbles: Collection[str] = (),
) -> RowKernel:
    """Return the kernel of a program.

        void symbol(const S *scores, [const bool *valid,] const P *param..., O *output..., [void *scratch,]
                    int64_t length, int64_t heads, int64_t queries,
                    [int64_t valid_outer, int64_t valid_head, int64_t valid_query, int64_t valid_element,]
                    int64_t begin, int64_t end)

    It computes the rows from `begin` up to `end`, which are numbered over the axes (outer, heads, queries). All
    arrays are row-major and need the alignment of their elements only. The mask has strides of its own, in elements;
    its last one is 0 or 1. Outputs of the interface are float32, others have their own type (bool is a byte).

    Args:
        program: What to compute.
        machine: What it is for.
        symbol: Name of the function.
        max_length: Greatest length of a row that the proof covers.
        outputs: Names of the outputs; by default those of the interface.
        nibbles: Those of them that are written two elements a byte, the first one in the low four bits; each row
            begins with a byte of its own, and an odd one ends with a 0.

    Raises:
        ProofError: the program has no complete proof.
        UsageError: an output is unknown or named twice, or has numbers that four bits do not hold.
    """
    names = output_names(program, outputs)
    chosen = replace(program, outputs={name: program.outputs[name] for name in names})
    with IRBuilder() as builder, script.prim_func():
        script.func_name(symbol)
        script.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        scratch = _Builder(program, chosen, Processor(machine), max(max_length, 1), nibbles).emit()
    parameters = tuple(param.name for param in program.params)
    function = builder.get()
    assert isinstance(function, tirx.PrimFunc)
    return RowKernel(symbol, function, parameters, tuple(names), scratch)


class _Builder:
    """The function's parameters and its loop over rows."""

    def __init__(
        self, whole: Program, program: Program, processor: Processor, max_length: int, nibbles: Collection[str]
    ) -> None:
        self._program = program
        self._processor = processor
        self._index = processor.index
        self._passes = phases(program)
        self._places = place_stored_rows(program, self._passes, nibbles)
        self._proof = prove(whole, max_length=max_length)
        self._whole = whole
        self._longest = max_length
        self._nibbles = nibbles
        self._along = True  # whether the mask has elements along the row, in the form that is emitted
        for name in nibbles:
            check_nibbles(program, name, self._proof)

    def emit(self) -> int:
        """Emit the function; return the bytes of scratch an element."""
        scratch = count_scratch_rows(self._places)
        pointers = {label: script.arg(label, script.handle(name)) for label, name in self._pointers(scratch).items()}
        numbers = ["length", "heads", "queries", *_STRIDES * self._whole.masked, "begin", "end"]
        given = {name: script.arg(name, script.int64()) for name in numbers}
        # All parameters come before the first statement.
        memories = {
            label: Memory.behind(pointers[label], name, self._index) for label, name in self._pointers(scratch).items()
        }
        self._take(memories)
        sizes = {name: self._position(cast(value, "int64", self._index, 1)) for name, value in given.items()}
        length, heads, queries = (sizes[name] for name in ("length", "heads", "queries"))
        begin, end = sizes["begin"], sizes["end"]
        steps = [sizes[name] for name in _STRIDES * self._whole.masked]
        rows = RowNumber(self._processor, begin, heads, queries)
        kernel = KernelContext(
            processor=self._processor,
            longest=self._longest,
            proof=self._proof,
            rules=RULES,
            fenced=fenced(self._program),
            length=length,
            params=self._params,
            head=tirx.const(0, self._index),
        )
        for node in _tables(self._program):
            if node.op == "table":
                kernel.tables[node] = constant_table(node, self._index)
            elif param_of(node).scope == "site":
                kernel.tables[node] = self._given(node, tirx.const(0, self._index))

        # What does not change from row to row.
        common = Emission(kernel)
        for node in self._program.nodes():
            if node.kind is Kind.SCALAR and (node.op == "length" or (node.op == "param" and _is_of_site(node))):
                common.compute(node)
        count = self._position(tirx.Sub(end, begin))

        def start(rows: RowNumber, number: Expr) -> tuple[KernelContext, RowMemory, Emission]:
            here = replace(kernel, head=rows.head.get(), tables=dict(kernel.tables))
            for node in _tables(self._program):
                if node.op == "param" and not _is_of_site(node):
                    size = param_of(node).size
                    assert size is not None
                    here.tables[node] = self._given(node, tirx.Mul(here.head, tirx.const(size, self._index)))
            scalars = Emission(here, common)
            for node in self._program.nodes():
                if node.kind is Kind.SCALAR and node.op == "param" and not _is_of_site(node):
                    scalars.compute(node)
            return here, self._row(number, length, rows, steps, scratch), scalars

        def each_row(emit: Callable[[KernelContext, RowMemory, Emission], None], filled: bool = False) -> None:
            with script.serial(count) as done:
                number = self._position(tirx.Add(begin, done))
                here, row, scalars = start(rows, number)
                emit(here, row, scalars)
                self._write_scalars(scalars, number, self._program.outputs, filled)
                rows.next()

        def long_rows() -> None:
            # The pass with the most to compute has the most time for the memory to bring the next row.
            longest = max(self._passes[1:], key=lambda phase: len(phase.rows), default=None)
            ahead = longest, self._distance_of_next_row(length)
            if not Pipeline.is_possible(self._passes):
                return each_row(lambda here, row, scalars: self._pass_by_pass(here, row, scalars, ahead))
            found = split_stages(self._passes, self._program.outputs)
            numbers = [RowNumber(self._processor, begin, heads, queries) for _ in found]

            def finish(stage: int, scalars: Emission, number: Expr, names: Sequence[str]) -> None:
                self._write_scalars(scalars, number, names)
                numbers[stage].next()

            bytes_of = tirx.const(self._whole.scores.bits // 8, self._index)
            pipeline = Pipeline(kernel, found, self._program.outputs, begin, count)
            pipeline.emit(tirx.Mul(length, bytes_of), lambda k, number: start(numbers[k], number), finish, ahead)
            return None

        def all_rows() -> None:
            if not ShortRows.is_possible(kernel, self._passes):
                return long_rows()
            # A row of the same types as all others have.
            short = ShortRows(
                kernel, self._passes, self._program.outputs, self._row(begin, length, rows, steps, scratch)
            )
            forms = list(short.forms())
            most = tirx.const(short.step * len(forms), self._index)
            zero = tirx.const(0, self._index)
            with script.If(tirx.And(tirx.LT(zero, length), tirx.LE(length, most))):
                with script.Then():
                    for i, form in enumerate(forms):
                        above, upto = (tirx.const(short.step * n, self._index) for n in (i, i + 1))
                        with script.If(tirx.And(tirx.LT(above, length), tirx.LE(length, upto))), script.Then():
                            each_row(
                                lambda here, row, scalars, form=form: short.emit(here, row, scalars, *form), filled=True
                            )
                with script.Else():
                    long_rows()
            return None

        if not self._whole.masked:
            all_rows()
            return scratch * _SCRATCH_BYTES
        # How the mask is read is the same in all rows.
        with script.If(tirx.EQ(steps[3], tirx.const(0, self._index))):
            for self._along, branch in ((False, script.Then), (True, script.Else)):
                with branch():
                    all_rows()
        return scratch * _SCRATCH_BYTES

    def _pointers(self, scratch: int) -> dict[str, str]:
        """Return the type behind each pointer by its label, in order."""
        pointers = {"scores": type_name(self._whole.scores)}
        if self._whole.masked:
            pointers["valid"] = "uint8"
        pointers |= {f"param_{param.name}": _held(param.dtype) for param in self._whole.params}
        pointers |= {f"output_{name}": _held(output_type(self._program, name)) for name in self._program.outputs}
        return pointers | ({"scratch": "uint64"} if scratch else {})

    def _take(self, memories: Mapping[str, Memory]) -> None:
        self._scores, self._valid = memories["scores"], memories.get("valid")
        self._params = {param.name: memories[f"param_{param.name}"] for param in self._whole.params}
        self._outputs = {name: memories[f"output_{name}"] for name in self._program.outputs}
        self._scratch = memories.get("scratch")

    def _given(self, node: Node, start: Expr) -> Table:
        param = param_of(node)
        assert param.size is not None
        return given_table(
            self._params[param.name], start, param.size, self._processor.is_x86 or bool(self._processor.shuffle)
        )

    def _row(self, row: Expr, length: Expr, number: RowNumber, steps: Sequence[Expr], scratch: int) -> RowMemory:
        base = self._position(tirx.Mul(row, length))
        slots: list[Line] = []
        if self._scratch is not None:
            first = tirx.Mul(base, tirx.const(scratch, self._index))
            for k in range(scratch):
                at = tirx.Add(first, tirx.Mul(length, tirx.const(k, self._index)))
                slots.append(Line(self._scratch, self._position(at)))
        valid = None
        if self._valid is not None:
            valid = (Line(self._valid, self._position(number.dot(steps[:3]))), self._along)
        outputs = {name: Line(memory, base) for name, memory in self._outputs.items()}
        for name in self._nibbles:
            bytes_of = script.shift_right(tirx.Add(length, tirx.const(1, self._index)), tirx.const(1, self._index))
            outputs[name] = Line(self._outputs[name], self._position(tirx.Mul(row, bytes_of)), nibbles=True)
        return RowMemory(Line(self._scores, base), valid, outputs, self._places, slots)

    def _pass_by_pass(
        self, kernel: KernelContext, row: RowMemory, scalars: Emission, ahead: tuple[Phase | None, Expr]
    ) -> None:
        for phase in self._passes:
            for node in phase.setup:
                scalars.compute(node)
            asks = ahead[1] if phase is ahead[0] else None
            RowLoop(kernel, phase, row, scalars, self._program.outputs, asks).emit()
            for node in phase.scalars:
                scalars.compute(node)

    def _write_scalars(self, scalars: Emission, row: Expr, names: Iterable[str], filled: bool = False) -> None:
        """Write numbers of a row; `filled` says that it has elements, without which sums are the same in all rows."""
        for name in names:
            node, held = self._program.outputs[name], self._outputs[name]
            if node.kind is Kind.SCALAR:
                x = written(scalars, node, held.name)
                held.store(x if filled and _is_reduced(node) else opaque(x, held.name, 1, row), row, 1)

    def _distance_of_next_row(self, length: Expr) -> Expr:
        """Return how far behind its own elements a pass asks for others: those at hand, if the rows are too long."""
        longest = _AHEAD_BYTES * 8 // self._whole.scores.bits
        near = tirx.LE(length, tirx.const(longest, self._index))
        return self._position(tirx.Select(near, length, tirx.const(0, self._index)))

    def _position(self, x: Expr) -> Expr:
        return Local.of(x, self._index, 1).get()


def _held(dtype: DType) -> str:
    return "uint8" if dtype is DType.BOOL else type_name(dtype)


def _is_reduced(node: Node) -> bool:
    """Say whether a number is made of a row's elements; what is not, LLVM may see to be the same in all rows."""
    return any(n.op in REDUCTIONS for n in walk([node]))


def _is_of_site(node: Node) -> bool:
    return param_of(node).scope == "site"


def _tables(program: Program) -> Iterator[Node]:
    yield from dict.fromkeys(node for node in everything(program) if node.kind is Kind.TABLE)
