# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""ONNX operators that softq imports itself: those with kernels of their own, and those whose shapes are expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from softq.artifact.program import Limit
from softq.errors import RefusalError
from softq.methods import METHODS
from softq.rowprog.onnx import signature
from softq.rowprog.onnx.emitter import output_names
from softq.rowprog.types import Kind
from softq.targets._native.calls import CumSumCall, MatMulCall, PositionsCall, RowCall, constant
from softq.targets._native.folding import sizes, static
from softq.targets._native.sizes import Dim, equal, expression, plain, product, quotient, simplified, size

if TYPE_CHECKING:
    from softq.targets._native.importer import Node

FLOATS = ("float16", "bfloat16", "float32")


def _softq(node: Node) -> list[relax.Expr]:
    function = next(f for (_, name), f in node.functions.items() if name == node.operator)
    site = node.importer.sites.get(node.name, node.name)
    program = function.program
    if len(node.inputs) != len(signature(program)):
        raise RefusalError(
            f"{node.operator} {node.name!r} has {len(node.inputs)} inputs; expected {signature(program)}"
        )
    values = [node.tensor(i) for i in range(1 + program.masked)]
    for position, param in enumerate(program.params, start=len(values)):
        array = node.array(position)
        if array is None:
            raise RefusalError(f"{node.operator} {node.name!r}: parameter {param.name} is no initializer")
        values.append(constant(array.astype(param.dtype.numpy).reshape(-1)))
    return row_call(node, RowCall(program, function.max_length, site), values)


def row_call(node: Node, call: RowCall, values: list[relax.Expr]) -> list[relax.Expr]:
    """Return the outputs of a row program; scores of half precision are widened."""
    dims = node.importer.dims(values[0], node.inputs[0])
    if not dims:
        raise RefusalError(f"{node.operator} {node.name!r}: scores without an axis")
    wanted = call.program.scores.numpy.name
    if values[0].ty.dtype != wanted:
        if str(values[0].ty.dtype) not in FLOATS or wanted not in FLOATS:
            raise RefusalError(f"{node.operator} {node.name!r}: scores are {values[0].ty.dtype}; expected {wanted}")
        values[0] = node.emit(relax.op.astype(values[0], wanted))
    length = plain(dims[-1])
    if not isinstance(length, int) or length > call.max_length:
        because = f"a row of the softmax {call.site} is proved for at most {call.max_length} elements"
        node.require(Limit(size(length), 0, call.max_length, because))
    types = [
        relax.TensorType([*dims[:-1], 1] if call.program.outputs[name].kind is Kind.SCALAR else dims, "float32")
        for name in output_names(call.program, None)
    ]
    name = f"row{len(node.importer.calls)}"
    if len(types) == 1:
        return [node.call(name, call, values, types[0])]
    both = node.call(name, call, values, types)
    return [node.emit(relax.TupleGetItem(both, i)) for i in range(len(types))]


def _softmax(node: Node) -> list[relax.Expr]:
    x, rank = node.tensor(0), len(node.shape(0))
    axis = node.attributes.get("axis", -1 if node.opset >= 13 else 1)
    axis += rank if axis < 0 else 0
    if node.opset < 13:
        raise RefusalError(f"Softmax {node.name!r} of opset {node.opset}; raise the model to opset 18")
    if str(x.ty.dtype) not in FLOATS:
        raise RefusalError(f"Softmax {node.name!r} of {x.ty.dtype}; kernels compute in float32")
    order = [i for i in range(rank) if i != axis] + [axis]
    dtype = x.ty.dtype
    if axis != rank - 1:
        x = node.emit(relax.op.permute_dims(x, order))
    method = next(m for m in METHODS.entries().values() if m.operator == node.operator)
    program = method.program(method.configure({}))
    length = plain(node.importer.dims(x, node.inputs[0])[-1])
    # Sums of floats cannot overflow; the limit only keeps the element's position in 32 bits.
    longest = max(length, 1) if isinstance(length, int) else 2**24
    results = row_call(node, RowCall(program, longest, node.name), [x])
    result = results[0] if len(results) == 1 else node.emit(relax.op.divide(results[0], results[1]))
    if axis != rank - 1:
        result = node.emit(relax.op.permute_dims(result, [order.index(i) for i in range(rank)]))
    return [result if str(dtype) == "float32" else node.emit(relax.op.astype(result, dtype))]


def _matmul(node: Node) -> list[relax.Expr]:
    source = node.importer.transposes.get(node.inputs[1])
    if source is None:
        return [matmul(node, node.tensor(0), node.tensor(1))]
    # The right operand is packed anyway, and packing reads it in either order: its last two axes need no transposition.
    name, order = source
    order = [*order[:-2], order[-1], order[-2]]
    b = node.importer.tensor(name)
    if order != list(range(len(order))):
        b = node.emit(relax.op.permute_dims(b, order))
    return [matmul(node, node.tensor(0), b, transposed=True)]


def _transpose(node: Node) -> list[relax.Expr]:
    rank = len(node.shape(0))
    order = list(node.attributes.get("perm", reversed(range(rank))))
    if rank >= 2:
        node.importer.transposes[node.outputs[0]] = (node.inputs[0], order)
    return [node.emit(relax.op.permute_dims(node.tensor(0), order))]


def matmul(node: Node, a: relax.Expr, b: relax.Expr, transposed: bool = False) -> relax.Expr:
    """Return NumPy's matmul of two tensors of any ranks; `transposed` stands for the last two axes of the right one."""
    if str(a.ty.dtype) != "float32" or str(b.ty.dtype) != "float32":
        if transposed:
            axes = range(len(node.importer.dims(b, node.name)))
            b = node.emit(relax.op.permute_dims(b, [*axes[:-2], axes[-1], axes[-2]]))
        return node.emit(relax.op.matmul(a, b))
    left, right = node.importer.dims(a, node.name), node.importer.dims(b, node.name)
    vectors = len(left) == 1, len(right) == 1
    if vectors[0]:
        left = [1, *left]
    if vectors[1]:
        right = [right[0], 1]
        b = _reshaped(node, b, right)
    inner, columns = (right[-1], right[-2]) if transposed else (right[-2], right[-1])
    if not equal(left[-1], inner):
        raise RefusalError(f"{node.operator} {node.name!r}: inner dimensions {left[-1]} and {inner} differ")
    if len(right) == 2:
        # One matrix for all: the batch axes of the left operand are rows too.
        lead, shape = left[:-2], [product(left[:-1]), columns]
        a = _reshaped(node, a, [shape[0], left[-1]])
    else:
        lead = _broadcast(node, left[:-2], right[:-2])
        shape = [product(lead), left[-2], columns]
        a = _expanded(node, _reshaped(node, a, left), [*lead, *left[-2:]])
        a = _reshaped(node, a, [shape[0], *left[-2:]])
        b = _expanded(node, b, [*lead, *right[-2:]])
        b = _reshaped(node, b, [shape[0], *right[-2:]])
    name = "matmul_t" if transposed else "matmul"
    out = node.call(name, MatMulCall(transposed), [a, b], relax.TensorType([expression(d) for d in shape], "float32"))
    result = [*lead, *([] if vectors[0] else [left[-2]]), *([] if vectors[1] else [columns])]
    return _reshaped(node, out, result)


def _reshaped(node: Node, value: relax.Expr, shape: list[Dim]) -> relax.Expr:
    dims = node.importer.dims(value, node.name)
    if len(dims) == len(shape) and all(equal(a, b) for a, b in zip(dims, shape, strict=True)):
        return value
    return node.emit(relax.op.reshape(value, [expression(d) for d in shape]))


def _expanded(node: Node, value: relax.Expr, shape: list[Dim]) -> relax.Expr:
    dims = node.importer.dims(value, node.name)
    if len(dims) == len(shape) and all(equal(a, b) for a, b in zip(dims, shape, strict=True)):
        return value
    return node.emit(relax.op.broadcast_to(value, [expression(d) for d in shape]))


def _broadcast(node: Node, a: list[Dim], b: list[Dim]) -> list[Dim]:
    rank = max(len(a), len(b))
    result: list[Dim] = []
    for x, y in zip([1] * (rank - len(a)) + list(a), [1] * (rank - len(b)) + list(b), strict=True):
        x, y = plain(x), plain(y)
        if equal(x, y) or y == 1:
            result.append(x)
        elif x == 1 and isinstance(x, int):
            result.append(y)
        else:
            raise RefusalError(f"{node.operator} {node.name!r}: dimensions {x} and {y} are not known to be equal")
    return result


def _gemm(node: Node) -> list[relax.Expr]:
    alpha, beta = node.attributes.get("alpha", 1.0), node.attributes.get("beta", 1.0)
    a = node.tensor(0)
    if node.attributes.get("transA", 0):
        a = node.emit(relax.op.permute_dims(a))
    dtype = str(a.ty.dtype)
    y = matmul(node, a, node.tensor(1), bool(node.attributes.get("transB", 0)))
    if alpha != 1.0:
        y = node.emit(relax.op.multiply(y, constant(np.array(alpha, dtype))))
    if node.has(2):
        c = node.tensor(2)
        if beta != 1.0:
            c = node.emit(relax.op.multiply(c, constant(np.array(beta, dtype))))
        y = node.emit(relax.op.add(y, c))
    return [y]


def _reshape(node: Node) -> list[relax.Expr]:
    return [_reshaped(node, node.tensor(0), _target(node, node.shape(0), list(node.sizes(1).ravel())))]


def _target(node: Node, dims: list[Dim], wanted: list[Dim]) -> list[Dim]:
    """Return the shape that Reshape asks for, with 0 and -1 resolved."""
    if not node.attributes.get("allowzero", 0):
        wanted = [dims[i] if isinstance(d, int) and d == 0 else d for i, d in enumerate(wanted)]
    open_axes = [i for i, d in enumerate(wanted) if isinstance(d, int) and d == -1]
    if open_axes:
        rest = [d for i, d in enumerate(wanted) if i not in open_axes]
        wanted[open_axes[0]] = quotient(dims, rest)
    return wanted


def _flatten(node: Node) -> list[relax.Expr]:
    dims, axis = node.shape(0), node.attributes.get("axis", 1)
    axis += len(dims) if axis < 0 else 0
    return [_reshaped(node, node.tensor(0), [product(dims[:axis]), product(dims[axis:])])]


def _squeeze(node: Node) -> list[relax.Expr]:
    dims = [plain(d) for d in node.shape(0)]
    if node.has(1) or "axes" in node.attributes:
        axes = [int(a) % len(dims) for a in _axes(node)]
    else:
        axes = [i for i, d in enumerate(dims) if isinstance(d, int) and d == 1]
    return [_reshaped(node, node.tensor(0), [d for i, d in enumerate(dims) if i not in axes])]


def _unsqueeze(node: Node) -> list[relax.Expr]:
    dims, axes = list(node.shape(0)), _axes(node)
    rank = len(dims) + len(axes)
    for axis in sorted(int(a) % rank for a in axes):
        dims.insert(axis, 1)
    return [_reshaped(node, node.tensor(0), dims)]


def _axes(node: Node) -> list[int]:
    given = static(node.sizes(1)) if node.has(1) else np.array(node.attributes["axes"])
    if given is None:
        raise RefusalError(f"{node.operator} {node.name!r}: its axes are not constant")
    return [int(a) for a in given.ravel()]


def _expand(node: Node) -> list[relax.Expr]:
    dims, wanted = [plain(d) for d in node.shape(0)], [plain(d) for d in node.sizes(1).ravel()]
    return [_expanded(node, node.tensor(0), _broadcast(node, dims, wanted))]


def _slice(node: Node) -> list[relax.Expr]:
    dims = [plain(d) for d in node.shape(0)]
    starts, ends = list(node.sizes(1).ravel()), list(node.sizes(2).ravel())
    axes = _constants(node, 3, list(range(len(starts))))
    steps = _constants(node, 4, [1] * len(starts))
    x = node.tensor(0)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis %= len(dims)
        if step < 0 and not all(isinstance(v, int) for v in (start, end, dims[axis])):
            raise RefusalError(f"Slice {node.name!r}: a negative step along an axis of unknown length")
        low, high = (_bound(node, dims[axis], v, step, v is end) for v in (start, end))
        if equal(low, 0) and equal(high, dims[axis]) and step == 1:
            continue
        if isinstance(low, int) and isinstance(high, int) and step > 0:
            high = max(low, high)  # nothing, where it ends before it begins
        if step < 0:
            # TVM counts an end of -1 from the back, where it stands for "before the first": the elements are named.
            assert isinstance(low, int)
            assert isinstance(high, int)
            x = node.emit(relax.op.take(x, constant(np.arange(low, high, step)), axis, mode="clip"))
            dims = [plain(d) for d in node.importer.dims(x, node.name)]
            continue
        x = node.emit(
            relax.op.strided_slice(x, [axis], [expression(low)], [expression(high)], [step], assume_inbound=True)
        )
        dims = [plain(d) for d in node.importer.dims(x, node.name)]
    return [x]


def _bound(node: Node, length: Dim, value: Dim, step: int, is_end: bool) -> Dim:
    """Return where a slice begins or ends, counted from the front and within the axis."""
    if isinstance(value, int) and isinstance(length, int):
        value += length if value < 0 else 0
        low, high = (0, length) if step > 0 else (-1, length - 1)
        return min(max(value, low), high)
    if isinstance(value, int):
        if value < 0:
            node.require(Limit(size(length), -value, 2**31, f"slice {node.name} takes {-value} elements off an axis"))
            return simplified(expression(length) + value)
        if value >= 2**31 - 1:
            return length
        if value:
            node.require(Limit(size(length), value, 2**31, f"slice {node.name} needs an axis of at least {value}"))
        return value
    if not equal(value, length):
        room = simplified(expression(length) - expression(value))
        needs = f"slice {node.name} goes to {value} along an axis of {length}"
        if not isinstance(room, int) or room < 0:
            node.require(Limit(size(room), 0, 2**40, needs))
    return value


def _constants(node: Node, position: int, default: list[int]) -> list[int]:
    if not node.has(position):
        return default
    given = static(node.sizes(position))
    if given is None:
        raise RefusalError(f"{node.operator} {node.name!r}: {node.inputs[position]!r} is not constant")
    return [int(v) for v in given.ravel()]


def _range(node: Node) -> list[relax.Expr]:
    start, limit, delta = (sizes(node.sizes(i).ravel()[0], ()).item() for i in range(3))
    if not isinstance(delta, int) or delta == 0:
        raise RefusalError(f"Range {node.name!r}: its step is not a constant")
    dtype = node.importer.tensor(node.inputs[0]).ty.dtype
    values = relax.op.arange(expression(start), expression(limit), expression(delta), "int64")
    result = node.emit(values)
    return [result if str(dtype) == "int64" else node.emit(relax.op.astype(result, dtype))]


def _constant_of_shape(node: Node) -> list[relax.Expr]:
    value = node.attributes.get("value", np.zeros(1, np.float32))
    shape = [expression(d) for d in node.sizes(0).ravel()]
    return [node.emit(relax.op.full(shape, constant(value.reshape(())), str(value.dtype)))]


def _cum_sum(node: Node) -> list[relax.Expr]:
    dims, axis = node.shape(0), _axes(node)[0]
    axis %= len(dims)
    flat = [product(dims[:axis]), dims[axis], product(dims[axis + 1 :])]
    call = CumSumCall(bool(node.attributes.get("exclusive", 0)), bool(node.attributes.get("reverse", 0)))
    x = _reshaped(node, node.tensor(0), flat)
    name = f"cumsum_{int(call.exclusive)}{int(call.reverse)}"
    summed = node.call(name, call, [x], relax.TensorType([expression(d) for d in flat], str(x.ty.dtype)))
    return [_reshaped(node, summed, dims)]


def _identity(node: Node) -> list[relax.Expr]:
    return [node.tensor(0)]


def _cast_like(node: Node) -> list[relax.Expr]:
    return [node.emit(relax.op.astype(node.tensor(0), node.tensor(1).ty.dtype))]


def _max_min(function: Callable[[Any, Any], Any]) -> Callable[[Node], list[relax.Expr]]:
    def convert(node: Node) -> list[relax.Expr]:
        result = node.tensor(0)
        for position in range(1, len(node.inputs)):
            result = node.emit(function(result, node.tensor(position)))
        return [result]

    return convert


def _gather(node: Node) -> list[relax.Expr]:
    axis = node.attributes.get("axis", 0) % len(node.shape(0))
    return [node.emit(relax.op.take(node.tensor(0), _positions(node, [node.shape(0)[axis]]), axis, mode="clip"))]


def _gather_elements(node: Node) -> list[relax.Expr]:
    axis = node.attributes.get("axis", 0) % len(node.shape(0))
    return [node.emit(relax.op.gather_elements(node.tensor(0), _positions(node, [node.shape(0)[axis]]), axis))]


def _gather_nd(node: Node) -> list[relax.Expr]:
    batch = node.attributes.get("batch_dims", 0)
    depth = plain(node.shape(1)[-1])
    if not isinstance(depth, int):
        raise RefusalError(f"GatherND {node.name!r}: the last axis of its indices has no constant length")
    positions = _positions(node, node.shape(0)[batch : batch + depth])
    return [node.emit(relax.op.gather_nd(node.tensor(0), positions, batch))]


def _positions(node: Node, extents: list[Dim]) -> relax.Expr:
    """Return the indices, input 1, as int64 counted from the front.

    Args:
        node: The node.
        extents: Length of the axis that is indexed; of several axes, one for each number of an index.
    """
    at = node.tensor(1)
    if str(at.ty.dtype) != "int64":
        at = node.emit(relax.op.astype(at, "int64"))
    known = node.array(1)
    limits = [plain(d) for d in extents]
    if known is not None and (known >= 0).all() and all(isinstance(d, int) for d in limits):
        greatest = known.reshape(-1, len(limits)).max(axis=0, initial=0)
        if all(int(g) < d for g, d in zip(greatest, limits, strict=True) if isinstance(d, int)):
            return at
    call = PositionsCall(f"{node.operator} {node.name!r}: an index is outside its axis")
    shape = relax.ShapeExpr([expression(d) for d in extents])
    name = f"positions{len(node.importer.calls)}"
    return node.call(name, call, [at, shape], relax.TensorType(list(at.ty.shape.values), "int64"))


CONVERTERS: Mapping[str, Callable[[Node], list[relax.Expr]]] = {
    "softq": _softq,
    "Softmax": _softmax,
    "MatMul": _matmul,
    "Transpose": _transpose,
    "Gemm": _gemm,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Slice": _slice,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cum_sum,
    "Identity": _identity,
    "CastLike": _cast_like,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Max": _max_min(relax.op.maximum),
    "Min": _max_min(relax.op.minimum),
}
"""By operator of the default domain; `softq` stands for the functions of softq's own."""
