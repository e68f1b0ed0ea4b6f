"""The TIR functions of one program: each is made when it is first asked for, and known by its symbol."""

from __future__ import annotations

import re
from collections.abc import Callable

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Machine
from softq.compiler.tir.kernel_function import kernel_function
from softq.compiler.tir.loop_nests import Nest, nests

PREFIX = "softq_"


class TirKernels:
    """The kernels of one program that are TIR functions, for one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._functions: dict[str, tirx.PrimFunc] = {}
        self._nests: dict[tuple[str, bool], list[tuple[tirx.PrimFunc, list[Nest]]]] = {}
        self._names: set[str] = set()

    def __contains__(self, symbol: object) -> bool:
        return symbol in self._functions

    def functions(self) -> list[tirx.PrimFunc]:
        """Return every kernel asked for so far."""
        return list(self._functions.values())

    def add(self, symbol: str, make: Callable[[], tirx.PrimFunc]) -> str:
        """Return the symbol of a kernel, which is made if there is none of that name."""
        if symbol not in self._functions:
            self._functions[symbol] = make()
        return symbol

    def nests(self, name: str, function: tirx.PrimFunc, rows: bool = False) -> list[Nest]:
        """Return the kernels of a function that TVM made; `rows` asks for work items that are rows of the result.

        The modules of bodies call their functions as `main` does: only the function itself tells which one is meant.
        """
        made = self._nests.setdefault((name, rows), [])
        for known, kernels in made:
            if known.same_as(function):
                return kernels
        # TVM has a "matmul" and a "copy" of its own.
        symbol = first = PREFIX + ("rows_" if rows else "tvm_") + re.sub(r"\W", "_", name)
        while symbol in self._names:
            symbol = f"{first}_other{len(self._names)}"
        self._names.add(symbol)
        kernels = nests(function, symbol, self._machine, rows=rows)
        made.append((function, kernels))
        for kernel in kernels:
            self.add(str(kernel.function.attrs["global_symbol"]), lambda kernel=kernel: kernel.function)
        return kernels

    def check(self) -> str:
        """Return the symbol of the kernel that checks a size."""
        symbol = f"{PREFIX}check"
        return self.add(symbol, lambda: _check_kernel(symbol))

    def copy(self) -> str:
        """Return the symbol of the kernel that copies bytes."""
        symbol = f"{PREFIX}copy"
        return self.add(symbol, lambda: _copy_kernel(symbol))


def _check_kernel(symbol: str) -> tirx.PrimFunc:
    """Return `symbol(flag, size, low, high, begin, end)`: flag gets whether a size is outside its bounds."""
    with kernel_function(symbol, {"flag": "int32"}, ("size", "low", "high")) as made:
        (flag,), (value, low, high, begin, end) = made.memory.values(), made.sizes.values()
        # What no step has measured yet is the least number.
        unknown = value == tirx.IntImm("int64", -(2**63))
        with T.serial(begin, end) as i:
            outside = tirx.And(tirx.Not(unknown), tirx.Or(value < low, value > high))
            T.buffer_store(flag, tirx.Cast("int32", outside), [i])
    return made.function


def _copy_kernel(symbol: str) -> tirx.PrimFunc:
    """Return `symbol(source, out, begin, end)`; a work item is a byte."""
    with kernel_function(symbol, {"source": "uint8", "out": "uint8"}, ()) as made:
        source, out = made.memory.values()
        with T.serial(*made.sizes.values()) as i:
            T.buffer_store(out, source[i], [i])
    return made.function
