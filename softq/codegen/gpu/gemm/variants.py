"""The forms of a product, and for which sizes each is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from softq.artifact.device.steps import TileForm
from softq.codegen.gpu.gemm import gemv, simt, tensorcore
from softq.codegen.gpu.gemm.fused_epilogue import PLAIN, Finish
from softq.codegen.gpu.gemm.operands import HALF_KINDS, Operands

_ENOUGH = 128
"""Blocks that fill a large GPU once: an A100 has 108 multiprocessors, an H100 132. Fewer tiles leave some idle."""


@dataclass(frozen=True)
class Product:
    """The kernels of a product.

    Attributes:
        texts: Their texts, to stand behind the prelude of their language.
        forms: For which sizes each is; the last one takes all.
    """

    texts: tuple[str, ...]
    forms: tuple[TileForm, ...]


def product(symbol: str, left: str, right: str, turned: bool, finish: Finish = PLAIN) -> Product:
    """Return the kernels of a product of matrices of two types; the right one is [n, k], or, `turned`, [k, n]."""
    operands = Operands(left, right, turned, aligned=True)
    texts: list[str] = []
    forms: list[TileForm] = []
    for name, rows, columns, threads, most, least, of, write in _forms(operands):
        own = f"{symbol}_{name}{'' if of.aligned else '_any'}"
        texts.append(write(own, of, finish))
        forms.append(TileForm(own, rows, columns, threads, of.chunk if of.aligned else 1, most, least))
    return Product(tuple(texts), tuple(forms))


_Form = tuple[str, int, int, int, "int | None", int, Operands, Callable[[str, Operands, Finish], str]]


def _forms(operands: Operands) -> Iterator[_Form]:
    is_half = operands.left in HALF_KINDS
    if not operands.turned:
        for form in (gemv.HALVES,) if is_half else (gemv.ONE, gemv.FEW):

            def few(symbol: str, of: Operands, finish: Finish, form: gemv.Narrow = form) -> str:
                return gemv.narrow_kernel(symbol, of, form, finish)

            yield form.name, form.rows, form.columns, form.threads, form.rows, 0, operands, few
    for of in (operands, replace(operands, aligned=False)):
        tiles = (tensorcore.LARGE, tensorcore.SMALL) if is_half else (simt.LARGE, simt.SMALL)
        # Element by element memory is what takes the time, whatever the tile.
        for tile in tiles if of.aligned else tiles[1:]:

            def many(
                symbol: str, of: Operands, finish: Finish, tile: tensorcore.HalfTile | simt.WordTile = tile
            ) -> str:
                if isinstance(tile, tensorcore.HalfTile):
                    return tensorcore.half_kernel(symbol, of, tile, finish)
                return simt.word_kernel(symbol, of, tile, finish)

            least = 0 if tile in (tensorcore.SMALL, simt.SMALL) else _ENOUGH
            yield tile.name, tile.size, tile.size, tile.threads, None, least, of, many
