"""Every tensor of an `ir.Model`, wherever it hangs: initializers and attributes, in bodies and in functions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import onnx_ir as ir

LARGE_BYTES = 1024
"""Tensors above this size count as weights: onnx and its tools draw the same line between values and weights."""


@dataclass(frozen=True)
class Held:
    """A tensor and what holds it.

    Attributes:
        kind: Whether it is an initializer or (part of) an attribute.
        name: How to call it in messages and in fingerprints.
        tensor: The tensor.
    """

    kind: Literal["initializer", "attribute"]
    name: str
    tensor: ir.TensorProtocol


Change = Callable[[Held], ir.TensorProtocol]
"""Returns what a tensor becomes: the same object where nothing changes."""


def tensors(model: ir.Model) -> Iterator[Held]:
    """Yield every tensor of the model once, in an order that depends on the model alone."""
    found: list[Held] = []

    def collect(held: Held) -> ir.TensorProtocol:
        found.append(held)
        return held.tensor

    _visit(model, collect)
    yield from found


def replace_tensors(model: ir.Model, change: Change) -> None:
    """Replace each tensor of the model by what `change` returns for it."""
    _visit(model, change)


@contextmanager
def swap_tensors(model: ir.Model, change: Change) -> Generator[None]:
    """Replace tensors as `replace_tensors` does, and put the model's own ones back on leaving."""
    undo: list[Callable[[], None]] = []
    try:
        _visit(model, change, undo)
        yield
    finally:
        for restore in reversed(undo):
            restore()


def graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """Yield the main graph, each function's graph, and every body inside them."""
    for top in (model.graph, *(function.graph for function in model.functions.values())):
        yield top
        yield from top.subgraphs()


def _visit(model: ir.Model, change: Change, undo: list[Callable[[], None]] | None = None) -> None:
    for function in model.functions.values():
        _visit_attributes(function.attributes, function.name, change, undo)
    for graph in graphs(model):
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is None:
                continue
            new = change(Held("initializer", value.name or "", tensor))
            if new is not tensor:
                value.const_value = new
                if undo is not None:
                    undo.append(partial(setattr, value, "const_value", tensor))
        for node in graph:
            _visit_attributes(node.attributes, node_name(node), change, undo)


def node_name(node: ir.Node) -> str:
    """Return how to call a node in a message: its name, else its first named output, else its operator."""
    return node.name or next((output.name for output in node.outputs if output.name), None) or node.op_type


def _visit_attributes(
    attributes: MutableMapping[str, ir.Attr], owner: str, change: Change, undo: list[Callable[[], None]] | None
) -> None:
    for key, attribute in list(attributes.items()):
        if attribute.is_ref():
            continue
        name = f"{owner}.{key}"
        new: ir.TensorProtocol | list[ir.TensorProtocol]
        if attribute.type == ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            new = change(Held("attribute", name, tensor))
            same = new is tensor
        elif attribute.type == ir.AttributeType.TENSORS:
            old = list(attribute.as_tensors())
            new = [change(Held("attribute", name, tensor)) for tensor in old]
            same = all(a is b for a, b in zip(old, new, strict=True))
        else:
            continue
        if not same:
            attributes[key] = ir.Attr(key, attribute.type, new, doc_string=attribute.doc_string)
            if undo is not None:
                undo.append(partial(attributes.__setitem__, key, attribute))
