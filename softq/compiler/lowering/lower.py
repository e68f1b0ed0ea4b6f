# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""A model in Relax as the step list of a built program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.tirx.buffer import is_buffer_var

from softq.artifact.program import Program, Size
from softq.codegen.cpu import convolution
from softq.codegen.cpu.backend import ROW_COST, Kernels
from softq.codegen.cpu.gemm.lowering import Factors, Weight
from softq.compiler.frontend.importer import Imported, last_line
from softq.compiler.fusion import epilogue
from softq.compiler.fusion.attention import Attention, find
from softq.compiler.fusion.epilogue import Epilogue, Finished
from softq.compiler.legalize import elementwise, quantization
from softq.compiler.lowering.builder import Array, Assembly, StepCall, Value
from softq.compiler.ops import (
    ConvolutionCall,
    CumSumCall,
    IntegerMatMulCall,
    MatMulCall,
    PositionsCall,
    RowCall,
    ScatterCall,
    SizesCall,
)
from softq.compiler.tir.loop_nests import Nest
from softq.compiler.tir.symbolic import computed, is_number, key, multiplied, plain, size
from softq.errors import RefusalError

_VIEWS = ("relax.reshape",)


def lower(imported: Imported, kernels: Kernels) -> Program:
    """Return the program for a machine, the one that the kernels are for.

    Raises:
        RefusalError: something in the model has no form in a built program; the message names it.
    """
    own = {**elementwise.LEGALIZE, **kernels.min_max, **quantization.legalize(kernels.machine)}
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
    return _Lowering(module, Assembly(imported, kernels)).program()


@dataclass
class _Lowering:
    """The walk over `main`.

    Attributes:
        module: The lowered module.
        out: What was gathered so far.
        values: What each variable is: a value, a tuple of them, or the name of a weight.
    """

    module: tvm.IRModule
    out: Assembly
    values: dict[int, Any] = field(default_factory=dict)
    attentions: dict[int, Attention] = field(default_factory=dict)

    def program(self) -> Program:
        main = self.module["main"]
        inputs: list[Value] = []
        for position, param in enumerate(main.params):
            value = self.out.typed(param.ty, "input", position)
            if position < len(self.out.imported.inputs):
                inputs.append(value)
                self.values[key(param)] = value
                self.out.dims.update(d for d in value.dims if isinstance(d, str))
            else:
                self.values[key(param)] = str(param.name)  # a weight: placed where it is used, as it is used
        body = main.body
        known = (self.module, self.out.imported.calls, self.out.kernels)
        self.attentions, inside = find(*known)
        finished, delayed = epilogue.find(*known, {*self.attentions, *inside})
        for block in body.blocks:
            for binding in block.bindings:
                if key(binding.var) in delayed:
                    continue
                if key(binding.var) in inside:
                    self._skipped(binding)
                elif key(binding.var) in finished:
                    self.values[key(binding.var)] = self._finished(binding, finished[key(binding.var)])
                elif key(binding.var) in self.attentions:
                    self.values[key(binding.var)] = self.out.kernels.lower_attention(
                        self, self.attentions[key(binding.var)]
                    )
                else:
                    self.values[key(binding.var)] = self._bound(binding)
        result = self.value(body.body)
        outputs = self.out.outputs(list(result) if isinstance(result, tuple) else [result])
        return self.out.program(inputs, outputs)

    def _skipped(self, binding: Any) -> None:
        """Give the scalars of a row program that is computed inside an attention their memory: others use them."""
        if isinstance(binding.var.ty, relax.TupleType):
            self.values[key(binding.var)] = (None, *(self.out.new(ty) for ty in binding.var.ty.fields[1:]))

    def _bound(self, binding: Any) -> Any:
        value = binding.value
        if isinstance(value, relax.TupleGetItem):
            return self.value(value.tuple_value)[value.index]
        if isinstance(value, relax.Tuple):
            return tuple(self.value(f) for f in value.fields)
        if not isinstance(value, tvm.ir.Call):
            return self.value(value)
        name = getattr(value.op, "name", "")
        if name in _VIEWS:
            source = self.value(value.args[0])
            typed = self.out.typed(binding.var.ty, "arena", 0)
            return Value(typed.dims, source.dtype, source.place, source.at)
        if name == "relax.call_tir":
            return self._call_tir(binding, value)
        if name == "relax.call_dps_packed":
            return self._call_kernel(binding, value)
        raise RefusalError(f"TVM leaves the operator {name or value.op}, which has no kernel")

    def value(self, expr: Any) -> Any:
        """Return what an expression is: a value, or a tuple of them."""
        if isinstance(expr, relax.Tuple):
            return tuple(self.value(f) for f in expr.fields)
        if isinstance(expr, tvm.ir.GenericConst):
            array = expr.value.numpy()
            return self.out.weight(("constant", str(array.dtype), array.shape, array.tobytes()), array)
        known = self.values[key(expr)]
        if isinstance(known, str):
            return self.out.weight(("weight", known), self.out.imported.weights[known])
        return known

    def _call_tir(self, binding: Any, call: Any) -> Any:
        given = _given(call)
        types = list(binding.var.ty.fields) if isinstance(binding.var.ty, relax.TupleType) else [binding.var.ty]
        outputs = [self.out.new(ty) for ty in types]
        # Nothing is computed where there is nothing, and TVM cannot divide by such an axis.
        if not all(0 in value.dims for value in outputs):
            for step in self.tir_steps(call, [self.value(x) for x in given if not is_number(x)], outputs):
                self.out.append(step)
        return outputs[0] if len(outputs) == 1 and not isinstance(binding.var.ty, relax.TupleType) else tuple(outputs)

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
                    temporary[key(buffer)] = self.out.allocated(dims, str(buffer.dtype))
                used.append(temporary[key(buffer)])
            cost = max((v.elements for v in used), key=lambda s: (not isinstance(s, int), str(s)))
            scalars = [self._size(v, known) for v in nest.scalars]
            symbol = str(nest.function.attrs["global_symbol"])
            yield StepCall(symbol, used, scalars, size(nest.items, known), cost)

    def _nests(self, name: str, function: Any, rows: bool) -> list[Nest]:
        try:
            return self.out.kernels.nests(name, function, rows)
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
        if str(var.name) not in self.out.dims:
            raise RefusalError(f"TVM's kernel needs {var.name}, which is no dimension of an input")
        return str(var.name)

    def _call_kernel(self, binding: Any, value: Any) -> Any:
        name = str(value.args[0].global_symbol)
        call = self.out.imported.calls[name]
        arguments = list(value.args[1].fields) if isinstance(value.args[1], relax.Tuple) else [value.args[1]]
        if isinstance(call, MatMulCall):
            return self._matmul(binding, call, arguments)
        if isinstance(call, IntegerMatMulCall):
            return self._integer_matmul(binding, call, arguments)
        if isinstance(call, RowCall):
            return self._row(binding, call, arguments)
        if isinstance(call, ConvolutionCall):
            return self._convolution(binding, call, arguments)
        if isinstance(call, CumSumCall):
            x, out = self.value(arguments[0]), self.out.new(binding.var.ty)
            outer, length, inner = x.dims
            kernel = self.out.kernels.cum_sum(x.dtype, call)
            self.out.step(kernel, [x, out], [length, inner], multiplied([outer, inner]), x.elements)
            return out
        if isinstance(call, PositionsCall):
            return self._positions(binding, call, arguments)
        if isinstance(call, ScatterCall):
            return self._scatter(binding, call, arguments)
        assert isinstance(call, SizesCall)
        shape = arguments[0]
        out = self.out.new(binding.var.ty)
        numbers = [size(d) for d in shape.values]
        self.out.step(self.out.kernels.sizes(len(numbers)), [out], numbers, 1, len(numbers))
        return out

    def _positions(self, binding: Any, call: PositionsCall, arguments: list[Any]) -> Value:
        given, extents = self.value(arguments[0]), [size(d) for d in arguments[1].values]
        flag, out = self.out.allocated((1,), "int32"), self.out.new(binding.var.ty)
        kernel = self.out.kernels.positions(len(extents))
        # Whoever writes the flag writes the same.
        items = computed("floordiv", given.elements, len(extents))
        self.out.step(kernel, [flag, given, out], extents, items, given.elements, error=call.message)
        return out

    def _scatter(self, binding: Any, call: ScatterCall, arguments: list[Any]) -> Value:
        data, at, updates = (self.value(x) for x in arguments)
        out = self.out.copied(data)
        extents, inner = list(data.dims[: call.depth]), multiplied(data.dims[call.depth :])
        # One work item: updates may meet in one place, and the last one stays.
        scalars = [*extents, multiplied(at.dims[:-1]), inner]
        self.out.step(self.out.kernels.scatter(data.dtype, call), [at, updates, out], scalars, 1, updates.elements)
        return out

    def _finished(self, binding: Any, one: Finished) -> Value:
        """Return a product's elements after what is done to each of them."""
        given, value = binding.value.args[1].fields, one.product.value
        others = [self.value(given[operand.position]) for operand in one.epilogue.operands]
        call = self.out.imported.calls[str(value.args[0].global_symbol)]
        arguments = list(value.args[1].fields)
        if isinstance(call, IntegerMatMulCall):
            return self._integer_matmul(binding, call, arguments, one.epilogue, others)
        assert isinstance(call, MatMulCall)
        return self._matmul(binding, call, arguments, one.epilogue, others)

    def _matmul(
        self,
        binding: Any,
        call: MatMulCall,
        arguments: list[Any],
        epilogue: Epilogue | None = None,
        others: Sequence[Value] = (),
    ) -> Value:
        given = Factors(self.value(arguments[0]), self._right(arguments[1]), call.transposed)
        return self.out.kernels.multiply(self.out, given, binding.var.ty, epilogue, others)

    def _integer_matmul(
        self,
        binding: Any,
        call: IntegerMatMulCall,
        arguments: list[Any],
        epilogue: Epilogue | None = None,
        others: Sequence[Value] = (),
    ) -> Value:
        given = Factors(self.value(arguments[0]), self._right(arguments[1]), call.transposed)
        zeros = [self.value(x) for x in arguments[2:]]
        return self.out.kernels.multiply_integers(self.out, given, zeros, binding.var.ty, epilogue, others)

    def _right(self, expr: Any) -> Value | Weight:
        """Return the right operand of a product: a matrix that is known now, or a value."""
        array = self._constant(expr)
        if array is None or array.ndim != 2:
            return self.value(expr)
        return Weight(array.tobytes() if isinstance(expr, tvm.ir.GenericConst) else self.values[key(expr)], array)

    def _convolution(self, binding: Any, call: ConvolutionCall, arguments: list[Any]) -> Value:
        x, w, bias = (self.value(argument) for argument in arguments)
        out, tile = self.out.new(binding.var.ty), self.out.kernels.convolution_tile
        count, inner, *kernel = w.dims
        outer = computed("floordiv", count, call.groups)
        lengths = (call.groups, inner, outer, *x.dims[2:], *out.dims[2:], *kernel)
        numbers = (*lengths, *call.strides, *call.dilations, *call.before)
        sizes = dict(zip(convolution.SIZES, numbers, strict=True))
        memory = self.out.scratch(convolution.scratch_bytes(sizes, tile))
        cost = self.out.kernels.cost(multiplied([out.elements, inner, *kernel]))
        items = multiplied([x.dims[0], call.groups])
        assert isinstance(kernel[-1], int)
        symbol = self.out.kernels.convolution(convolution.Shape.of(call.strides[-1], kernel[-1]))
        self.out.step(symbol, [x, w, bias, out, memory], [*sizes.values()], items, cost)
        return out

    def _constant(self, expr: Any) -> Array | None:
        """Return a tensor's values, if they are known now."""
        if isinstance(expr, tvm.ir.GenericConst):
            return expr.value.numpy()
        named = self.values[key(expr)]
        return self.out.imported.weights[named] if isinstance(named, str) else None

    def _row(self, binding: Any, call: RowCall, arguments: list[Any]) -> Any:
        values = [self.value(x) for x in arguments]
        tuple_type = isinstance(binding.var.ty, relax.TupleType)
        outputs = [self.out.new(ty) for ty in (binding.var.ty.fields if tuple_type else [binding.var.ty])]
        self.out.append(self.row_step(call, values, outputs, self.out.allocated))
        return tuple(outputs) if tuple_type else outputs[0]

    def row_step(
        self,
        call: RowCall,
        values: list[Value],
        outputs: list[Value],
        allocated: Callable[[tuple[Size, ...], str], Value],
    ) -> StepCall:
        """Return the step of a row program; what it needs beside inputs and outputs is given by `allocated`."""
        kernel = self.out.kernels.row(call.program, call.max_length)
        dims: list[Size] = [*([1] * max(0, 4 - len(values[0].dims))), *values[0].dims]
        outer, heads, queries, length = multiplied(dims[:-3]), *dims[-3:]
        scalars: list[Size] = [length, heads, queries]
        if call.program.masked:
            scalars += mask_strides(values[1].dims, dims)
        rows = multiplied([outer, heads, queries])
        tensors = [*values, *outputs]
        if kernel.scratch_bytes:
            # Rows have their own parts of it, so that they may still be spread over threads.
            tensors.append(allocated((values[0].elements, kernel.scratch_bytes), "uint8"))
        return StepCall(kernel.symbol, tensors, scalars, rows, multiplied([rows, length, ROW_COST]), call.site)


def mask_strides(mask: Sequence[Size], scores: Sequence[Size]) -> list[Size]:
    """Return the mask's element strides over the leading axes taken together, heads, queries and elements."""
    dims: list[Size] = [*([1] * (len(scores) - len(mask))), *mask]
    strides: list[Size] = [0 if dims[-1] == 1 else 1]
    for axis in (2, 3):
        strides.insert(0, 0 if dims[-axis] == 1 else multiplied(dims[len(dims) - axis + 1 :]))
    broadcast = all(d == 1 for d in dims[:-3])
    return [0 if broadcast else multiplied(dims[-3:]), *strides]


def _given(call: Any) -> list[Any]:
    """Return the arguments of a call of a TIR function: tensors, then numbers."""
    return [*call.args[1].fields, *(call.args[2].values if len(call.args) > 2 else ())]
