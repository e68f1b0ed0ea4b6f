"""The kernels of one program for one processor: made when they are first asked for, and named."""

from __future__ import annotations

from softq.artifact.machine import Cpu
from softq.artifact.program import Size
from softq.codegen.common.symbols import row_symbol
from softq.codegen.cpu.attention.kernel import Form, attention_kernel
from softq.codegen.cpu.convolution import Shape, convolution_kernel
from softq.codegen.cpu.gemm import dot_kernels, dot_prepack, integer_matmul, matmul
from softq.codegen.cpu.gemm.block import BLOCK, block_kernel, tile_of_block
from softq.codegen.cpu.gemm.dot_product import Dot, dot_of
from softq.codegen.cpu.gemm.tiles import Tile, tile_of
from softq.codegen.cpu.rows import RowKernel, row_kernel
from softq.compiler.steps.epilogue import Epilogue
from softq.compiler.steps.tir_kernels import PREFIX, TirKernels
from softq.compiler.tir.symbolic import ceiling
from softq.rowprog import Program


class CpuKernels:
    """The kernels of one program for one processor.

    Attributes:
        tir: All of them, by symbol.
        tile: The register tile of products of floats.
        block_tile: That of products whose right operand is read where it is: of attentions and of 8-bit integers.
    """

    def __init__(self, machine: Cpu) -> None:
        self.machine = machine
        self.tir = TirKernels(machine)
        self.tile = tile_of(machine)
        self.block_tile = tile_of_block(machine)
        self._rows: dict[tuple[int, int], RowKernel] = {}
        self._row_symbols: set[str] = set()
        self._attentions: dict[Form, str] = {}

    def row(self, program: Program, max_length: int) -> RowKernel:
        """Return the kernel of a row program."""
        identity = (id(program), max_length)
        if identity not in self._rows:
            symbol = row_symbol(program, self.tir)
            kernel = row_kernel(program, self.machine, symbol=symbol, max_length=max_length)
            self._rows[identity] = kernel
            self._row_symbols.add(self.tir.add(symbol, lambda: kernel.function))
        return self._rows[identity]

    def matmul(self, epilogue: Epilogue | None = None) -> str:
        """Return the symbol of the product."""
        if epilogue is None:
            return self.tir.add(matmul.MATMUL, lambda: matmul.matmul_kernel(self.tile))
        symbol = f"{matmul.MATMUL}_{epilogue.suffix}"
        return self.tir.add(symbol, lambda: matmul.matmul_kernel(self.tile, symbol, epilogue))

    def pack(self, transposed: bool) -> str:
        """Return the symbol of the kernel that packs a right operand."""
        return self._pack(matmul.PACK, self.tile, transposed)

    @property
    def dot(self) -> Dot:
        """How 8-bit integers are multiplied."""
        return dot_of(self.machine)

    def integer_matmul(self, left: str, right: str) -> str:
        """Return the symbol of the product of 8-bit integers of two types; the kernels that it calls are made too."""
        self.sums(left)
        symbol = integer_matmul.matmul_symbol(left, right)
        return self.tir.add(
            symbol, lambda: integer_matmul.integer_matmul_kernel(self.block_tile, self.dot, left, right)
        )

    def sums(self, left: str) -> None:
        """Make the kernels of a block of rows of 8-bit integers of a type."""
        self.tir.add(f"{self.dot.symbol}_sums", lambda: dot_kernels.sum_kernel(self.machine, self.dot))
        self.tir.add(dot_prepack.rows_symbol(self.dot, left), lambda: dot_prepack.rows_kernel(self.dot, left))

    def pack_integers(self, given: str, transposed: bool) -> str:
        """Return the symbol of the kernel that packs a right operand of 8-bit integers."""
        symbol = integer_matmul.pack_symbol(self.dot, given, transposed)
        make = dot_prepack.pack_dots_kernel
        return self.tir.add(symbol, lambda: make(self.machine, self.dot, symbol, transposed=transposed, given=given))

    def pack_block(self, transposed: bool) -> str:
        """Return the symbol of the kernel that packs for a product of blocks, in panels of `block_tile`."""
        return self._pack(matmul.PACK_BLOCK, self.block_tile, transposed)

    def _pack(self, name: str, tile: Tile, transposed: bool) -> str:
        symbol, strided = name + "_transposed" * transposed, name == matmul.PACK_BLOCK
        return self.tir.add(symbol, lambda: matmul.pack_kernel(tile, symbol, transposed=transposed, strided=strided))

    def attention(self, form: Form) -> str:
        """Return the symbol of an attention; the kernels that it calls are made too."""
        if form.first is None or form.second is None:
            self.tir.add(BLOCK, lambda: block_kernel(self.machine))
        for product in (form.first, form.second):
            if product is not None:
                self.sums(product.left)
        if form not in self._attentions:
            row = next(stage.symbol for stage in form.stages if stage.symbol in self._row_symbols)
            symbol = f"{PREFIX}attention_{row.removeprefix(PREFIX)}"
            while symbol in self.tir:
                symbol += "_"
            self._attentions[form] = self.tir.add(symbol, lambda: attention_kernel(symbol, form))
        return self._attentions[form]

    def panels(self, columns: Size, tile: Tile | None = None) -> Size:
        """Return the number of panels of a right operand."""
        return ceiling(columns, (tile or self.tile).columns)

    def cost(self, products: Size) -> Size:
        """Return what so many multiply-adds of tiles cost, in elements that are moved."""
        return ceiling(products, 2 * self.tile.lanes)

    def row_blocks(self, rows: Size) -> Size:
        """Return the number of blocks of rows of a left operand."""
        return ceiling(rows, matmul.ROWS)

    @property
    def convolution_tile(self) -> Tile:
        """The tile of convolutions of few channels."""
        tile = self.block_tile
        return Tile(4, 2 if tile.lanes > 1 and self.machine.vectors < 32 else 4, tile.lanes)

    def convolution(self, shape: Shape) -> str:
        """Return the symbol of the convolution of groups of few channels."""
        return self.tir.add(shape.symbol, lambda: convolution_kernel(self.convolution_tile, shape))
