"""The contract between the compiler and the devices: what a backend supports, and what it emits.

A backend is made for one program on one machine. It gives kernels their symbols as they are asked for, and the objects
of all of them in the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import tvm
from tvm import relax, s_tir, tirx
from tvm.tirx.buffer import is_buffer_var

from softq.artifact.machine import Machine
from softq.artifact.program import Size
from softq.compiler.legalize.min_max import Legalize
from softq.compiler.steps.attention import Attention
from softq.compiler.steps.builder import Array, Builder, StepCall, Value
from softq.compiler.steps.product import Epilogue, Product, Weight
from softq.compiler.steps.tir_kernels import TirKernels
from softq.compiler.tir.loop_nests import Nest
from softq.compiler.tir.products import count_products
from softq.compiler.tir.symbolic import is_number, key, plain, size
from softq.errors import RefusalError
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


@dataclass
class Lowering(ABC):
    """A model that is lowered, as operators and backends see it.

    Attributes:
        module: The model in Relax, with its TIR functions.
        operators: What the external functions that the model calls mean, by name.
        weights: The arrays of the model's weights by name.
        backend: What emits the kernels.
        builder: What was gathered so far.
        values: What each variable is: a value, a tuple of them, or the name of a weight.
    """

    module: tvm.IRModule
    operators: Mapping[str, KernelOperator]
    weights: Mapping[str, Array]
    backend: Backend
    builder: Builder
    values: dict[int, Any] = field(default_factory=dict)

    @abstractmethod
    def body(self, module: tvm.IRModule, values: Sequence[Any]) -> list[Value]:
        """Append the steps of a body in Relax whose inputs are these, and return its results."""

    def known(self, expr: Any) -> Any:
        """Return what a body takes from around it: a value, or the name of a weight."""
        return self.values[key(expr)] if isinstance(expr, relax.Var) else self.value(expr)

    def value(self, expr: Any) -> Any:
        """Return what an expression is: a value, or a tuple of them."""
        if isinstance(expr, relax.Tuple):
            return tuple(self.value(f) for f in expr.fields)
        if isinstance(expr, tvm.ir.GenericConst):
            array = expr.value.numpy()
            return self.builder.weight(("constant", str(array.dtype), array.shape, array.tobytes()), array)
        known = self.values[key(expr)]
        if isinstance(known, str):
            return self.builder.weight(("weight", known), self.weights[known])
        return known

    def weight(self, expr: Any, rank: int = 2) -> Value | Weight:
        """Return the right operand of a product: a matrix, or matrices, known now, or a value."""
        if isinstance(expr, tvm.ir.GenericConst):
            array = expr.value.numpy()
            name = array.tobytes()
        else:
            name = self.values[key(expr)]
            array = self.weights[name] if isinstance(name, str) else None
        return self.value(expr) if array is None or array.ndim != rank else Weight(name, array)

    def scalars(self, binding: Any) -> tuple[Value, ...]:
        """Return the values of the scalars of a row program that is computed inside an attention."""
        return self.values.get(key(binding.var), ())[1:]

    def tir_steps(self, call: Any, inputs: list[Value], outputs: list[Value], rows: bool = False) -> Iterator[StepCall]:
        """Yield the steps of a call of a TIR function; `rows` asks for work items that are rows of the result."""
        function = self.module[call.args[0]]
        params = list(function.params)
        buffers = [p for p in params if is_buffer_var(p)]
        known = self._known(call, [*inputs, *outputs])
        by_param = {key(p): v for p, v in zip(buffers, [*inputs, *outputs], strict=True)}
        temporary: dict[int, Value] = {}
        terms = count_products(function)
        for nest in self._nests(call.args[0].name_hint, function, rows):
            used: list[Value] = []
            for buffer in nest.buffers:
                if isinstance(buffer, int):
                    used.append(by_param[key(params[buffer])])
                    continue
                if key(buffer) not in temporary:
                    dims = tuple(size(plain(d), known) for d in buffer.shape)
                    temporary[key(buffer)] = self.builder.allocated(dims, str(buffer.dtype))
                used.append(temporary[key(buffer)])
            cost = max((v.elements for v in used), key=lambda s: (not isinstance(s, int), str(s)))
            scalars = [self._size(v, known) for v in nest.scalars]
            symbol = str(nest.function.attrs["global_symbol"])
            yield StepCall(symbol, used, scalars, size(nest.items, known), cost, multiply_adds=terms)
            terms = 0  # They are those of all kernels of the function.

    def _nests(self, name: str, function: Any, rows: bool) -> list[Nest]:
        try:
            return self.backend.nests(name, function, rows)
        except s_tir.schedule.ScheduleError as error:
            # A function of TVM's that is no list of loop nests over blocks: scatters, sorts.
            raise RefusalError(f"TVM's kernel {name!r} has a form that a built model cannot run") from error

    def sizes(self, call: Any, given: Sequence[Value]) -> Callable[[tirx.Var], Size]:
        """Return what gives the size that a variable of a called function stands for.

        Args:
            call: The call.
            given: The tensors of its arguments, and perhaps of its results.
        """
        known = self._known(call, given)
        return lambda var: self._size(var, known)

    def _known(self, call: Any, given: Sequence[Value]) -> dict[int, Size]:
        """Return what the variables of a called function stand for, as far as these tensors and its numbers say it."""
        params = list(self.module[call.args[0]].params)
        known: dict[int, Size] = {}
        for param, value in zip([p for p in params if is_buffer_var(p)], given, strict=False):
            for dim, there in zip(param.shape, value.dims, strict=True):
                if isinstance(dim, tirx.Var):
                    known[key(dim)] = there
        numbers = [x for x in arguments_of(call) if is_number(x)]
        for param, number in zip([p for p in params if not is_buffer_var(p)], numbers, strict=True):
            known[key(param)] = size(number)
        return known

    def _size(self, var: tirx.Var, known: Mapping[int, Size]) -> Size:
        if key(var) in known:
            return known[key(var)]
        if str(var.name) not in self.builder.dims:
            raise RefusalError(f"TVM's kernel needs {var.name}, which is no dimension of an input")
        return str(var.name)


def arguments_of(call: Any) -> list[Any]:
    """Return the arguments of a call of a TIR function: tensors, then numbers."""
    return [*call.args[1].fields, *(call.args[2].values if len(call.args) > 2 else ())]


class RowKernel(Protocol):
    """What a step needs to know of a row program's kernel."""

    @property
    def symbol(self) -> str:
        """Its name."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of memory that each element of the scores needs besides inputs and outputs; 0 for none."""


class Backend(Protocol):
    """A device: which operators have kernels there, and these kernels."""

    @property
    def machine(self) -> Machine:
        """What the kernels are for."""

    @property
    def tir(self) -> TirKernels:
        """The kernels that are TIR functions over work items."""

    @property
    def min_max(self) -> Mapping[str, Legalize]:
        """How greatest and least values are computed, as TVM's `LegalizeOps` takes it."""

    @property
    def fuses_integers(self) -> bool:
        """Whether products of integers may have epilogues, as those of floats."""

    @property
    def shares_slots(self) -> bool:
        """Whether tensors that are never alive together share a slot of the arena, for shapes that are not known."""

    @property
    def widens_values(self) -> bool:
        """Whether an attention reads values of 16 bits that the graph widens for its second product."""

    def supports(self, operator: type[KernelOperator], dtype: str) -> bool:
        """Say whether there is a kernel for an operator of operands of a type, by NumPy's name; TVM has the rest."""

    def can_fuse(self, operator: KernelOperator, epilogue: Epilogue, result: str) -> bool:
        """Say whether a product's kernel can apply an epilogue whose result has a type, by NumPy's name."""

    def supports_attention(
        self, module: tvm.IRModule, operators: Mapping[str, KernelOperator], attention: Attention
    ) -> bool:
        """Say whether an attention of a lowered model is a kernel of its own; else it is computed step by step."""

    def nests(self, name: str, function: tirx.PrimFunc, rows: bool = False) -> list[Nest]:
        """Return the kernels of a TIR function that TVM made; `rows` asks for work items that are rows."""

    def row(self, program: Program, max_length: int) -> RowKernel:
        """Return the kernel of a row program for rows of up to so many elements."""

    def product(self, builder: Builder, product: Product, result: Any) -> Value:
        """Append the steps of a product and return its result.

        Args:
            builder: What gathers the steps.
            product: What is multiplied, and what is done to the result's elements.
            result: The type of the result in Relax.
        """

    @property
    def convolution(self) -> Callable[[Builder, Any, Any], Value] | None:
        """What appends the steps of a convolution (`ops.linear.Convolution`); None where `supports` denies those."""

    @property
    def integer_convolution(self) -> Callable[[Builder, Any, Any], Value] | None:
        """The same of 8-bit integers (`ops.linear.IntegerConvolution`)."""

    @property
    def greatest(self) -> Callable[[Builder, Any, Value, Any], Value] | None:
        """What appends the step of greatest elements of windows; None where `supports` denies those."""

    @property
    def packed_product(self) -> Callable[[Builder, Any, Value, Sequence[Weight], Any], Value] | None:
        """What appends the step of a product with weights of 4 bits; None where `supports` denies those."""

    @property
    def recurrence(
        self,
    ) -> Callable[[Builder, Any, Value, Sequence[Value | Weight], Sequence[Value], Any], tuple[Value, ...]] | None:
        """What appends the steps of a recurrence; None where `supports` denies it."""

    def attention(self, lowering: Lowering, attention: Attention) -> Value:
        """Append the steps of an attention that `supports_attention` took, and return its result."""

    def objects(self) -> Sequence[bytes]:
        """Return object files of every kernel asked for so far, maybe not all compiled yet; none of kernels in text."""
