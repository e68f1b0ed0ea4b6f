"""Raising lone nodes to another operator set by `onnx.version_converter`, many in one call of it.

The converter copies each schema that ONNX ever had before it begins: 7 ms for a model of one node, 13 ms for 500.
Graphs that have nothing to do with each other go side by side in one model, and what comes out is told apart by names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import onnx
from onnx import version_converter

_IR_VERSION = 8
"""IR version of the models: that of the onnx release that brought operator set 18."""

_TOGETHER = 1000
"""Graphs in one model; the converter's own search for an initializer looks at all of a model."""


def convert_graphs(graphs: Sequence[onnx.GraphProto], version: int, target: int) -> Iterator[onnx.GraphProto]:
    """Yield what onnx's converter makes of each graph, in their order: nodes and initializers, in the graph's names.

    Args:
        graphs: Graphs of the default domain; each knows only names of its own.
        version: Their operator set.
        target: The operator set of the results.

    Raises:
        Exception: the converter's own, for the graph whose turn it is.
    """
    left = iter(graphs)
    while some := list(islice(left, _TOGETHER)):
        yield from _convert_some(some, version, target)


def _convert_some(graphs: Sequence[onnx.GraphProto], version: int, target: int) -> Iterator[onnx.GraphProto]:
    if len(graphs) == 1:
        yield _convert(graphs[0], version, target)
        return
    try:
        found = _split(_convert(_join(graphs), version, target), len(graphs))
    except Exception:
        # One of them is refused; which one shows when it is alone.
        found = None
    if found is not None:
        yield from found
        return
    half = len(graphs) // 2
    yield from _convert_some(graphs[:half], version, target)
    yield from _convert_some(graphs[half:], version, target)


def _convert(graph: onnx.GraphProto, version: int, target: int) -> onnx.GraphProto:
    imports = [onnx.OperatorSetIdProto(domain="", version=version)]
    model = onnx.ModelProto(ir_version=_IR_VERSION, opset_import=imports, graph=graph)
    return version_converter.convert_version(model, target).graph


def _join(graphs: Sequence[onnx.GraphProto]) -> onnx.GraphProto:
    """Return one graph of all; the names of the k-th begin with `gk.`."""
    whole = onnx.GraphProto(name="graphs")
    for number, graph in enumerate(graphs):
        start, head = len(whole.node), f"g{number}."
        whole.node.extend(graph.node)
        for node in whole.node[start:]:
            node.input[:] = [name and head + name for name in node.input]
            node.output[:] = [name and head + name for name in node.output]
        for ours, theirs in ((whole.input, graph.input), (whole.output, graph.output)):
            for value in theirs:
                ours.add().CopyFrom(value)
                ours[-1].name = head + value.name
        for tensor in graph.initializer:
            whole.initializer.add().CopyFrom(tensor)
            whole.initializer[-1].name = head + tensor.name
    return whole


def _split(whole: onnx.GraphProto, count: int) -> list[onnx.GraphProto] | None:
    """Return the graphs that were joined; None where a part belongs to none of them."""
    found = [onnx.GraphProto(name="node") for _ in range(count)]
    owners: dict[str, int] = {}

    def owner_of(names: Sequence[str]) -> int | None:
        for name in names:
            if name in owners:
                return owners[name]
            head, dot, _ = name.partition(".")
            if dot:
                return int(head[1:])
        return None

    # What the converter puts in has numbers for names; a result that has a name of ours is behind it.
    owned: list[int] = []
    for node in reversed(whole.node):
        owner = owner_of([*node.output, *node.input])
        if owner is None:
            return None
        owned.append(owner)
        owners |= dict.fromkeys(filter(None, (*node.input, *node.output)), owner)
    for node, owner in zip(whole.node, reversed(owned), strict=True):
        added = found[owner].node.add()
        added.CopyFrom(node)
        added.input[:] = [_own_name(name) for name in node.input]
        added.output[:] = [_own_name(name) for name in node.output]
    for tensor in whole.initializer:
        owner = owner_of([tensor.name])
        if owner is None:
            return None
        found[owner].initializer.add().CopyFrom(tensor)
        found[owner].initializer[-1].name = _own_name(tensor.name)
    return found


def _own_name(name: str) -> str:
    return name.partition(".")[2] or name
