"""The kernel of a row program: its signature, the loop over rows, and what is computed once a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from softq.rowprog.onnx.emitter import output_names
from softq.rowprog.phases import Phase, phases
from softq.rowprog.program import Node, Program, body_of, param_of
from softq.rowprog.ranges import prove
from softq.rowprog.types import DType, Kind
from softq.targets._native.machine import Machine
from softq.targets._native.rows.emission import Emission, Kernel
from softq.targets._native.rows.memory import output_type, places, scratch_rows
from softq.targets._native.rows.numbering import RowNumber
from softq.targets._native.rows.passes import Pass, Row, Write, written
from softq.targets._native.rows.processor import Processor
from softq.targets._native.rows.rules import RULES
from softq.targets._native.rows.scans import inner_nodes
from softq.targets._native.rows.tables import Table, constant_table, given_table
from softq.targets._native.rows.tir import Local, Memory, cast, opaque, type_name

_SCRATCH_BYTES = 8
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
    program: Program, machine: Machine, *, symbol: str, max_length: int, outputs: Sequence[str] | None = None
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

    Raises:
        ProofError: the program has no complete proof.
        UsageError: an output is unknown or named twice.
    """
    names = output_names(program, outputs)
    chosen = replace(program, outputs={name: program.outputs[name] for name in names})
    with IRBuilder() as builder, script.prim_func():
        script.func_name(symbol)
        script.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        scratch = _Builder(program, chosen, Processor(machine), max(max_length, 1)).emit()
    parameters = tuple(param.name for param in program.params)
    function = builder.get()
    assert isinstance(function, tirx.PrimFunc)
    return RowKernel(symbol, function, parameters, tuple(names), scratch)


class _Builder:
    """The function's parameters and its loop over rows."""

    def __init__(self, whole: Program, program: Program, processor: Processor, max_length: int) -> None:
        self._program = program
        self._processor = processor
        self._index = processor.index
        self._passes = _phases(program)
        self._places = places(program, self._passes)
        self._proof = prove(whole, max_length=max_length)
        self._whole = whole

    def emit(self) -> int:
        """Emit the function; return the bytes of scratch an element."""
        scratch = scratch_rows(self._places)
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
        kernel = Kernel(
            processor=self._processor,
            proof=self._proof,
            rules=RULES,
            fenced=_fenced(self._program),
            length=length,
            params=self._params,
            head=rows.head.get(),
        )
        for node in _tables(self._program):
            if node.op == "table":
                kernel.tables[node] = constant_table(node, self._index)
            elif param_of(node).scope == "site":
                kernel.tables[node] = self._given(node, tirx.const(0, self._index))
        with script.serial(tirx.Sub(end, begin)) as done:
            row = self._position(tirx.Add(begin, done))
            for node in _tables(self._program):
                if node.op == "param" and param_of(node).scope == "head":
                    size = param_of(node).size
                    assert size is not None
                    kernel.tables[node] = self._given(node, tirx.Mul(kernel.head, tirx.const(size, self._index)))
            self._row(kernel, row, length, rows, steps, scratch)
            rows.next()
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
        return given_table(self._params[param.name], start, param.size, self._processor.is_x86)

    def _row(
        self, kernel: Kernel, row: Expr, length: Expr, number: RowNumber, steps: Sequence[Expr], scratch: int
    ) -> None:
        base = self._position(tirx.Mul(row, length))
        slots: list[Write] = []
        if self._scratch is not None:
            first = tirx.Mul(base, tirx.const(scratch, self._index))
            for k in range(scratch):
                at = tirx.Add(first, tirx.Mul(length, tirx.const(k, self._index)))
                slots.append((self._scratch, self._position(at)))
        valid = None
        if self._valid is not None:
            valid = (self._valid, self._position(number.dot(steps[:3])), steps[3])
        outputs = {name: (memory, base) for name, memory in self._outputs.items()}
        memory = Row((self._scores, base), valid, outputs, self._places, slots)
        scalars = Emission(kernel)
        for node in self._program.nodes():
            if node.op in ("param", "length") and node.kind is Kind.SCALAR:
                scalars.compute(node)
        for phase in self._passes:
            for node in phase.setup:
                scalars.compute(node)
            Pass(kernel, phase, memory, scalars, self._program.outputs).emit()
            for node in phase.scalars:
                scalars.compute(node)
        for name, node in self._program.outputs.items():
            if node.kind is Kind.SCALAR:
                held = self._outputs[name]
                held.store(opaque(written(scalars, node, held.name), held.name, 1, row), row, 1)

    def _position(self, x: Expr) -> Expr:
        return Local.of(x, self._index, 1).get()


def _phases(program: Program) -> tuple[Phase, ...]:
    nodes = program.nodes()
    if any(node.kind is Kind.ROW for node in nodes):
        return phases(program)
    scalars = tuple(node for node in nodes if node.kind is Kind.SCALAR and node.op != "const")
    return (Phase(0, scalars, (), (), (), (), (), ()),)


def _held(dtype: DType) -> str:
    return "uint8" if dtype is DType.BOOL else type_name(dtype)


def _everything(program: Program) -> Iterator[Node]:
    """Yield the program's nodes and those of the steps of its scans."""
    for node in program.nodes():
        yield node
        if node.op == "scan":
            yield from inner_nodes(body_of(node), node.args)


def _tables(program: Program) -> Iterator[Node]:
    yield from dict.fromkeys(node for node in _everything(program) if node.kind is Kind.TABLE)


def _fenced(program: Program) -> frozenset[Node]:
    """Return the products that are added to something and must be rounded before."""
    if program.contract:
        return frozenset()
    found: set[Node] = set()
    for node in _everything(program):
        if node.op in ("add", "sub") and node.dtype.is_float:
            for arg in node.args:
                while arg.op in ("assume", "exp_minus"):
                    arg = arg.args[-1]
                found.add(arg)
    return frozenset(node for node in found if node.op == "mul")
