"""Taking masks out of the scores: the scores without them, and one boolean that says which positions take part.

What is written is looked for first: a model that is normalised again stays as it is.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.forms.matching.mask_lifts import Lift, Source, Step
from softq.graph.queries import constant, is_op, operand, producer
from softq.graph.scribe import Scribe, comes_before, scores_of
from softq.passes._canonical import Mask

_VALID_ABOVE = -1.0
"""Between what an addend is at positions that take part (0) and at masked ones (-1e4 at most), exact in any float."""


def lift_mask(scribe: Scribe, node: ir.Node, lift: Lift) -> tuple[ir.Value, Mask]:
    """Write the scores of a softmax without its masks, and the masks; return both."""
    scores = scores_of(node) if lift.scores is None else lift.scores
    for step in lift.steps:
        scores = _repeat(scribe, node, scores, step)
    if len(lift.sources) == 1 and (valid_when := lift.sources[0].valid_when) is not None and not lift.total:
        return scores, Mask(lift.sources[0].value, valid_when)
    valid = _valid(scribe, node, lift.sources[0])
    for source in lift.sources[1:]:
        other = _valid(scribe, node, source)
        valid = _boolean(scribe, node, "And", [valid, other], f"{other.name}_too")
    if lift.total:
        valid = _with_open_rows(scribe, node, valid)
    return scores, Mask(valid, valid_when=True, total=lift.total)


def boolean(scribe: Scribe, node: ir.Node, mask: ir.Value) -> ir.Value:
    """Return a mask of 0 and 1 as a boolean one."""
    below = producer(mask, "Cast")
    for value in (mask, None if below is None else operand(below, 0)):
        if value is not None and scribe.facts.dtype(value) == ir.DataType.BOOL:
            return value
    shape = scribe.facts.shape(mask)
    cast = ir.node("Cast", [mask], {"to": int(ir.DataType.BOOL)}, name=scribe.fresh(f"{mask.name}/boolean"))
    return scribe.insert(node, cast, f"{mask.name}_boolean", ir.DataType.BOOL, shape)


def _repeat(scribe: Scribe, node: ir.Node, value: ir.Value, step: Step) -> ir.Value:
    """Do to a value what a step does to the masked scores."""
    inputs = list(step.node.inputs)
    inputs[step.index] = value
    if step.instead is not None:
        inputs[1 - step.index] = step.instead
    for reader in value.consumers():
        alike = reader.op_identifier() == step.node.op_identifier() and list(reader.inputs) == inputs
        if alike and reader.attributes == step.node.attributes and comes_before(reader, node):
            return reader.outputs[0]
    copy = ir.Node("", step.node.op_type, inputs, [*step.node.attributes.values()])
    copy.name = scribe.fresh(f"{value.name}/unmasked")
    like = step.node.outputs[0]
    shape = scribe.facts.shape(value) if step.node.op_type == "Cast" else scribe.facts.shape(like)
    return scribe.insert(node, copy, f"{value.name}_unmasked", scribe.facts.dtype(like), shape)


def _valid(scribe: Scribe, node: ir.Node, source: Source) -> ir.Value:
    if source.valid_when is True:
        return source.value
    if source.valid_when is False:
        return _boolean(scribe, node, "Not", [source.value], f"{source.value.name}_valid")
    addend = constant(source.value)
    return (
        _compare(scribe, node, source.value) if addend is None else _constant_mask(scribe, node, source.value, addend)
    )


def _boolean(scribe: Scribe, node: ir.Node, operator: str, inputs: list[ir.Value], name: str) -> ir.Value:
    for reader in inputs[0].consumers():
        if is_op(reader, operator) and list(reader.inputs) == inputs and comes_before(reader, node):
            return reader.outputs[0]
    shapes = [scribe.facts.shape(value) or _shape(value) for value in inputs]
    known = shapes[0] if all(shape == shapes[0] for shape in shapes) else None
    return scribe.insert(node, ir.node(operator, inputs), name, ir.DataType.BOOL, known)


def _shape(value: ir.Value) -> tuple[int | str | None, ...] | None:
    return None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)


def _with_open_rows(scribe: Scribe, node: ir.Node, valid: ir.Value) -> ir.Value:
    """Return a mask that hides nothing in rows which the other hides throughout."""
    shape = scribe.facts.shape(valid) or _shape(valid)
    row = None if shape is None else (*shape[:-1], 1)
    for reader in valid.consumers():
        if is_op(reader, "Or") and operand(reader, 0) is valid and comes_before(reader, node):
            return reader.outputs[0]
    axes = ir.node("Constant", [], {"value": ir.tensor(np.array([-1], np.int64))})
    last = scribe.insert(node, axes, f"{valid.name}_axes", ir.DataType.INT64, (1,))
    number = ir.DataType.FLOAT
    ones = ir.node("Cast", [valid], {"to": int(number)})
    counted = scribe.insert(node, ones, f"{valid.name}_number", number, shape)
    most = scribe.insert(node, ir.node("ReduceMax", [counted, last]), f"{valid.name}_most", number, row)
    some = scribe.insert(
        node, ir.node("Cast", [most], {"to": int(ir.DataType.BOOL)}), f"{valid.name}_some", ir.DataType.BOOL, row
    )
    none = scribe.insert(node, ir.node("Not", [some]), f"{valid.name}_none", ir.DataType.BOOL, row)
    return scribe.insert(node, ir.node("Or", [valid, none]), f"{valid.name}_or_none", ir.DataType.BOOL, shape)


def _compare(scribe: Scribe, node: ir.Node, addend: ir.Value) -> ir.Value:
    for reader in addend.consumers():
        bound = constant(operand(reader, 1)) if is_op(reader, "Greater") else None
        if bound is not None and bound.shape == () and bound == _VALID_ABOVE and comes_before(reader, node):
            return reader.outputs[0]
    dtype = scribe.facts.dtype(addend)
    assert dtype is not None, "an addend whose values are known has a known type"
    number = ir.Tensor(np.array(_VALID_ABOVE, dtype=dtype.numpy()), dtype=dtype)
    limit = ir.node("Constant", [], {"value": number}, name=scribe.fresh(f"{addend.name}/valid_above"))
    above = scribe.insert(node, limit, f"{addend.name}_valid_above", dtype, ())
    greater = ir.node("Greater", [addend, above], name=scribe.fresh(f"{addend.name}/valid"))
    return scribe.insert(node, greater, f"{addend.name}_valid", ir.DataType.BOOL, scribe.facts.shape(addend))


def _constant_mask(scribe: Scribe, node: ir.Node, addend: ir.Value, elements: np.ndarray) -> ir.Value:
    valid = np.asarray(elements > _VALID_ABOVE)
    for known in _constants(node):
        tensor = constant(known) if known.dtype == ir.DataType.BOOL and (known.name or "").endswith("_valid") else None
        if tensor is not None and np.array_equal(tensor, valid):
            return known
    name = scribe.fresh(f"{addend.name}_valid")
    tensor = ir.tensor(valid, name=name)
    graph = node.graph
    assert graph is not None, "a node of a model belongs to a graph"
    scribe.modified = True
    if graph is scribe.model.graph:
        value = ir.Value(
            name=name, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(valid.shape), const_value=tensor
        )
        graph.register_initializer(value)
        return value
    # Functions have no initializers.
    holder = ir.node("Constant", [], {"value": tensor}, name=scribe.fresh(f"{addend.name}/valid"))
    holder.outputs[0].type, holder.outputs[0].shape = ir.TensorType(ir.DataType.BOOL), ir.Shape(valid.shape)
    holder.outputs[0].name = name
    graph.insert_before(node, holder)
    return holder.outputs[0]


def _constants(node: ir.Node) -> list[ir.Value]:
    graph = node.graph
    assert graph is not None, "a node of a model belongs to a graph"
    nodes = (other for other in graph if is_op(other, "Constant") and comes_before(other, node))
    return [*graph.initializers.values(), *(other.outputs[0] for other in nodes)]
