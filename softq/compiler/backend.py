"""The contract between the compiler and the devices: what a backend supports, and what it emits.

A backend is made for one program on one machine. It gives kernels their symbols as they are asked for, and the objects
of all of them in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import tvm
from tvm import tirx

from softq.artifact.machine import Machine
from softq.artifact.program import Size
from softq.compiler.legalize.min_max import Legalize
from softq.compiler.steps.attention import Attention
from softq.compiler.steps.builder import Builder, StepCall, Value
from softq.compiler.steps.epilogue import Epilogue
from softq.compiler.steps.operands import Product, Weight
from softq.compiler.steps.tir_kernels import TirKernels
from softq.compiler.tir.loop_nests import Nest
from softq.rowprog import Program


class KernelOperator(Protocol):
    """An operator with a kernel of its own; `compiler/ops` has them."""

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Any:
        """Append the steps and return the value, or a tuple of them.

        Args:
            lowering: What lowers the model.
            arguments: Expressions of Relax.
            result: The type of the result in Relax.
        """
        ...


class Lowering(Protocol):
    """What lowers a model, as operators and backends see it."""

    @property
    def module(self) -> tvm.IRModule:
        """The model in Relax, with its TIR functions."""
        ...

    @property
    def operators(self) -> Mapping[str, KernelOperator]:
        """What the external functions that the model calls mean, by name."""
        ...

    @property
    def builder(self) -> Builder:
        """What was gathered so far."""
        ...

    @property
    def backend(self) -> Backend:
        """What emits the kernels."""
        ...

    def value(self, expr: Any) -> Any:
        """Return what an expression is: a value, or a tuple of them."""
        ...

    def weight(self, expr: Any) -> Value | Weight:
        """Return the right operand of a product: a matrix that is known now, or a value."""
        ...

    def scalars(self, binding: Any) -> tuple[Value, ...]:
        """Return the values of the scalars of a row program that is computed inside an attention."""
        ...

    def tir_steps(self, call: Any, inputs: list[Value], outputs: list[Value], rows: bool = False) -> Iterator[StepCall]:
        """Yield the steps of a call of a TIR function; `rows` asks for work items that are rows of the result."""
        ...

    def sizes(self, call: Any, given: Sequence[Value]) -> Callable[[Any], Size]:
        """Return what gives the size that a variable of a called function stands for.

        Args:
            call: The call.
            given: The tensors of its arguments, and perhaps of its results.
        """
        ...


class RowKernel(Protocol):
    """What a step needs to know of a row program's kernel."""

    @property
    def symbol(self) -> str:
        """Its name."""
        ...

    @property
    def scratch_bytes(self) -> int:
        """Bytes of memory that each element of the scores needs besides inputs and outputs; 0 for none."""
        ...


class Backend(Protocol):
    """A device: which operators have kernels there, and these kernels."""

    @property
    def machine(self) -> Machine:
        """What the kernels are for."""
        ...

    @property
    def tir(self) -> TirKernels:
        """The kernels that are TIR functions over work items."""
        ...

    @property
    def min_max(self) -> Mapping[str, Legalize]:
        """How greatest and least values are computed, as TVM's `LegalizeOps` takes it."""
        ...

    @property
    def fuses_integers(self) -> bool:
        """Whether products of integers may have epilogues, as those of floats."""
        ...

    @property
    def most_values_in_place(self) -> int | None:
        """Rows of values that an attention reads in the layout BSNH, where heads lie side by side; None for any."""
        ...

    @property
    def widens_values(self) -> bool:
        """Whether an attention reads values of 16 bits that the graph widens for its second product."""
        ...

    def supports(self, operator: type[KernelOperator], dtype: str) -> bool:
        """Say whether there is a kernel for an operator of operands of a type, by NumPy's name; TVM has the rest."""
        ...

    def can_fuse(self, operator: KernelOperator, epilogue: Epilogue, result: str) -> bool:
        """Say whether a product's kernel can apply an epilogue whose result has a type, by NumPy's name."""
        ...

    def supports_attention(
        self, module: tvm.IRModule, operators: Mapping[str, KernelOperator], attention: Attention
    ) -> bool:
        """Say whether an attention of a lowered model is a kernel of its own; else it is computed step by step."""
        ...

    def nests(self, name: str, function: tirx.PrimFunc, rows: bool = False) -> list[Nest]:
        """Return the kernels of a TIR function that TVM made; `rows` asks for work items that are rows."""
        ...

    def row(self, program: Program, max_length: int) -> RowKernel:
        """Return the kernel of a row program for rows of up to so many elements."""
        ...

    def product(self, builder: Builder, product: Product, result: Any) -> Value:
        """Append the steps of a product and return its result.

        Args:
            builder: What gathers the steps.
            product: What is multiplied, and what is done to the result's elements.
            result: The type of the result in Relax.
        """
        ...

    def convolution(self, builder: Builder, operator: Any, x: Value, kernel: Value, bias: Value, result: Any) -> Value:
        """Append the step of a convolution of groups of few channels and return its result."""
        ...

    def attention(self, lowering: Lowering, attention: Attention) -> Value:
        """Append the steps of an attention that `supports_attention` took, and return its result."""
        ...

    def objects(self) -> tuple[bytes, ...]:
        """Return object files of every kernel asked for so far; none where kernels are text."""
        ...
