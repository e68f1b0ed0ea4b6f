"""Attention of bytes: equal to the bit to NumPy's, with the instructions of this computer and without them."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import softq
from softq.artifact.machine import Cpu
from softq.rowprog import DType, Program
from softq.rowprog.interpreter import run

pytest.importorskip("tvm")

SCALE, VALUE_SCALE = np.float32(0.003), np.float32(0.02)


def program(weight_bits: int, masked: bool) -> Program:
    method = softq.METHODS.get("deferred-log")
    options = method.resolve(method.configure({"bits": 4, "weight_bits": weight_bits}), False)
    return method.program(options, scores=DType.F32, masked=masked)


def expected(
    given: Program, q: NDArray[np.int8], k: NDArray[np.int8], v: NDArray[np.int8], valid: NDArray[np.bool_] | None
) -> NDArray[np.float32]:
    scores = (q.astype(np.int32) @ k.astype(np.int32).swapaxes(-1, -2)).astype(np.float32) * SCALE
    found = run(given, scores, valid=valid)
    weights, total = found["weights"].astype(np.int64), found["normalizer"].astype(np.float32)
    out = np.zeros((*q.shape[:-1], v.shape[-1]), np.float32)
    for start in range(0, k.shape[-2], 512):
        part = weights[..., start : start + 512] @ v[..., start : start + 512, :].astype(np.int64)
        out += part.astype(np.int32).astype(np.float32)
    return np.asarray(out * VALUE_SCALE / np.maximum(total, np.float32(1)), np.float32)


class Attention:
    """The kernels of an attention of bytes, loaded."""

    def __init__(self, given: Program, machine: Cpu) -> None:
        from benchmarks.cpu.integer_attention import integer_attention
        from benchmarks.cpu.native import library

        self._kernels = integer_attention(given, machine, 4096)
        self._loaded = library(self._kernels.functions, machine)

    def _call(self, symbol: str, arrays: list[NDArray[Any]], numbers: list[int]) -> None:
        from benchmarks.cpu.native import pointer

        self._loaded[symbol](*map(pointer, arrays), *map(ctypes.c_int64, numbers))

    def __call__(
        self,
        q: NDArray[np.int8],
        k: NDArray[np.int8],
        v: NDArray[np.int8],
        valid: NDArray[np.bool_] | None,
        scales: tuple[np.float32, np.float32] = (SCALE, VALUE_SCALE),
    ) -> NDArray[np.float32]:
        """Return the result for q, k and v of [batch, heads, rows, width], in two runs."""
        kernels, columns = self._kernels, self._kernels.tile.columns
        batch, heads, rows, width = q.shape
        length, out = v.shape[-2:]
        matrices, panels, groups = batch * heads, -(-length // columns), -(-width // 4)
        key_panels = np.full((matrices, panels, groups, columns, 4), 77, np.int8)
        key_starts = np.full((matrices, panels, columns), 77, np.int32)
        self._call(
            "softq_pack_keys_i8",
            [k, key_panels, key_starts],
            [width, length, 1, width, length * width, 0, 0, matrices * panels],
        )
        dot, over = kernels.weights, -(-out // columns)
        value_panels = np.full((matrices, over, -(-length // dot.count), columns, dot.count), 77, dot.right)
        value_starts = np.full((matrices, over, columns), 77, np.int32)
        self._call(
            "softq_pack_values_i8",
            [v, value_panels, value_starts],
            [length, out, 1, out, length * out, 0, 0, matrices * over],
        )
        block = 12
        scratch = np.full(kernels.scratch_bytes(block, length, width), 0xAB, np.uint8)
        result = np.full((batch, heads, rows, out), np.nan, np.float32)
        factors = np.array([*scales, 1], np.float32)
        arrays = [q, key_panels, key_starts, value_panels, value_starts, factors, result]
        strides = [] if valid is None else [heads * rows * length, rows * length, length, 1]
        sizes = [rows, length, width, out, block, heads, rows, *strides]
        blocks = matrices * -(-rows // block)
        masks = [] if valid is None else [valid]
        for begin, end in ((0, blocks // 2), (blocks // 2, blocks)):
            self._call("softq_attention_i8", [*arrays, *masks, scratch], [*sizes, begin, end])
        return result


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("cpu", "weight_bits", "masked"),
    [
        *(("native", bits, masked) for bits, masked in ((8, False), (15, False), (15, True))),
        *(("x86-64-v3", bits, masked) for bits, masked in ((8, False), (15, False), (15, True))),
        ("", 15, True),
    ],
)
def test_equal_to_numpy(cpu: str, weight_bits: int, masked: bool) -> None:
    """With VNNI, if this computer has it, with other vectors, and without any."""
    from softq.codegen.cpu import machines

    machine, chosen = machines.host("cpu", cpu or "x86-64-v3", ""), program(weight_bits, masked)
    if not cpu:
        machine = replace(machine, vector_bytes=0, requires=())
    attention = Attention(chosen, machine)
    rng = np.random.default_rng(weight_bits)
    for heads, rows, length, width, out in (
        (1, 1, 1, 1, 1),
        (2, 7, 50, 3, 5),
        (3, 50, 197, 64, 64),
        (1, 9, 2055, 33, 80),
    ):
        q, k, v = (
            rng.integers(-128, 128, (2, heads, n, d), np.int8)
            for n, d in ((rows, width), (length, width), (length, out))
        )
        valid = rng.random((2, heads, rows, length)) < 0.8
        valid[:, :, 0] = False
        mask = valid if masked else None
        np.testing.assert_array_equal(attention(q, k, v, mask), expected(chosen, q, k, v, mask))


def test_weights_that_do_not_fit_are_refused() -> None:
    from benchmarks.cpu.integer_attention import integer_attention
    from softq.codegen.cpu import machines

    machine = machines.host("cpu", "native", "")
    with pytest.raises(softq.RefusalError, match="15 bits"):
        integer_attention(program(20, False), machine, 512)
    exact = softq.METHODS.get("exact")
    with pytest.raises(softq.RefusalError, match="integer weights"):
        integer_attention(exact.program(exact.configure({})), machine, 512)
    of_bytes = replace(program(15, False), scores=DType.I8)
    with pytest.raises(softq.RefusalError, match="no pair of float scores"):
        integer_attention(of_bytes, machine, 512)
