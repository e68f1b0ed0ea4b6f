"""The kernels of a GEMM, and for which sizes each is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from softq.artifact.device.steps import TileForm
from softq.codegen.gpu.gemm import gemv, simt, tensorcore
from softq.codegen.gpu.gemm.fused_epilogue import PLAIN, FusedEpilogue
from softq.codegen.gpu.gemm.kernel import GemmKernel
from softq.codegen.gpu.gemm.operands import HALF_KINDS, Operands


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
    unaligned = replace(of, aligned=False)
    kernels: list[GemmKernel[Any]] = []
    if left in HALF_KINDS:
        kernels += [gemv.TensorCoreGemv(of, gemv.HALF_ROWS, epilogue)] * (not b_is_kn)
        for each, tile in ((of, tensorcore.LARGE), (of, tensorcore.SMALL), (unaligned, tensorcore.SMALL)):
            kernels.append(tensorcore.TensorCoreGemm(each, tile, epilogue))
    else:
        kernels += [gemv.SimtGemv(of, tile, epilogue) for tile in (gemv.ROW, gemv.ROWS) if not b_is_kn]
        # Unaligned: scalar loads dominate, whatever the tile.
        for each, tile in ((of, simt.LARGE), (of, simt.SMALL), (unaligned, simt.SMALL)):
            kernels.append(simt.SimtGemm(each, tile, epilogue))
    named = {f"{symbol}_{kernel.name}": kernel for kernel in kernels}
    return Gemm(
        tuple(kernel.write(name) for name, kernel in named.items()),
        tuple(kernel.form(name) for name, kernel in named.items()),
    )
