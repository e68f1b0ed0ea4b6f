"""Names that no value of a model has yet."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from softq.graph.queries import ModelView


class Names:
    """Gives fresh value names: bodies see the names around them, so a name is fresh in no less than the whole model."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = {value.name for value in _values(model)}

    def fresh(self, stem: str) -> str:
        """Return `stem`, with a number if need be, and remember it."""
        name, count = stem, 1
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for container in ModelView(model).containers:
        yield from container.body.inputs
        yield from container.graph.initializers.values()
        for node in container.body:
            yield from (value for value in (*node.inputs, *node.outputs) if value is not None)
