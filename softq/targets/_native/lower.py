# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""A model in Relax as the step list of a built program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax, s_tir, tirx
from tvm.tirx.buffer import is_buffer_var

from softq.artifact.program import Program, Size
from softq.errors import RefusalError
from softq.targets._native import elementwise, extrema
from softq.targets._native.assembly import Array, Assembly, Value
from softq.targets._native.calls import CumSumCall, MatMulCall, PositionsCall, RowCall, ScatterCall, SizesCall
from softq.targets._native.importer import Imported, last_line
from softq.targets._native.kernels import Kernels
from softq.targets._native.machine import Machine
from softq.targets._native.nests import Nest
from softq.targets._native.sizes import key, multiplied, plain, size

_VIEWS = ("relax.reshape",)


def lower(imported: Imported, machine: Machine) -> Program:
    """Return the program for a machine.

    Raises:
        RefusalError: something in the model has no form in a built program; the message names it.
    """
    passes = [
        relax.transform.LegalizeOps({**elementwise.LEGALIZE, **extrema.LEGALIZE}, skip_ops=list(_VIEWS)),
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
    return _Lowering(module, Assembly(imported, Kernels(machine))).program()


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
        for block in body.blocks:
            for binding in block.bindings:
                self.values[key(binding.var)] = self._bound(binding)
        result = self._value(body.body)
        outputs = self.out.outputs(list(result) if isinstance(result, tuple) else [result])
        return self.out.program(inputs, outputs)

    def _bound(self, binding: Any) -> Any:
        value = binding.value
        if isinstance(value, relax.TupleGetItem):
            return self._value(value.tuple_value)[value.index]
        if isinstance(value, relax.Tuple):
            return tuple(self._value(f) for f in value.fields)
        if not isinstance(value, tvm.ir.Call):
            return self._value(value)
        name = getattr(value.op, "name", "")
        if name in _VIEWS:
            source = self._value(value.args[0])
            typed = self.out.typed(binding.var.ty, "arena", 0)
            return Value(typed.dims, source.dtype, source.place, source.at)
        if name == "relax.call_tir":
            return self._call_tir(binding, value)
        if name == "relax.call_dps_packed":
            return self._call_kernel(binding, value)
        raise RefusalError(f"TVM leaves the operator {name or value.op}, which has no kernel")

    def _value(self, expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):
            return tuple(self._value(f) for f in expr.fields)
        if isinstance(expr, tvm.ir.GenericConst):
            array = expr.value.numpy()
            return self.out.weight(("constant", str(array.dtype), array.shape, array.tobytes()), array)
        known = self.values[key(expr)]
        if isinstance(known, str):
            return self.out.weight(("weight", known), self.out.imported.weights[known])
        return known

    def _call_tir(self, binding: Any, call: Any) -> Any:
        function = self.module[call.args[0]]
        given = list(call.args[1].fields)
        if len(call.args) > 2:
            given += list(call.args[2].values)
        types = list(binding.var.ty.fields) if isinstance(binding.var.ty, relax.TupleType) else [binding.var.ty]
        params = list(function.params)
        buffers = [p for p in params if is_buffer_var(p)]
        tensors = [x for x in given if not _is_number(x)]
        numbers = [x for x in given if _is_number(x)]
        inputs = [self._value(x) for x in tensors]
        outputs = [self.out.new(ty) for ty in types]
        if all(0 in value.dims for value in outputs):
            # Nothing to compute, and TVM cannot divide by such an axis.
            return outputs[0] if not isinstance(binding.var.ty, relax.TupleType) else tuple(outputs)
        known: dict[int, Size] = {}
        for param, value in zip(buffers, [*inputs, *outputs], strict=True):
            for dim, there in zip(param.shape, value.dims, strict=True):
                if isinstance(dim, tirx.Var):
                    known[key(dim)] = there
        for param, number in zip([p for p in params if not is_buffer_var(p)], numbers, strict=True):
            known[key(param)] = size(number)
        by_param = {key(p): v for p, v in zip(buffers, [*inputs, *outputs], strict=True)}
        temporary: dict[int, Value] = {}
        for nest in self._nests(call.args[0].name_hint, function):
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
            scalars = [known[key(v)] if key(v) in known else self._dimension(v) for v in nest.scalars]
            self.out.step(str(nest.function.attrs["global_symbol"]), used, scalars, size(nest.items, known), cost)
        return outputs[0] if len(outputs) == 1 and not isinstance(binding.var.ty, relax.TupleType) else tuple(outputs)

    def _nests(self, name: str, function: Any) -> list[Nest]:
        try:
            return self.out.kernels.nests(name, function)
        except s_tir.schedule.ScheduleError as error:
            # A function of TVM's that is no list of loop nests over blocks: scatters, sorts.
            raise RefusalError(f"TVM's kernel {name!r} has a form that a built model cannot run") from error

    def _dimension(self, var: tirx.Var) -> Size:
        if str(var.name) not in self.out.dims:
            raise RefusalError(f"TVM's kernel needs {var.name}, which is no dimension of an input")
        return str(var.name)

    def _call_kernel(self, binding: Any, value: Any) -> Any:
        name = str(value.args[0].global_symbol)
        call = self.out.imported.calls[name]
        arguments = list(value.args[1].fields) if isinstance(value.args[1], relax.Tuple) else [value.args[1]]
        if isinstance(call, MatMulCall):
            return self._matmul(binding, call, arguments)
        if isinstance(call, RowCall):
            return self._row(binding, call, arguments)
        if isinstance(call, CumSumCall):
            x, out = self._value(arguments[0]), self.out.new(binding.var.ty)
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
        given, extents = self._value(arguments[0]), [size(d) for d in arguments[1].values]
        flag, out = self.out.allocated((1,), "int32"), self.out.new(binding.var.ty)
        kernel = self.out.kernels.positions(len(extents))
        # One work item: the flag is written without a lock.
        scalars = [*extents, given.elements]
        self.out.step(kernel, [flag, given, out], scalars, 1, given.elements, error=call.message)
        return out

    def _scatter(self, binding: Any, call: ScatterCall, arguments: list[Any]) -> Value:
        data, at, updates = (self._value(x) for x in arguments)
        out = self.out.copied(data)
        extents, inner = list(data.dims[: call.depth]), multiplied(data.dims[call.depth :])
        # One work item: updates may meet in one place, and the last one stays.
        scalars = [*extents, multiplied(at.dims[:-1]), inner]
        self.out.step(self.out.kernels.scatter(data.dtype, call), [at, updates, out], scalars, 1, updates.elements)
        return out

    def _matmul(self, binding: Any, call: MatMulCall, arguments: list[Any]) -> Value:
        tile = self.out.kernels.tile
        a, right = self._value(arguments[0]), arguments[1]
        array = self._constant(right)
        *batch, rows, inner = a.dims
        step: Size = rows if batch else 0
        if array is not None and array.ndim == 2:
            columns: Size = array.shape[0] if call.transposed else array.shape[1]
            panels = self._packed_weight(right, array, call.transposed)
        else:
            b = self._value(right)
            batch, columns = b.dims[:-2], b.dims[-2] if call.transposed else b.dims[-1]
            count = self.out.kernels.panels(columns)
            panels = self.out.allocated((*batch, count, inner, tile.columns), "float32")
            self.out.step(
                self.out.kernels.pack(call.transposed),
                [b, panels],
                [inner, columns],
                multiplied([*batch, count]),
                b.elements,
            )
        out, lead = self.out.new(binding.var.ty), multiplied(batch)
        items = multiplied([lead, self.out.kernels.row_blocks(rows), self.out.kernels.panels(columns)])
        cost = multiplied([lead, rows, inner, columns])
        self.out.step(self.out.kernels.matmul(), [a, panels, out], [rows, inner, columns, step], items, cost)
        return out

    def _constant(self, expr: Any) -> Array | None:
        """Return a tensor's values, if they are known now."""
        if isinstance(expr, tvm.ir.GenericConst):
            return expr.value.numpy()
        named = self.values[key(expr)]
        return self.out.imported.weights[named] if isinstance(named, str) else None

    def _packed_weight(self, expr: Any, array: Array, transposed: bool) -> Value:
        from softq.targets._native.matmul import packed

        name = array.tobytes() if isinstance(expr, tvm.ir.GenericConst) else self.values[key(expr)]
        key_ = ("panels", name, transposed)
        if key_ in self.out.weight_at:
            at = self.out.weight_at[key_]
            return Value(tuple(self.out.weights[at].shape), "float32", "weight", at)
        return self.out.weight(key_, packed(np.asarray(array, np.float32), self.out.kernels.tile, transposed))

    def _row(self, binding: Any, call: RowCall, arguments: list[Any]) -> Any:
        kernel = self.out.kernels.row(call.program, call.max_length)
        values = [self._value(x) for x in arguments]
        tuple_type = isinstance(binding.var.ty, relax.TupleType)
        outputs = [self.out.new(ty) for ty in (binding.var.ty.fields if tuple_type else [binding.var.ty])]
        dims: list[Size] = [*([1] * max(0, 4 - len(values[0].dims))), *values[0].dims]
        outer, heads, queries, length = multiplied(dims[:-3]), *dims[-3:]
        scalars: list[Size] = [length, heads, queries]
        if call.program.masked:
            scalars += mask_strides(values[1].dims, dims)
        rows = multiplied([outer, heads, queries])
        tensors = [*values, *outputs]
        if kernel.scratch_bytes:
            # Rows have their own parts of it, so that they may still be spread over threads.
            tensors.append(self.out.allocated((values[0].elements, kernel.scratch_bytes), "uint8"))
        self.out.step(kernel.symbol, tensors, scalars, rows, multiplied([rows, length, 8]), site=call.site)
        return tuple(outputs) if tuple_type else outputs[0]


def mask_strides(mask: Sequence[Size], scores: Sequence[Size]) -> list[Size]:
    """Return the mask's element strides over the leading axes taken together, heads, queries and elements."""
    dims: list[Size] = [*([1] * (len(scores) - len(mask))), *mask]
    strides: list[Size] = [0 if dims[-1] == 1 else 1]
    for axis in (2, 3):
        strides.insert(0, 0 if dims[-axis] == 1 else multiplied(dims[len(dims) - axis + 1 :]))
    broadcast = all(d == 1 for d in dims[:-3])
    return [0 if broadcast else multiplied(dims[-3:]), *strides]


def _is_number(expr: Any) -> bool:
    return isinstance(getattr(expr, "ty", None), tvm.ir.PrimType) and not isinstance(expr, tvm.ir.GenericConst)
