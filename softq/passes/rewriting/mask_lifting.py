"""Taking masks out of the scores: the scores without them, and one boolean that says which positions take part.

What is written is looked for first: a model that is normalised again stays as it is.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from softq.forms.matching.mask_sources import Lift, Source, Step
from softq.graph.facts import to_dims
from softq.graph.patterns import match
from softq.graph.queries import comes_before, constant, is_op, operand
from softq.graph.ranks import Dims
from softq.graph.rewriter import Rewriter
from softq.passes.rewriting.canonical import Mask, scores_of

_BOOL = ir.DataType.BOOL

_VALID_ABOVE = -1.0
"""Between what an addend is at positions that take part (0) and at masked ones (-1e4 at most), exact in any float."""


class MaskLifter:
    """Takes masks out of the scores of one softmax.

    Args:
        rewriter: Writes into the model.
        node: The softmax, in front of which everything is written.
    """

    def __init__(self, rewriter: Rewriter, node: ir.Node) -> None:
        self._rewriter, self._facts, self._node = rewriter, rewriter.facts, node

    def lift(self, lift: Lift) -> tuple[ir.Value, Mask]:
        """Write the scores without their masks, and the masks; return both."""
        scores = scores_of(self._node) if lift.scores is None else lift.scores
        for step in lift.steps:
            scores = self._repeat(scores, step)
        first, *others = lift.sources
        if not others and first.valid_when is not None and not lift.total:
            return scores, Mask(first.value, first.valid_when)
        valid = self._valid(first)
        for source in others:
            other = self._valid(source)
            valid = self._combine("And", [valid, other], f"{other.name}_too")
        if lift.total:
            valid = self._open_rows(valid)
        return scores, Mask(valid, valid_when=True, total=lift.total)

    def to_boolean(self, mask: ir.Value) -> ir.Value:
        """Return a mask of 0 and 1 as a boolean one."""
        inside = match(mask, "Cast(x)")
        for value in (mask, *(() if inside is None else inside.values())):
            if self._facts.dtype(value) == _BOOL:
                return value
        name, shape = f"{mask.name}_boolean", self._facts.shape(mask)
        return self._rewriter.add(self._node, "Cast", [mask], name, _BOOL, shape, f"{mask.name}/boolean", to=int(_BOOL))

    def _repeat(self, value: ir.Value, step: Step) -> ir.Value:
        """Do to a value what a step does to the masked scores."""
        inputs = list(step.node.inputs)
        inputs[step.index] = value
        if step.instead is not None:
            inputs[1 - step.index] = step.instead
        for reader in self._readers(value, step.node.op_type):
            if list(reader.inputs) == inputs and reader.attributes == step.node.attributes:
                return reader.outputs[0]
        copy = ir.Node("", step.node.op_type, inputs, [*step.node.attributes.values()])
        name, like = f"{value.name}_unmasked", step.node.outputs[0]
        shape = self._facts.shape(value if step.node.op_type == "Cast" else like)
        dtype = self._facts.dtype(like)
        return self._rewriter.insert(self._node, copy, name, dtype, shape, f"{value.name}/unmasked")

    def _valid(self, source: Source) -> ir.Value:
        if source.valid_when is True:
            return source.value
        if source.valid_when is False:
            return self._combine("Not", [source.value], f"{source.value.name}_valid")
        addend = constant(source.value)
        return self._compare(source.value) if addend is None else self._constant_mask(source.value, addend)

    def _combine(self, operator: str, inputs: list[ir.Value], name: str) -> ir.Value:
        for reader in self._readers(inputs[0], operator):
            if list(reader.inputs) == inputs:
                return reader.outputs[0]
        shapes = [self._shape(value) for value in inputs]
        known = shapes[0] if all(shape == shapes[0] for shape in shapes) else None
        return self._rewriter.add(self._node, operator, inputs, name, _BOOL, known)

    def _shape(self, value: ir.Value) -> Dims | None:
        return self._facts.shape(value) or (None if value.shape is None else to_dims(value.shape))

    def _open_rows(self, valid: ir.Value) -> ir.Value:
        """Return a mask that hides nothing in rows which the other hides throughout."""
        shape, number = self._shape(valid), ir.DataType.FLOAT
        row = None if shape is None else (*shape[:-1], 1)
        for reader in self._readers(valid, "Or"):
            if operand(reader, 0) is valid:
                return reader.outputs[0]
        add = partial(self._rewriter.add, self._node)
        last = self._rewriter.add_ints(self._node, [-1], f"{valid.name}_axes")
        counted = add("Cast", [valid], f"{valid.name}_number", number, shape, to=int(number))
        most = add("ReduceMax", [counted, last], f"{valid.name}_most", number, row)
        some = add("Cast", [most], f"{valid.name}_some", _BOOL, row, to=int(_BOOL))
        none = add("Not", [some], f"{valid.name}_none", _BOOL, row)
        return add("Or", [valid, none], f"{valid.name}_or_none", _BOOL, shape)

    def _compare(self, addend: ir.Value) -> ir.Value:
        for reader in self._readers(addend, "Greater"):
            bound = constant(operand(reader, 1))
            if bound is not None and bound.shape == () and bound == _VALID_ABOVE:
                return reader.outputs[0]
        dtype = self._facts.dtype(addend)
        assert dtype is not None, "an addend whose values are known has a known type"
        name, shape = f"{addend.name}_valid", self._facts.shape(addend)
        node_name = f"{addend.name}/valid"
        above = self._rewriter.add_number(self._node, _VALID_ABOVE, dtype, f"{name}_above", f"{node_name}_above")
        return self._rewriter.add(self._node, "Greater", [addend, above], name, _BOOL, shape, node_name)

    def _constant_mask(self, addend: ir.Value, elements: np.ndarray) -> ir.Value:
        valid = np.asarray(elements > _VALID_ABOVE)
        graph = self._node.graph
        assert graph is not None, "a node of a model belongs to a graph"
        nodes = (other for other in graph if is_op(other, "Constant") and comes_before(other, self._node))
        for known in (*graph.initializers.values(), *(other.outputs[0] for other in nodes)):
            is_mask = known.dtype == _BOOL and (known.name or "").endswith("_valid")
            tensor = constant(known) if is_mask else None
            if tensor is not None and np.array_equal(tensor, valid):
                return known
        name = self._rewriter.fresh(f"{addend.name}_valid")
        tensor = ir.tensor(valid, name=name)
        self._rewriter.modified = True
        if graph is self._rewriter.model.graph:
            value = ir.val(name, const_value=tensor)
            graph.register_initializer(value)
            return value
        # Functions have no initializers.
        value, node_name = ir.val(name, _BOOL, valid.shape), self._rewriter.fresh(f"{addend.name}/valid")
        graph.insert_before(self._node, ir.node("Constant", [], {"value": tensor}, outputs=[value], name=node_name))
        return value

    def _readers(self, value: ir.Value, operator: str) -> list[ir.Node]:
        """Return the operators of a name that read a value in front of the softmax."""
        return [node for node in value.consumers() if is_op(node, operator) and comes_before(node, self._node)]
