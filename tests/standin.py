"""Programs made by hand for a device that a stand-in for NVIDIA's driver plays: kernels in C, run by the processor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from softq.artifact.device.steps import DeviceProgram, Launch
from softq.artifact.program import Program
from softq.targets._native.machine import Machine
from tests.handmade import HOST, KERNELS

GPU = Machine("cuda", "nvptx64-nvidia-cuda", "sm_90", (), "", 0, 16, single_items=True)

SOURCE = Path(__file__).parent / "libcuda.c"

LAUNCHES: Mapping[str, Launch] = {
    "add": Launch("items", "kernels", 128),
    "row_sum": Launch("items", "graph", 32),
    "look_up": Launch("items", "graph", 32),
}

# Each kernel over items of tests/handmade.py as one that a device starts: a thread an item.
_AROUND = r"""
#define add add_
#define row_sum row_sum_
#define look_up look_up_
%s
#undef add
#undef row_sum
#undef look_up

#define P(n) (*(void **)arguments[n])
#define N(n) (*(int64_t *)arguments[n])
#define KERNEL(name, items, ...) \
    void name(void **arguments, unsigned blocks, unsigned threads) \
    { \
        for (int64_t i = 0; i < (int64_t)blocks * threads; i++) \
            if (i < N(items)) name##_(__VA_ARGS__, i, i + 1); \
    }
KERNEL(add, 4, P(0), P(1), P(2), N(3))
KERNEL(row_sum, 3, P(0), P(1), N(2))
KERNEL(look_up, 6, P(0), P(1), P(2), P(3), N(4), N(5))
"""


def library(source: str, name: str, *flags: str) -> bytes:
    """Return C as a shared library for this computer."""
    with TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "source.c").write_text(source)
        command = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.28", "-O1", "-g", "-shared"]
        command += ["-fPIC", "-fno-sanitize=all", *flags, f"-Wl,-soname,{name}", "source.c", "-o", name]
        subprocess.run(command, cwd=path, check=True, capture_output=True)
        return (path / name).read_bytes()


@cache
def driver() -> bytes:
    """Return the stand-in for the driver."""
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-ldl", "-lpthread")
    return library(SOURCE.read_text(), "libcuda.so.1", *flags)


@cache
def kernels() -> bytes:
    """Return the kernels of programs made by hand."""
    return library(_AROUND % KERNELS, "kernels.so")


def on_device(program: Program, launches: Mapping[str, Launch] = LAUNCHES) -> DeviceProgram:
    """Return a program made by hand for the stand-in."""
    used = {step.kernel: launches[step.kernel] for step in program.steps}
    modules = sorted({launch.module for launch in used.values()})
    code = dict.fromkeys(modules, kernels())
    return DeviceProgram(program, used, dict.fromkeys(modules, "no text"), code, host=HOST)
