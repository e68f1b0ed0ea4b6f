"""CUDA's driver interface through ctypes: contexts, modules, memory and launches, without the toolkit."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softq.artifact.device.starting import Start
from softq.errors import SoftqError, UsageError

Array = NDArray[np.generic]

_LIBRARIES = ("libcuda.so.1", "libcuda.so")
_NUMBERS = {"int32": ctypes.c_int32, "int64": ctypes.c_int64, "float32": ctypes.c_float}

# Of cuda.h: attributes of a device, its compute capability and most shared memory of a block, and of a function.
_MAJOR, _MINOR, _SHARED = 75, 76, 97
_FUNCTION_SHARED = 8


class Driver:
    """The driver and one device's primary context, which has to be current for everything below `current`.

    Attributes:
        name: The device's name.
        arch: Its architecture, such as `sm_90`.
        shared_bytes: Most shared memory per block, in bytes.
    """

    def __init__(self, device: int = 0) -> None:
        """Open a device.

        Raises:
            UsageError: there is no driver, or no such device.
        """
        self._cuda = _library()
        if self._cuda.cuInit(0):
            raise UsageError("needs an NVIDIA GPU; this computer has its driver, but no GPU that the driver sees")
        handle, self._context = ctypes.c_int(), ctypes.c_void_p()
        if self._cuda.cuDeviceGet(ctypes.byref(handle), device):
            raise UsageError(f"there is no GPU of number {device}")
        self._handle = handle
        text = ctypes.create_string_buffer(256)
        self._check("cuDeviceGetName", text, len(text), handle)
        self.name = text.value.decode(errors="replace")
        self.arch = f"sm_{self._attribute(_MAJOR)}{self._attribute(_MINOR)}"
        self.shared_bytes = self._attribute(_SHARED)
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)

    @contextlib.contextmanager
    def current(self) -> Generator[None]:
        """Make the context the calling thread's; behind it the thread has the one that it had."""
        self._check("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def close(self) -> None:
        """Let the context go."""
        self._check("cuDevicePrimaryCtxRelease_v2", self._handle)

    def module(self, code: bytes) -> ctypes.c_void_p:
        """Return a loaded cubin or PTX.

        Raises:
            SoftqError: the driver refuses it: it is for another architecture.
        """
        module = ctypes.c_void_p()
        self._check("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code))
        return module

    def unload(self, module: ctypes.c_void_p) -> None:
        """Let a module go."""
        self._check("cuModuleUnload", module)

    def function(self, module: ctypes.c_void_p, symbol: str, shared: int = 0) -> ctypes.c_void_p:
        """Return a kernel of a module, launched with so many bytes of dynamic shared memory per block."""
        function = ctypes.c_void_p()
        self._check("cuModuleGetFunction", ctypes.byref(function), module, symbol.encode())
        if shared:
            self._check("cuFuncSetAttribute", function, _FUNCTION_SHARED, shared)
        return function

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes of the device's memory."""
        address = ctypes.c_uint64()
        self._check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, memory: int) -> None:
        """Give memory back."""
        self._check("cuMemFree_v2", ctypes.c_uint64(memory))

    def write(self, memory: int, array: Array) -> None:
        """Copy an array to the device."""
        held = np.ascontiguousarray(array)
        pointer = ctypes.c_void_p(held.ctypes.data)
        if held.nbytes:
            self._check("cuMemcpyHtoD_v2", ctypes.c_uint64(memory), pointer, ctypes.c_size_t(held.nbytes))

    def read(self, memory: int, array: Array) -> None:
        """Copy from the device into an array, behind all launches."""
        pointer = ctypes.c_void_p(array.ctypes.data)
        self._check("cuMemcpyDtoH_v2", pointer, ctypes.c_uint64(memory), ctypes.c_size_t(array.nbytes))

    def start(
        self,
        function: ctypes.c_void_p,
        blocks: int,
        threads: int,
        arguments: Sequence[Any],
        *,
        shared: int = 0,
        stream: int = 0,
    ) -> None:
        """Start a kernel; arguments are addresses and NumPy numbers, `shared` is what its `function` was asked for."""
        held = [_argument(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(one) for one in held))
        sizes = [ctypes.c_uint(n) for n in (blocks, 1, 1, threads, 1, 1, shared)]
        self._check("cuLaunchKernel", function, *sizes, ctypes.c_void_p(stream), pointers, None)

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._check("cuDeviceGetAttribute", ctypes.byref(value), number, self._handle)
        return value.value

    def _check(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise SoftqError(f"the GPU's driver fails in {name}: {(text.value or b'?').decode()} ({code})")


class Gpu:
    """The modules of one artifact on a device.

    Args:
        driver: The device.
        code: The machine code or PTX of each module.
    """

    def __init__(self, driver: Driver, code: Mapping[str, bytes]) -> None:
        self._driver = driver
        self._modules: dict[str, ctypes.c_void_p] = {}
        try:
            for name, one in code.items():
                self._modules[name] = driver.module(one)
        except BaseException:
            self.close()
            raise
        self._functions: dict[tuple[str, str], ctypes.c_void_p] = {}
        self.shared_bytes = driver.shared_bytes
        self.allocate, self.free, self.write, self.read = driver.allocate, driver.free, driver.write, driver.read

    def launch(self, module: str, start: Start, blocks: int, arguments: Sequence[Any]) -> None:
        """Start a kernel of a module."""
        key = (module, start.symbol)
        if key not in self._functions:
            self._functions[key] = self._driver.function(self._modules[module], start.symbol, start.shared)
        self._driver.start(self._functions[key], blocks, start.threads, arguments, shared=start.shared)

    def close(self) -> None:
        """Let the modules go."""
        for module in self._modules.values():
            self._driver.unload(module)
        self._modules.clear()


def _library() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise UsageError("needs an NVIDIA GPU; this computer has no driver for one (libcuda.so.1)")


def _argument(value: Any) -> Any:
    if isinstance(value, np.generic):
        return _NUMBERS[value.dtype.name](value.item())
    return ctypes.c_uint64(value)
