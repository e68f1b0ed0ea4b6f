"""What the emitters of these kernels share: numbers that are kept, and parts of the thread's memory."""

from __future__ import annotations

from typing import Any

from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.gemm.tiles import number
from softq.compiler.tir.kernel_function import KernelFunction

_NUMBERS = 64
"""More than any kernel keeps."""


class Emitter:
    """The emitter of a kernel whose pointer `scratch` is the thread's memory."""

    def __init__(self, made: KernelFunction) -> None:
        self._size, self._memory = made.sizes, made.memory
        # Numbers that many expressions share are kept in memory: TVM would copy and simplify them together.
        self._numbers, self._used = T.alloc_buffer((_NUMBERS,), "int64", scope="local"), 0

    def _keep(self, value: Any) -> Any:
        """Return a place for a number, which now has this value."""
        assert self._used < _NUMBERS
        place = self._numbers[number(self._used)]
        self._used += 1
        self._put(place, value)
        return place

    def _put(self, place: Any, value: Any) -> None:
        T.buffer_store(self._numbers, value, [place.indices[0]])

    def _scratch(self, position: Any, dtype: str = "float32") -> Any:
        """Return the thread's memory from a byte on, as a buffer."""
        at = T.address_of(self._memory["scratch"][position])
        return T.decl_buffer((number(1),), dtype, data=at, align=8 if dtype == "int64" else 4)
