"""A model in Relax as the step list of a built program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.tirx.buffer import is_buffer_var

from softq.artifact.program import Program, Size
from softq.compiler.backend import Backend, KernelOperator
from softq.compiler.frontend.importer import Imported, last_line
from softq.compiler.fusion import bindings
from softq.compiler.fusion.attention import find_attentions
from softq.compiler.fusion.epilogue import FusedEpilogue, find_epilogues
from softq.compiler.legalize import elementwise, quantization
from softq.compiler.ops.matmul import MatMulOp
from softq.compiler.steps.builder import Array, Builder, StepCall, Value, tensor_types
from softq.compiler.steps.operands import Weight
from softq.compiler.tir.loop_nests import Nest
from softq.compiler.tir.symbolic import is_number, key, plain, size
from softq.errors import RefusalError

_VIEWS = ("relax.reshape",)


def lower(imported: Imported, backend: Backend) -> Program:
    """Return the program for the machine of a backend.

    Raises:
        RefusalError: something in the model has no form in a built program; the message names it.
    """
    own = {**elementwise.LEGALIZE, **backend.min_max, **quantization.legalize(backend.machine)}
    passes = [
        relax.transform.LegalizeOps(own, skip_ops=list(_VIEWS)),
        relax.transform.DeadCodeElimination(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(fuse_opt_level=2),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
    try:
        module = tvm.ir.transform.Sequential(passes)(imported.module)
    except Exception as error:
        # TVM's own checks of an operator's arguments, in words of its own.
        raise RefusalError(f"TVM cannot lower the model: {last_line(error)}") from error
    return _Lowering(imported, module, backend, Builder(backend.tir)).program()


@dataclass
class _Lowering:
    """The walk over `main`; it is what operators and backends see as `Lowering`.

    Attributes:
        imported: The model before it was lowered.
        module: The lowered module.
        backend: What emits the kernels.
        builder: What was gathered so far.
        values: What each variable is: a value, a tuple of them, or the name of a weight.
    """

    imported: Imported
    module: tvm.IRModule
    backend: Backend
    builder: Builder
    values: dict[int, Any] = field(default_factory=dict)

    @property
    def operators(self) -> Mapping[str, KernelOperator]:
        return self.imported.operators

    def program(self) -> Program:
        main = self.module["main"]
        inputs: list[tuple[str, Value]] = []
        for position, param in enumerate(main.params):
            if position < len(self.imported.inputs):
                value = self.builder.typed(param.ty, "input", position)
                inputs.append((self.imported.inputs[position], value))
                self.values[key(param)] = value
                self.builder.dims.update(d for d in value.dims if isinstance(d, str))
            else:
                self.values[key(param)] = str(param.name)  # A weight: placed where it is used, as it is used.
        attentions, inside = find_attentions(self.module, self.operators, self.backend)
        fused, delayed = find_epilogues(self.module, self.operators, self.backend, {*attentions, *inside})
        for at, binding in bindings.bindings_of(self.module).items():
            if at in delayed:
                continue
            if at in inside:
                self._reserve_scalars(binding)
            elif at in fused:
                self.values[at] = self._fused(binding, fused[at])
            elif at in attentions:
                self.values[at] = self.backend.attention(self, attentions[at])
            else:
                self.values[at] = self._bound(binding)
        result = self.value(main.body.body)
        outputs = self.builder.outputs(list(result) if isinstance(result, tuple) else [result])
        named = list(zip(self.imported.outputs, outputs, strict=True))
        return self.builder.program(inputs, named, self.imported.limits, self.backend.objects())

    def _reserve_scalars(self, binding: Any) -> None:
        """Give the scalars of a row program that is computed inside an attention their memory: others use them."""
        if bindings.is_tuple(binding.var.ty):
            self.values[key(binding.var)] = (None, *(self.builder.new(ty) for ty in tensor_types(binding.var.ty)[1:]))

    def scalars(self, binding: Any) -> tuple[Value, ...]:
        return self.values[key(binding.var)][1:] if bindings.is_tuple(binding.var.ty) else ()

    def _bound(self, binding: Any) -> Any:
        value = binding.value
        item = bindings.item_of(binding)
        if item is not None:
            return self.value(item[0])[item[1]]
        if isinstance(value, relax.Tuple):
            return tuple(self.value(f) for f in value.fields)
        if not isinstance(value, tvm.ir.Call):
            return self.value(value)
        if bindings.is_view(binding):
            source = self.value(value.args[0])
            typed = self.builder.typed(binding.var.ty, "arena", 0)
            return Value(typed.dims, source.dtype, source.place, source.at)
        if bindings.is_function(binding):
            return self._call_tir(binding, value)
        name = bindings.kernel_of(binding)
        if name is not None:
            return self.operators[name].lower(self, _arguments(value), binding.var.ty)
        raise RefusalError(f"TVM leaves the operator {bindings.callee(binding) or value.op}, which has no kernel")

    def value(self, expr: Any) -> Any:
        """Return what an expression is: a value, or a tuple of them."""
        if isinstance(expr, relax.Tuple):
            return tuple(self.value(f) for f in expr.fields)
        if isinstance(expr, tvm.ir.GenericConst):
            array = expr.value.numpy()
            return self.builder.weight(("constant", str(array.dtype), array.shape, array.tobytes()), array)
        known = self.values[key(expr)]
        if isinstance(known, str):
            return self.builder.weight(("weight", known), self.imported.weights[known])
        return known

    def _call_tir(self, binding: Any, call: Any) -> Any:
        given = _given(call)
        outputs = [self.builder.new(ty) for ty in tensor_types(binding.var.ty)]
        # Skip empty outputs: TVM cannot divide by an axis of no elements.
        if not all(0 in value.dims for value in outputs):
            for step in self.tir_steps(call, [self.value(x) for x in given if not is_number(x)], outputs):
                self.builder.append(step)
        return tuple(outputs) if bindings.is_tuple(binding.var.ty) else outputs[0]

    def tir_steps(self, call: Any, inputs: list[Value], outputs: list[Value], rows: bool = False) -> Iterator[StepCall]:
        """Yield the steps of a call of a TIR function; `rows` asks for work items that are rows of the result."""
        function = self.module[call.args[0]]
        params = list(function.params)
        buffers = [p for p in params if is_buffer_var(p)]
        known = self._known(call, [*inputs, *outputs])
        by_param = {key(p): v for p, v in zip(buffers, [*inputs, *outputs], strict=True)}
        temporary: dict[int, Value] = {}
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
            yield StepCall(symbol, used, scalars, size(nest.items, known), cost)

    def _nests(self, name: str, function: Any, rows: bool) -> list[Nest]:
        try:
            return self.backend.nests(name, function, rows)
        except s_tir.schedule.ScheduleError as error:
            # A function of TVM's that is no list of loop nests over blocks: scatters, sorts.
            raise RefusalError(f"TVM's kernel {name!r} has a form that a built model cannot run") from error

    def sizes(self, call: Any, given: Sequence[Value]) -> Callable[[tirx.Var], Size]:
        """Return what gives the size that a variable of a called function stands for."""
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
        numbers = [x for x in _given(call) if is_number(x)]
        for param, number in zip([p for p in params if not is_buffer_var(p)], numbers, strict=True):
            known[key(param)] = size(number)
        return known

    def _size(self, var: tirx.Var, known: Mapping[int, Size]) -> Size:
        if key(var) in known:
            return known[key(var)]
        if str(var.name) not in self.builder.dims:
            raise RefusalError(f"TVM's kernel needs {var.name}, which is no dimension of an input")
        return str(var.name)

    def _fused(self, binding: Any, found: FusedEpilogue) -> Value:
        """Return a product's elements after what is done to each of them."""
        given = binding.value.args[1].fields
        others = [self.value(given[operand.position]) for operand in found.epilogue.operands]
        operator = self.operators[bindings.kernel_of(found.product) or ""]
        assert isinstance(operator, MatMulOp)
        return operator.lower(self, _arguments(found.product.value), binding.var.ty, found.epilogue, others)

    def weight(self, expr: Any) -> Value | Weight:
        array = self._constant(expr)
        if array is None or array.ndim != 2:
            return self.value(expr)
        return Weight(array.tobytes() if isinstance(expr, tvm.ir.GenericConst) else self.values[key(expr)], array)

    def _constant(self, expr: Any) -> Array | None:
        if isinstance(expr, tvm.ir.GenericConst):
            return expr.value.numpy()
        named = self.values[key(expr)]
        return self.imported.weights[named] if isinstance(named, str) else None


def _given(call: Any) -> list[Any]:
    """Return the arguments of a call of a TIR function: tensors, then numbers."""
    return [*call.args[1].fields, *(call.args[2].values if len(call.args) > 2 else ())]


def _arguments(call: Any) -> list[Any]:
    return list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else [call.args[1]]
