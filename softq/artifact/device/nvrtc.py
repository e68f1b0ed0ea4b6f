"""NVIDIA's compiler as a library, which comes with torch's wheels for GPUs: for machines that have no nvcc."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

from softq.errors import SoftqError

# Where wheels put it: those for CUDA 13, those for 12 and 11, and torch's own folder of older ones.
_IN_WHEELS = ("nvidia/*/lib/libnvrtc.so.*", "torch/lib/libnvrtc*.so*")
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def find() -> ctypes.CDLL | None:
    """Return the library, None if there is none."""
    for name in (*_NAMES, *_of_wheels()):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def compiled(text: str, arch: str, *, ptx: bool = False) -> bytes:
    """Return the cubin, or the PTX, of CUDA C++ that includes nothing.

    Args:
        text: The kernels.
        arch: What it is for, such as `sm_90`.
        ptx: Whether PTX is wanted, which newer devices take too.

    Raises:
        SoftqError: there is no such library, it does not know the architecture, or it refuses the text.
    """
    library = find()
    if library is None:
        raise SoftqError("there is no compiler for GPUs: neither nvcc nor NVRTC, which torch for GPUs brings")
    program = ctypes.c_void_p()
    _check(library, "nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
    wanted = arch.replace("sm_", "compute_") if ptx else arch
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture={wanted}".encode(), b"--std=c++17")
    try:
        if library.nvrtcCompileProgram(program, 2, options):
            said = _bytes(library, program, "nvrtcGetProgramLog").decode(errors="replace").strip("\0\n")
            lines = [line for line in said.splitlines() if "error" in line] or said.splitlines()
            raise SoftqError(f"NVRTC refuses the kernels for {arch}: {lines[0] if lines else 'it says nothing'}")
        code = _bytes(library, program, "nvrtcGetPTX" if ptx else "nvrtcGetCUBIN")
        return code.rstrip(b"\0") if ptx else code
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _of_wheels() -> list[str]:
    found: list[str] = []
    for package in ("nvidia", "torch"):
        spec = importlib.util.find_spec(package)
        for folder in () if spec is None else spec.submodule_search_locations or ():
            for pattern in _IN_WHEELS:
                found += map(str, sorted(Path(folder).parent.glob(pattern)))
    return [path for path in dict.fromkeys(found) if "builtins" not in Path(path).name]


def _bytes(library: ctypes.CDLL, program: ctypes.c_void_p, name: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, f"{name}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, name, program, buffer)
    return buffer.raw


def _check(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(library, name)(*arguments)
    if code:
        raise SoftqError(f"NVRTC fails in {name} ({code})")
