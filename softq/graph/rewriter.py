"""Writing into a model: fresh names, nodes at their places, and types and shapes that the model does not say itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import onnx_ir as ir

from softq.graph.facts import Facts, drop_inferred_names
from softq.graph.queries import graph_of
from softq.graph.ranks import Dims
from softq.graph.view import ModelView


class Names:
    """Gives fresh value names: bodies see the names around them, so a name is fresh in no less than the whole model."""

    def __init__(self, model: ir.Model) -> None:
        self._taken: set[str | None] = set()
        self._counts: dict[tuple[str, int], int] = {}
        for container in ModelView(model).containers:
            operands = (value for node in container.body for value in node.inputs if value is not None)
            values = chain(container.values, container.graph.initializers.values(), operands)
            self._taken |= {value.name for value in values}

    def fresh(self, stem: str) -> str:
        """Return `stem`, with a number if need be, and remember it."""
        return stem if self._take(stem) else self._count(stem, 2)

    def numbered(self, stem: str) -> str:
        """Return `stem` with the least number that is free, and remember it."""
        return self._count(stem, 0)

    def _count(self, stem: str, first: int) -> str:
        """Return the stem with the least number from the first on that is free: no name becomes free again."""
        number = self._counts.get((stem, first), first)
        while not self._take(f"{stem}_{number}"):
            number += 1
        self._counts[stem, first] = number + 1
        return f"{stem}_{number}"

    def _take(self, name: str) -> bool:
        free = name not in self._taken
        self._taken.add(name)
        return free


class Rewriter:
    """Writes into one model and remembers whether it changed anything.

    Attributes:
        model: The model.
        facts: What was known of it before; asked anew where it is not given.
        modified: Whether anything was changed.
    """

    def __init__(self, model: ir.Model, facts: Facts | None = None) -> None:
        self.model, self.modified = model, False
        self.facts = facts or Facts(ModelView(model))
        self._names = Names(model)

    def fresh(self, stem: str) -> str:
        """Return a name that no value has."""
        return self._names.fresh(stem)

    def add(
        self,
        before: ir.Node,
        operator: str,
        inputs: Sequence[ir.Value],
        name: str,
        dtype: ir.DataType | None = None,
        shape: Dims | None = None,
        node_name: str = "",
        **attributes: int | Sequence[int] | ir.TensorProtocol,
    ) -> ir.Value:
        """Put a new node of the default domain in front of another and return its value; see `insert`."""
        return self.insert(before, ir.node(operator, inputs, attributes), name, dtype, shape, node_name)

    def insert(
        self,
        before: ir.Node,
        node: ir.Node,
        name: str,
        dtype: ir.DataType | None = None,
        shape: Dims | None = None,
        node_name: str = "",
    ) -> ir.Value:
        """Put `node` in front of another and return its value.

        Args:
            before: The other node.
            node: A node of one output.
            name: What the value is called, with a number if something else is.
            dtype: Type of the value; None if it is not known.
            shape: Shape of the value; None if it is not known.
            node_name: What the node is called; like the value if empty.
        """
        value = node.outputs[0]
        node.name = self.fresh(node_name) if node_name else None
        value.name = self.fresh(name)
        node.name = node.name or value.name
        if dtype is not None:
            value.type = ir.TensorType(dtype)
            value.shape = None if shape is None else ir.Shape(drop_inferred_names(shape))
        graph_of(before).insert_before(before, node)
        self.modified = True
        return value

    def add_number(
        self, before: ir.Node, number: float, dtype: ir.DataType, name: str, node_name: str = ""
    ) -> ir.Value:
        """Put a Constant node of one float in front of a node and return its value; see `insert`."""
        tensor = ir.Tensor(np.array(number, dtype=dtype.numpy()), dtype=dtype)
        return self.add(before, "Constant", [], name, dtype, (), node_name, value=tensor)

    def add_ints(self, before: ir.Node, numbers: Sequence[int], name: str) -> ir.Value:
        """Put a Constant node of int64 numbers, one axis, in front of a node and return its value."""
        tensor = ir.tensor(np.array(numbers, np.int64))
        return self.add(before, "Constant", [], name, ir.DataType.INT64, (len(numbers),), value=tensor)

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
            value.shape, self.modified = ir.Shape(drop_inferred_names(shape)), True
