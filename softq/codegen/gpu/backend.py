# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportIncompatibleMethodOverride=false

"""The kernels of one program on a device: softq's as text, TVM's as functions over work items."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm import tirx

from softq.artifact.device.steps import Launch, RowForm
from softq.artifact.machine import Machine
from softq.codegen.cpu.backend import PREFIX, Kernels, row_symbol
from softq.codegen.cpu.gemm import matmul
from softq.codegen.cpu.gemm.lowering import Factors
from softq.codegen.gpu import min_max, tvm_kernels
from softq.codegen.gpu.attention.lowering import Plan, lower_attention, plan
from softq.codegen.gpu.block_reductions import Reduction, reduction
from softq.codegen.gpu.dialect.architectures import shared_bytes
from softq.codegen.gpu.dialect.dialects import Dialect
from softq.codegen.gpu.gemm import PLAIN, Finish, product
from softq.codegen.gpu.gemm.fused_epilogue import finish
from softq.codegen.gpu.gemm.lowering import multiply
from softq.codegen.gpu.gemm.operands import BYTE_KINDS
from softq.codegen.gpu.rows import Form, row_kernel
from softq.codegen.gpu.rows.form import choose
from softq.codegen.gpu.rows.memory import bytes_of
from softq.compiler.fusion.epilogue import Epilogue
from softq.compiler.lowering.builder import Assembly, Value
from softq.compiler.ops import IntegerMatMulCall, KernelCall, MatMulCall
from softq.compiler.tir.loop_nests import Nest, nests
from softq.compiler.tir.symbolic import key
from softq.rowprog import Program

if TYPE_CHECKING:
    from softq.codegen.cpu.attention.lowering import Lowering
    from softq.compiler.fusion.attention import Attention

ROWS, GRAPH = "kernels", "graph"
"""The modules: softq's kernels, and TVM's."""


@dataclass(frozen=True)
class _Row:
    """What a step needs to know of a row program's kernels."""

    symbol: str
    scratch_bytes: int = 0


class GpuKernels(Kernels):
    """The kernels of one program on a device."""

    finished = (MatMulCall, IntegerMatMulCall)
    min_max = min_max.LEGALIZE
    spread = None
    widens = True

    def __init__(self, machine: Machine, dialect: Dialect) -> None:
        super().__init__(machine)
        self._dialect = dialect
        self._texts: list[str] = []
        self._launches: dict[str, Launch] = {}
        self._by_program: dict[tuple[int, int], _Row] = {}
        self._over_rows: dict[str, list[Nest]] = {}
        self._plans: dict[int, Plan] = {}
        self._attention_symbols: dict[str, str] = {}
        self._reductions: dict[str, Reduction] = {}

    def row(self, program: Program, max_length: int) -> Any:
        """Return the kernels of a row program for all lengths."""
        identity = (id(program), max_length)
        if identity not in self._by_program:
            symbol = row_symbol(program, self._launches)
            self._by_program[identity] = _Row(symbol)
            found: list[RowForm] = []
            for form in forms(program, max_length, shared_bytes(self.machine.cpu)):
                kernel = row_kernel(
                    program, form, self._dialect, symbol=f"{symbol}_{form.name}", max_length=max_length
                )  # fmt: skip
                self._texts.append(kernel.text)
                found.append(
                    RowForm(
                        kernel.symbol, form.rows, form.threads, form.chunk, form.aligned, form.longest,
                        kernel.shared_bytes,
                    )
                )  # fmt: skip
            self._launches[symbol] = Launch("rows", ROWS, 0, tuple(found))
        return self._by_program[identity]

    def finishes(self, epilogue: Epilogue, result: str) -> bool:
        """Say whether a product's kernel can do that to its elements; the result has a type, by NumPy's name."""
        own = str(epilogue.element.ty.dtype)
        return (own == "int32" or result == own) and finish(epilogue, result) is not None

    def multiply(
        self,
        out: Assembly,
        given: Factors,
        result: Any,
        epilogue: Epilogue | None = None,
        others: Sequence[Value] = (),
    ) -> Value:
        """Append the step of a product and return its result."""
        return self.multiply_integers(out, given, [], result, epilogue, others)

    def multiply_integers(
        self,
        out: Assembly,
        given: Factors,
        zeros: list[Value],
        result: Any,
        epilogue: Epilogue | None = None,
        others: Sequence[Value] = (),
    ) -> Value:
        """Append the step of a product, of 8-bit integers less their zero points, and return its result."""
        made = None if epilogue is None else finish(epilogue, str(result.dtype))

        def kernel(left: str, right: str, turned: bool) -> str:
            return self._product(left, right, turned, made or PLAIN)

        return multiply(out, given, result, kernel, [*zeros], [*others])

    def _product(self, left: str, right: str, turned: bool, made: Finish) -> str:
        """Return the symbol of the product of operands of two types."""
        symbol = f"{matmul.MATMUL}_{left}_{right}" if left in BYTE_KINDS else f"{matmul.MATMUL}_{left}"
        symbol += "_kn" * turned
        if made.epilogue is not None:
            symbol = f"{symbol}_{made.epilogue.suffix}"
        if symbol not in self._launches:
            kernels = product(symbol, left, right, turned, made)
            self._launches[symbol] = Launch("tiles", ROWS, 0, kernels.forms)
            self._texts += kernels.texts
        return symbol

    def nests(self, name: str, function: tirx.PrimFunc, rows: bool = False) -> list[Nest]:
        """Return the kernels of a TIR function; with `rows` a nest over rows, which kernels are written of.

        Sums along rows are one kernel, a block a row.
        """
        if not rows:
            symbol = re.sub(r"\W", "_", f"{PREFIX}sums_{name}")
            if symbol not in self._reductions:
                made = reduction(function, symbol, tvm_kernels.target_of(self._dialect, self.machine.cpu))
                if made is None:
                    return super().nests(name, function)
                self._reductions[symbol] = made
            return [self._reductions[symbol].nest]
        if name not in self._over_rows:
            self._over_rows[name] = nests(function, name, replace(self.machine, single_items=False), rows=True)
        return self._over_rows[name]

    def takes(self, module: Any, calls: Mapping[str, KernelCall], attention: Attention) -> bool:
        """Say whether there is a kernel that takes an attention; others are computed step by step."""
        found = plan(self, module, calls, attention)
        if found is not None:
            self._plans[key(attention.last.var)] = found
        return found is not None

    def lower_attention(self, lowering: Lowering, attention: Attention) -> Value:
        """Append the step of an attention and return its result."""
        found = self._plans[key(attention.last.var)]
        return lower_attention(lowering, attention, found, self._attention(found))

    def _attention(self, found: Plan) -> str:
        """Return the symbol of an attention's kernels."""
        identity = found.text("attention")
        if identity not in self._attention_symbols:
            symbol = f"{PREFIX}attention_{'f16_' * found.half}{row_symbol(found.spec.program, ()).removeprefix(PREFIX)}"
            while symbol in self._launches:
                symbol += "_"
            self._attention_symbols[identity] = symbol
            self._texts.append(found.text(symbol))
            self._launches[symbol] = Launch("attention", ROWS, 0, found.forms(symbol))
        return self._attention_symbols[identity]

    def objects(self) -> tuple[bytes, ...]:
        """Return nothing: kernels for devices are text."""
        return ()

    def launches(self) -> dict[str, Launch]:
        """Return how each kernel is started."""
        made = {str(f.attrs["global_symbol"]): Launch("items", GRAPH, tvm_kernels.THREADS) for f in self.functions()}
        made |= {symbol: Launch("blocks", GRAPH, one.threads) for symbol, one in self._reductions.items()}
        return {**made, **self._launches}

    def graph(self) -> str:
        """Return TVM's kernels."""
        blocks = [one.nest.function for one in self._reductions.values()]
        return tvm_kernels.source(self.functions(), blocks, self._dialect, self.machine.cpu)

    def text(self) -> str:
        """Return softq's kernels."""
        return self._dialect.prelude() + "".join(self._texts)


def forms(program: Program, max_length: int, most_shared: int = 0) -> list[Form]:
    """Return the forms of all rows of up to so many elements, those of the shortest rows first.

    Behind those that take some of a block's shared memory, of which there may be `most_shared` bytes, there are those
    that take none.
    """
    in_order = any(node.op == "scan" for node in program.nodes())
    found: dict[Form, None] = {}
    length = 1
    while True:
        # A form is chosen for all lengths from one power of two to the next.
        for aligned, shared in itertools.product((True, False), (most_shared, 0)):
            score_bytes = bytes_of(program.scores.value)
            found[choose(length, score_bytes, aligned=aligned, in_order=in_order, shared_bytes=shared)] = None
        if length >= max_length:
            # Aligned ones first: those take what others take, too.
            return sorted(found, key=lambda form: (form.longest or 1 << 62, not form.aligned))
        length *= 2
