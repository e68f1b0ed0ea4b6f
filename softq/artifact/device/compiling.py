"""Machine code for a GPU by whatever compiler there is: nvcc, else NVRTC."""

from __future__ import annotations

from collections.abc import Callable

from softq.artifact.device import nvcc, nvrtc


def compiler() -> str:
    """Return the name of the compiler that `machine_code` takes; empty if there is none."""
    if nvcc.find() is not None:
        return "nvcc"
    return "NVRTC" if nvrtc.find() is not None else ""


def compilers() -> dict[str, Callable[[str, str], bytes]]:
    """Return what makes a cubin of a text for an architecture, by name, in the order in which to try them.

    A driver takes what is not newer than itself: torch's NVRTC fits it, a newer nvcc need not.
    """
    found: dict[str, Callable[[str, str], bytes]] = {}
    if nvrtc.find() is not None:
        found["NVRTC"] = nvrtc.compiled
    if nvcc.find() is not None:
        found["nvcc"] = lambda text, arch: nvcc.compiled(text, arch).code
    return found


def machine_code(text: str, arch: str, *, ptx: bool = False) -> bytes:
    """Return the cubin, or the PTX, of CUDA C++ for an architecture; warnings are let pass.

    Raises:
        SoftqError: there is no compiler, or it refuses the text.
    """
    if nvcc.find() is not None:
        return nvcc.compiled(text, arch, ptx=ptx, strict=False).code
    return nvrtc.compiled(text, arch, ptx=ptx)
