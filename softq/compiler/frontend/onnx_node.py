"""One node of a model while it is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from softq.artifact.program import Limit
from softq.compiler.backend import KernelOperator
from softq.compiler.frontend.shape_folding import Sizes
from softq.errors import RefusalError
from softq.provenance import RowFunction

Array: TypeAlias = NDArray[np.generic]


class ImportContext(Protocol):
    """What a node sees of the import of its model.

    Attributes:
        bb: Relax's builder.
        initializers: The arrays of the model's initializers by name.
        operators: What the external functions that were called so far mean, by name.
        transposes: By the name of a transposed value, what it is made of and the order of its axes.
        limits: What must hold for the dimensions.
        sites: The id of each softmax by the name of the node's first output.
    """

    bb: relax.BlockBuilder
    initializers: Mapping[str, Array]
    operators: dict[str, KernelOperator]
    transposes: dict[str, tuple[str, list[int]]]
    limits: list[Limit]
    sites: Mapping[str, str]

    def supports(self, operator: type[KernelOperator], dtype: str) -> bool:
        """Say whether the backend has a kernel for an operator of operands of a type."""
        ...

    def tensor(self, name: str) -> relax.Expr:
        """Return a value as a tensor."""
        ...

    def dims(self, value: relax.Expr, name: str) -> list[Any]:
        """Return the dimensions of a tensor."""
        ...

    def sizes_of(self, name: str) -> Sizes | None:
        """Return a value as sizes, or None if it is not known before the run."""
        ...


@dataclass
class Node:
    """One ONNX node while it is imported: what converters see.

    Attributes:
        importer: What it sees of the import.
        name: Name of its first output.
        operator: Its type.
        inputs: Names of the inputs, empty where one is left out.
        outputs: Names of the outputs.
        attributes: Values by name; tensors as arrays.
        opset: Version of the default domain.
    """

    importer: ImportContext
    name: str
    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]
    opset: int
    functions: Mapping[tuple[str, str], RowFunction] = field(default_factory=dict)

    def has(self, position: int) -> bool:
        """Say whether the input is given."""
        return position < len(self.inputs) and bool(self.inputs[position])

    def tensor(self, position: int) -> relax.Expr:
        """Return an input as a tensor."""
        return self.importer.tensor(self.inputs[position])

    def shape(self, position: int) -> list[Any]:
        """Return the dimensions of an input."""
        return self.importer.dims(self.tensor(position), self.inputs[position])

    def axis(self, given: int, rank: int) -> int:
        """Return an axis counted from the front.

        Raises:
            RefusalError: there is no such axis.
        """
        if not -rank <= given < rank:
            raise RefusalError(f"{self.operator} {self.name!r}: axis {given} of a tensor with {rank} axes")
        return given % rank

    def sizes(self, position: int) -> Sizes:
        """Return an input as sizes.

        Raises:
            RefusalError: it depends on data.
        """
        known = self.importer.sizes_of(self.inputs[position])
        if known is None:
            raise RefusalError(
                f"{self.operator} {self.name!r}: {self.inputs[position]!r} gives a shape that depends on data; "
                "a built model knows shapes from the shapes of its inputs"
            )
        return known

    def emit(self, value: relax.Expr, hint: str | None = None) -> relax.Expr:
        """Bind a value to a variable."""
        return self.importer.bb.emit(value, name_hint=hint or "v")

    def call(self, name: str, operator: KernelOperator, arguments: Sequence[relax.Expr], types: Any) -> relax.Expr:
        """Return the result of a kernel of our own."""
        self.importer.operators[name] = operator
        return self.emit(relax.op.call_dps_packed(name, relax.Tuple(list(arguments)), types))

    def array(self, position: int) -> Array | None:
        """Return the values of an input that is an initializer, else None."""
        return self.importer.initializers.get(self.inputs[position])

    def require(self, limit: Limit) -> None:
        """Note what must hold for the dimensions."""
        same = [(x.size, x.low, x.high) for x in self.importer.limits]
        if (limit.size, limit.low, limit.high) not in same:
            self.importer.limits.append(limit)


Converter: TypeAlias = Callable[[Node], "list[relax.Expr] | None"]
"""Makes a node's results, or returns None where TVM's own importer is right."""


def constant(array: NDArray[np.generic]) -> relax.Expr:
    """Return an array as a constant of the same type: left to itself TVM makes int64 scalars int32."""
    return relax.const(np.asarray(array, order="C"), str(array.dtype))
