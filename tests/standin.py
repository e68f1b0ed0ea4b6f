"""Programs made by hand for a device that a stand-in for NVIDIA's driver plays: kernels in C, run by the processor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from softq.artifact.device.steps import DeviceProgram, Launch, RowForm
from softq.artifact.machine import Gpu
from softq.artifact.program import Op, Program, Step, Tensor
from tests.handmade import HOST, KERNELS

GPU = Gpu(name="cuda", triple="nvptx64-nvidia-cuda", cpu="sm_90", shared_bytes=227 << 10)

SOURCE = Path(__file__).parent / "libcuda.c"

FORMS = (
    RowForm("short_aligned", 4, 128, 4, True, 16),
    RowForm("short_", 4, 128, 1, False, 16),
    RowForm("long_aligned", 1, 512, 8, True, None),
    RowForm("long_", 1, 512, 1, False, None),
)
"""Forms of rows, as a row program's kernels have them."""

SHARED = 128 << 10

LAUNCHES: Mapping[str, Launch] = {
    "add": Launch("items", "kernels", 128),
    "row_sum": Launch("items", "graph", 32),
    "look_up": Launch("items", "graph", 32),
    "started": Launch("rows", "kernels", 0, FORMS),
    "started_short": Launch("rows", "kernels", 0, FORMS[:2]),
    "started_shared": Launch("rows", "kernels", 0, (replace(FORMS[2], shared=SHARED), FORMS[3])),
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

// Says how it was started, and with which numbers.
#define FORM(name, number) \
    void name(void **arguments, unsigned blocks, unsigned threads) \
    { \
        int64_t *out = P(1); \
        out[0] = number; \
        out[1] = blocks; \
        out[2] = threads; \
        out[3] = N(2); \
        for (int i = 0; i < 3; i++) out[4 + i] = *(int32_t *)arguments[3 + i]; \
        for (int i = 0; i < 4; i++) out[7 + i] = N(6 + i); \
    }
FORM(short_aligned, 0)
FORM(short_, 1)
FORM(long_aligned, 2)
FORM(long_, 3)
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


def started_program(kernel: str = "started") -> Program:
    """x[r, n, s, t] -> the number of a form, and how it was started for 16 r rows of n under a mask's strides of s."""
    shape = ("r", "n", "s", "t")
    tensors = (Tensor("x", "bool", shape, "input", 0), Tensor("how", "int64", (11,), "output", 0))
    strides = (0, "s", Op("mul", "s", 2), Op("min", "t", 1))
    steps = (Step(kernel, (0, 1), ("n", "r", Op("add", "s", 7), *strides), Op("mul", "r", 16), 0),)
    return Program((0,), (1,), tensors, (), steps, (), {}, ())


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
