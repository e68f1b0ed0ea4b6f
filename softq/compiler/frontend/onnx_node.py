"""A model while it is imported: its values, and one node of it as converters see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from softq.artifact.program import Limit, Size
from softq.compiler.backend import KernelOperator
from softq.compiler.frontend.shape_folding import CASTS, FOLDERS, Sizes, fold, sizes, static
from softq.compiler.ops.data_movement import SizesOp
from softq.errors import RefusalError

Array: TypeAlias = NDArray[np.generic]
Supports: TypeAlias = Callable[[type[KernelOperator], str], bool]


@dataclass
class ImportContext:
    """The values of a model while it is imported, each a tensor of Relax or sizes, and what the import found out.

    Attributes:
        bb: Relax's builder.
        supports: Says whether the backend has a kernel for an operator of operands of a type.
        initializers: The arrays of the model's initializers by name.
        sites: The id of each softmax by the name of the node's first output.
        tensors: The values that are tensors by name.
        sizes: The values that are known as sizes, and NumPy's names of their types, by name.
        operators: What the external functions that were called so far mean, by name.
        transposes: By the name of a transposed value, what it is made of and the order of its axes.
        limits: What must hold for the dimensions, by the size and its bounds.
    """

    bb: relax.BlockBuilder
    supports: Supports
    initializers: Mapping[str, Array]
    sites: Mapping[str, str]
    tensors: dict[str, relax.Expr]
    sizes: dict[str, tuple[Sizes, str]] = field(default_factory=dict)
    operators: dict[str, KernelOperator] = field(default_factory=dict)
    transposes: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    limits: dict[tuple[Size, int, int], Limit] = field(default_factory=dict)

    def tensor(self, name: str) -> relax.Expr:
        """Return a value as a tensor; sizes are written into one where an operator takes them as data."""
        if name not in self.tensors:
            if name not in self.sizes:
                raise RefusalError(f"TVM gives no {name!r}, which the model uses")
            self.tensors[name] = self.written(*self.sizes[name])
        return self.tensors[name]

    def written(self, values: Sizes, dtype: str) -> relax.Expr:
        """Return sizes as a tensor."""
        numbers = static(values)
        if numbers is not None:
            return constant(numbers.astype(dtype))
        self.operators["sizes"] = SizesOp()
        flat = relax.ShapeExpr(list(values.ravel()))
        written = relax.op.call_dps_packed("sizes", relax.Tuple([flat]), relax.TensorType((values.size,), "int64"))
        result = self.bb.emit(written)
        if values.shape != (values.size,):
            result = self.bb.emit(relax.op.reshape(result, list(values.shape)))
        return result if dtype == "int64" else self.bb.emit(relax.op.astype(result, dtype))

    def dims(self, value: relax.Expr, name: str) -> list[Any]:
        """Return the dimensions of a tensor.

        Raises:
            RefusalError: they depend on data.
        """
        shape = getattr(value.ty, "shape", None)
        if shape is None or not hasattr(shape, "values"):
            raise RefusalError(f"the shape of {name!r} depends on data; a built model knows shapes from its inputs'")
        return list(shape.values)


@dataclass
class Node:
    """One ONNX node while it is imported: what converters see.

    Attributes:
        importer: The values of its model.
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
        if self.inputs[position] not in self.importer.sizes:
            raise RefusalError(
                f"{self.operator} {self.name!r}: {self.inputs[position]!r} gives a shape that depends on data; "
                "a built model knows shapes from the shapes of its inputs"
            )
        return self.importer.sizes[self.inputs[position]][0]

    def fold(self) -> bool:
        """Compute the result as sizes, and say whether that is possible: the inputs are known as such."""
        known, dtype = self.importer.sizes, "int64"
        if self.operator in ("Shape", "Size"):
            inputs = [sizes(self.shape(0))]
        elif self.operator not in FOLDERS or not self.inputs or not all(name in known for name in self.inputs):
            return False
        else:
            inputs = [known[name][0] for name in self.inputs]
            dtype = known[self.inputs[1 if self.operator in ("Where", "CastLike") else 0]][1]
        result = fold(self.operator, inputs, self.attributes)
        if result is None:
            return False
        if self.operator == "Cast":
            dtype = CASTS[self.attributes["to"]]
        elif self.operator == "Equal":
            dtype = "bool"
        elif self.operator == "ConstantOfShape":
            dtype = str(self.attributes["value"].dtype)
        known[self.outputs[0]] = result, dtype
        return True

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
        self.importer.limits.setdefault((limit.size, limit.low, limit.high), limit)


Converter: TypeAlias = Callable[[Node], "list[relax.Expr] | None"]
"""Makes a node's results, or returns None where TVM's own importer is right."""


def constant(array: NDArray[np.generic]) -> relax.Expr:
    """Return an array as a constant of the same type: left to itself TVM makes int64 scalars int32."""
    return relax.const(np.asarray(array, order="C"), str(array.dtype))
