"""Products of matrices as backends see them, and what is done to each element before anything else reads it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tvm import tirx

from softq.artifact.program import Size
from softq.compiler.steps.builder import Array, Value
from softq.compiler.tir.expressions import substitute

Where = Literal["same", "column", "channel", "one"]
"""Where an epilogue reads a tensor: at the element's own place, its column, its channel on the second axis, or at
its only element."""

Apply: TypeAlias = "Callable[[Any, Any, Any], Any]"
"""Gives the result of an element, its place and its channel."""


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
    """A function of an element of a product and of elements of other tensors: biases, activations, residual sums.

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
        """What tells the kernels of products with it from others; functions that differ only in shapes share them."""
        words = re.sub(r"\d+|\W+|_?transpose|fused_", "", self.name)  # It moves nothing, as a whole.
        return f"{words.strip('_')}_{hashlib.sha256(self.text.encode()).hexdigest()[:8]}"

    @property
    def text(self) -> str:
        """What is the same for equal epilogues, also those of functions of other names."""
        body = tirx.PrimFunc([self.element, *(o.var for o in self.operands)], tirx.Evaluate(self.value))
        return " ".join([body.script(), *(f"{o.where} {o.dtype}" for o in self.operands)])

    def on(self, others: Sequence[Any]) -> Apply:
        """Return what applies it to the elements of an image, where its operands are in these buffers."""

        def apply(value: Any, at: Any, channel: Any) -> Any:
            places = {"same": at, "channel": channel, "one": tirx.IntImm("int64", 0)}
            return self.apply(value, lambda i, operand: others[i][places[operand.where]])

        return apply

    def apply(self, element: Any, load: Callable[[int, Operand], Any]) -> Any:
        """Return the result for an element; `load` gives what an operand, by its number, has there."""
        values = {operand.var: load(i, operand) for i, operand in enumerate(self.operands)}
        return substitute(self.value, {self.element: element, **values})


@dataclass(frozen=True)
class Weight:
    """A right operand that is known when the model is built, and the same for all products.

    Attributes:
        name: What stands for equal arrays.
        array: The matrix.
    """

    name: object
    array: Array


@dataclass(frozen=True)
class Product:
    """A product of matrices.

    Attributes:
        left: [batch..., M, K] or [M, K].
        right: [K, N] or [batch..., K, N].
        transposed: Whether the right one is given as [N, K] or [batch..., N, K].
        zeros: Of 8-bit integers the zero point of each operand, [1], of its type; none for floats.
        epilogue: What is done to its elements, or None.
        others: What the epilogue reads.
    """

    left: Value
    right: Value | Weight
    transposed: bool
    zeros: tuple[Value, ...] = ()
    epilogue: Epilogue | None = None
    others: tuple[Value, ...] = ()

    @property
    def lead(self) -> tuple[Size, ...]:
        """The axes over which products are numbered."""
        return (self.left if isinstance(self.right, Weight) else self.right).dims[:-2]

    @property
    def sizes(self) -> tuple[Size, Size, Size]:
        """M, K and N."""
        given = self.right.array.shape if isinstance(self.right, Weight) else self.right.dims
        return self.left.dims[-2], self.left.dims[-1], given[-2 if self.transposed else -1]

    @property
    def step(self) -> Size:
        """How many rows lie between the left operands of two products: 0 if all have the same."""
        return self.left.dims[-2] if len(self.left.dims) > 2 else 0
