"""The kernels of a GEMM, for which sizes each is, and the step; weights are packed once, when the model is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softq.artifact.device.steps import TileForm
from softq.artifact.program import Size
from softq.codegen.gpu.dialect.text import HALVES
from softq.codegen.gpu.gemm.fused_epilogue import PLAIN, FusedEpilogue
from softq.codegen.gpu.gemm.gemv import HALF_ROWS, ROW, ROWS, SimtGemv, TensorCoreGemv
from softq.codegen.gpu.gemm.kernel import LARGE, LOAD_BYTES, SMALL, GemmKernel, Operands
from softq.codegen.gpu.gemm.simt import SimtGemm
from softq.codegen.gpu.gemm.tensorcore import TensorCoreGemm
from softq.compiler.steps.builder import Builder, StepCall, Value
from softq.compiler.steps.product import Product, Weight
from softq.compiler.tir.symbolic import computed, multiplied

KINDS: Mapping[str, str] = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8",
}  # fmt: skip
"""Types of operands that have kernels, and what kernels call them."""


@dataclass(frozen=True)
class Gemm:
    """The kernels of a GEMM.

    Attributes:
        texts: Their texts, to stand behind the prelude of their language.
        forms: For which sizes each is; the last one takes all.
    """

    texts: tuple[str, ...]
    forms: tuple[TileForm, ...]


def write_gemm(symbol: str, left: str, right: str, b_is_kn: bool, epilogue: FusedEpilogue = PLAIN) -> Gemm:
    """Return the kernels of C [m, n] = A [m, k] B, B being [n, k], or [k, n] (`b_is_kn`), of two element types."""
    of = Operands(left, right, b_is_kn, aligned=True)
    gemm, gemv, tiles = SimtGemm, SimtGemv, (ROW, ROWS)
    if left in HALVES:
        gemm, gemv, tiles = TensorCoreGemm, TensorCoreGemv, (HALF_ROWS,)
    kernels: list[GemmKernel] = [gemv(of, tile, epilogue) for tile in tiles if not b_is_kn]
    # Unaligned: scalar loads dominate, whatever the tile.
    for operands, tile in ((of, LARGE), (of, SMALL), (replace(of, aligned=False), SMALL)):
        kernels.append(gemm(operands, tile, epilogue))
    named = {f"{symbol}_{kernel.name}": kernel for kernel in kernels}
    return Gemm(
        tuple(kernel.write(name) for name, kernel in named.items()),
        tuple(kernel.form(name) for name, kernel in named.items()),
    )


def pad_rows(array: NDArray[np.generic], transposed: bool) -> NDArray[np.generic]:
    """Return a weight [k, n] (`transposed`: [n, k]) as [n, K], K >= k a multiple of 16 bytes, filled with zeros."""
    matrix = array if transposed else array.T
    chunk = LOAD_BYTES // matrix.dtype.itemsize
    result = np.zeros((matrix.shape[0], -(-matrix.shape[1] // chunk) * chunk), matrix.dtype)
    result[:, : matrix.shape[1]] = matrix
    return result


def lower_gemm(out: Builder, factors: Product, result: Any, kernel: Callable[[str, str, bool], str]) -> Value:
    """Append the step of a product and return its result.

    Args:
        out: What is lowered.
        factors: What is multiplied.
        result: Relax's type of the result.
        kernel: What gives a kernel's symbol for the types of both operands, and for a right one that is [k, n].
    """
    (rows, inner, columns), b = factors.sizes, factors.right
    if isinstance(b, Weight):
        # The name of a weight that something else has as it is stands for that.
        array = pad_rows(b.array, factors.transposed)
        right, pitch, b_is_kn = out.weight(("rows", b.name, factors.transposed), array), array.shape[1], False
        ahead: Size = 0
    else:
        right, b_is_kn = b, not factors.transposed
        pitch, ahead = (columns if b_is_kn else inner), multiplied([inner, columns])
    product = out.new(result)
    symbol = kernel(KINDS[factors.left.dtype], KINDS[right.dtype], b_is_kn)
    scalars: list[Size] = [rows, inner, columns, multiplied([factors.step, inner]), ahead, pitch]
    # None where the result has no elements, so that nothing is started.
    lead = multiplied([*factors.lead, computed("min", rows, 1), computed("min", columns, 1)])
    tensors = [factors.left, right, *factors.zeros, product, *factors.others]
    out.append(StepCall(symbol, tensors, scalars, lead, product.elements))
    return product
