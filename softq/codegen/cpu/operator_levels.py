"""Row functions as custom operators of another runtime, ahead of any model, with kernels for several processors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from softq.artifact.machine import Cpu
from softq.artifact.operators.library import Level, Operator, OperatorLibrary
from softq.codegen.common.symbols import row_symbol
from softq.codegen.cpu.object_code import objects
from softq.codegen.cpu.operators import row_operator
from softq.codegen.cpu.rows import RowKernel, row_kernel
from softq.rowprog import Program
from softq.rowprog.onnx import function_name


@dataclass(frozen=True)
class AheadFunction:
    """A row function that no model has to be there for.

    Attributes:
        program: What it computes.
        kernel: What its kernel computes: the same, or, where `small`, the same of masked rows.
        max_length: Greatest length of a row that the kernel is proved for.
        small: Whether the kernel is to be short rather than fast; functions with and without a mask share one then.
    """

    program: Program
    kernel: Program
    max_length: int
    small: bool


def compile_levels(functions: Sequence[AheadFunction], machines: Sequence[Cpu]) -> OperatorLibrary:
    """Return an operator for each function, with a kernel for each machine.

    Args:
        functions: The functions; those with one `kernel` share its code.
        machines: What to compile for: the one with the most features first, the oldest last.
    """
    levels = [_Kernels(machine, f"_{number}") for number, machine in enumerate(machines)]
    operators = [tuple(kernels.operator(function) for function in functions) for kernels in levels]
    code = [objects(kernels.functions, kernels.machine) for kernels in levels]
    better = (Level(machine, made) for machine, made in zip(machines[:-1], operators[:-1], strict=True))
    return OperatorLibrary(operators[-1], (), [one for each in code for one in each], tuple(better))


class _Kernels:
    """The kernels of one machine, whose symbols end alike."""

    def __init__(self, machine: Cpu, ending: str) -> None:
        self.machine, self._ending = machine, ending
        self._made: dict[tuple[int, int, bool], RowKernel] = {}

    @property
    def functions(self) -> list[tirx.PrimFunc]:
        return [kernel.function for kernel in self._made.values()]

    def operator(self, function: AheadFunction) -> Operator:
        key = (id(function.kernel), function.max_length, function.small)
        if key not in self._made:
            symbol = row_symbol(function.kernel, ()) + self._ending
            self._made[key] = row_kernel(
                function.kernel, self.machine, symbol=symbol, max_length=function.max_length, small=function.small
            )
        dense = function.small and function.kernel.masked
        name = function_name(function.program)
        return row_operator(name, function.program, self._made[key], function.max_length, dense=dense)
