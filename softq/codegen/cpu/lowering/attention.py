"""An attention as steps: one that packs the keys, and one that does everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from softq.artifact.program import Size
from softq.codegen.cpu.attention.form import Form, Integers, lay_out
from softq.codegen.cpu.gemm.dot_product import WORDS
from softq.codegen.cpu.gemm.matmul import PACK_BLOCK
from softq.codegen.cpu.kernels import CpuKernels
from softq.codegen.cpu.lowering.attention_stages import Stages
from softq.codegen.cpu.lowering.products import pack_integers
from softq.codegen.cpu.rows.tir import dtype_of
from softq.compiler.backend import Lowering
from softq.compiler.fusion.bindings import kernel_of
from softq.compiler.ops.row_program import ROW_COST, RowProgramOp
from softq.compiler.steps.attention import Attention, Matrices
from softq.compiler.steps.builder import Builder, StepCall, Value
from softq.compiler.tir.symbolic import ceiling, computed, multiplied, resolve, size
from softq.rowprog import DType
from softq.rowprog.ranges import prove

BLOCK = 48
"""Rows of a block at most; a multiple of the tile's rows."""

STEP = 6
"""Rows of a block are a multiple of this: all tiles have so many rows, or a divisor of it."""

MOST_IN_PLACE = 1024
"""Rows of values [batch, rows, heads, width] at most that are read where they are."""

SCORES = 1 << 17
"""Scores of a block, if its rows are more than `STEP`: so many and as many weights stay in an L2 cache of 1 MB."""


def lower_attention(kernels: CpuKernels, lowering: Lowering, attention: Attention) -> Value:
    """Append the steps of an attention and return its result."""
    out, tile = lowering.builder, kernels.block_tile
    values = Matrices(lowering.value(attention.values), attention.bsnh[2])
    heads, columns = size(attention.heads), values.width
    first, first_zeros = _integers(kernels, lowering, attention.scores)
    second, second_zeros = _integers(kernels, lowering, attention.product)
    left = (
        _given(kernels, lowering, attention, values)
        if attention.scores is None
        else _left(kernels, lowering, attention)
    )
    width, matrices, rows, length, block = left.width, left.matrices, left.rows, left.length, left.block
    value_strides = (tile.columns, *values.strides(heads))
    right = [values.value]
    if second is not None:
        strides = (heads, *values.strides(heads))
        less = second_zeros[1] if second.parts else None
        right = pack_integers(kernels, out, values.value, (matrices, columns, length), strides, False, less)
    elif not isinstance(columns, int) or columns % tile.lanes or not _is_near(values, length):
        right = [_packed(kernels, out, values, (heads, columns, length), False, 1)]
        each = multiplied([length, tile.columns])
        whole = multiplied([ceiling(columns, tile.columns), each])
        value_strides = (each, tile.columns, multiplied([heads, whole]), whole)
    result = out.new(attention.last.var.ty)
    every_row = multiplied([matrices, rows])
    stages = Stages(kernels, lowering, attention.scores is None, every_row, {"length": length, "columns": columns})
    chain = list(zip(attention.stages, attention.stage_inputs, strict=True))
    scaled = None if stages.given else stages.scale(*chain[0], "float32" if first is None else "int32")
    how, operands = (None, ()) if scaled is None else scaled
    chain = chain if scaled is None else chain[1:]
    if first is not None:
        # Behind the last query there may be no memory.
        whole = isinstance(width, int) and width % first.dot.count == 0
        first = replace(first, sums=kernels.sums(how), operands=operands, in_place=whole and _fits(first, first_zeros))
    in_place = second is not None and (second.parts or second_zeros == (0, 0))
    stored = _find_stored(second, stages, chain) if second is not None and in_place else None
    if second is not None and stored is not None:
        second, chain = replace(second, left=stored.numpy.name, in_place=True), chain[:-1]
    elif second is not None and not second.in_place:
        second = replace(second, in_place=_fits(second, second_zeros))
    for number, link in enumerate(chain, start=1):
        stages.add(*link, stored if number == len(chain) else None)
    last, to_bsnh = stages.last, attention.to_bsnh
    finish = None if attention.finish is None else stages.finish(attention, result)
    found, lengths = tuple(stages.found), stages.lengths
    form = Form(tile, left.packing, found, last, len(lengths), finish, to_bsnh, first, second, stages.given)
    if first is None and not stages.given:
        form = replace(form, block=kernels.block(how), operands=operands, shifted=kernels.machine.in_c)
    result_heads = result.dims[-2] if to_bsnh else 1
    strides = (*left.query_strides, left.queries, result_heads, *left.key_strides, *value_strides)
    numbers = (rows, length, width, columns, block, left.packed, heads, *strides, *lengths, *first_zeros, *second_zeros)
    # The zero points come last, and are left out where both products are ones of floats.
    sizes: dict[str, Size] = dict(zip(form.sizes, numbers, strict=False))
    memory = resolve(lay_out(form).bytes, sizes.__getitem__, computed)
    scores = multiplied([matrices, rows, length])
    terms = multiplied([scores, computed("add", width, columns)])
    out.append(
        StepCall(
            kernels.attention(form),
            [*left.tensors, *right, result, *stages.others, out.scratch(memory)],
            [*sizes.values(), *stages.scalars],
            multiplied([matrices, ceiling(rows, block)]),
            computed("add", kernels.cost(terms), multiplied([scores, ROW_COST])),
            stages.site,
            multiply_adds=terms,
        )
    )
    return result


@dataclass(frozen=True)
class _Left:
    """The operands of the product with the keys, and how many rows there are.

    Attributes:
        tensors: What the kernel is given of them.
        matrices: Matrices of keys.
        rows: Rows for each of them.
        length: Length of a row.
        block: Rows of a block.
        queries: Rows of a matrix of queries.
        width: Width of a key.
        packed: 1 if the keys are packed already.
        packing: Symbol of the kernel that packs keys, if they are floats.
        query_strides: How far apart in the queries are rows, outer and inner matrices.
        key_strides: The same of the keys.
    """

    tensors: Sequence[Value]
    matrices: Size
    rows: Size
    length: Size
    block: Size
    queries: Size
    width: Size = 0
    packed: Size = 0
    packing: str = ""
    query_strides: Sequence[Size] = (0, 0, 0)
    key_strides: Sequence[Size] = (0, 0, 0)


def _given(kernels: CpuKernels, lowering: Lowering, attention: Attention, values: Matrices) -> _Left:
    """Return what is known of scores that are given, which may have other axes than the product's left operand."""
    left = lowering.builder.typed(attention.product.value.args[1].fields[0].ty, "scratch", 0)
    queries, length = left.dims[-2:]
    rows = multiplied([attention.group, queries])
    return _Left((), values.matrices, rows, length, _block(kernels, rows, length), queries)


def _left(kernels: CpuKernels, lowering: Lowering, attention: Attention) -> _Left:
    """Append the step that packs the keys, and return the operands."""
    queries = Matrices(lowering.value(attention.queries), attention.bsnh[0])
    keys = Matrices(lowering.value(attention.keys), attention.bsnh[1])
    heads, width, matrices, group = size(attention.heads), queries.width, keys.matrices, attention.group
    transposed = _operator(lowering, attention.scores).transposed
    length = keys.rows if transposed else keys.width
    rows = multiplied([group, queries.rows])
    block = _block(kernels, rows, length)
    out, packing = lowering.builder, ""
    if _operator(lowering, attention.scores).integers:
        packed, strides = 1, (heads, *keys.strides(heads))
        panels = pack_integers(kernels, out, keys.value, (matrices, length, width), strides, transposed)
        read = panels[0]
    else:
        # Keys that one block alone reads are packed there, panel by panel.
        packed = computed("min", 1, computed("floordiv", computed("max", computed("sub", rows, 1), 0), block))
        panels = [_packed(kernels, out, keys, (heads, length, width), transposed, packed)]
        read = panels[0] if packed == 1 else keys.value
        packing = kernels.pack(PACK_BLOCK, kernels.block_tile, transposed)
        packing = kernels.shifted(packing, (1,)) if kernels.machine.in_c else packing
    query_row, query_outer, query_inner = queries.strides(heads)
    if group != 1:
        query_outer, query_inner = (multiplied([group, x]) for x in (query_outer, query_inner))
    strides = (query_row, query_outer, query_inner)
    return _Left(
        (queries.value, read, *panels), matrices, rows, length, block, queries.rows, width, packed, packing, strides,
        keys.strides(heads),
    )  # fmt: skip


def _integers(kernels: CpuKernels, lowering: Lowering, binding: Any) -> tuple[Integers | None, tuple[int, int]]:
    """Return what a product of integers is, None for one of floats, and the zero points of its operands."""
    if binding is None or not _operator(lowering, binding).integers:
        return None, (0, 0)
    a, b, *zeros = binding.value.args[1].fields
    left, right = (int(zero.value.numpy().item()) for zero in zeros)
    if str(a.ty.dtype) == WORDS.left:
        return Integers(WORDS, WORDS.left, kernels.parts(), in_place=True, parts=True), (left, right)
    left_type, right_type, dot = str(a.ty.dtype), str(b.ty.dtype), kernels.dot
    return Integers(dot, left_type, kernels.sums()), (
        left + dot.left_offset(left_type),
        right + dot.right_offset(right_type),
    )


def _fits(product: Integers, zeros: tuple[int, int]) -> bool:
    """Say whether rows of the left operand may be multiplied where they are: runs of columns have zeros behind them."""
    return product.dot.runs and product.left == product.dot.left and zeros[1] == 0


def _find_stored(product: Integers, stages: Stages, chain: Sequence[tuple[Any, int]]) -> DType | None:
    """Return the type in which a row program may write its weights for the product of integers; None if it may not.

    That is so if they are integers of the product's left operand, and nothing but a conversion is behind the program.
    """
    if len(chain) < 2 or not stages.casts(*chain[-1]):
        return None
    row = _operator(stages.lowering, chain[-2][0]) if kernel_of(chain[-2][0]) else None
    weights = row.program.outputs.get("weights") if isinstance(row, RowProgramOp) else None
    if not isinstance(row, RowProgramOp) or weights is None or not weights.dtype.is_integer:
        return None
    left, interval = dtype_of(product.dot.left), prove(row.program, max_length=row.max_length).filled[weights]
    return left if left.low <= interval.low <= interval.high <= left.high else None


def _is_near(values: Matrices, length: Size) -> bool:
    """Say whether rows of the values are close enough together to be read for every block again.

    In long rows their distance costs more (page tables, cache sets) than a copy with the rows together.
    """
    return not values.bsnh or (isinstance(length, int) and length <= MOST_IN_PLACE)


def _block(kernels: CpuKernels, rows: Size, length: Size) -> Size:
    """Return the rows of a block: as many as the cache has room for, but no more than there are.

    For processors whose memory is small and has no caches they are those of a tile.
    """
    if kernels.machine.in_flash:
        return computed("max", 1, computed("min", rows, kernels.block_tile.rows))
    room = computed("floordiv", SCORES // STEP, computed("max", length, 1))
    most = computed("max", 1, computed("min", BLOCK // STEP, room))
    return computed("max", 1, computed("min", rows, multiplied([most, STEP])))


def _packed(
    kernels: CpuKernels, out: Builder, given: Matrices, sizes: tuple[Size, Size, Size], transposed: bool, wanted: Size
) -> Value:
    """Append the step that packs matrices, of which it does none if `wanted` is 0; return the panels.

    Args:
        kernels: What gives the kernels.
        out: The program.
        given: What is packed.
        sizes: Heads, columns of all panels, and rows of a panel.
        transposed: Whether rows of a panel are columns of the matrix.
        wanted: 0 or 1.
    """
    heads, columns, rows = sizes
    count = ceiling(columns, kernels.block_tile.columns)
    panels = out.allocated((given.matrices, count, rows, kernels.block_tile.columns, wanted), "float32")
    if wanted != 0:
        items = multiplied([given.matrices, count, wanted])
        scalars = [rows, columns, heads, *given.strides(heads)]
        packing = kernels.pack(PACK_BLOCK, kernels.block_tile, transposed)
        out.append(StepCall(packing, [given.value, panels], scalars, items, given.value.elements))
    return panels


def _operator(lowering: Lowering, binding: Any) -> Any:
    return lowering.operators[kernel_of(binding) or ""]
