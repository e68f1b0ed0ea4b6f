"""A processor as a backend of the compiler."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx

from softq.artifact.abi import DTYPES
from softq.artifact.machine import Cpu
from softq.codegen.cpu.gemm.dot_product import WORDS, has_words
from softq.codegen.cpu.kernels import CpuKernels
from softq.codegen.cpu.lowering.attention import lower_attention
from softq.codegen.cpu.lowering.convolutions import lower_convolution, lower_greatest
from softq.codegen.cpu.lowering.integer_convolutions import lower_integer_convolution
from softq.codegen.cpu.lowering.products import lower_integer_matmul, lower_matmul, lower_packed_matmul
from softq.codegen.cpu.lowering.recurrence import lower_recurrence
from softq.codegen.cpu.object_code import objects
from softq.codegen.cpu.rows import RowKernel
from softq.compiler.backend import KernelOperator, Lowering
from softq.compiler.legalize import min_max
from softq.compiler.ops.arithmetic import DetOp, RemainderOp
from softq.compiler.ops.control_flow import IfOp, LoopOp, MeasureOp
from softq.compiler.ops.data_movement import JoinOp
from softq.compiler.ops.linear import (
    Convolution,
    ConvolutionOp,
    IntegerConvolution,
    IntegerConvolutionOp,
    MatMulOp,
    PackedMatMulOp,
)
from softq.compiler.ops.pooling import GreatestOp
from softq.compiler.ops.recurrence import RecurrenceOp
from softq.compiler.ops.regions import RegionsOp
from softq.compiler.ops.sorting import ChosenOp, SortOp
from softq.compiler.ops.suppression import SuppressOp
from softq.compiler.steps.attention import Attention
from softq.compiler.steps.builder import Builder, Value
from softq.compiler.steps.product import Epilogue, Product, Weight
from softq.compiler.steps.tir_kernels import TirKernels
from softq.compiler.tir.loop_nests import Nest
from softq.rowprog import Program

_TYPES: Mapping[type, tuple[str, ...]] = {
    IfOp: ("bool",),
    LoopOp: ("bool",),
    MeasureOp: ("int64",),
    MatMulOp: ("float32", "int8", "uint8"),
    ConvolutionOp: ("float32",),
    IntegerConvolutionOp: ("int8", "uint8"),
    GreatestOp: ("float32",),
    JoinOp: ("float32",),
    ChosenOp: ("bool",),
    SortOp: tuple(d for d in DTYPES if re.fullmatch(r"(u?int|float)(8|16|32|64)", d)),
    SuppressOp: ("float32",),
    PackedMatMulOp: ("float32",),
    RecurrenceOp: ("float32",),
    DetOp: ("float32", "float64"),
    RemainderOp: ("float64",),
    RegionsOp: ("float32", "float64"),
}


class CpuBackend:
    """A processor; see `compiler.backend.Backend`."""

    min_max: Mapping[str, min_max.Legalize] = min_max.LEGALIZE
    fuses_integers = False
    widens_values = False
    shares_slots = True

    def __init__(self, machine: Cpu) -> None:
        self.machine = machine
        self.kernels = CpuKernels(machine)
        self.tir: TirKernels = self.kernels.tir

    def supports(self, operator: type[KernelOperator], dtype: str) -> bool:
        """Say whether there is a kernel for an operator of operands of a type."""
        if operator is GreatestOp and not self.machine.vector_bytes:
            return False
        if operator is MatMulOp and dtype == WORDS.left:
            return has_words(self.machine)
        return dtype in _TYPES[operator]

    def can_fuse(self, operator: KernelOperator, epilogue: Epilogue, result: str) -> bool:
        """Say whether a product's kernel can apply an epilogue: one of float32 to float32."""
        other = "channel" if isinstance(operator, MatMulOp) else "column"
        fits = all(operand.where != other for operand in epilogue.operands)
        return fits and str(epilogue.element.ty.dtype) == result == "float32"

    def supports_attention(
        self, module: tvm.IRModule, operators: Mapping[str, KernelOperator], attention: Attention
    ) -> bool:
        """Say whether an attention is a kernel of its own: every one that is found."""
        return True

    def nests(self, name: str, function: tirx.PrimFunc, rows: bool = False) -> list[Nest]:
        """Return the kernels of a TIR function that TVM made."""
        return self.tir.nests(name, function, rows)

    def row(self, program: Program, max_length: int) -> RowKernel:
        """Return the kernel of a row program."""
        return self.kernels.row(program, max_length)

    def product(self, builder: Builder, product: Product, result: Any) -> Value:
        """Append the steps of a product of float32, or of 8-bit integers, which has no epilogues here."""
        lower = lower_integer_matmul if product.zeros else lower_matmul
        return lower(self.kernels, builder, product, result)

    def convolution(self, builder: Builder, convolution: Convolution, result: Any) -> Value:
        """Append the steps of a convolution."""
        return lower_convolution(self.kernels, builder, convolution, result)

    def integer_convolution(self, builder: Builder, convolution: IntegerConvolution, result: Any) -> Value:
        """Append the steps of a convolution of 8-bit integers."""
        return lower_integer_convolution(self.kernels, builder, convolution, result)

    def greatest(self, builder: Builder, operator: GreatestOp, x: Value, result: Any) -> Value:
        """Append the step of greatest elements of windows."""
        return lower_greatest(self.kernels, builder, operator, x, result)

    def packed_product(
        self, builder: Builder, operator: PackedMatMulOp, left: Value, weights: Sequence[Weight], result: Any
    ) -> Value:
        """Append the step of a product with weights of 4 bits."""
        return lower_packed_matmul(self.kernels, builder, operator, (left, weights), result)

    def recurrence(
        self,
        builder: Builder,
        operator: RecurrenceOp,
        x: Value,
        weights: Sequence[Value | Weight],
        others: Sequence[Value],
        result: Any,
    ) -> tuple[Value, ...]:
        """Append the steps of a recurrence."""
        return lower_recurrence(self.kernels, builder, operator, x, weights, others, result)

    def attention(self, lowering: Lowering, attention: Attention) -> Value:
        """Append the steps of an attention: packing, and one for all the rest."""
        return lower_attention(self.kernels, lowering, attention)

    def objects(self) -> Sequence[bytes]:
        """Return object files of every kernel asked for so far."""
        return objects(self.tir.functions(), self.machine)
