"""What is done to each element of a product before anything else reads it: biases, activations, residual sums."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tvm import tirx

from softq.compiler.tir.expressions import substitute

Where = Literal["same", "column", "one"]
"""Where an epilogue reads a tensor: at the element's own place, at its column, or at its only element."""


@dataclass(frozen=True)
class Operand:
    """A tensor that an epilogue reads.

    Attributes:
        position: Of the argument of the elementwise function.
        where: Where it is read.
        dtype: Its type.
        var: What stands for the element that is read.
    """

    position: int
    where: Where
    dtype: str
    var: tirx.Var


@dataclass(frozen=True)
class Epilogue:
    """A function of an element of a product and of elements of other tensors.

    Attributes:
        name: Name of TVM's function.
        element: What stands for the product's element.
        operands: What else is read.
        value: The result.
    """

    name: str
    element: tirx.Var
    operands: tuple[Operand, ...]
    value: Any

    @property
    def suffix(self) -> str:
        """What tells the kernels of products with it from others."""
        where = "_".join(f"{o.position}{o.where}" for o in self.operands)
        return re.sub(r"\W", "_", f"{self.name}_{where}")

    def apply(self, element: Any, load: Callable[[int, Operand], Any]) -> Any:
        """Return the result for an element; `load` gives what an operand, by its number, has there."""
        values = {operand.var: load(i, operand) for i, operand in enumerate(self.operands)}
        return substitute(self.value, {self.element: element, **values})
