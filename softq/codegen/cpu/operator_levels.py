"""Row functions as custom operators of another runtime, ahead of any model, with kernels for several processors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        masked: The same of masked rows, or the program itself: what a small kernel computes, which functions with a
            mask and without share.
        max_length: Greatest length of a row that the kernels are proved for.
        fast: Whether its kernels are to be fast rather than small.
        scalar: Whether elements are computed one by one, so that the kernel of the oldest level serves all processors.
            What LLVM makes of such code for AVX-512 takes up to 2.4 times as long as for AVX2.
    """

    program: Program
    masked: Program
    max_length: int
    fast: bool
    scalar: bool = False


@dataclass(frozen=True)
class MachineLevel:
    """A processor that there are kernels for.

    Attributes:
        machine: The processor.
        fast: Whether functions that are to be fast are so here; else all kernels are small.
        small: Whether the others have kernels of their own here; else they have those of the next level.
    """

    machine: Cpu
    fast: bool = True
    small: bool = True


def compile_levels(functions: Sequence[AheadFunction], levels: Sequence[MachineLevel]) -> OperatorLibrary:
    """Return an operator for each function, with kernels for each level.

    Args:
        functions: The functions.
        levels: What to compile for: the one with the most features first, the oldest, which has all kernels, last.
    """
    made: list[Level] = []
    code: list[Sequence[bytes]] = []
    below: Mapping[str, Operator] = {}
    for number, level in reversed([*enumerate(levels)]):
        kernels = _Kernels(level, f"_{number}")
        below = {function_name(f.program): kernels.operator(f, below) for f in functions}
        made.insert(0, Level(level.machine, tuple(below.values())))
        code.append(objects(kernels.functions, level.machine))
    return OperatorLibrary(made[-1].operators, (), [one for each in code for one in each], tuple(made[:-1]))


class _Kernels:
    """The kernels of one level, whose symbols end alike."""

    def __init__(self, level: MachineLevel, ending: str) -> None:
        self._level, self._ending = level, ending
        self._made: dict[tuple[int, bool], RowKernel] = {}

    @property
    def functions(self) -> list[tirx.PrimFunc]:
        return [kernel.function for kernel in self._made.values()]

    def operator(self, function: AheadFunction, below: Mapping[str, Operator]) -> Operator:
        name, fast = function_name(function.program), function.fast and self._level.fast
        if below and (function.scalar or not (fast or self._level.small)):
            return below[name]
        program = function.program if fast else function.masked
        key = (id(program), fast)
        if key not in self._made:
            symbol = row_symbol(program, ()) + self._ending
            machine, length = self._level.machine, function.max_length
            self._made[key] = row_kernel(program, machine, symbol=symbol, max_length=length, small=not fast)
        return row_operator(name, function.program, self._made[key], function.max_length, dense=not fast)
