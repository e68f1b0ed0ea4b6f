"""If, Loop and Scan: bodies that are skipped or repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tvm import relax, tirx

from softq.artifact.program import Limit
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.frontend.shape_folding import sizes, static
from softq.compiler.ops.control_flow import Body, IfOp, LoopOp
from softq.compiler.tir.symbolic import Dim, equal, expression, plain, size
from softq.errors import RefusalError

_MOST_ROUNDS = 2**31
"""A Loop of at least so many rounds ends by its condition."""


def _if(node: Node) -> list[relax.Expr]:
    known = node.importer.sizes.get(node.inputs[0])
    values = node.array(0) if known is None else static(known[0])
    if values is not None:
        return node.importer.bodies.inline(node, "then_branch" if values.any() else "else_branch")
    _support(node, IfOp)
    then, other = (node.importer.bodies.body(node, name, []) for name in ("then_branch", "else_branch"))
    difference = node.importer.differences.get(node.inputs[0])
    ranks = [[len(ty.shape.values) for ty in body.types] for body in (then, other)]
    if difference is not None and ranks[0] != ranks[1]:
        # A squeeze that an exporter guards: how many axes the rest of the model works on is decided here.
        because = f"If {node.name!r} was built for the branch whose dimensions are equal; give the shapes of the inputs"
        node.require(Limit(size(difference), 0, 0, because))
        return node.importer.bodies.inline(node, "then_branch")
    measured: list[tirx.Var] = []
    types = [_joined(node, a, b, measured) for a, b in zip(then.types, other.types, strict=True)]
    call = IfOp(then, other, tuple(str(v.name) for v in measured))
    return _call(node, call, [_flat(node, node.tensor(0)), *then.captured, *other.captured], types)


def _loop(node: Node) -> list[relax.Expr]:
    _support(node, LoopOp)
    limit = node.tensor(0) if node.has(0) else constant(np.array(2**62))
    condition = node.tensor(1) if node.has(1) else constant(np.array(True))
    first = [node.tensor(i) for i in range(2, len(node.inputs))]
    outer = [relax.TensorType((), "int64"), relax.TensorType((), "bool")]
    number = node.importer.new_dimension()
    types, measured, body = _handed_on(node, first, outer, [], results_before=1, number=number)
    known = node.importer.sizes.get(node.inputs[0]) if node.has(0) else None
    rounds = None if known is None else plain(known[0].ravel()[0])
    made = body.types[1 + len(first) :]
    endless = _is_true(condition) and (body.values[0].same_as(body.inputs[1]) or _is_true(body.values[0]))
    counted: tirx.Var | None = None
    if made and (rounds is None or not endless or (isinstance(rounds, int) and rounds >= _MOST_ROUNDS)):
        counted = node.importer.new_dimension()
    length: Dim = 0 if rounds is None else max(rounds, 0) if isinstance(rounds, int) else rounds
    outputs = [_stacked(node, ty, length if counted is None else counted) for ty in made]
    call = LoopOp(
        body,
        handed=len(first),
        reversed_outputs=(False,) * len(made),
        measured=tuple(str(v.name) for v in measured),
        rounds=None if counted is None else str(counted.name),
        number=str(number.name),
    )
    arguments = [_flat(node, limit), _flat(node, condition), *first, *body.captured]
    return _call(node, call, arguments, [*types, *outputs])


def _scan(node: Node) -> list[relax.Expr]:
    _support(node, LoopOp)
    if node.opset < 9:
        raise RefusalError(f"Scan {node.name!r} of operator set {node.opset} has batches; convert it to 9 or later")
    parts = node.attributes["num_scan_inputs"]
    handed = len(node.inputs) - parts
    first = [node.tensor(i) for i in range(handed)]
    inputs = [
        _moved(node, node.tensor(handed + i), axis, 0) for i, axis in enumerate(_list(node, "scan_input_axes", parts))
    ]
    lengths = [plain(node.importer.dims(x, node.name)[0]) for x in inputs]
    if not all(equal(d, lengths[0]) for d in lengths):
        raise RefusalError(f"Scan {node.name!r}: its inputs have {lengths} parts, which are not known to be as many")
    part_types = [relax.TensorType(x.ty.shape.values[1:], str(x.ty.dtype)) for x in inputs]
    types, measured, body = _handed_on(node, first, [], part_types, results_before=0)
    made = body.types[handed:]
    call = LoopOp(
        body,
        handed=handed,
        parts=parts,
        reversed_parts=tuple(map(bool, _list(node, "scan_input_directions", parts))),
        reversed_outputs=tuple(map(bool, _list(node, "scan_output_directions", len(made)))),
        measured=tuple(str(v.name) for v in measured),
    )
    limit = node.importer.written(sizes([lengths[0]]), "int64")
    arguments = [limit, constant(np.ones(1, bool)), *first, *inputs, *body.captured]
    results = _call(node, call, arguments, [*types, *(_stacked(node, ty, lengths[0]) for ty in made)])
    axes = _list(node, "scan_output_axes", len(made))
    moved = [_moved(node, x, 0, axis) for x, axis in zip(results[handed:], axes, strict=True)]
    return [*results[:handed], *moved]


def _handed_on(
    node: Node,
    first: Sequence[relax.Expr],
    before: Sequence[relax.TensorType],
    behind: Sequence[relax.TensorType],
    results_before: int,
    number: tirx.Var | None = None,
) -> tuple[list[relax.TensorType], list[tirx.Var], Body]:
    """Import the body of a loop; where a round changes the shape of what it hands on, dimensions are measured.

    Args:
        node: The node.
        first: The first values of what is handed on.
        before: Types of the body's inputs before these.
        behind: Types of its inputs behind them.
        results_before: How many of its results stand before what it hands on.
        number: The number of the round as a dimension, if the body takes it.
    """
    types, measured = [x.ty for x in first], list[tirx.Var]()
    while True:
        body = node.importer.bodies.body(node, "body", [*before, *types, *behind], number)
        changed = body.types[results_before : results_before + len(first)]
        count = len(measured)
        types = [_joined(node, a, b, measured) for a, b in zip(types, changed, strict=True)]
        if len(measured) == count:
            return types, measured, body


def _joined(node: Node, a: relax.TensorType, b: relax.TensorType, measured: list[tirx.Var]) -> relax.TensorType:
    """Return the type of a value that has one type or the other; dimensions that differ are measured."""
    one, other = list(a.shape.values), list(b.shape.values)
    if str(a.dtype) != str(b.dtype) or len(one) != len(other):
        raise RefusalError(f"{node.operator} {node.name!r} gives {a.dtype}{one} or {b.dtype}{other}")
    dims = list[Dim]()
    for x, y in zip(one, other, strict=True):
        if not equal(x, y) and not any(x.same_as(v) for v in measured):
            measured.append(node.importer.new_dimension())
            x = measured[-1]
        dims.append(expression(plain(x)))
    return relax.TensorType(dims, str(a.dtype))


def _stacked(node: Node, ty: relax.TensorType, count: Dim) -> relax.TensorType:
    return relax.TensorType([expression(count), *ty.shape.values], str(ty.dtype))


def _moved(node: Node, x: relax.Expr, source: int, target: int) -> relax.Expr:
    """Return a tensor with one of its axes at another place."""
    rank = len(x.ty.shape.values)
    source, target = node.axis(source, rank), node.axis(target, rank)
    axes = [axis for axis in range(rank) if axis != source]
    axes.insert(target, source)
    return x if axes == list(range(rank)) else node.emit(relax.op.permute_dims(x, axes))


def _flat(node: Node, x: relax.Expr) -> relax.Expr:
    return x if [plain(d) for d in x.ty.shape.values] == [1] else node.emit(relax.op.reshape(x, [1]))


def _is_true(x: relax.Expr) -> bool:
    return hasattr(x, "value") and not isinstance(x, relax.Var) and bool(x.value.numpy().all())


def _list(node: Node, attribute: str, count: int) -> list[int]:
    return list(node.attributes.get(attribute, [0] * count))


def _support(node: Node, operator: type[IfOp] | type[LoopOp]) -> None:
    if not node.importer.supports(operator, "bool"):
        raise RefusalError(f"{node.operator} {node.name!r} has no form for this target: its steps have one order")


def _call(
    node: Node, call: IfOp | LoopOp, arguments: Sequence[relax.Expr], types: Sequence[relax.TensorType]
) -> list[relax.Expr]:
    result = node.call(node.importer.new_name(node.operator), call, arguments, list(types))
    if len(types) == 1:
        return [result]
    return [node.emit(relax.TupleGetItem(result, i)) for i in range(len(types))]


CONVERTERS: Mapping[str, Converter] = {"If": _if, "Loop": _loop, "Scan": _scan}
