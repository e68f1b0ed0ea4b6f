"""Loop nests made one, and sums by vectors: against float64, in odd lengths."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("tvm")

LENGTHS = (1, 2, 15, 16, 31, 33, 64, 67, 130, 197, 576)


def kernels_of(path: Path, *results: Any) -> tuple[Any, list[Any]]:
    """Return the library and the nests of a function that TVM makes of these results, its first input `x`."""
    from tvm import te

    from softq.codegen.cpu import machines
    from softq.codegen.cpu.object_code import object_code
    from softq.compiler.tir.loop_nests import nests

    machine = machines.host("cpu", "native", "")
    found = nests(te.create_prim_func(list(results), index_dtype_override="int64"), "kernel", machine)
    (path / "k.o").write_bytes(object_code([nest.function for nest in found], machine))
    subprocess.run(["cc", "-shared", "-o", str(path / "k.so"), str(path / "k.o"), "-lm"], check=True)
    return ctypes.CDLL(str(path / "k.so")), found


def run(library: Any, nest: Any, name: str, arrays: list[NDArray[Any]], numbers: list[int]) -> None:
    """Run one nest; what it takes beside the function's own arrays comes behind them."""
    made = [position for position in nest.buffers if not isinstance(position, int)]
    given = [arrays[p] if isinstance(p, int) else arrays[len(arrays) - len(made) + made.index(p)] for p in nest.buffers]
    getattr(library, name)(*(ctypes.c_void_p(a.ctypes.data) for a in given), *map(ctypes.c_int64, numbers))


def squares(n: Any, dtype: str) -> tuple[Any, Any]:
    """Return five rows and the sums of their squares."""
    from tvm import te

    x, k = te.placeholder((5, n), dtype, "x"), te.reduce_axis((0, n), "k")
    return x, te.compute((5,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="y")


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_rows(tmp_path: Path, dtype: str, fixed: bool) -> None:
    from tvm import tirx

    rng = np.random.default_rng(0)
    for length in LENGTHS if fixed else (None,):
        n = length if length is not None else tirx.Var("n", "int64")
        x, y = squares(n, dtype)
        folder = tmp_path / str(length)
        folder.mkdir()
        library, (nest,) = kernels_of(folder, x, y)
        for count in LENGTHS if length is None else (length,):
            given, out = rng.normal(size=(5, count)).astype(dtype), np.full(5, np.nan, dtype)
            numbers = [*([count] * len(nest.scalars)), 0, 5]
            run(library, nest, "kernel", [given, out], numbers)
            exact = (given.astype(np.longdouble) ** 2).sum(-1)
            # Every addition rounds once, whatever the order; the terms are positive.
            assert (np.abs(out - exact) <= (count + 1) * np.finfo(dtype).eps / 2 * exact).all()


@pytest.mark.parametrize(
    ("index", "count"),
    [(lambda i: i, 1), (lambda i: 6 - i, 2), (lambda i: 0, 2)],
    ids=["the same item", "another item", "the first item"],
)
def test_nests_are_joined_where_an_item_needs_no_other(tmp_path: Path, index: Callable[[Any], Any], count: int) -> None:
    from tvm import te

    x, k = te.placeholder((7, 33), "float32", "x"), te.reduce_axis((0, 33), "k")
    total = te.compute((7,), lambda i: te.sum(x[i, k], axis=k), name="total")
    y = te.compute((7, 33), lambda i, j: x[i, j] - total[index(i)], name="y")
    library, found = kernels_of(tmp_path, x, y)
    assert len(found) == count
    given = np.random.default_rng(1).normal(size=(7, 33)).astype(np.float32)
    out, between = np.full((7, 33), np.nan, np.float32), np.full(7, np.nan, np.float32)
    for position, nest in enumerate(found):
        name = "kernel" if not position else f"kernel_part{position}"
        for begin, end in ((4, 7), (0, 4)):  # items in any order
            run(library, nest, name, [given, out, between], [begin, end])
    sums = given.astype(np.float64).sum(-1)
    expected = given - np.array([sums[index(i)] for i in range(7)])[:, None]
    assert np.abs(out - expected).max() <= 34 * 2.0**-24 * np.abs(given).sum(-1).max()
