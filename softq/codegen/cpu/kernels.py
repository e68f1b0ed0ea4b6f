"""The kernels of one program for one processor: made when they are first asked for, and named."""

from __future__ import annotations

from softq.artifact.machine import Cpu
from softq.artifact.program import Size
from softq.codegen.common.patterns import INTEGERS, with_integers
from softq.codegen.common.symbols import row_symbol
from softq.codegen.cpu.attention.form import Form
from softq.codegen.cpu.attention.kernel import attention_kernel
from softq.codegen.cpu.attention.shifting import SUFFIX, shift_memory
from softq.codegen.cpu.gemm.dot_prepack import rows_kernel, rows_symbol
from softq.codegen.cpu.gemm.dot_product import WORDS, Dot, dot_of, part_kernel, sum_kernel
from softq.codegen.cpu.gemm.dot_runs import runs_sum_kernel
from softq.codegen.cpu.gemm.matmul import BLOCK, PACK_BLOCK, block_kernel, pack_kernel
from softq.codegen.cpu.gemm.scaled_sums import ScaledSums
from softq.codegen.cpu.gemm.tiles import Tile, tile_of, tile_of_block
from softq.codegen.cpu.rows import RowKernel, row_kernel
from softq.compiler.steps.tir_kernels import PREFIX, TirKernels
from softq.compiler.tir.symbolic import ceiling
from softq.rowprog import DType, Program
from softq.rowprog.onnx.emitter import output_names


class CpuKernels:
    """The kernels of one program for one processor.

    Attributes:
        tir: All of them, by symbol.
        tile: The register tile of products of floats.
        block_tile: That of products whose right operand is read where it is: of attentions and of 8-bit integers.
        dot: How 8-bit integers are multiplied.
    """

    def __init__(self, machine: Cpu) -> None:
        self.machine = machine
        self.tir = TirKernels(machine)
        self.tile = tile_of(machine)
        self.block_tile = tile_of_block(machine)
        self.dot = dot_of(machine)
        self._rows: dict[tuple[int, int, DType | None], RowKernel] = {}
        self._row_symbols: set[str] = set()
        self._attentions: dict[Form, str] = {}

    def row(self, program: Program, max_length: int, stored: DType | None = None) -> RowKernel:
        """Return the kernel of a row program, whose weights are written as float32, or as integers of a type."""
        identity = (id(program), max_length, stored)
        if identity not in self._rows:
            own, outputs = program, None
            if stored is not None:
                own = with_integers(program, stored)
                outputs = tuple(INTEGERS if name == "weights" else name for name in output_names(program, None))
            symbol = row_symbol(own, self.tir)
            kernel = row_kernel(own, self.machine, symbol=symbol, max_length=max_length, outputs=outputs)
            self._rows[identity] = kernel
            self._row_symbols.add(self.tir.add(symbol, lambda: kernel.function))
        return self._rows[identity]

    def pack(self, name: str, tile: Tile, transposed: bool) -> str:
        """Return the symbol of the kernel that packs right operands of floats in panels of a tile.

        Args:
            name: `PACK` for matrices that lie one behind another, `PACK_BLOCK` for strided ones.
            tile: The tile.
            transposed: Whether rows of a panel are columns of the matrix.
        """
        symbol, strided = name + "_transposed" * transposed, name == PACK_BLOCK
        return self.tir.add(symbol, lambda: pack_kernel(tile, symbol, transposed=transposed, strided=strided))

    def sums(self, scaled: ScaledSums | None = None) -> str:
        """Return the symbol of the kernel of a block of rows of 8-bit integers, whose sums may be scaled."""
        symbol = f"{self.dot.symbol}_{'sums' if scaled is None else scaled.suffix}"
        if self.dot.runs:
            return self.tir.add(symbol, lambda: runs_sum_kernel(self.dot, symbol, scaled))
        return self.tir.add(symbol, lambda: sum_kernel(self.machine, self.dot, symbol, scaled))

    def block(self, scaled: ScaledSums | None = None) -> str:
        """Return the symbol of the kernel of a block of rows of floats, whose sums may be scaled."""
        symbol = BLOCK if scaled is None else f"{BLOCK}_{scaled.suffix}"
        return self.tir.add(symbol, lambda: block_kernel(self.block_tile, symbol, scaled))

    def parts(self) -> str:
        """Return the symbol of the kernel of a block of rows of words, whose sums are float32."""
        symbol = f"{WORDS.symbol}_parts"
        return self.tir.add(symbol, lambda: part_kernel(self.machine, WORDS, symbol))

    def left_rows(self, left: str, dot: Dot | None = None) -> str:
        """Return the symbol of the kernel that gives rows of a type the form in which they are multiplied."""
        used = dot or self.dot
        return self.tir.add(rows_symbol(used, left), lambda: rows_kernel(used, left))

    def attention(self, form: Form) -> str:
        """Return the symbol of an attention; the kernels that it calls are made too."""
        if form.first is None or form.second is None:
            self.block()
        for product in (form.first, form.second):
            if product is not None and not product.in_place:
                self.left_rows(product.left)
        if form not in self._attentions:
            row = next(stage.symbol for stage in form.stages if stage.symbol in self._row_symbols)
            symbol = f"{PREFIX}attention_{row.removeprefix(PREFIX).removesuffix(SUFFIX)}"
            while symbol in self.tir:
                symbol += "_"
            self._attentions[form] = self.tir.add(symbol, lambda: attention_kernel(symbol, form))
        return self._attentions[form]

    def shifted(self, symbol: str, pointers: tuple[int, ...]) -> str:
        """Return the symbol of a kernel that takes by how many elements places of these pointers are too high."""
        known = {str(f.attrs["global_symbol"]): f for f in self.tir.functions()}
        name = f"{symbol}{SUFFIX}"
        if symbol in self._row_symbols:
            self._row_symbols.add(name)
        return self.tir.add(name, lambda: shift_memory(known[symbol], name, pointers))

    def cost(self, products: Size) -> Size:
        """Return what so many multiply-adds of tiles cost, in elements that are moved."""
        return ceiling(products, 2 * self.tile.lanes)
