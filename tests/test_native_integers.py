"""Products of 8-bit integers in built models: equal to the bit to NumPy's, and to each other where they are fused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from tests.native import Executor, build_program

pytest.importorskip("tvm")

Array = NDArray[Any]

LOWEST = {"int8": -128, "uint8": 0}


def codes(seed: int, dtype: str, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(LOWEST[dtype], LOWEST[dtype] + 256, shape).astype(dtype)


def product(a: Array, b: Array, zeros: tuple[int, int]) -> NDArray[np.int32]:
    left, right = a.astype(np.int64) - zeros[0], b.astype(np.int64) - zeros[1]
    return np.asarray(left @ right, np.int32)


@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("left", ["int8", "uint8"])
def test_products(left: str, right: str) -> None:
    low, fixed = LOWEST[right], [LOWEST[right] + 17 * i for i in range(15)]
    text = f"""
    <ir_version: 8, opset_import: ["" : 18]>
    products ({left}[b, m, k] a, {right}[b, n, k] bt, {right}[k, n] c, {left} z)
             => (int32[b, m, n] turned, int32[b, m, n] plain, int32[b, m, 5] fixed)
    <int64[1] zero = {{0}}, int64[1] three = {{3}}, int64[1] last = {{2}}, {right} w = {{{low + 100}}},
     {right}[3, 5] d = {{{str(fixed)[1:-1]}}}>
    {{
        b = Transpose <perm = [0, 2, 1]> (bt)
        turned = MatMulInteger(a, b, z, w)
        plain = MatMulInteger(a, c)
        head = Slice(a, zero, three, last)
        fixed = MatMulInteger(head, d, z)
    }}
    """
    execute = Executor(build_program(onnx.parser.parse_model(text)))
    d = np.array(fixed).reshape(3, 5)
    for b, m, k, n in ((1, 1, 3, 1), (2, 7, 3, 65), (1, 70, 33, 129), (3, 64, 64, 16), (1, 1, 260, 200)):
        z = LOWEST[left] + 250
        given = {
            "a": codes(1, left, b, m, k), "bt": codes(2, right, b, n, k), "c": codes(3, right, k, n),
            "z": np.array(z, left),
        }  # fmt: skip
        found = execute(given)
        np.testing.assert_array_equal(found["turned"], product(given["a"], given["bt"].swapaxes(1, 2), (z, low + 100)))
        np.testing.assert_array_equal(found["plain"], product(given["a"], given["c"], (0, 0)))
        np.testing.assert_array_equal(found["fixed"], product(given["a"][..., :3], d, (z, 0)))
