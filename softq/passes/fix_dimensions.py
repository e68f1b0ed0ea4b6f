"""Give named dimensions of a model their numbers."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from softq.errors import InputError
from softq.graph.view import ModelView
from softq.passes import PassEntry


def check_length(cannot: str, length: int) -> None:
    """Refuse a length that no axis can be fixed at: a model that takes nothing computes nothing.

    Args:
        cannot: The words in front of the length, up to "cannot be" or the like.
        length: What is given.

    Raises:
        InputError: it is below 1.
    """
    if length < 1:
        raise InputError(f"{cannot} {length}; the least length is 1")


class FixDimensions(ir.passes.InPlacePass):
    """Writes a number wherever a shape has one of the names.

    Args:
        sizes: Numbers by name; each name is that of a dimension of an input.
    """

    def __init__(self, sizes: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self.sizes = dict(sizes or {})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Write the numbers; `modified` says whether a shape had one of the names.

        Raises:
            InputError: no input has a dimension of the name, or the number is none of a dimension.
        """
        names = {str(dim) for value in model.graph.inputs for dim in value.shape or () if not isinstance(dim, int)}
        for name, size in self.sizes.items():
            if name not in names:
                raise InputError(f"no input has a dimension {name!r}; there are: {', '.join(sorted(names)) or 'none'}")
            check_length(f"dimension {name!r} cannot be", size)
        fixed = [self._fix(value) for container in ModelView(model).containers for value in container.values]
        return ir.passes.PassResult(model, any(fixed))

    def _fix(self, value: ir.Value) -> bool:
        if value.shape is None:
            return False
        fixed = [dim if isinstance(dim, int) else self.sizes.get(str(dim), dim) for dim in value.shape]
        if fixed == list(value.shape):
            return False
        value.shape = ir.Shape(fixed)
        return True


PASS = PassEntry("fix-dimensions", FixDimensions, "Give named dimensions their numbers")
