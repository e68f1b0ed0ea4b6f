"""Finding the epilogues of products in a lowered model.

Any elementwise function of TVM's is an epilogue if it is one nest whose result has the product's elements in their
order, and which reads the product and everything else at the element's own place, by its column, or as one number. The
product's kernel applies it to what it has just written, while that is in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from softq.compiler.backend import Backend, KernelOperator
from softq.compiler.fusion import bindings
from softq.compiler.ops.linear import ConvolutionOp, MatMulOp
from softq.compiler.steps.product import Epilogue, Operand, Where
from softq.compiler.tir.expressions import found
from softq.compiler.tir.loop_nests import Nest, elements_of
from softq.compiler.tir.symbolic import Dim, equal, expression, is_number, key, plain, product, simplified

FUSING = (MatMulOp, ConvolutionOp)
"""The operators whose kernels may have epilogues."""


def find_epilogues(
    module: tvm.IRModule, operators: Mapping[str, KernelOperator], backend: Backend, taken: set[int]
) -> tuple[dict[int, tuple[Any, Epilogue]], set[int]]:
    """Return products, as bindings, with their epilogues by the variable of the function's result; what is in between.

    Args:
        module: The lowered module.
        operators: What the kernels of our own compute, by name.
        backend: What gives the kernels of its functions, and says which epilogues its products take.
        taken: Variables that are computed in another way.
    """
    known, users = bindings.bindings_of(module), bindings.users_of(module)
    fused: dict[int, tuple[Any, Epilogue]] = {}
    inside: set[int] = set()
    for at, binding in known.items():
        if at in taken or not bindings.is_function(binding):
            continue
        # The last argument first: of two products the later one takes what is made of both.
        given = [(i, x) for i, x in enumerate(binding.value.args[1].fields) if bindings.is_variable(x)]
        for position, argument in reversed(given):
            chain = list(_views(argument, known))
            if any(len(users[v]) != 1 or v in taken for v in chain) or not chain:
                continue
            source = known[chain[-1]]
            operator = bindings.operator_of(source, operators)
            if not isinstance(operator, FUSING):
                continue
            if isinstance(operator, MatMulOp) and operator.integers and not backend.fuses_integers:
                continue
            channels = isinstance(operator, ConvolutionOp)
            epilogue = _epilogue(module, binding, position, source, channels, backend)
            if epilogue is not None and backend.can_fuse(operator, epilogue, str(binding.var.ty.dtype)):
                fused[at] = source, epilogue
                inside.update(chain)
                break
    return fused, inside


def _views(value: Any, known: Mapping[int, Any]) -> Iterator[int]:
    """Yield a variable and those whose memory it shows."""
    while bindings.is_variable(value) and key(value) in known:
        yield key(value)
        binding = known[key(value)]
        if not bindings.is_view(binding):
            return
        value = binding.value.args[0]


def _epilogue(
    module: tvm.IRModule, binding: Any, position: int, source: Any, channels: bool, backend: Backend
) -> Epilogue | None:
    if bindings.is_tuple(binding.var.ty):
        return None
    given, out = list(binding.value.args[1].fields), list(binding.var.ty.shape.values)
    there = list(source.var.ty.shape.values)
    if len(binding.value.args) > 2 or any(map(is_number, given)) or not out or not equal(out[-1], there[-1]):
        return None
    if not equal(product(out), product(there)):
        return None
    name = str(binding.value.args[0].name_hint)
    nests = bindings.row_nests(backend, name, module[binding.value.args[0]])
    dims = there if channels else []
    return (
        read_epilogue(nests[0], name, (position, len(given)), str(source.var.ty.dtype), dims)
        if len(nests) == 1
        else None
    )


def read_epilogue(
    nest: Nest, name: str, positions: tuple[int, int], product_type: str, image: Sequence[Any] = ()
) -> Epilogue | None:
    """Return the epilogue that a nest is, or None.

    Args:
        nest: The nest.
        name: Of its function.
        positions: The parameters that are the product and the result.
        product_type: The product's type.
        image: Its dimensions, if it has channels.
    """
    parts = elements_of(nest)
    if parts is None:
        return None
    position, result = positions
    store, owner, column = parts.store, parts.owner, parts.column.loop_var
    own = parts.row.loop_var * parts.column.extent + column
    if owner.get(key(store.buffer)) != result or not _equal(store.indices, own):
        return None
    row = parts.row.loop_var
    element = tirx.Var("element", product_type)
    operands: list[Operand] = []
    fits = True

    def replaced(load: Any) -> Any:
        nonlocal fits
        at, dtype = owner.get(key(load.source)), str(load.ty.dtype)
        if _equal(load.indices, own):
            where: Where = "same"
        elif _equal(load.indices, column):
            where = "column"
        elif image and _is_channel(load.indices, row, nest.items, image):
            where = "channel"
        else:
            where = "one"
            fits &= all(plain(index) == 0 for index in load.indices)
        if at == position and where == "same" and dtype == product_type:
            return element
        fits &= isinstance(at, int) and at != position and at != result
        for operand in operands:
            if (operand.position, operand.where) == (at, where):
                return operand.var
        operands.append(Operand(int(at) if isinstance(at, int) else -1, where, dtype, tirx.Var("operand", dtype)))
        return operands[-1].var

    value = structural_map(store.value, (tvm.ir.TensorLoad, replaced))
    known = {key(element), *(key(o.var) for o in operands), *(key(let.var) for let in found(value, tirx.Let))}
    if not fits or any(key(var) not in known for var in found(value, tirx.Var)):
        return None
    return Epilogue(name, element, tuple(operands), value)


def _is_channel(indices: Any, row: tirx.Var, rows: Dim, image: Sequence[Any]) -> bool:
    """Say whether an index is the channel of a row of [batch, channels, ..., columns]."""
    if len(indices) != 1:
        return False
    channel = tirx.floormod(tirx.floordiv(row, expression(product(image[2:-1]))), image[1])
    apart, analyzer = indices[0] - channel, tvm.sym.Analyzer()
    for var in tirx.analysis.undefined_vars(tirx.Evaluate(apart), []):
        most = max(rows - 1, 0) if var.same_as(row) and isinstance(rows, int) else 1 << 40
        analyzer.update(var, tvm.sym.ConstIntBound(0, most))
    return plain(analyzer.simplify(apart)) == 0


def _equal(indices: Any, expr: Any) -> bool:
    return len(indices) == 1 and plain(simplified(indices[0] - expr)) == 0
