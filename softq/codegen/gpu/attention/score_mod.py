"""The score_mod of an attention: the elementwise functions and the row program between its two products, as text.

A thread holds a register tile of scores, some rows of `COLUMNS` contiguous ones; lanes are next to each other along the
row. For each pass over the row that the program needs, the kernel computes the scores again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import replace

from softq.codegen.common.patterns import fenced
from softq.codegen.gpu.attention.elementwise import Function
from softq.codegen.gpu.dialect.text import BOOL, F32, Text, bits_of, converted
from softq.codegen.gpu.rows.accumulators import Accumulator, find_nans
from softq.codegen.gpu.rows.emission import Emission, KernelContext
from softq.codegen.gpu.rows.rules import RULES
from softq.codegen.gpu.rows.tables import held, read_tables
from softq.codegen.gpu.rows.tiling import WARP
from softq.rowprog.onnx.emitter import output_names
from softq.rowprog.phases import Phase, is_group, phases
from softq.rowprog.program import Node, Program
from softq.rowprog.ranges import prove
from softq.rowprog.types import Kind

COLUMNS = 4

_MOST_PASSES = 2
"""A program of more passes takes more products than it is worth."""

_WORD = 32


def supports_program(program: Program) -> bool:
    """Say whether a program can lie between the products of one kernel."""
    nodes = program.nodes()
    first, *rest = output_names(program, None)
    kinds = [program.outputs[first].kind is Kind.ROW, *(program.outputs[n].kind is Kind.SCALAR for n in rest)]
    if not program.scores.is_float or not all(kinds):
        return False
    if any(node.op == "scan" or is_group(node) for node in nodes):
        return False
    return len(_passes(_interface(program))) <= _MOST_PASSES


def _interface(program: Program) -> Program:
    return replace(program, outputs={name: program.outputs[name] for name in output_names(program, None)})


def _passes(program: Program) -> list[Phase]:
    return [phase for phase in phases(program, stores=False) if phase.reductions or phase.outputs]


class ScoreMod:
    """The functions and the program while a kernel is written.

    Args:
        program: The program.
        max_length: Greatest length of a row that its proof covers.
        functions: What is done to a score before it.
        rows: Rows per thread.
        lanes: Threads that share rows: a power of two.
        text: The kernel's lines.

    Attributes:
        program: The program, of the outputs of the interface alone.
        passes: The passes over the row; the last one gives the weights.
    """

    def __init__(
        self, program: Program, max_length: int, functions: Sequence[Function], rows: int, lanes: int, text: Text
    ) -> None:
        self._rows, self._lanes = rows, lanes
        self._whole, self.program, self._functions, self._text = program, _interface(program), functions, text
        params = {param.name: f"param_{param.name}" for param in program.params}
        proof = prove(program, max_length=max(max_length, 1))
        self._kernel = KernelContext(text, proof, RULES, fenced(self.program), params)
        self._reductions: list[list[Accumulator]] = []
        self._phases = phases(self.program, stores=False)
        self.passes = _passes(self.program)
        self.weights, *self.scalars = self.program.outputs

    def pointers(self) -> list[str]:
        """Return the declarations of what is read: tensors, the mask, parameters."""
        result = [pointer for function in self._functions for pointer in function.pointers()]
        result += ["const GLOBAL u8 *RESTRICT valid"] * self._whole.masked
        return result + [f"const GLOBAL {held(p.dtype)} *RESTRICT param_{p.name}" for p in self._whole.params]

    def start(self, symbol: str, threads: int) -> None:
        """Write what comes before the first pass."""
        text = self._text
        read_tables(self._kernel, self.program, symbol, threads)
        arrays = [f"base{k}_{n}" for k, f in enumerate(self._functions) for n in range(len(f.reads))]
        arrays += ["seen"] * self._whole.masked
        text.line(*(f"i64 {name}[{self._rows}];" for name in arrays))
        if not arrays:
            return
        with self.rows(masked=self._whole.masked):
            for k, function in enumerate(self._functions):
                for n, base in function.bases(text, "row"):
                    text.line(f"base{k}_{n}[i] = {base};")
            if self._whole.masked:
                outer = "row / queries / score_heads * valid_outer"
                text.line(f"seen[i] = {outer} + head * valid_head + row % queries * valid_query;")

    @contextlib.contextmanager
    def rows(self, *, named: bool = True, masked: bool = False) -> Generator[None]:
        """Write the loop over the thread's rows: `i`, and if asked for the number among all, and of its head."""
        with self._text.loops(i=self._rows):
            heads = masked or any(param.scope == "head" for param in self.program.params)
            if named or heads:
                self._text.line("const i64 within = top + part + i;")
                # Rows outside are computed as the last one is, and not stored.
                self._text.line("const i64 row = matrix * rows + (within < rows ? within : rows - 1);")
            if heads:
                self._text.line("const i64 head = row / queries % score_heads;")
            yield

    def begin(self, phase: Phase) -> None:
        """Declare the accumulators of a pass."""
        text, kept = self._text, find_nans([Accumulator(self._kernel, node) for node in phase.reductions])
        for r in kept:
            name = f"{r.name}_of"
            text.line(f"{r.held} {name}[{self._rows}];")
            text.line(f"UNROLL for (i32 i = 0; i < {self._rows}; i++) {name}[i] = {r.name};")
            r.name = f"{name}[i]"
        self._reductions.append(kept)

    def step(self, phase: Phase) -> None:
        """Write what a pass does with `scores`, whose first column is `start`; weights take their place."""
        text, last = self._text, bool(phase.outputs)
        with self.rows(named=False):
            place = self.scalars_of(phase.number)
            with text.loops(j=COLUMNS):
                text.line(f"const i32 column = (i32)start + lane * {COLUMNS} + j;")
                if last:
                    text.line("f32 weight = 0.0f;")
                with text.block("if (column < length)"):
                    element = Emission(self._kernel, place, "column")
                    self._load(element, phase.loads)
                    for node in phase.rows:
                        element.compute(node)
                    for r in self._reductions[-1]:
                        r.add(element)
                    if last:
                        node = self.program.outputs[self.weights]
                        text.line(f"weight = {converted(element.arg(node), self._kernel.type_of(node), F32)};")
                if last:
                    text.line("scores[i][j] = weight;")

    def _load(self, element: Emission, loads: Sequence[Node]) -> None:
        text = self._text
        for node in loads:
            if node.attrs["name"] != "scores":
                element.bind(node, "(valid[seen[i] + column * valid_element] != 0)", BOOL)
                continue
            x = "scores[i][j]"
            for k, function in enumerate(self._functions):
                x = function.apply(text, {next(iter(function.held)): x}, lambda n, k=k: f"base{k}_{n}[i]")
            element.bind(node, x, F32)
            element.keep(node, element.arg(node))

    def end(self) -> None:
        """Write the reduction of a pass's accumulators over the lanes of a row."""
        text, warp = self._text, min(self._lanes, WARP)
        for r in self._reductions[-1]:
            with text.loops(i=self._rows):
                for by in (1 << n for n in range(warp.bit_length() - 1)):
                    other = self._shuffle(r, by)
                    text.line(f"{r.name} = {r.combined(text.define(r.held, other, 'other'))};")
            if self._lanes > warp:
                self._reduce_warps(r)

    def _shuffle(self, r: Accumulator, by: int) -> str:
        """Return another lane's accumulator, its words as the bits of floats."""
        if r.held == F32:
            return f"OF_NEIGHBOUR({r.name}, {by})"
        words = [f"(u32){r.name}", *([f"(u32)({r.name} >> {_WORD})"] if bits_of(r.held) > _WORD else ())]
        parts = [self._text.define("u32", f"BITS(OF_NEIGHBOUR(FLOAT({word}), {by}))", "word") for word in words]
        whole = parts[0] if len(parts) == 1 else f"((u64){parts[1]} << {_WORD} | {parts[0]})"
        return f"({r.held}){whole}"

    def _reduce_warps(self, r: Accumulator) -> None:
        """Write the reduction over the warps of a block, all of which have the same rows, through shared memory."""
        text, warps, memory = self._text, self._lanes // WARP, self._text.name("of_warp")
        text.line(f"SHARED {r.held} {memory}[{self._rows}][{warps}];")
        with text.block(f"if (lane % {WARP} == 0)"):
            text.each(f"{memory}[i][lane / {WARP}] = {r.name};", i=self._rows)
        text.line("BARRIER();")
        # Deterministic: each warp combines the same numbers in the same order.
        with text.loops(i=self._rows):
            text.line(f"{r.name} = {memory}[i][0];")
            text.line(*(f"{r.name} = {r.combined(f'{memory}[i][{w}]')};" for w in range(1, warps)))

    def scalars_of(self, number: int) -> Emission:
        """Write the row's scalars that are known before a pass; return where they are."""
        place = Emission.of_row(self._kernel, self.program)
        done = iter(self._reductions)
        for phase in self._phases:
            if phase.number >= number and phase.number:
                break
            for node in phase.setup:
                place.compute(node)
            if phase.number >= number:
                break
            for r in next(done) if phase.reductions or phase.outputs else ():
                r.bind(place)
            for node in phase.scalars:
                place.compute(node)
        return place

    def value(self, place: Emission, name: str) -> str:
        """Return a scalar output as f32."""
        node = self.program.outputs[name]
        return converted(place.arg(node), self._kernel.type_of(node), F32)
