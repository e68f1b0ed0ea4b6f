# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""An attention as steps: one that packs the keys, and one that does everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import tvm
from tvm import relax

from softq.artifact.program import Size
from softq.codegen.cpu.attention.kernel import PRODUCT, SIZES, Form, Integers, Region, Stage, scratch_parts
from softq.codegen.cpu.backend import ROW_COST
from softq.compiler.fusion.attention import Attention
from softq.compiler.lowering.builder import Assembly, StepCall, Value
from softq.compiler.ops import IntegerMatMulCall, RowCall
from softq.compiler.tir.symbolic import ceiling, computed, is_number, key, multiplied, size

BLOCK = 48
"""Rows of a block at most; a multiple of the tile's rows."""

STEP = 6
"""Rows of a block are a multiple of this: all tiles have so many rows, or a divisor of it."""

SCORES = 1 << 17
"""Scores of a block, if its rows are more than `STEP`: so many and as many weights stay in an L2 cache of 1 MB."""


class Lowering(Protocol):
    """What lowers the rest of the model."""

    out: Assembly
    values: dict[int, Any]

    def value(self, expr: Any) -> Any:
        """Return what an expression is."""
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

    def row_step(
        self,
        call: RowCall,
        values: list[Value],
        outputs: list[Value],
        allocated: Callable[[tuple[Size, ...], str], Value],
    ) -> StepCall:
        """Return the step of a row program."""
        ...


def lower_attention(lowering: Lowering, attention: Attention) -> Value:
    """Append the steps of an attention and return its result."""
    out = lowering.out
    tile = out.kernels.block_tile
    operands = (attention.queries, attention.keys, attention.values)
    given = zip(operands, attention.side_by_side, strict=True)
    queries, keys, values = (Operand(lowering.value(x), beside) for x, beside in given)
    heads = size(attention.heads)
    transposed = out.imported.calls[_name(attention.scores)].transposed
    width, columns = queries.width, values.width
    length = keys.rows if transposed else keys.width
    matrices = keys.matrices
    rows = multiplied([attention.group, queries.rows])
    block = _block(rows, length)
    first, second = (_integers(out, binding) for binding in (attention.scores, attention.product))
    if first is None:
        # Keys that one block alone reads are packed there, panel by panel.
        packed = computed("min", 1, computed("floordiv", computed("max", computed("sub", rows, 1), 0), block))
        panels = [_packed(out, keys, (heads, length, width), transposed, packed)]
        read = panels[0] if packed == 1 else keys.value
    else:
        packed, strides = 1, (heads, *keys.strides(heads))
        panels = packed_integers(out, keys.value, (matrices, length, width), strides, transposed)
        read = panels[0]
    spread = (tile.columns, *values.strides(heads))
    right = [values.value]
    if second is not None:
        strides = (heads, *values.strides(heads))
        right = packed_integers(out, values.value, (matrices, columns, length), strides, False)
    elif not isinstance(columns, int) or columns % tile.lanes:
        right = [_packed(out, values, (heads, columns, length), False, 1)]
        each = multiplied([length, tile.columns])
        whole = multiplied([out.kernels.panels(columns, tile), each])
        spread = (each, tile.columns, multiplied([heads, whole]), whole)
    result = out.new(attention.last.var.ty)
    query_row, query_outer, query_inner = queries.strides(heads)
    if attention.group != 1:
        query_outer, query_inner = (multiplied([attention.group, x]) for x in (query_outer, query_inner))
    stages = _Stages(lowering)
    for binding, followed in zip(attention.between, attention.followed, strict=True):
        stages.add(binding, followed)
    last, exchanged = stages.last, attention.exchanged
    finish = None if attention.finish is None else stages.finish(attention, result)
    packing = out.kernels.pack_block(transposed) if first is None else ""
    kinds = (None if first is None else first.kind, None if second is None else second.kind)
    form = Form(tile, packing, tuple(stages.found), tuple(stages.regions), last, finish, exchanged, *kinds)
    result_heads = result.dims[-2] if exchanged else 1
    strides = (query_row, query_outer, query_inner, queries.rows, result_heads, *keys.strides(heads), *spread)
    numbers: list[Size] = [rows, length, width, columns, block, packed, heads, *strides]
    for product in (first, second) if form.sizes != SIZES else ():
        numbers += (0, 0) if product is None else product.zeros
    sizes = dict(zip(form.sizes, numbers, strict=True))
    groups = {
        "query_groups": ceiling(width, out.kernels.dot.count),
        "weight_groups": ceiling(length, out.kernels.dot.count),
    }
    counts = {**sizes, **groups, "panel": tile.columns, "one": 1}
    memory: Size = 0
    for _, element, rows_of, each in scratch_parts(form):
        needed = multiplied([counts[rows_of], counts[each], element])
        memory = computed("add", memory, multiplied([ceiling(needed, 64), 64]))
    out.append(
        StepCall(
            out.kernels.attention(form),
            [queries.value, read, *panels, *right, result, *stages.others, out.scratch(memory)],
            [*sizes.values(), *stages.scalars],
            multiplied([matrices, ceiling(rows, block)]),
            _cost(out, multiplied([matrices, rows, length]), computed("add", width, columns)),
            stages.site,
        )
    )
    return result


@dataclass(frozen=True)
class _Integers:
    """A product of 8-bit integers: what it is, and the zero points of its operands."""

    kind: Integers
    zeros: tuple[int, int]


def _integers(out: Assembly, binding: Any) -> _Integers | None:
    """Return what a product of integers is, or None for one of floats."""
    if not isinstance(out.imported.calls[_name(binding)], IntegerMatMulCall):
        return None
    a, b, *zeros = binding.value.args[1].fields
    left, right = (int(zero.value.numpy().item()) for zero in zeros)
    types, dot = (str(a.ty.dtype), str(b.ty.dtype)), out.kernels.dot
    return _Integers(Integers(dot, types[0]), (left + dot.left_offset(types[0]), right + dot.right_offset(types[1])))


def _cost(out: Assembly, scores: Size, inner: Size) -> Size:
    """Return the cost of an attention: of its products, and of what is done with every score."""
    return computed("add", out.kernels.cost(multiplied([scores, inner])), multiplied([scores, ROW_COST]))


def _block(rows: Size, length: Size) -> Size:
    """Return the rows of a block: as many as the cache has room for, but no more than there are."""
    room = computed("floordiv", SCORES // STEP, computed("max", length, 1))
    most = computed("max", 1, computed("min", BLOCK // STEP, room))
    return computed("max", 1, computed("min", rows, multiplied([most, STEP])))


def _packed(out: Assembly, given: Operand, sizes: tuple[Size, Size, Size], transposed: bool, wanted: Size) -> Value:
    """Append the step that packs matrices, of which it does none if `wanted` is 0; return the panels.

    Args:
        out: The program.
        given: What is packed.
        sizes: Heads, columns of all panels, and rows of a panel.
        transposed: Whether rows of a panel are columns of the matrix.
        wanted: 0 or 1.
    """
    heads, columns, rows = sizes
    count = out.kernels.panels(columns, out.kernels.block_tile)
    panels = out.allocated((given.matrices, count, rows, out.kernels.block_tile.columns, wanted), "float32")
    if wanted != 0:
        items = multiplied([given.matrices, count, wanted])
        scalars = [rows, columns, heads, *given.strides(heads)]
        out.step(out.kernels.pack_block(transposed), [given.value, panels], scalars, items, given.value.elements)
    return panels


def packed_integers(
    out: Assembly,
    given: Value,
    sizes: tuple[Size, Size, Size],
    strides: tuple[Size, Size, Size, Size],
    transposed: bool,
) -> list[Value]:
    """Append the step that packs matrices of 8-bit integers; return the panels, and the sums of their columns.

    Args:
        out: The program.
        given: What is packed.
        sizes: Matrices, columns of all panels, and rows of a panel.
        strides: Heads, and how far apart are rows, matrices of different numbers // heads, and of % heads.
        transposed: Whether rows of a panel are columns of the matrix.
    """
    matrices, columns, rows = sizes
    tile, dot = out.kernels.block_tile, out.kernels.dot
    count = out.kernels.panels(columns, tile)
    groups = ceiling(rows, dot.count)
    panels = out.allocated((matrices, count, groups, tile.columns, dot.count), dot.right)
    sums = out.allocated((matrices, count, tile.columns), "int32")
    kernel = out.kernels.pack_integers(given.dtype, transposed)
    out.step(kernel, [given, panels, sums], [rows, columns, *strides], multiplied([matrices, count]), given.elements)
    return [panels, sums]


@dataclass(frozen=True)
class Operand:
    """Matrices: [..., rows, width], or [batch, rows, heads, width]."""

    value: Value
    side_by_side: bool

    @property
    def width(self) -> Size:
        """Elements of a row."""
        return self.value.dims[-1]

    @property
    def rows(self) -> Size:
        """Rows of a matrix."""
        return self.value.dims[-3 if self.side_by_side else -2]

    @property
    def matrices(self) -> Size:
        """Number of matrices."""
        dims = self.value.dims
        return multiplied([*dims[:-3], dims[-2]] if self.side_by_side else dims[:-2])

    def strides(self, heads: Size) -> tuple[Size, Size, Size]:
        """Return how far apart are rows, matrices of different numbers // heads, and of % heads."""
        whole = multiplied([self.rows, self.width])
        if self.side_by_side:
            return multiplied([heads, self.width]), multiplied([heads, whole]), self.width
        return self.width, multiplied([heads, whole]), whole


@dataclass
class _Stages:
    """What lies between the products, while it is gathered.

    Scores and what is made of them are in two regions in turn: a kernel reads one and writes the other.
    """

    lowering: Lowering
    found: list[Stage] = field(default_factory=list)
    others: list[Value] = field(default_factory=list)
    scalars: list[Size] = field(default_factory=list)
    regions: list[int] = field(default_factory=lambda: [4, 1])
    last: int = 0
    site: str | None = None

    def add(self, binding: Any, followed: int) -> None:
        """Add a binding, whose argument `followed` is what the one before gave."""
        call = binding.value
        target = 1 - self.last
        if call.op.name == "relax.call_tir":
            given = list(call.args[1].fields)
            tensors = [(i, x) for i, x in enumerate(given) if not is_number(x)]
            inputs = [self._here(x) if i == followed else self.lowering.value(x) for i, x in tensors]
            output = self._value(binding.var.ty, target)
            (step,) = self.lowering.tir_steps(call, inputs, [output], rows=True)
        else:
            row = self.lowering.out.imported.calls[_name(binding)]
            assert isinstance(row, RowCall)
            arguments = list(call.args[1].fields)
            inputs = [self._here(arguments[0]), *map(self.lowering.value, arguments[1:])]
            many = isinstance(binding.var.ty, relax.TupleType)
            scalars = self.lowering.values[key(binding.var)][1:] if many else ()
            outputs = [self._value(binding.var.ty.fields[0] if many else binding.var.ty, target), *scalars]
            step = self.lowering.row_step(row, inputs, outputs, self._more)
            self.site = row.site
        self.last = target
        self._stage(step)

    def finish(self, attention: Attention, result: Value) -> Stage:
        """Return the kernel that makes the result of the second product's."""
        call = attention.finish.value
        given = [self.lowering.value(x) if i != attention.finished else x for i, x in enumerate(call.args[1].fields)]
        product = self.lowering.out.typed(call.args[1].fields[attention.finished].ty, "scratch", PRODUCT)
        given[attention.finished] = product
        (step,) = self.lowering.tir_steps(call, given, [result], rows=True)
        self._stage(step)
        return self.found.pop()

    def _stage(self, step: StepCall) -> None:
        pointers: list[Region | int] = []
        for tensor in step.tensors:
            if tensor.place == "scratch":
                size = self.regions[tensor.at] if tensor.at > 1 else np.dtype(tensor.dtype).itemsize
                pointers.append(Region(tensor.at, size))
                continue
            if tensor not in self.others:
                self.others.append(tensor)
            pointers.append(self.others.index(tensor))
        self.found.append(Stage(step.kernel, tuple(pointers), len(step.scalars)))
        self.scalars += step.scalars

    def _here(self, expr: Any) -> Value:
        return self._value(expr.ty, self.last)

    def _value(self, ty: Any, region: int) -> Value:
        typed = self.lowering.out.typed(ty, "scratch", region)
        self.regions[region] = max(self.regions[region], np.dtype(typed.dtype).itemsize)
        return typed

    def _more(self, dims: tuple[Size, ...], dtype: str) -> Value:
        self.regions.append(int(dims[-1]) * np.dtype(dtype).itemsize)
        return Value(dims, dtype, "scratch", len(self.regions) - 1)


def _name(binding: Any) -> str:
    assert isinstance(binding.value, tvm.ir.Call)
    return str(binding.value.args[0].global_symbol)
