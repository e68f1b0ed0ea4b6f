"""The parts of a built program while they are gathered: values with their memory, weights, steps."""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from softq.artifact.program import Jump, Limit, Measure, Place, Program, Size, Step, Tensor
from softq.compiler.steps.memory_plan import Buffer, slots
from softq.compiler.steps.tir_kernels import TirKernels
from softq.compiler.tir.symbolic import computed, multiplied, size
from softq.errors import RefusalError

Array = NDArray[np.generic]


def tensor_types(ty: Any) -> list[Any]:
    """Return the types of the tensors of a type of Relax: of a tuple's, or of the only one."""
    return list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]


def _bytes(dims: Sequence[Size], dtype: str) -> Size:
    return multiplied([*dims, np.dtype(dtype).itemsize])


@dataclass(frozen=True)
class Value:
    """A tensor while lowering.

    Attributes:
        dims: Its shape.
        dtype: NumPy's name of the element type.
        place: Who owns the memory.
        at: Position of the input, offset of the weight, or number of the buffer.
    """

    dims: tuple[Size, ...]
    dtype: str
    place: Place
    at: int

    @property
    def elements(self) -> Size:
        """Number of elements."""
        return multiplied(self.dims)


@dataclass(frozen=True)
class StepCall:
    """A step whose tensors have no memory yet.

    Attributes:
        kernel: Name of the kernel.
        tensors: What it reads and writes, in the order of its parameters.
        scalars: Its numbers, in their order.
        items: How many work items there are.
        cost: What all of them take, in elements; it decides whether threads are worth it.
        site: The softmax that the step computes.
        error: What it means if the first tensor, a flag, is set.
        then: What comes behind it instead of the next step, by what the first tensor holds.
        multiply_adds: How many terms the sums of its products have, all together.
    """

    kernel: str
    tensors: list[Value]
    scalars: list[Size]
    items: Size
    cost: Size
    site: str | None = None
    error: str | None = None
    then: Jump | Measure | None = None
    multiply_adds: Size = 0


@dataclass
class Builder:
    """What a lowering has gathered so far.

    Attributes:
        tir: The kernels that are TIR functions.
        shares_slots: Whether tensors that are never alive together share a slot; else each has one of its own, and
            where it lies is planned when all shapes are known.
        steps: The steps in their order.
        buffers: The memory that the steps write.
        weights: The arrays of the weights file by their offset.
        weight_at: The offset of each weight by what it is.
        end: Bytes of the weights file.
        dims: Names of the dimensions that the inputs give, and of those that data decide.
        measured: Names of the dimensions that data decide, in the order in which they are measured.
        conditions: What the bodies that are being lowered ask of the dimensions.
    """

    tir: TirKernels
    shares_slots: bool = True
    steps: list[StepCall] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    weights: dict[int, Array] = field(default_factory=dict)
    weight_at: dict[object, int] = field(default_factory=dict)
    end: int = 0
    dims: set[str] = field(default_factory=set)
    measured: list[str] = field(default_factory=list)
    conditions: Sequence[Limit] = ()

    def typed(self, ty: Any, place: Place, at: int) -> Value:
        """Return a value of the type of an expression of Relax.

        Raises:
            RefusalError: its shape depends on data.
        """
        shape = getattr(ty, "shape", None)
        if shape is None or not hasattr(shape, "values"):
            raise RefusalError(f"a tensor of type {ty} has a shape that depends on data")
        return Value(tuple(size(d) for d in shape.values), str(ty.dtype), place, at)

    def new(self, ty: Any) -> Value:
        """Return a value of this type in memory of its own."""
        return self.allocated(self.typed(ty, "arena", 0).dims, str(ty.dtype))

    def allocated(self, dims: tuple[Size, ...], dtype: str) -> Value:
        """Return a value of this shape in memory of its own."""
        self.buffers.append(Buffer(_bytes(dims, dtype), len(self.steps), len(self.steps)))
        return Value(dims, dtype, "arena", len(self.buffers) - 1)

    def weight(self, name: object, array: Array) -> Value:
        """Return the value of an array in the weights file; `name` stands for equal arrays."""
        if name not in self.weight_at:
            self.weight_at[name] = self.end
            self.weights[self.end] = array
            self.end += -(-array.nbytes // 64) * 64
        return Value(tuple(array.shape), str(array.dtype), "weight", self.weight_at[name])

    def append(self, step: StepCall) -> None:
        """Append a step."""
        for tensor in step.tensors:
            if tensor.place == "arena":
                self.buffers[tensor.at].last = len(self.steps)
        self.steps.append(step)

    def jump(self, step: StepCall) -> int:
        """Append a step that may go on elsewhere, and return its number for `land` or `repeat`."""
        self.append(step)
        return len(self.steps) - 1

    def land(self, jump: int) -> None:
        """Let a jump go on with the next step that is appended."""
        self.steps[jump] = replace(self.steps[jump], then=Jump(len(self.steps)))

    def repeat(self, jump: int, first: int) -> None:
        """Let the last step, a jump, go back to a step: what the steps between read from before stays until then."""
        self.steps[jump] = replace(self.steps[jump], then=Jump(first))
        for buffer in self.buffers:
            if buffer.first <= first <= buffer.last:
                buffer.last = max(buffer.last, jump)

    def measure(self, step: StepCall, dims: Sequence[str]) -> None:
        """Append a step that writes the values of dimensions, int64, into its first tensor."""
        self.measured += [name for name in dims if name not in self.measured]
        self.dims.update(dims)
        self.append(replace(step, then=Measure(tuple(dims))))
        self._check(self.conditions)

    @contextmanager
    def requiring(self, conditions: Sequence[Limit]) -> Generator[None]:
        """Let conditions on the dimensions hold for the steps that are appended, the steps of a body.

        They are checked before these, and again when a dimension is measured: the model may run without the body.
        """
        before = self.conditions
        self.conditions = [*before, *conditions]
        self._check(conditions)
        yield
        self.conditions = before

    def _check(self, conditions: Sequence[Limit]) -> None:
        for limit in conditions:
            flag, sizes_ = self.allocated((1,), "int32"), [limit.size, limit.low, limit.high]
            self.append(StepCall(self.tir.check(), [flag], sizes_, 1, 1, error=limit.because))

    def scratch(self, size: Size) -> Value:
        """Return so many bytes of the calling thread's memory."""
        return Value((size,), "uint8", "scratch", 0)

    def copy(self, value: Value) -> Value:
        """Return a copy in memory of its own."""
        copy = self.allocated(value.dims, value.dtype)
        self.move(value, copy)
        return copy

    def move(self, value: Value, out: Value) -> None:
        """Append the copy of a value into memory that is there."""
        count = multiplied([out.elements, np.dtype(out.dtype).itemsize])
        self.append(StepCall(self.tir.copy(), [value, out], [], count, out.elements))

    def outputs(self, values: list[Value]) -> list[Value]:
        """Return the outputs, each in memory of its own that is not an input's or a weight's."""
        taken: set[int] = set()
        results: list[Value] = []
        for value in values:
            # What is seen in another shape may be written before that shape is measured, which the caller's memory has.
            reshaped = value.place == "arena" and self.buffers[value.at].bytes != _bytes(value.dims, value.dtype)
            if value.place != "arena" or value.at in taken or (self.measured and reshaped):
                value = self.copy(value)
            taken.add(value.at)
            results.append(value)
        return results

    def program(
        self,
        inputs: Sequence[tuple[str, Value]],
        outputs: Sequence[tuple[str, Value]],
        limits: tuple[Limit, ...],
        objects: Sequence[bytes],
    ) -> Program:
        """Return the program, its memory laid out.

        Args:
            inputs: The model's inputs with their names.
            outputs: The same of its outputs, each in memory of its own.
            limits: What must hold for the dimensions.
            objects: The object files with the kernels.
        """
        dims = sorted(self.dims)
        place = {value.at: position for position, (_, value) in enumerate(outputs)}
        kept = [i for i in range(len(self.buffers)) if i not in place]
        lives: tuple[tuple[int, int], ...] = ()
        if self.shares_slots:
            chosen, sizes_ = slots([self.buffers[i] for i in kept], dims)
        else:
            chosen, sizes_ = list(range(len(kept))), [self.buffers[i].bytes for i in kept]
            lives = tuple((self.buffers[i].first, self.buffers[i].last) for i in kept)
        slot = dict(zip(kept, chosen, strict=True))
        tensors: list[Tensor] = []
        numbers: dict[object, int] = {}

        def number(value: Value, name: str = "") -> int:
            where: tuple[Place, int] = (value.place, value.at)
            if value.place == "arena":
                where = ("output", place[value.at]) if value.at in place else ("arena", slot[value.at])
            identity = (value.dims, value.dtype, where, name)
            if identity not in numbers:
                numbers[identity] = len(tensors)
                tensors.append(Tensor(name, value.dtype, value.dims, *where))
            return numbers[identity]

        first = tuple(number(value, name) for name, value in inputs)
        last = tuple(number(value, name) for name, value in outputs)
        steps = tuple(
            Step(
                s.kernel,
                tuple(map(number, s.tensors)),
                tuple(s.scalars),
                s.items,
                s.cost,
                s.site,
                s.error,
                s.then,
                s.multiply_adds,
            )
            for s in self.steps
        )
        needed = dict.fromkeys(t.elements for s in self.steps for t in s.tensors if t.place == "scratch")
        return Program(
            inputs=first,
            outputs=last,
            tensors=tuple(tensors),
            slots=tuple(sizes_),
            steps=steps,
            limits=limits,
            weights=self.weights,
            objects=objects,
            scratch=functools.reduce(lambda a, b: computed("room", a, b), needed, 0),
            measured=tuple(self.measured),
            lives=lives,
        )
