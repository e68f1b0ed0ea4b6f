"""An attention of a lowered model as one launch: whether a kernel can take it, and the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.buffer import is_buffer_var

from softq.artifact.device.steps import QueryForm
from softq.artifact.program import Size
from softq.codegen.gpu.attention import simt, tensorcore
from softq.codegen.gpu.attention.elementwise import Function, UnwrittenError, read_elementwise
from softq.codegen.gpu.attention.score_mod import supports_program
from softq.codegen.gpu.attention.simt import MOST_COLUMNS, Spec
from softq.codegen.gpu.attention.tiles import HEAD_SIZES, THREADS
from softq.compiler.backend import Backend, KernelOperator, Lowering
from softq.compiler.fusion.bindings import behind_views, bindings_of, item_of, kernel_of, users_behind_views
from softq.compiler.ops.linear import MatMulOp
from softq.compiler.ops.row_program import ROW_COST, RowProgramOp, mask_strides
from softq.compiler.steps.attention import Attention, Matrices
from softq.compiler.steps.builder import StepCall, Value
from softq.compiler.tir.expressions import mentions
from softq.compiler.tir.symbolic import ceiling, computed, is_number, key, multiplied, plain, size
from softq.errors import RefusalError
from softq.rowprog.onnx.emitter import output_names


@dataclass
class Plan:
    """A kernel that takes an attention.

    Attributes:
        spec: What is fixed in it.
        half: Whether operands and result are float16; else they are float32.
        others: The tensors that functions read, in the order of the kernel's pointers.
        sizes: The numbers that functions need: the call, and the variable of its function.
    """

    spec: Spec
    half: bool
    others: list[Any]
    sizes: list[tuple[Any, Any]]

    def write(self, symbol: str) -> tuple[str, tuple[QueryForm, ...]]:
        """Return the kernels, whose names begin with this, and how they are started."""
        spec = self.spec
        if self.half:
            form = QueryForm(symbol, tensorcore.shape_of(spec).queries, THREADS, None)
            return tensorcore.write_kernel(spec, symbol), (form,)
        few, many = simt.choose_tiles(spec)
        text = simt.write_kernel(spec, symbol, many) + simt.write_kernel(spec, f"{symbol}_few", few)
        return text, (
            QueryForm(f"{symbol}_few", few.queries, simt.THREADS, simt.FEW_ROWS),
            QueryForm(symbol, many.queries, simt.THREADS, None),
        )


def plan(
    backend: Backend, module: tvm.IRModule, operators: Mapping[str, KernelOperator], attention: Attention
) -> Plan | None:
    """Return the kernel that takes an attention, or None if there is none: that is computed step by step."""
    *functions, last = attention.stages
    row = operators.get(kernel_of(last) or "")
    products = [operators[kernel_of(b) or ""] for b in (attention.scores, attention.product)]
    given = (attention.queries, attention.keys, attention.values, attention.scores.var, attention.last.var)
    types = {str(x.ty.dtype) for x in given}
    known = types in ({"float32"}, {"float16"}) and all(isinstance(p, MatMulOp) for p in products)
    if not isinstance(row, RowProgramOp) or not known or any(map(kernel_of, functions)):
        return None
    width, columns = (plain(x.ty.shape.values[-1]) for x in (attention.queries, attention.values))
    if not isinstance(width, int) or not isinstance(columns, int) or width < 1:
        return None
    reader = _Reader(backend, module)
    before = [reader.function(b, {followed: "score"})
              for b, followed in zip(functions, attention.stage_inputs, strict=False)]  # fmt: skip
    epilogue, registers = None, dict[int, str]()
    if attention.finish is not None:
        registers = _registers(module, attention, row)
        epilogue = reader.function(attention.finish, registers)
    if None in before or (attention.finish is not None and epilogue is None):
        return None
    spec = Spec(
        width, columns, products[0].transposed, row.program, row.max_length, tuple(f for f in before if f is not None),
        epilogue, registers, attention.to_bsnh, tuple(f"size{n}" for n in range(len(reader.sizes))),
    )  # fmt: skip
    half = types == {"float16"}
    fits_simt = supports_program(spec.program) and 0 < spec.columns <= MOST_COLUMNS
    if not (_fits_tensorcore(spec, module, attention) if half else fits_simt):
        return None
    found = Plan(spec, half, reader.others, reader.sizes)
    try:
        found.write("attention")
    except (UnwrittenError, RefusalError):
        return None
    return found


def _fits_tensorcore(spec: Spec, module: tvm.IRModule, attention: Attention) -> bool:
    """Say whether the kernel on tensor cores takes it: its heads, and a quotient that nothing else needs a part of."""
    if spec.width not in HEAD_SIZES or spec.columns != spec.width or not spec.transposed or spec.program.params:
        return False
    value = None if spec.epilogue is None else spec.epilogue.value
    quotient = value.value if isinstance(value, tirx.Cast) else None
    if spec.epilogue is None or not isinstance(quotient, tirx.Div):
        return False
    held = {name: spec.epilogue.held[position] for position, name in spec.registers.items()}
    if held.keys() != {"product", "normalizer"}:
        return False
    if not (quotient.a.same_as(held["product"]) and quotient.b.same_as(held["normalizer"])):
        return False
    return users_behind_views(module, attention.stages[-1].var) == {
        key(attention.finish.var),
        key(attention.product.var),
    }


def lower_attention(lowering: Lowering, attention: Attention, found: Plan, symbol: str) -> Value:
    """Append the step of an attention and return its result."""
    out, spec = lowering.builder, found.spec
    operands = (attention.queries, attention.keys, attention.values)
    given = zip(operands, attention.bsnh, strict=True)
    queries, keys, values = (Matrices(lowering.value(x), bsnh) for x, bsnh in given)
    heads, length = size(attention.heads), keys.rows if spec.transposed else keys.width
    rows = multiplied([attention.group, queries.rows])
    query_row, *query = queries.strides(heads)
    query = [multiplied([attention.group, x]) for x in query]
    result = out.new(attention.last.var.ty)
    last = attention.stages[-1]
    row = lowering.operators[kernel_of(last) or ""]
    assert isinstance(row, RowProgramOp)
    scores, *arguments = last.value.args[1].fields
    dims = list(out.typed(scores.ty, "scratch", 0).dims)
    dims = [*([1] * max(0, 4 - len(dims))), *dims]
    masks = [lowering.value(x) for x in arguments]
    scalars: list[Size] = [
        rows, length, heads, query_row, *query, *keys.strides(heads), *values.strides(heads), dims[-2], dims[-3],
        result.dims[-2] if attention.to_bsnh else 1,
    ]  # fmt: skip
    if row.program.masked:
        scalars += mask_strides(masks[0].dims, dims)
    for call, var in found.sizes:
        tensors = [out.typed(x.ty, "scratch", 0) for x in call.args[1].fields if not is_number(x)]
        scalars.append(lowering.sizes(call, tensors)(var))
    between = len(spec.functions) and sum(len(f.memory) for f in spec.functions)
    others = [lowering.value(x) for x in found.others]
    numbers = [] if found.half else list(lowering.scalars(last))
    tensors = [queries.value, keys.value, values.value, result]
    tensors += [*others[:between], *masks, *others[between:], *numbers]
    # None where there are no rows.
    items = multiplied([keys.matrices, computed("min", rows, 1)])
    cells = multiplied([keys.matrices, rows, length])
    cost = ceiling(multiplied([cells, computed("add", spec.width, spec.columns)]), 2)
    cost = computed("add", cost, multiplied([cells, ROW_COST]))
    out.append(StepCall(symbol, tensors, scalars, items, cost, row.site))
    return result


def _registers(module: tvm.IRModule, attention: Attention, row: RowProgramOp) -> dict[int, str]:
    """Return the arguments of the last function that the kernel has in registers: the product, scalars of the row."""
    bindings, last = bindings_of(module), attention.stages[-1]
    names = output_names(row.program, None)
    found = {attention.finish_input: "product"}
    for position, argument in enumerate(attention.finish.value.args[1].fields):
        item = item_of(behind_views(argument, bindings))
        if item is not None and key(item[0]) == key(last.var):
            found[position] = names[item[1]]
    return found


@dataclass
class _Reader:
    """Functions while they are read.

    Attributes:
        others: What they read, in their order.
        sizes: The numbers that they need, in their order.
    """

    backend: Backend
    module: tvm.IRModule
    others: list[Any] = field(default_factory=list)
    sizes: list[tuple[Any, Any]] = field(default_factory=list)

    def function(self, binding: Any, registers: Mapping[int, str]) -> Function | None:
        """Return the function that a binding calls, or None if it is not done within a kernel."""
        call = binding.value
        function, given = self.module[call.args[0]], list(call.args[1].fields)
        result = max(i for i, p in enumerate(function.params) if is_buffer_var(p))
        types = {i: str(given[i].ty.dtype) for i in registers}
        if {*types.values(), str(binding.var.ty.dtype)} - {"float32", "float16"}:
            return None
        nests = self.backend.nests(call.args[0].name_hint, function, True)
        what = read_elementwise(nests[0], result, types) if len(nests) == 1 else None
        if what is None:
            return None
        memory, sizes = dict[int, str](), dict[int, str]()
        for read in what.reads:
            if read.position not in memory:
                memory[read.position] = f"other{len(self.others)}"
                self.others.append(given[read.position])
        used = [what.value, *(part for read in what.reads for part in (read.base, read.step))]
        for var in what.scalars:
            if any(mentions(part, var) for part in used):
                sizes[key(var)] = f"size{len(self.sizes)}"
                self.sizes.append((call, var))
        return replace(what, memory=memory, sizes=sizes)
