# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""An attention of a lowered model as one launch: whether a kernel can take it, and the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import tvm
from tvm import relax
from tvm.tirx.buffer import is_buffer_var

from softq.artifact.program import Size
from softq.rowprog.onnx.emitter import output_names
from softq.targets._gpu.attention.elements import UnwrittenError, elementwise
from softq.targets._gpu.attention.middle import Function, takes
from softq.targets._gpu.attention.ordinary import WIDEST, Spec, kernel
from softq.targets._native.assembly import StepCall, Value
from softq.targets._native.attention.forms import Attention
from softq.targets._native.attention.lowering import Lowering, Operand
from softq.targets._native.calls import KernelCall, MatMulCall, RowCall
from softq.targets._native.expressions import mentions
from softq.targets._native.kernels import ROW_COST
from softq.targets._native.lower import mask_strides
from softq.targets._native.nests import Nest
from softq.targets._native.sizes import computed, is_number, key, multiplied, plain, size


class Nests(Protocol):
    """What gives the loop nests of a function."""

    def nests(self, name: str, function: Any, rows: bool = False) -> list[Nest]:
        """Return them; with `rows` a work item is a row of the result."""
        ...


@dataclass
class Plan:
    """A kernel that takes an attention.

    Attributes:
        spec: What is fixed in it.
        others: The tensors that functions read, in the order of the kernel's pointers.
        sizes: The numbers that functions need: the call, and the variable of its function.
    """

    spec: Spec
    others: list[Any]
    sizes: list[tuple[Any, Any]]

    def text(self, symbol: str) -> str:
        """Return the kernel of this name."""
        return kernel(self.spec, symbol)


def plan(kernels: Nests, module: tvm.IRModule, calls: Mapping[str, KernelCall], attention: Attention) -> Plan | None:
    """Return the kernel that takes an attention, or None if there is none: that is computed step by step."""
    *functions, last = attention.between
    row = calls[str(last.value.args[0].global_symbol)] if _is_kernel(last) else None
    products = [calls[str(b.value.args[0].global_symbol)] for b in (attention.scores, attention.product)]
    given = (attention.queries, attention.keys, attention.values, attention.scores.var, attention.last.var)
    floats = all(str(x.ty.dtype) == "float32" for x in given) and all(isinstance(p, MatMulCall) for p in products)
    if not isinstance(row, RowCall) or not floats or any(map(_is_kernel, functions)) or not takes(row.program):
        return None
    width, columns = (plain(x.ty.shape.values[-1]) for x in (attention.queries, attention.values))
    if not isinstance(width, int) or not isinstance(columns, int) or not 0 < columns <= WIDEST or width < 1:
        return None
    reader = _Reader(kernels, module)
    before = [reader.function(b, {followed: "score"})
              for b, followed in zip(functions, attention.followed, strict=False)]  # fmt: skip
    finish, at_hand = None, dict[int, str]()
    if attention.finish is not None:
        at_hand = _at_hand(module, attention, row)
        finish = reader.function(attention.finish, at_hand)
    if None in before or (attention.finish is not None and finish is None):
        return None
    spec = Spec(
        width, columns, products[0].transposed, row.program, row.max_length, tuple(f for f in before if f is not None),
        finish, at_hand, attention.exchanged, tuple(f"size{n}" for n in range(len(reader.sizes))),
    )  # fmt: skip
    try:
        kernel(spec, "attention")
    except UnwrittenError:
        return None
    return Plan(spec, reader.others, reader.sizes)


def lower_attention(lowering: Lowering, attention: Attention, found: Plan, symbol: str) -> Value:
    """Append the step of an attention and return its result."""
    out, spec = lowering.out, found.spec
    operands = (attention.queries, attention.keys, attention.values)
    given = zip(operands, attention.side_by_side, strict=True)
    queries, keys, values = (Operand(lowering.value(x), beside) for x, beside in given)
    heads, length = size(attention.heads), keys.rows if spec.transposed else keys.width
    rows = multiplied([attention.group, queries.rows])
    query_row, *query = queries.strides(heads)
    query = [multiplied([attention.group, x]) for x in query]
    result = out.new(attention.last.var.ty)
    last = attention.between[-1]
    row = out.imported.calls[str(last.value.args[0].global_symbol)]
    assert isinstance(row, RowCall)
    scores, *arguments = last.value.args[1].fields
    dims = list(out.typed(scores.ty, "scratch", 0).dims)
    dims = [*([1] * max(0, 4 - len(dims))), *dims]
    masks = [lowering.value(x) for x in arguments]
    scalars: list[Size] = [
        rows, length, heads, query_row, *query, *keys.strides(heads), *values.strides(heads), dims[-2], dims[-3],
        result.dims[-2] if attention.exchanged else 1,
    ]  # fmt: skip
    if row.program.masked:
        scalars += mask_strides(masks[0].dims, dims)
    scalars += [_size(lowering, call, var) for call, var in found.sizes]
    many = isinstance(last.var.ty, relax.TupleType)
    between = len(spec.functions) and sum(len(f.memory) for f in spec.functions)
    others = [lowering.value(x) for x in found.others]
    numbers = list(lowering.values[key(last.var)][1:]) if many else []
    tensors = [queries.value, keys.value, values.value, result]
    tensors += [*others[:between], *masks, *others[between:], *numbers]
    # None where there are no rows.
    items = multiplied([keys.matrices, computed("min", rows, 1)])
    cells = multiplied([keys.matrices, rows, length])
    cost = out.kernels.cost(multiplied([cells, computed("add", spec.width, spec.columns)]))
    cost = computed("add", cost, multiplied([cells, ROW_COST]))
    out.append(StepCall(symbol, tensors, scalars, items, cost, row.site))
    return result


def _is_kernel(binding: Any) -> bool:
    return binding.value.op.name == "relax.call_dps_packed"


def _size(lowering: Lowering, call: Any, var: Any) -> Size:
    given = [lowering.out.typed(x.ty, "scratch", 0) for x in call.args[1].fields if not is_number(x)]
    return lowering.sizes(call, given)(var)


def _at_hand(module: tvm.IRModule, attention: Attention, row: RowCall) -> dict[int, str]:
    """Return the arguments of the last function that the kernel has in registers: the product, scalars of the row."""
    bindings = {key(b.var): b for block in module["main"].body.blocks for b in block.bindings}
    names, last = output_names(row.program, None), attention.between[-1]
    found = {attention.finished: "product"}
    for position, argument in enumerate(attention.finish.value.args[1].fields):
        source = bindings.get(key(argument)) if isinstance(argument, relax.Var) else None
        while source is not None and getattr(getattr(source.value, "op", None), "name", "") == "relax.reshape":
            source = bindings.get(key(source.value.args[0]))
        item = None if source is None else source.value
        if isinstance(item, relax.TupleGetItem) and key(item.tuple_value) == key(last.var):
            found[position] = names[item.index]
    return found


@dataclass
class _Reader:
    """Functions while they are read.

    Attributes:
        others: What they read, in their order.
        sizes: The numbers that they need, in their order.
    """

    kernels: Nests
    module: tvm.IRModule
    others: list[Any] = field(default_factory=list)
    sizes: list[tuple[Any, Any]] = field(default_factory=list)

    def function(self, binding: Any, at_hand: Mapping[int, str]) -> Function | None:
        """Return the function that a binding calls, or None if it is not done within a kernel."""
        call = binding.value
        function, given = self.module[call.args[0]], list(call.args[1].fields)
        result = max(i for i, p in enumerate(function.params) if is_buffer_var(p))
        if any(str(given[i].ty.dtype) != "float32" for i in at_hand) or str(binding.var.ty.dtype) != "float32":
            return None
        nests = self.kernels.nests(call.args[0].name_hint, function, True)
        what = elementwise(nests[0], result, dict.fromkeys(at_hand, "float32")) if len(nests) == 1 else None
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
        return Function(what, memory, sizes)
