"""Names that no value of a model has yet."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from itertools import chain

import onnx_ir as ir

from softq.graph.view import ModelView


class Names:
    """Gives fresh value names: bodies see the names around them, so a name is fresh in no less than the whole model."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = {value.name for value in _values(model)}

    def fresh(self, stem: str) -> str:
        """Return `stem`, with a number if need be, and remember it."""
        return self._take(chain([stem], (f"{stem}_{count}" for count in itertools.count(2))))

    def numbered(self, stem: str) -> str:
        """Return `stem` with the least number that is free, and remember it."""
        return self._take(f"{stem}_{count}" for count in itertools.count())

    def _take(self, names: Iterable[str]) -> str:
        name = next(name for name in names if name not in self._taken)
        self._taken.add(name)
        return name


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for container in ModelView(model).containers:
        yield from container.body.inputs
        yield from container.graph.initializers.values()
        for node in container.body:
            yield from (value for value in (*node.inputs, *node.outputs) if value is not None)
