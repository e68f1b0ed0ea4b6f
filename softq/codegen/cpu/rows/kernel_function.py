"""The kernel of a row program: the function, and its loops over rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from softq.artifact.machine import Cpu
from softq.codegen.cpu.rows.arguments import CONSTANTS, PROVED, Arguments
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.joint_passes import JointPasses
from softq.codegen.cpu.rows.load_store import RowMemory
from softq.codegen.cpu.rows.pipeline import MOST_PASSES, Rows, split_stages
from softq.codegen.cpu.rows.processor import Processor
from softq.codegen.cpu.rows.repeats import Repeat, roll_up
from softq.codegen.cpu.rows.row_loop import RowLoop
from softq.codegen.cpu.rows.short_forms import shorten
from softq.codegen.cpu.rows.short_rows import Form, ShortRows
from softq.rowprog.onnx.emitter import output_names
from softq.rowprog.phases import Phase
from softq.rowprog.program import Program

_SCRATCH_BYTES = 8
_AHEAD_BYTES = 2**19
"""Rows up to which the next one is asked for: it and what is written must stay in a cache of a megabyte."""


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
    small: bool = False,
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
        nibbles: Those of them that are written two elements per byte, the first one in the low four bits; each row
            begins with a byte of its own, and an odd one ends with a 0.
        small: Whether the code is to be short rather than fast. The mask's last stride has to be 1 then.

    Raises:
        ProofError: the program has no complete proof.
        UsageError: an output is unknown or named twice, or has numbers that four bits do not hold.
    """
    if machine.in_flash:
        program = shorten(program, max(max_length, 1))
    names = output_names(program, outputs)
    chosen = replace(program, outputs={name: program.outputs[name] for name in names})
    with IRBuilder() as builder, script.prim_func():
        script.func_name(symbol)
        script.func_attr({"global_symbol": symbol, "tirx.noalias": True, PROVED: True})
        arguments = Arguments(program, chosen, Processor(machine, small), max(max_length, 1), nibbles)
        _RowLoops(arguments).emit()
    parameters = tuple(param.name for param in program.params)
    function = builder.get()
    assert isinstance(function, tirx.PrimFunc)
    if arguments.constants:
        function = function.with_attr(CONSTANTS, arguments.constants)
    return RowKernel(symbol, function, parameters, tuple(names), arguments.scratch_rows * _SCRATCH_BYTES)


class _RowLoops:
    """The loops over rows: short ones, and long ones whose passes take turns."""

    def __init__(self, arguments: Arguments) -> None:
        self._given, self._index = arguments, arguments.index
        self._passes, self._outputs = arguments.passes, arguments.program.outputs
        # Loops between the passes, or along the row, that neighbouring rows do not share.
        self._takes_turns = not any(
            p.groups or any(n.op == "scan" for n in (*p.rows, *p.reductions)) for p in self._passes
        )

    def emit(self) -> None:
        if not self._given.strides or self._given.processor.small:
            return self._all_rows()
        # How the mask is read is the same in all rows.
        with script.If(tirx.EQ(self._given.strides[3], tirx.const(0, self._index))):
            for self._given.along, branch in ((False, script.Then), (True, script.Else)):
                with branch():
                    self._all_rows()
        return None

    def _all_rows(self) -> None:
        given, length = self._given, self._given.length
        if not self._takes_turns or given.processor.small or not given.processor.masks:
            return self._long_rows()
        # A row of the same types as all others have.
        short = ShortRows(given.kernel, self._passes, self._outputs, given.memory_of(given.numbers, given.begin))
        forms = short.forms(groups=given.along)
        if not forms:
            return self._long_rows()
        most, rows = (tirx.const(n, self._index) for n in (forms[-1].upto, max(form.rows for form in forms)))
        is_short = tirx.And(tirx.LT(tirx.const(0, self._index), length), tirx.LE(length, most))
        with script.If(tirx.And(is_short, tirx.LE(rows, given.rows))):
            with script.Then():
                for form in forms:
                    above, upto = (tirx.const(n, self._index) for n in (form.above, form.upto))
                    with script.If(tirx.And(tirx.LT(above, length), tirx.LE(length, upto))), script.Then():
                        self._short_rows(short, form)
            with script.Else():
                self._long_rows()
        return None

    def _short_rows(self, short: ShortRows, form: Form) -> None:
        """Emit rows side by side; where their number is no multiple, the second group begins within the first one."""
        given, zero = self._given, tirx.const(0, self._index)
        each = tirx.const(form.rows, self._index)
        groups, twice, second = given.rows, zero, None
        if form.rows > 1:
            filled = tirx.Add(given.rows, tirx.const(form.rows - 1, self._index))
            shift = tirx.const(form.rows.bit_length() - 1, self._index)
            groups = given.position(script.shift_right(filled, shift))
            twice = given.position(tirx.Sub(tirx.Mul(groups, each), given.rows))
            second = given.count_rows(tirx.Sub(tirx.Add(given.begin, each), twice))
        with script.serial(groups) as group:
            behind = given.position(tirx.Sub(tirx.Mul(group, each), twice))
            number = given.position(tirx.Add(given.begin, tirx.Select(tirx.LT(zero, behind), behind, zero)))
            rows: list[tuple[KernelContext, RowMemory, Emission]] = []
            for k in range(form.rows):
                rows.append(given.start_row(given.numbers, tirx.Add(number, tirx.const(k, self._index))))
                given.numbers.next()
            scalars = short.emit(form, rows)
            given.write_scalars(scalars, number, self._outputs, filled=True)
            if second is not None:
                with script.If(tirx.EQ(group, zero)), script.Then():
                    given.numbers.set(second)

    def _each_row(self, emit: Callable[[KernelContext, RowMemory, Emission], None]) -> None:
        given = self._given
        with script.serial(given.rows) as done:
            number = given.position(tirx.Add(given.begin, done))
            kernel, row, scalars = given.start_row(given.numbers, number)
            emit(kernel, row, scalars)
            given.write_scalars(scalars, number, self._outputs)
            given.numbers.next()

    def _long_rows(self) -> None:
        given = self._given
        # The pass with the most to compute has the most time for the memory to bring the next row.
        longest = max(self._passes[1:], key=lambda phase: len(phase.rows), default=None)
        ahead = longest, self._distance_of_next_row()
        if not self._takes_turns or given.processor.machine.in_flash or not 1 < len(self._passes) <= MOST_PASSES:
            self._each_row(lambda kernel, row, scalars: self._pass_by_pass(kernel, row, scalars, ahead))
            return
        found = split_stages(self._passes, self._outputs)
        numbers = [given.count_rows() for _ in found]

        rows = Rows(
            given.begin, given.rows, given.program.scores.bits, lambda k, number: given.start_row(numbers[k], number),
            given.write_scalars, lambda k: numbers[k].next(),
        )  # fmt: skip
        pipeline = JointPasses(given.kernel, found, self._outputs, rows)
        if given.along and not given.processor.small and pipeline.is_possible():
            pipeline.emit_jointly()
        else:
            pipeline.emit(ahead)

    def _pass_by_pass(
        self, kernel: KernelContext, row: RowMemory, scalars: Emission, ahead: tuple[Phase | None, Expr]
    ) -> None:
        for phase in self._passes:
            scalars.compute(*phase.setup)
            asks = ahead[1] if phase is ahead[0] and not self._given.processor.machine.in_flash else None
            RowLoop(kernel, phase, row, scalars, self._outputs, asks).emit()
            self._scalars(scalars, phase)

    def _scalars(self, scalars: Emission, phase: Phase) -> None:
        """Compute the numbers that follow a pass, where code is to be short in loops."""
        if not self._given.processor.machine.in_flash:
            scalars.compute(*phase.scalars)
            return
        for step in roll_up(phase.scalars, self._given.program):
            if isinstance(step, Repeat):
                step.emit(scalars)
            else:
                scalars.compute(step)

    def _distance_of_next_row(self) -> Expr:
        """Return how far behind its own elements a pass asks for others: those at hand, if the rows are too long."""
        length, longest = self._given.length, _AHEAD_BYTES * 8 // self._given.program.scores.bits
        near = tirx.LE(length, tirx.const(longest, self._index))
        return self._given.position(tirx.Select(near, length, tirx.const(0, self._index)))
