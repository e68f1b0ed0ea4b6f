"""NVIDIA's compiler: found in the path or among Python's packages, run on the text of kernels."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from softq.errors import SoftqError
from softq.scratch import scratch_folder

# Where the wheels nvidia-cuda-nvcc (from version 13 on) and nvidia-cuda-nvcc-cu12 put it, in the package `nvidia`.
_IN_WHEELS = ("cu13/bin/nvcc", "cuda_nvcc/bin/nvcc")

_OPTIONS = ("-O3", "-std=c++17", "-Xptxas", "-v")
_STRICT = ("-Werror", "all-warnings")


@dataclass(frozen=True)
class Usage:
    """What a kernel needs.

    Attributes:
        registers: Registers per thread.
        spilled: Bytes of register spills, stored and loaded.
        shared: Bytes of shared memory per block.
    """

    registers: int
    spilled: int
    shared: int


@dataclass(frozen=True)
class Compiled:
    """What the compiler made.

    Attributes:
        code: A cubin or the text of PTX.
        usage: What each kernel needs, by symbol; empty for PTX.
    """

    code: bytes
    usage: Mapping[str, Usage]


def find() -> Path | None:
    """Return the compiler's path, None if there is none."""
    found = shutil.which("nvcc")
    if found is not None:
        return Path(found)
    package = importlib.util.find_spec("nvidia")
    for folder in () if package is None else package.submodule_search_locations or ():
        for name in _IN_WHEELS:
            if (Path(folder) / name).is_file():
                return Path(folder) / name
    return None


def compiled(text: str, arch: str, *, ptx: bool = False, strict: bool = True) -> Compiled:
    """Return the machine code of kernels.

    Args:
        text: CUDA C++ that includes nothing.
        arch: What it is for, such as `sm_90`.
        ptx: Whether PTX is wanted, which newer devices take too.
        strict: Whether a warning is an error.

    Raises:
        SoftqError: there is no compiler, or it refuses the text; the message has its first line.
    """
    nvcc = find()
    if nvcc is None:
        raise SoftqError("nvcc is not installed: it comes with the CUDA toolkit, or with pip install 'softq[cuda]'")
    with scratch_folder() as folder:
        (folder / "kernels.cu").write_text(text, encoding="utf-8")
        virtual = arch.replace("sm_", "compute_")
        code = ["-ptx", f"-arch={virtual}"] if ptx else ["-cubin", f"-arch={arch}"]
        command = [str(nvcc), *_OPTIONS, *(_STRICT if strict else ()), *code, "-o", "kernels.out", "kernels.cu"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise SoftqError(f"nvcc refuses the kernels for {arch}: {lines[0] if lines else 'it ended without a word'}")
        return Compiled((folder / "kernels.out").read_bytes(), _usage(done.stderr))


def _usage(said: str) -> dict[str, Usage]:
    found: dict[str, Usage] = {}
    symbol, spilled = "", 0
    for line in said.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            symbol = match[1]
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(match[1]) + int(match[2])
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[symbol] = Usage(int(match[1]), spilled, int(shared[1]) if shared else 0)
    return found
