"""A GPU as a backend of the compiler: softq's kernels as text, TVM's as functions over work items."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx

from softq.artifact.device.steps import Launch, RowForm
from softq.artifact.machine import Gpu
from softq.codegen.common.symbols import row_symbol
from softq.codegen.gpu import tvm_kernels
from softq.codegen.gpu.attention.lowering import Plan, lower_attention, plan
from softq.codegen.gpu.dialect.dialects import Dialect
from softq.codegen.gpu.gemm import PLAIN, FusedEpilogue, write_gemm
from softq.codegen.gpu.gemm.fused_epilogue import fuse
from softq.codegen.gpu.gemm.gemm import KINDS, lower_gemm
from softq.codegen.gpu.gemm.kernel import BYTE_KINDS
from softq.codegen.gpu.rows import Tiling, row_kernel
from softq.codegen.gpu.rows.load_store import bytes_of
from softq.codegen.gpu.rows.tiling import choose_tiling
from softq.compiler.backend import KernelOperator, Lowering
from softq.compiler.legalize import min_max
from softq.compiler.ops.linear import MatMulOp
from softq.compiler.steps.attention import Attention
from softq.compiler.steps.builder import Builder, Value
from softq.compiler.steps.product import Epilogue, Product
from softq.compiler.steps.tir_kernels import PREFIX, TirKernels
from softq.compiler.tir.loop_nests import Nest, nests
from softq.compiler.tir.symbolic import key
from softq.rowprog import Program

ROWS, GRAPH = "kernels", "graph"
"""The modules: softq's kernels, and TVM's."""


@dataclass(frozen=True)
class _Row:
    """What a step needs to know of a row program's kernels."""

    symbol: str
    scratch_bytes: int = 0


class GpuBackend:
    """A GPU; see `compiler.backend.Backend`."""

    min_max: Mapping[str, min_max.Legalize] = min_max.IN_STEPS
    fuses_integers = True
    widens_values = True
    shares_slots = True
    # A thread of a GPU has no memory for blocks.
    convolution = integer_convolution = greatest = recurrence = packed_product = None

    def __init__(self, machine: Gpu, dialect: Dialect) -> None:
        self.machine = machine
        self.tir = TirKernels(machine)
        self._dialect = dialect
        self._texts: list[str] = []
        self._launches: dict[str, Launch] = {}
        self._rows: dict[tuple[int, int], _Row] = {}
        self._over_rows: dict[str, list[Nest]] = {}
        self._plans: dict[int, Plan] = {}
        self._attention_symbols: dict[str, str] = {}
        self._reductions: dict[str, tvm_kernels.Reduction] = {}

    def supports(self, operator: type[KernelOperator], dtype: str) -> bool:
        """Say whether there is a kernel for an operator of operands of a type."""
        return operator is MatMulOp and dtype in KINDS

    def row(self, program: Program, max_length: int) -> _Row:
        """Return the kernels of a row program for all lengths."""
        identity = (id(program), max_length)
        if identity not in self._rows:
            symbol = row_symbol(program, self._launches)
            self._rows[identity] = _Row(symbol)
            started: list[RowForm] = []
            for f in forms(program, max_length, self.machine.shared_bytes):
                kernel = row_kernel(program, f, self._dialect, symbol=f"{symbol}_{f.name}", max_length=max_length)
                self._texts.append(kernel.text)
                size = kernel.shared_bytes
                started.append(RowForm(kernel.symbol, f.rows, f.threads, f.chunk, f.aligned, f.longest, size))
            self._launches[symbol] = Launch("rows", ROWS, 0, tuple(started))
        return self._rows[identity]

    def can_fuse(self, operator: KernelOperator, epilogue: Epilogue, result: str) -> bool:
        """Say whether a product's kernel can apply an epilogue whose result has a type, by NumPy's name."""
        own = str(epilogue.element.ty.dtype)
        return (own == "int32" or result == own) and fuse(epilogue, result) is not None

    def product(self, builder: Builder, product: Product, result: Any) -> Value:
        """Append the step of a product."""
        fused = (product.epilogue and fuse(product.epilogue, str(result.dtype))) or PLAIN
        return lower_gemm(builder, product, result, lambda *types: self._gemm_symbol(*types, fused))

    def _gemm_symbol(self, left: str, right: str, b_is_kn: bool, fused: FusedEpilogue) -> str:
        """Return the symbol of the GEMM of two element types; see `write_gemm`."""
        symbol = f"{PREFIX}matmul_{left}" + f"_{right}" * (left in BYTE_KINDS) + "_kn" * b_is_kn
        if fused.epilogue is not None:
            symbol = f"{symbol}_{fused.epilogue.suffix}"
        if symbol not in self._launches:
            gemm = write_gemm(symbol, left, right, b_is_kn, fused)
            self._launches[symbol] = Launch("tiles", ROWS, 0, gemm.forms)
            self._texts += gemm.texts
        return symbol

    def nests(self, name: str, function: tirx.PrimFunc, rows: bool = False) -> list[Nest]:
        """Return the kernels of a TIR function; with `rows` a nest over rows, which kernels are written of.

        Sums along rows are one kernel, one block per row.
        """
        if not rows:
            symbol = re.sub(r"\W", "_", f"{PREFIX}sums_{name}")
            if symbol not in self._reductions:
                made = tvm_kernels.reduction(function, symbol, tvm_kernels.target_of(self._dialect, self.machine.cpu))
                if made is None:
                    return self.tir.nests(name, function)
                self._reductions[symbol] = made
            return [self._reductions[symbol].nest]
        if name not in self._over_rows:
            self._over_rows[name] = nests(function, name, replace(self.machine, single_items=False), rows=True)
        return self._over_rows[name]

    def supports_attention(
        self, module: tvm.IRModule, operators: Mapping[str, KernelOperator], attention: Attention
    ) -> bool:
        """Say whether there is a kernel that takes an attention; others are computed step by step."""
        found = None if attention.scores is None else plan(self, module, operators, attention)
        if found is not None:
            self._plans[key(attention.last.var)] = found
        return found is not None

    def attention(self, lowering: Lowering, attention: Attention) -> Value:
        """Append the step of an attention."""
        found = self._plans[key(attention.last.var)]
        identity, _ = found.write("attention")
        if identity not in self._attention_symbols:
            symbol = f"{PREFIX}attention_{'f16_' * found.half}{row_symbol(found.spec.program, ()).removeprefix(PREFIX)}"
            while symbol in self._launches:
                symbol += "_"
            self._attention_symbols[identity] = symbol
            text, started = found.write(symbol)
            self._texts.append(text)
            self._launches[symbol] = Launch("attention", ROWS, 0, started)
        return lower_attention(lowering, attention, found, self._attention_symbols[identity])

    def objects(self) -> tuple[bytes, ...]:
        """Return nothing: kernels for devices are text."""
        return ()

    def launches(self) -> dict[str, Launch]:
        """Return how each kernel is started."""
        made = {
            str(f.attrs["global_symbol"]): Launch("items", GRAPH, tvm_kernels.THREADS) for f in self.tir.functions()
        }
        made |= {symbol: Launch("blocks", GRAPH, one.threads) for symbol, one in self._reductions.items()}
        return {**made, **self._launches}

    def graph(self) -> str:
        """Return TVM's kernels."""
        blocks = [one.nest.function for one in self._reductions.values()]
        return tvm_kernels.source(self.tir.functions(), blocks, self._dialect, self.machine.cpu)

    def text(self) -> str:
        """Return softq's kernels."""
        return self._dialect.prelude() + "".join(self._texts)


def forms(program: Program, max_length: int, most_shared: int = 0) -> list[Tiling]:
    """Return the forms of all rows of up to so many elements, those of the shortest rows first.

    Behind those that take some of a block's shared memory, of which there may be `most_shared` bytes, there are those
    that take none.
    """
    in_order = any(node.op == "scan" for node in program.nodes())
    score_bytes = bytes_of(program.scores.value)
    # A form is chosen for all lengths from one power of two to the next.
    lengths = [1 << n for n in range((max(max_length, 1) - 1).bit_length() + 1)]
    chosen = dict.fromkeys(
        choose_tiling(length, score_bytes, aligned=aligned, in_order=in_order, shared_bytes=shared)
        for length, aligned, shared in itertools.product(lengths, (True, False), (most_shared, 0))
    )
    # Aligned ones first: those take what others take, too.
    return sorted(chosen, key=lambda form: (form.longest or 1 << 62, not form.aligned))
