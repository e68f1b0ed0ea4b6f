# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""The kernels of one program: made when they are first asked for, named, and handed to code generation together."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tvm import tirx

from softq.artifact.machine import Machine
from softq.artifact.program import Size
from softq.codegen.cpu import convolution, data_movement, object_code
from softq.codegen.cpu.attention.kernel import Form, attention_kernel
from softq.codegen.cpu.gemm import dot_kernels, dot_prepack, dot_product, integer_matmul, matmul, prepack
from softq.codegen.cpu.gemm.block import BLOCK, block_kernel, tile_of_block
from softq.codegen.cpu.gemm.dot_product import Dot
from softq.codegen.cpu.gemm.tiles import Tile, tile_of
from softq.codegen.cpu.rows import RowKernel, row_kernel
from softq.compiler.fusion.epilogue import Epilogue
from softq.compiler.legalize import min_max
from softq.compiler.ops import CumSumCall, KernelCall, MatMulCall, ScatterCall
from softq.compiler.tir.loop_nests import Nest, nests
from softq.compiler.tir.symbolic import ceiling
from softq.rowprog import Program
from softq.rowprog.onnx import function_name

if TYPE_CHECKING:
    from softq.codegen.cpu.attention.lowering import Lowering
    from softq.codegen.cpu.gemm.lowering import Factors
    from softq.compiler.fusion.attention import Attention
    from softq.compiler.lowering.builder import Assembly, Value

PREFIX = "softq_"

ROW_COST = 2
"""What an element of a row costs in a row program, in elements that are moved."""


class Kernels:
    """The kernels of one program for one machine.

    Attributes:
        finished: The products whose kernels do what follows to their elements.
        min_max: How greatest and least values are computed, as TVM's `LegalizeOps` takes it.
        spread: Rows of values that an attention reads where they are, heads side by side; None for any number.
        widens: Whether an attention reads values of 16 bits that the graph widens for its second product.
    """

    finished: tuple[type, ...] = (MatMulCall,)
    min_max: Mapping[str, min_max.Legalize] = min_max.LEGALIZE
    spread: int | None = 1024
    widens = False

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.tile = tile_of(machine)
        self.block_tile = tile_of_block(machine)
        self._functions: dict[str, tirx.PrimFunc] = {}
        self._nests: dict[tuple[str, bool], list[Nest]] = {}
        self._rows: dict[tuple[int, int], RowKernel] = {}
        self._row_symbols: set[str] = set()
        self._attentions: dict[Form, str] = {}

    def functions(self) -> list[tirx.PrimFunc]:
        """Return every kernel asked for so far."""
        return list(self._functions.values())

    def objects(self) -> tuple[bytes, ...]:
        """Return object files of every kernel asked for so far."""
        return object_code.objects(self.functions(), self.machine)

    def _named(self, symbol: str, make: Any) -> str:
        if symbol not in self._functions:
            self._functions[symbol] = make()
        return symbol

    def nests(self, name: str, function: tirx.PrimFunc, rows: bool = False) -> list[Nest]:
        """Return the kernels of a TIR function that TVM made; `rows` asks for work items that are rows."""
        identity = (name, rows)
        if identity not in self._nests:
            # TVM has a "matmul" and a "copy" of its own.
            symbol = PREFIX + ("rows_" if rows else "tvm_") + re.sub(r"\W", "_", name)
            self._nests[identity] = nests(function, symbol, self.machine, rows=rows)
            for nest in self._nests[identity]:
                self._functions[str(nest.function.attrs["global_symbol"])] = nest.function
        return self._nests[identity]

    def row(self, program: Program, max_length: int) -> RowKernel:
        """Return the kernel of a row program."""
        identity = (id(program), max_length)
        if identity not in self._rows:
            symbol = row_symbol(program, self._functions)
            self._rows[identity] = row_kernel(program, self.machine, symbol=symbol, max_length=max_length)
            self._functions[symbol] = self._rows[identity].function
            self._row_symbols.add(symbol)
        return self._rows[identity]

    def matmul(self, epilogue: Epilogue | None = None) -> str:
        """Return the symbol of the product."""
        if epilogue is None:
            return self._named(matmul.MATMUL, lambda: matmul.matmul_kernel(self.tile))
        symbol = f"{matmul.MATMUL}_{epilogue.suffix}"
        return self._named(symbol, lambda: matmul.matmul_kernel(self.tile, symbol, epilogue))

    def finishes(self, epilogue: Epilogue, result: str) -> bool:
        """Say whether a product's kernel can do that to its elements; the result has a type, by NumPy's name."""
        return str(epilogue.element.ty.dtype) == result == "float32"

    def multiply(
        self, out: Assembly, given: Factors, result: Any, epilogue: Epilogue | None = None, others: Sequence[Value] = ()
    ) -> Value:
        """Append the steps of a product and return its result, of a type of Relax; `others` are the epilogue's."""
        from softq.codegen.cpu.gemm import lowering

        return lowering.multiply(out, given, result, epilogue, others)

    def multiply_integers(
        self,
        out: Assembly,
        given: Factors,
        zeros: list[Value],
        result: Any,
        epilogue: Epilogue | None = None,
        others: Sequence[Value] = (),
    ) -> Value:
        """Append the steps of a product of 8-bit integers less their zero points, and return its result."""
        from softq.codegen.cpu.gemm import lowering

        assert epilogue is None
        assert not others

        return lowering.multiply_integers(out, given, zeros, result)

    def pack(self, transposed: bool) -> str:
        """Return the symbol of the kernel that packs a right operand."""
        symbol = matmul.PACK_TRANSPOSED if transposed else matmul.PACK
        return self._named(symbol, lambda: matmul.pack_kernel(self.tile, transposed))

    @property
    def dot(self) -> Dot:
        """How 8-bit integers are multiplied."""
        return dot_product.dot_of(self.machine)

    def integer_matmul(self, left: str, right: str) -> str:
        """Return the symbol of the product of 8-bit integers of two types; the kernels that it calls are made too."""
        self.sums(left)
        symbol = integer_matmul.matmul_symbol(left, right)
        return self._named(symbol, lambda: integer_matmul.integer_matmul_kernel(self.block_tile, self.dot, left, right))

    def sums(self, left: str) -> None:
        """Make the kernels of a block of rows of 8-bit integers of a type."""
        self._named(f"{self.dot.symbol}_sums", lambda: dot_kernels.sum_kernel(self.machine, self.dot))
        self._named(dot_prepack.rows_symbol(self.dot, left), lambda: dot_prepack.rows_kernel(self.dot, left))

    def pack_integers(self, given: str, transposed: bool) -> str:
        """Return the symbol of the kernel that packs a right operand of 8-bit integers."""
        symbol = integer_matmul.pack_symbol(self.dot, given, transposed)
        make = dot_prepack.pack_dots_kernel
        return self._named(symbol, lambda: make(self.machine, self.dot, symbol, transposed=transposed, given=given))

    def pack_block(self, transposed: bool) -> str:
        """Return the symbol of the kernel that packs for a product of blocks, in panels of `block_tile`."""
        symbol = prepack.PACK_TRANSPOSED if transposed else prepack.PACK
        return self._named(symbol, lambda: prepack.pack_block_kernel(self.block_tile, transposed))

    def attention(self, form: Form) -> str:
        """Return the symbol of an attention; the kernels that it calls are made too."""
        if form.first is None or form.second is None:
            self._named(BLOCK, lambda: block_kernel(self.machine))
        for product in (form.first, form.second):
            if product is not None:
                self.sums(product.left)
        if form not in self._attentions:
            row = next(stage.symbol for stage in form.stages if stage.symbol in self._row_symbols)
            symbol = f"{PREFIX}attention_{row.removeprefix(PREFIX)}"
            while symbol in self._functions:
                symbol += "_"
            self._attentions[form] = symbol
            self._functions[symbol] = attention_kernel(symbol, form)
        return self._attentions[form]

    def takes(self, module: Any, calls: Mapping[str, KernelCall], attention: Attention) -> bool:
        """Say whether an attention of a lowered model is a kernel of its own."""
        del module, calls, attention
        return True

    def lower_attention(self, lowering: Lowering, attention: Attention) -> Value:
        """Append the steps of an attention that `takes` took, and return its result."""
        from softq.codegen.cpu.attention.lowering import lower_attention

        return lower_attention(lowering, attention)

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

    def convolution(self, shape: convolution.Shape) -> str:
        """Return the symbol of the convolution of few channels."""
        return self._named(shape.symbol, lambda: convolution.convolution_kernel(self.convolution_tile, shape))

    def sizes(self, count: int) -> str:
        """Return the symbol of the kernel that writes so many sizes."""
        return self._named(
            f"{PREFIX}sizes_{count}", lambda: data_movement.sizes_kernel(f"{PREFIX}sizes_{count}", count)
        )

    def cum_sum(self, dtype: str, call: CumSumCall) -> str:
        """Return the symbol of the kernel of sums along an axis."""
        symbol = f"{PREFIX}cumsum_{dtype}" + "_exclusive" * call.exclusive + "_reverse" * call.reverse
        return self._named(symbol, lambda: data_movement.cum_sum_kernel(symbol, dtype, call))

    def positions(self, axes: int) -> str:
        """Return the symbol of the kernel that checks indices into so many axes."""
        symbol = f"{PREFIX}positions_{axes}"
        return self._named(symbol, lambda: data_movement.positions_kernel(symbol, axes))

    def scatter(self, dtype: str, call: ScatterCall) -> str:
        """Return the symbol of the kernel that writes updates into a copy of the data."""
        symbol = f"{PREFIX}scatter_{dtype}_{call.depth}_{call.reduction}"
        return self._named(symbol, lambda: data_movement.scatter_kernel(symbol, dtype, call))

    def copy(self) -> str:
        """Return the symbol of the kernel that copies bytes."""
        return self._named(f"{PREFIX}copy", lambda: data_movement.copy_kernel(f"{PREFIX}copy"))


def row_symbol(program: Program, taken: Container[str]) -> str:
    """Return the symbol of a row program's kernel, another one than those that are taken."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", function_name(program)).lower()
    symbol = PREFIX + re.sub(r"\W", "_", words)
    while symbol in taken:
        symbol += "_"
    return symbol
