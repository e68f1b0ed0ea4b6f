"""A model while it is imported: its values, and one node of it as converters see it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm_ffi.structural import structural_equal

from softq.artifact.program import Limit, Size
from softq.compiler.backend import KernelOperator
from softq.compiler.frontend.shape_folding import CASTS, FOLDERS, LARGEST, Sizes, fold, sizes, static
from softq.compiler.ops.control_flow import Body, MeasureOp
from softq.compiler.ops.data_movement import SizesOp
from softq.compiler.tir.symbolic import Dim, expression, plain, product, simplified
from softq.errors import RefusalError

Array: TypeAlias = NDArray[np.generic]
Supports: TypeAlias = Callable[[type[KernelOperator], str], bool]


class Bodies(Protocol):
    """What imports the bodies of nodes."""

    def body(
        self, node: Node, attribute: str, formals: Sequence[relax.TensorType], number: tirx.Var | None = None
    ) -> Body:
        """Import a body with inputs of these types; the first may be known as a size."""
        ...

    def inline(self, node: Node, attribute: str) -> list[relax.Expr]:
        """Import a body without inputs in the place of its node, and return its results."""
        ...


@dataclass
class ImportContext:
    """The values of a model while it is imported, each a tensor of Relax or sizes, and what the import found out.

    Attributes:
        bb: Relax's builder.
        supports: Says whether the backend has a kernel for an operator of operands of a type.
        initializers: The arrays of the model's initializers by name.
        sites: The id of each softmax by the name of the node's first output.
        tensors: The values that are tensors by name.
        bodies: What imports the bodies of a node.
        sizes: The values that are known as sizes, and NumPy's names of their types, by name.
        operators: What the external functions that were called so far mean, by name.
        transposes: By the name of a transposed value, what it is made of and the order of its axes.
        limits: What must hold for the dimensions, by the size and its bounds.
        measured: The calls that measure dimensions.
        dtypes: The element types, by value, that are not those of the integers that hold their bits.
        differences: What must be 0 for a condition to hold, by the name of the condition.
        numbers: Numbers that no dimension and no call has yet; bodies take theirs from the same.
    """

    bb: relax.BlockBuilder
    supports: Supports
    initializers: Mapping[str, Array]
    sites: Mapping[str, str]
    tensors: dict[str, relax.Expr]
    bodies: Bodies
    sizes: dict[str, tuple[Sizes, str]] = field(default_factory=dict)
    operators: dict[str, KernelOperator] = field(default_factory=dict)
    transposes: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    limits: dict[tuple[Size, int, int], Limit] = field(default_factory=dict)
    measured: list[relax.Expr] = field(default_factory=list)
    dtypes: dict[str, str] = field(default_factory=dict)
    differences: dict[str, Dim] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def tensor(self, name: str) -> relax.Expr:
        """Return a value as a tensor; sizes are written into one where an operator takes them as data."""
        if name not in self.tensors:
            if name not in self.sizes:
                raise RefusalError(f"TVM gives no {name!r}, which the model uses")
            self.tensors[name] = self.written(*self.sizes[name])
        return self.tensors[name]

    def emit(self, value: relax.Expr, name: str) -> relax.Expr:
        """Bind a value to a variable; its lengths have their simplest form, as in TVM's kernels: n + 1 for 1 + n."""
        value = self.bb.normalize(value)
        dims = getattr(getattr(value.ty, "shape", None), "values", ())
        simple = [expression(simplified(dim)) for dim in dims]
        if isinstance(value, tvm.ir.Call) and not all(map(structural_equal, dims, simple)):
            dtype, value = str(value.ty.dtype), relax.Call(value.op, value.args, value.attrs, value.ty_args)
            relax.expr._update_type(value, relax.TensorType(simple, dtype))  # pyright: ignore[reportPrivateUsage]
        return self.bb.emit(value, name_hint=name)

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

    def measure(self, numbers: relax.Expr) -> list[tirx.Var]:
        """Return the elements of an int64 tensor [n] as dimensions; a negative one ends the run.

        Raises:
            RefusalError: the backend knows no dimensions that data decide.
        """
        if not self.supports(MeasureOp, "int64"):
            raise RefusalError("a shape depends on data, which is not to be had for this target")
        dims = [self.new_dimension() for _ in range(int(plain(numbers.ty.shape.values[0])))]
        name = self.new_name("measure")
        self.operators[name] = MeasureOp(tuple(str(dim.name) for dim in dims))
        # The result is an output of `main`: Relax leaves out what nothing reads.
        call = relax.op.call_dps_packed(name, relax.Tuple([numbers]), numbers.ty)
        self.measured.append(self.bb.emit(call))
        return dims

    def new_dimension(self) -> tirx.Var:
        """Return a dimension that a step is to measure."""
        return tirx.Var(self.new_name("measured"), "int64")

    def new_name(self, what: str) -> str:
        """Return a name that no operator and no dimension has."""
        return f"{what.lower()} {next(self.numbers)}"


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

    def dtype(self, position: int) -> str:
        """Return NumPy's name of the element type of an input."""
        return self.importer.dtypes.get(self.inputs[position]) or str(self.tensor(position).ty.dtype)

    def axis(self, given: int, rank: int) -> int:
        """Return an axis counted from the front.

        Raises:
            RefusalError: there is no such axis.
        """
        if not -rank <= given < rank:
            raise RefusalError(f"{self.operator} {self.name!r}: axis {given} of a tensor with {rank} axes")
        return given % rank

    def sizes(self, position: int) -> Sizes:
        """Return an input as sizes; those that are known only during the run are measured then, and not negative.

        Raises:
            RefusalError: it is no short tensor of integers, or the backend has no dimensions that data decide.
        """
        name = self.inputs[position]
        if name not in self.importer.sizes:
            shape, dtype = [plain(d) for d in self.shape(position)], str(self.tensor(position).ty.dtype)
            count = product(shape)
            if not isinstance(count, int) or count > LARGEST or dtype not in ("int32", "int64"):
                raise RefusalError(f"{self.operator} {self.name!r}: {name!r}, {dtype}{shape}, gives no shape")
            flat = self.emit(relax.op.reshape(self.emit(relax.op.astype(self.tensor(position), "int64")), [count]))
            self.importer.sizes[name] = sizes(self.importer.measure(flat), shape), dtype
        return self.importer.sizes[name][0]

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
            if self.operator == "Equal" and inputs[0].size == inputs[1].size == 1:
                a, b = (expression(x.ravel()[0]) for x in inputs)
                self.importer.differences[self.outputs[0]] = simplified(a - b)
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
        return self.importer.emit(value, hint or self.name)

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
