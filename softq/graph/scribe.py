"""Writing into a model: fresh names, nodes at their places, and types and shapes that the model does not say itself."""

from __future__ import annotations

import onnx_ir as ir

from softq.graph.facts import Facts, named
from softq.graph.names import Names
from softq.graph.queries import ModelView, operand
from softq.graph.ranks import Dims


class Scribe:
    """Writes into one model and remembers whether it changed anything.

    Attributes:
        model: The model.
        facts: What was known of it before.
        modified: Whether anything was changed.
    """

    def __init__(self, model: ir.Model) -> None:
        self.model, self.modified = model, False
        self.facts = Facts(ModelView(model))
        self._names = Names(model)

    def fresh(self, stem: str) -> str:
        """Return a name that no value has."""
        return self._names.fresh(stem)

    def insert(
        self, node: ir.Node, new: ir.Node, name: str, dtype: ir.DataType | None = None, shape: Dims | None = None
    ) -> ir.Value:
        """Put a new node in front of `node` and return its value, named and typed."""
        assert node.graph is not None, "a node of a model belongs to a graph"
        value = new.outputs[0]
        value.name = self.fresh(name)
        if new.name is None or new.name == "":
            new.name = value.name
        if dtype is not None:
            value.type = ir.TensorType(dtype)
            value.shape = None if shape is None else ir.Shape(named(shape))
        node.graph.insert_before(node, new)
        self.modified = True
        return value

    def annotate(self, value: ir.Value) -> None:
        """Write down what is known of `value`."""
        if value.name != "":
            self.say(value, self.facts.dtype(value), self.facts.shape(value))

    def say(self, value: ir.Value, dtype: ir.DataType | None, shape: Dims | None) -> None:
        """Write down type and shape of `value` where the model is silent."""
        if value.dtype is None and dtype is not None:
            value.type, self.modified = ir.TensorType(dtype), True
        # A shape without a type cannot be written to a file.
        if value.dtype is None or shape is None:
            return
        if value.shape is None or len(value.shape) != len(shape):
            value.shape, self.modified = ir.Shape(named(shape)), True


def scores_of(node: ir.Node) -> ir.Value:
    """Return what a softmax is taken of."""
    scores = operand(node, 0)
    assert scores is not None, "a softmax has an input"
    return scores


def give_place(old: ir.Value, new: ir.Value, renamed: str = "", skip: ir.Node | None = None) -> None:
    """Let `new` be read wherever `old` is, except by `skip`, under the name of `old`, which is `renamed` instead."""
    name, graph = old.name, old.graph
    for reader, index in old.uses():
        if reader is not skip:
            reader.replace_input_with(index, new)
    if old.is_graph_output() and graph is not None:
        for index, output in enumerate(graph.outputs):
            if output is old:
                graph.outputs[index] = new
    old.name = renamed or None
    new.name = name


def comes_before(node: ir.Node, other: ir.Node) -> bool:
    """Whether `node` comes before `other` in the same graph."""
    if node.graph is None or node.graph is not other.graph:
        return False
    return next(n for n in node.graph if n is node or n is other) is node
