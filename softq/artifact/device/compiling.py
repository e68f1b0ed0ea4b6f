"""Machine code for a GPU by whatever compiler there is: nvcc, else NVRTC."""

from __future__ import annotations

from softq.artifact.device import nvcc, nvrtc


def compiler() -> str:
    """Return the name of the compiler that `machine_code` takes; empty if there is none."""
    if nvcc.find() is not None:
        return "nvcc"
    return "NVRTC" if nvrtc.find() is not None else ""


def machine_code(text: str, arch: str, *, ptx: bool = False) -> bytes:
    """Return the cubin, or the PTX, of CUDA C++ for an architecture; warnings are let pass.

    Raises:
        SoftqError: there is no compiler, or it refuses the text.
    """
    if nvcc.find() is not None:
        return nvcc.compiled(text, arch, ptx=ptx, strict=False).code
    return nvrtc.compiled(text, arch, ptx=ptx)
