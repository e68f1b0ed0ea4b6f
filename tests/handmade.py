"""Programs made by hand, with kernels in C: artifacts can be tested without TVM."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softq.artifact.machine import Cpu
from softq.artifact.program import Limit, Op, Program, Size, Step, Tensor
from softq.artifact.toolchain import compiler
from tests.skips import OTHER_PROCESSOR

Array = np.ndarray[Any, Any]

MISSING = (
    OTHER_PROCESSOR if platform.machine() != "x86_64" else "needs zig" * (importlib.util.find_spec("ziglang") is None)
)
needs_host = pytest.mark.skipif(bool(MISSING), reason=MISSING)

HOST = Cpu(
    name="host",
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64",
    features=(),
    zig="x86_64-linux-gnu.2.17",
    vector_bytes=16,
    vectors=16,
)

KERNELS = r"""
#include <stdint.h>

void add(void *a, void *b, void *out, int64_t width, int64_t begin, int64_t end)
{
    const float *x = a, *y = b;
    float *z = out;
    for (int64_t i = begin * width; i < end * width; i++) z[i] = x[i] + y[i % width];
}

void row_sum(void *a, void *out, int64_t width, int64_t begin, int64_t end)
{
    const float *x = a;
    float *z = out;
    for (int64_t i = begin; i < end; i++) {
        float sum = 0;
        for (int64_t j = 0; j < width; j++) sum += x[i * width + j];
        z[i] = sum;
    }
}

void look_up(void *flag, void *table, void *ids, void *out, int64_t count, int64_t width, int64_t begin, int64_t end)
{
    const float *t = table;
    const int64_t *n = ids;
    float *z = out;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = n[i];
        if (row < 0 || row >= count) {
            *(int32_t *)flag = 1;
            row = 0;
        }
        for (int64_t j = 0; j < width; j++) z[i * width + j] = t[row * width + j];
    }
}
"""


@cache
def objects(machine: Cpu = HOST) -> tuple[bytes]:
    """Return the kernels as an object file for a machine."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "kernels.c").write_text(KERNELS)
        command = [*compiler(machine), "-O2", "-fPIC", "-g0", "-fno-sanitize=all", "-c", "kernels.c", "-o", "kernels.o"]
        subprocess.run(command, cwd=path, check=True, capture_output=True)
        return ((path / "kernels.o").read_bytes(),)


BIAS = np.arange(8, dtype=np.float32)
TABLE = np.random.default_rng(7).standard_normal((10, 8)).astype(np.float32)


def product(*sizes: Size) -> Size:
    result = sizes[0]
    for size in sizes[1:]:
        result = Op("mul", result, size)
    return result


def rows_program(machine: Cpu = HOST) -> Program:
    """x[batch, seq, 8] and y[batch, seq] -> x + bias, the sums of its rows, x again, and y as [batch * seq]."""
    rows = product("batch", "seq")
    tensors = (
        Tensor("x", "float32", ("batch", "seq", 8), "input", 0),
        Tensor("y", "float32", ("batch", "seq"), "input", 1),
        Tensor("bias", "float32", (8,), "weight", 0),
        Tensor("sum", "float32", ("batch", "seq", 8), "arena", 1),
        Tensor("flat", "float32", (rows, 8), "arena", 1),
        Tensor("shifted", "float32", ("batch", "seq", 8), "output", 0),
        Tensor("sums", "float32", (rows,), "output", 1),
        Tensor("same", "float32", ("batch", "seq", 8), "input", 0),
        Tensor("flat y", "float32", (rows,), "input", 1),
        Tensor("again", "float32", (rows,), "output", 1),
    )
    cost = product(rows, 8)
    steps = (
        Step("add", (0, 2, 3), (8,), rows, cost),
        Step("add", (4, 2, 5), (8,), rows, cost, site='encoder/softmax */ "one"'),
        Step("row_sum", (5, 6), (8,), rows, cost, site="encoder/two"),
    )
    return Program(
        (0, 1), (5, 6, 7, 8, 9), tensors, (64, product(cost, 4)), steps,
        (Limit("seq", 0, 100, "the sequence has at most 100 tokens"),), {0: BIAS}, objects(machine),
    )  # fmt: skip


def rows_inputs(batch: int, length: int) -> dict[str, Array]:
    rng = np.random.default_rng(batch * 1000 + length)
    x, y = rng.standard_normal((batch, length, 8)), rng.standard_normal((batch, length))
    return {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def rows_expected(x: Array, y: Array) -> dict[str, Array]:
    """Return what `rows_program` computes."""
    shifted = np.asarray(x, np.float32) + BIAS + BIAS
    sums = shifted.sum(-1, dtype=np.float32).reshape(-1)
    return {"shifted": shifted, "sums": sums, "same": x, "flat y": y.reshape(-1), "again": sums}


def look_up_program(machine: Cpu = HOST) -> Program:
    """ids[n] -> rows of a table; an id out of range is an error."""
    tensors = (
        Tensor("ids", "int64", ("n",), "input", 0),
        Tensor("flag", "int32", (), "arena", 0),
        Tensor("table", "float32", (10, 8), "weight", 64),
        Tensor("rows", "float32", ("n", 8), "output", 0),
    )
    steps = (
        Step("look_up", (1, 2, 0, 3), (10, 8), "n", product("n", 8), error="an id is not in the table of 10 rows"),
    )
    return Program((0,), (3,), tensors, (4,), steps, (), {0: BIAS, 64: TABLE}, objects(machine))
