"""The product of matrices and its packing: every tile, odd sizes, parts of the work, against float64."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("tvm")

TILES = [(8, 3, 16), (8, 3, 4), (4, 3, 8), (4, 4, 1)]


def pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.parametrize("shape", TILES)
def test_products(shape: tuple[int, int, int], tmp_path: Path) -> None:
    from softq.codegen.cpu import machines
    from softq.codegen.cpu.gemm import matmul, tiles
    from softq.codegen.cpu.object_code import object_code

    tile = tiles.Tile(*shape)
    kernels = [
        matmul.matmul_kernel(tile),
        matmul.pack_kernel(tile, "softq_pack", transposed=False, strided=False),
        matmul.pack_kernel(tile, "softq_pack_transposed", transposed=True, strided=False),
    ]
    (tmp_path / "k.o").write_bytes(object_code(kernels, machines.host("cpu", "native", "")))
    subprocess.run(["cc", "-shared", "-o", str(tmp_path / "k.so"), str(tmp_path / "k.o")], check=True)
    library, rng = ctypes.CDLL(str(tmp_path / "k.so")), np.random.default_rng(0)
    int64 = ctypes.c_int64
    for batch, m, k, n in itertools.product((1, 3), (0, 1, 7, 65, 134), (0, 1, 33), (1, 17, 47, 48, 97)):
        # An offset of one number: nothing may count on more than the alignment of a float.
        a = rng.normal(size=batch * m * k + 1).astype(np.float32)[1:].reshape(batch, m, k)
        b = rng.normal(size=(batch, k, n)).astype(np.float32)
        count = -(-n // tile.columns)
        panels, again = (np.full((batch, count, k, tile.columns), np.nan, np.float32) for _ in range(2))
        half = batch * count // 2
        for begin, end in ((0, half), (half, batch * count)):
            library.softq_pack(pointer(b), pointer(panels), int64(k), int64(n), int64(begin), int64(end))
        turned = np.ascontiguousarray(b.transpose(0, 2, 1))
        library.softq_pack_transposed(
            pointer(turned), pointer(again), int64(k), int64(n), int64(0), int64(batch * count)
        )
        expected = np.stack([matmul.pack_weight(x, tile, False) for x in b])
        np.testing.assert_array_equal(panels, expected)
        np.testing.assert_array_equal(again, expected)
        c = np.full(batch * m * n + 2, np.nan, np.float32)
        items = batch * -(-m // matmul.ROWS) * count
        for begin, end in ((0, items // 3), (items // 3, items)):
            sizes = (int64(m), int64(k), int64(n), int64(m), int64(begin), int64(end))
            library.softq_matmul(pointer(a), pointer(panels), ctypes.c_void_p(c.ctypes.data + 4), *sizes)
        check(c, a, b)
        c[...] = np.nan
        # The first left operand for all.
        sizes = (int64(m), int64(k), int64(n), int64(0), int64(0), int64(items))
        library.softq_matmul(pointer(a), pointer(panels), ctypes.c_void_p(c.ctypes.data + 4), *sizes)
        check(c, a[:1], b)


@pytest.mark.parametrize("shape", TILES)
def test_epilogues_reach_every_element(shape: tuple[int, int, int], tmp_path: Path) -> None:
    from tvm import tirx

    from softq.codegen.cpu import machines
    from softq.codegen.cpu.gemm import matmul
    from softq.codegen.cpu.gemm.tiles import Tile
    from softq.codegen.cpu.object_code import object_code
    from softq.compiler.steps.product import Epilogue, Operand

    tile = Tile(*shape)
    element, column, same, one = (tirx.Var(name, "float32") for name in ("element", "column", "same", "one"))
    operands = (
        Operand(0, "column", "float32", column),
        Operand(1, "same", "float32", same),
        Operand(2, "one", "float32", one),
    )
    epilogue = Epilogue("some", element, operands, tirx.Add(tirx.Mul(element, column), tirx.Mul(same, one)))
    (tmp_path / "k.o").write_bytes(
        object_code([matmul.matmul_kernel(tile, "some", epilogue)], machines.host("cpu", "native", ""))
    )
    subprocess.run(["cc", "-shared", "-o", str(tmp_path / "k.so"), str(tmp_path / "k.o")], check=True)
    library, rng = ctypes.CDLL(str(tmp_path / "k.so")), np.random.default_rng(0)
    for m, k, n in itertools.product((1, 7, 70), (5,), (1, 17, 48, 97)):
        a, b, r = (rng.normal(size=size).astype(np.float32) for size in ((m, k), (k, n), (m, n)))
        bias, factor = rng.normal(size=n).astype(np.float32), np.array([2.5], np.float32)
        panels, c = matmul.pack_weight(b, tile, False), np.full((m, n), np.nan, np.float32)
        items = -(-m // matmul.ROWS) * -(-n // tile.columns)
        sizes = map(ctypes.c_int64, (m, k, n, m, 0, items))
        library.some(*map(pointer, (a, panels, c, bias, r, factor)), *sizes)
        exact = (a.astype(np.float64) @ b) * bias + r.astype(np.float64) * factor
        bound = (k + 4) * 2.0**-24 * ((np.abs(a).astype(np.float64) @ np.abs(b)) * np.abs(bias) + np.abs(r * factor))
        assert (np.abs(c.astype(np.float64) - exact) <= bound).all()


def test_long_sums_are_made_of_parts(tmp_path: Path) -> None:
    """A chain of equal terms rounds one way again and again: 1e-3 of 60,000 times 0.1, where the bound is 4e-5."""
    from onnx import parser

    import softq
    from softq.codegen.cpu.gemm.matmul import PART

    terms, columns = 60_001, 50
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[N, {terms}] x) => (float[N, {columns}] y)
        <float[1] value = {{0.1}}, int64[2] shape = {{{terms}, {columns}}}> {{
            w = Expand (value, shape)
            z = MatMul (x, w)
            y = Relu (z)
        }}""")
    softq.build(model, tmp_path / "built", target="cpu")
    x = np.ones((9, terms), np.float32)
    x[3, 70] = np.inf
    with softq.load(tmp_path / "built") as built:
        y = np.asarray(built({"x": x})["y"], np.float64)
    exact = terms * np.float64(np.float32(0.1))
    assert np.isinf(y[3]).all()
    assert (np.abs(np.delete(y, 3, 0) - exact) <= (PART + terms / PART + 2) * 2.0**-24 * exact).all()


def check(c: NDArray[np.float32], a: NDArray[np.float32], b: NDArray[np.float32]) -> None:
    """Compare with float64: a result is off by the rounding of its sum, and its neighbours in memory are NaN."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = (a.shape[-1] + 1) * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)) + 1e-30
    assert (np.abs(c[1:-1].reshape(exact.shape) - exact) <= bound).all()
    assert np.isnan(c[[0, -1]]).all()
