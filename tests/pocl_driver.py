"""CUDA's driver interface over PoCL: what ctypes passes is taken apart as the driver would; OpenCL text is the code."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest

from tests.opencl import OPTIONS, device

_TYPES = {"i64": ctypes.c_int64, "i32": ctypes.c_int32, "f32": ctypes.c_float, "long": ctypes.c_int64}
_NUMBERS = {"i64": np.int64, "i32": np.int32, "f32": np.float32, "long": np.int64}
_ALIGNED = 256


class PoclDriver:
    """The functions of libcuda that softq calls; addresses are handed out from a space of their own."""

    def __init__(self) -> None:
        self._cl, self._queue = pytest.importorskip("pyopencl"), device()
        self._memory: dict[int, Any] = {}
        self._next = 1 << 32
        self._modules: list[tuple[Any, str]] = []
        self._functions: list[tuple[Any, list[str]]] = []
        self.launched: list[str] = []
        self.contexts = self.pushed = self.loaded = 0
        self.most_shared = 227 << 10
        self._shared: dict[int, int] = {}

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return flags

    def cuDeviceGet(self, out: Any, number: int) -> int:  # noqa: N802
        out._obj.value = number
        return 0 if number == 0 else 101

    def cuDevicePrimaryCtxRetain(self, out: Any, handle: Any) -> int:  # noqa: N802
        out._obj.value = 7
        self.contexts += 1
        return handle.value

    def cuDevicePrimaryCtxRelease_v2(self, handle: Any) -> int:  # noqa: N802
        self.contexts -= 1
        return handle.value

    def cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802
        self.pushed += 1
        return 0 if context.value == 7 else 201

    def cuCtxPopCurrent_v2(self, out: Any) -> int:  # noqa: N802
        self.pushed -= 1
        return 0 if out._obj.value is None else 201

    def cuDeviceGetName(self, buffer: Any, size: int, handle: Any) -> int:  # noqa: N802
        buffer.value = b"PoCL"
        return 0 if size == 256 else handle.value + 1

    def cuDeviceGetAttribute(self, out: Any, attribute: int, handle: Any) -> int:  # noqa: N802
        out._obj.value = {75: 9, 76: 0, 97: self.most_shared}[attribute]
        return handle.value

    def cuModuleLoadData(self, out: Any, code: Any) -> int:  # noqa: N802
        text = code.value.decode()
        if "__kernel" not in text:
            return 209  # no binary for this GPU
        self._modules.append((self._cl.Program(self._queue.context, text).build(options=OPTIONS), text))
        out._obj.value = len(self._modules)
        self.loaded += 1
        return 0

    def cuModuleUnload(self, module: Any) -> int:  # noqa: N802
        self.loaded -= 1
        return 0 if module.value <= len(self._modules) else 400

    def cuModuleGetFunction(self, out: Any, module: Any, symbol: bytes) -> int:  # noqa: N802
        program, text = self._modules[module.value - 1]
        name = symbol.decode()
        found = re.search(rf"\b{name}\(([^)]*)\)(?! *;)", text)
        assert found is not None, name
        self._functions.append((getattr(program, name), found[1].split(",")))
        out._obj.value = len(self._functions)
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:  # noqa: N802
        self._shared[function.value] = value
        return 0 if attribute == 8 and value <= self.most_shared else 1

    def cuMemAlloc_v2(self, out: Any, size: Any) -> int:  # noqa: N802
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.COPY_HOST_PTR
        self._memory[self._next] = self._cl.Buffer(
            self._queue.context, flags, hostbuf=np.full(size.value, 0xAB, np.uint8)
        )
        out._obj.value = self._next
        self._next += -(-size.value // _ALIGNED) * _ALIGNED
        return 0

    def cuMemFree_v2(self, address: Any) -> int:  # noqa: N802
        self._memory.pop(address.value).release()
        return 0

    def cuMemcpyHtoD_v2(self, address: Any, pointer: Any, size: Any) -> int:  # noqa: N802
        data = np.ctypeslib.as_array((ctypes.c_uint8 * size.value).from_address(pointer.value)).copy()
        self._cl.enqueue_copy(self._queue, self._memory[address.value], data)
        return 0

    def cuMemcpyDtoH_v2(self, pointer: Any, address: Any, size: Any) -> int:  # noqa: N802
        data = np.empty(size.value, np.uint8)
        self._cl.enqueue_copy(self._queue, data, self._memory[address.value])
        ctypes.memmove(pointer.value, data.ctypes.data, size.value)
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:  # noqa: N802
        blocks, _, _, threads, _, _, shared, stream, pointers, extra = rest
        assert (stream.value, extra) == (None, None)
        assert shared.value == self._shared.get(function.value, 0)
        kernel, parameters = self._functions[function.value - 1]
        assert len(pointers) == len(parameters)
        arguments: list[Any] = []
        for pointer, parameter in zip(pointers, parameters, strict=True):
            if "*" in parameter:
                arguments.append(self._memory[ctypes.c_uint64.from_address(pointer).value])
            else:
                name = parameter.split()[0]
                arguments.append(_NUMBERS[name](_TYPES[name].from_address(pointer).value))
        self.launched.append(kernel.function_name)
        kernel(self._queue, (blocks.value * threads.value,), (threads.value,), *arguments)
        return 0

    def cuGetErrorString(self, code: int, out: Any) -> int:  # noqa: N802
        out._obj.value = f"error {code}".encode()
        return 0

    @property
    def allocated(self) -> int:
        """Pieces of memory that were not given back."""
        return len(self._memory)

    @property
    def left(self) -> int:
        """What was not given back: memory, modules, and contexts, whether retained or current."""
        return len(self._memory) + self.loaded + self.contexts + self.pushed
