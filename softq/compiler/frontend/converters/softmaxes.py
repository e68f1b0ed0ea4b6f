"""Softmax, and the functions of softq's domain: calls of row programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from tvm import relax

from softq.artifact.program import Limit
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.ops.row_program import RowProgramOp
from softq.compiler.tir.symbolic import plain, size
from softq.errors import RefusalError
from softq.methods import METHODS, Method
from softq.provenance import RowFunction
from softq.rowprog import Program
from softq.rowprog.onnx import signature
from softq.rowprog.onnx.emitter import output_names
from softq.rowprog.program import Param, quotient
from softq.rowprog.types import Kind

FLOATS = ("float16", "float32")


def softq_function(node: Node, function: RowFunction) -> list[relax.Expr]:
    """Return the results of a call of a function of softq's domain."""
    site = node.importer.sites.get(node.name, node.name)
    program = function.program
    if len(node.inputs) != len(signature(program)):
        raise RefusalError(
            f"{node.operator} {node.name!r} has {len(node.inputs)} inputs; expected {signature(program)}"
        )
    values = [node.tensor(i) for i in range(1 + program.masked)]
    for position, param in enumerate(program.params, start=len(values)):
        values.append(_parameter(node, position, param))
    return row_call(node, RowProgramOp(program, function.max_length, site), values)


def _parameter(node: Node, position: int, param: Param) -> relax.Expr:
    """Return a number or table as the kernel takes it: one of the model, or one that an operator is given."""
    dtype, array = param.dtype.numpy, node.array(position)
    if array is not None:
        return constant(array.astype(dtype).reshape(-1))
    given = node.tensor(position)
    lengths = [plain(dim) for dim in given.ty.shape.values]
    if not isinstance(given, relax.Var) or not all(isinstance(length, int) for length in lengths):
        raise RefusalError(f"{node.operator} {node.name!r}: parameter {param.name} is no initializer")
    flat = node.emit(relax.op.reshape(given, [math.prod(lengths)]))
    return flat if str(given.ty.dtype) == dtype.name else node.emit(relax.op.astype(flat, dtype.name))


def row_call(node: Node, call: RowProgramOp, values: list[relax.Expr]) -> list[relax.Expr]:
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
    name = f"row{len(node.importer.operators)}"
    if len(types) == 1:
        return [node.call(name, call, values, types[0])]
    both = node.call(name, call, values, types)
    return [node.emit(relax.TupleGetItem(both, i)) for i in range(len(types))]


def _softmax(node: Node) -> list[relax.Expr]:
    x, rank = node.tensor(0), len(node.shape(0))
    axis = node.axis(node.attributes.get("axis", -1), rank)
    if node.opset < 13:
        raise RefusalError(f"Softmax {node.name!r} of opset {node.opset}; raise the model to opset 18")
    if str(x.ty.dtype) == "float64":
        return [_softmax_of_double(node, x, axis)]
    if str(x.ty.dtype) not in FLOATS:
        raise RefusalError(f"Softmax {node.name!r} of {x.ty.dtype}; kernels compute in float32")
    order = [i for i in range(rank) if i != axis] + [axis]
    dtype = x.ty.dtype
    if axis != rank - 1:
        x = node.emit(relax.op.permute_dims(x, order))
    program = _program_of(next(m for m in METHODS.entries().values() if m.operator == node.operator))
    length = plain(node.importer.dims(x, node.inputs[0])[-1])
    # Sums of floats cannot overflow; the limit only keeps the element's position in 32 bits.
    longest = max(length, 1) if isinstance(length, int) else 2**24
    (result,) = row_call(node, RowProgramOp(program, longest, node.name), [x])
    if axis != rank - 1:
        result = node.emit(relax.op.permute_dims(result, [order.index(i) for i in range(rank)]))
    return [result if str(dtype) == "float32" else node.emit(relax.op.astype(result, dtype))]


@cache
def _program_of(method: Method[Any]) -> Program:
    """Return the row program of a method without settings: always the same one, as one kernel serves all its nodes."""
    return quotient(method.program(method.configure({})))


def _softmax_of_double(node: Node, x: relax.Expr, axis: int) -> relax.Expr:
    """Return the softmax in float64, which row programs do not have: operator by operator."""
    below = node.emit(relax.op.subtract(x, node.emit(relax.op.max(x, axis, keepdims=True))))
    powers = node.emit(relax.op.exp(below))
    return node.emit(relax.op.divide(powers, node.emit(relax.op.sum(powers, axis, keepdims=True))))


CONVERTERS: Mapping[str, Converter] = {"Softmax": _softmax}
