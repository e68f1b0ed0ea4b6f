"""Every tensor of an `ir.Model`, wherever it hangs: initializers and attributes, in bodies and in functions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

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

Put = Callable[[ir.TensorProtocol], None]
"""Puts a tensor in the place of another."""


def tensors(model: ir.Model) -> Iterator[Held]:
    """Yield every tensor of the model once, in an order that depends on the model alone."""
    return (held for held, _ in _places(model))


def replace_tensors(model: ir.Model, change: Change) -> None:
    """Replace each tensor of the model by what `change` returns for it."""
    for held, put in _places(model):
        if (new := change(held)) is not held.tensor:
            put(new)


@contextmanager
def swap_tensors(model: ir.Model, change: Change) -> Generator[None]:
    """Replace tensors as `replace_tensors` does, and put the model's own ones back on leaving."""
    changed: list[tuple[Held, Put]] = []
    try:
        for held, put in list(_places(model)):
            if (new := change(held)) is not held.tensor:
                changed.append((held, put))
                put(new)
        yield
    finally:
        for held, put in changed:
            put(held.tensor)


def _places(model: ir.Model) -> Iterator[tuple[Held, Put]]:
    for function in model.functions.values():
        yield from _places_of(function.attributes, function.name)
    for top in (model.graph, *(function.graph for function in model.functions.values())):
        yield from _places_in(top, set())


def _places_in(graph: ir.Graph, seen: set[ir.Graph]) -> Iterator[tuple[Held, Put]]:
    """Yield what a graph holds, and then what the graphs inside it do."""
    seen.add(graph)
    for value in graph.initializers.values():
        if value.const_value is not None:
            held = Held("initializer", value.name or "", value.const_value)
            yield held, partial(setattr, value, "const_value")
    inside: list[ir.Graph] = []
    for node in graph:
        if node.attributes:
            yield from _places_of(node.attributes, node_name(node))
            inside += (graph for attribute in node.attributes.values() for graph in _graphs_of(attribute))
    for nested in inside:
        if nested not in seen:
            yield from _places_in(nested, seen)


def _graphs_of(attribute: ir.Attr) -> tuple[ir.Graph, ...]:
    if attribute.is_ref():
        return ()
    if attribute.type == ir.AttributeType.GRAPH:
        return (attribute.as_graph(),)
    return attribute.as_graphs() if attribute.type == ir.AttributeType.GRAPHS else ()


def node_name(node: ir.Node) -> str:
    """Return how to call a node in a message: its name, else its first named output, else its operator."""
    return node.name or next((output.name for output in node.outputs if output.name), None) or node.op_type


def _places_of(attributes: MutableMapping[str, ir.Attr], owner: str) -> Iterator[tuple[Held, Put]]:
    for key, attribute in list(attributes.items()):
        if attribute.is_ref() or attribute.type not in {ir.AttributeType.TENSOR, ir.AttributeType.TENSORS}:
            continue
        is_one = attribute.type == ir.AttributeType.TENSOR
        for place, tensor in enumerate([tensor_of(attribute)] if is_one else attribute.as_tensors()):
            yield Held("attribute", f"{owner}.{key}", tensor), partial(_put, attributes, key, place)


def tensor_of(attribute: ir.Attr) -> ir.TensorProtocol:
    """Return the tensor of an attribute of type TENSOR.

    `as_tensor` goes through all members of a protocol first, which takes 100 us before Python 3.12.
    """
    return cast("ir.TensorProtocol", attribute.value)


def _put(attributes: MutableMapping[str, ir.Attr], key: str, place: int, tensor: ir.TensorProtocol) -> None:
    old = attributes[key]
    new = tensor if old.type == ir.AttributeType.TENSOR else list(old.as_tensors())
    if isinstance(new, list):
        new[place] = tensor
    attributes[key] = ir.Attr(key, old.type, new, doc_string=old.doc_string)
