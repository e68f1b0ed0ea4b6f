"""What a built model is, before it is files: tensors, kernels and the list of steps that run them.

Sizes that are known only at run time are integer expressions over the dimensions that the inputs' shapes give names to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Operator = Literal["add", "sub", "mul", "floordiv", "floormod", "min", "max", "room"]
Size: TypeAlias = "int | str | Op"
"""A number of elements or bytes: a constant, the name of a dimension, or an operation."""

Place = Literal["input", "output", "weight", "arena", "scratch"]


@dataclass(frozen=True)
class Op:
    """An operation on two sizes; division and remainder are floors, by a divisor that is positive.

    "room" is the greater one of those that are known: memory that is taken before data have decided all dimensions.
    """

    operator: Operator
    a: Size
    b: Size


_COMPUTE: Mapping[Operator, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "floormod": operator.mod, "min": min, "max": max, "room": max,
}  # fmt: skip


def evaluate(size: Size, dims: Mapping[str, int]) -> int:
    """Return the value of a size for these dimensions."""
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return dims[size]
    return _COMPUTE[size.operator](evaluate(size.a, dims), evaluate(size.b, dims))


@dataclass(frozen=True)
class Tensor:
    """A tensor in row-major order.

    Attributes:
        name: For inputs and outputs the model's name; else for readers only.
        dtype: NumPy's name of the element type; `bool` is one byte.
        shape: Its sizes. In an input, a bare name binds that dimension where it stands first and is checked elsewhere.
        place: Who owns the memory.
        at: For inputs and outputs the position, for weights the offset in bytes in the weights file (a multiple of
            64), in the arena the number of the slot; scratch is memory that each thread has of its own, 0.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    place: Place
    at: int


@dataclass(frozen=True)
class Jump:
    """Going on elsewhere: the step's first tensor is one int32 in the arena, and the jump is made if it is not 0.

    Attributes:
        target: Number of the step that comes next then, or the number of steps for the end of the run.
    """

    target: int


@dataclass(frozen=True)
class Measure:
    """Dimensions that data decide: the step's first tensor is in the arena and holds an int64 for each.

    Attributes:
        dims: Their names.
    """

    dims: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One call of a kernel.

    The kernel is `void symbol(void *t0, void *t1, ..., int64_t s0, ..., int64_t begin, int64_t end)` and does the work
    items from `begin` up to `end`; items are independent, so they may be spread over threads. What it finds in its
    scratch is of no meaning.

    Attributes:
        kernel: Its symbol.
        tensors: Positions in `Program.tensors`.
        scalars: The int64 arguments behind the tensors.
        items: Number of work items; the step is skipped if it is 0.
        cost: Rough number of elementary operations (multiply-adds, elements moved) of the whole step: a step that
            is cheap is not worth waking threads for.
        site: Id of the softmax that this kernel computes, or None.
        error: Where it is given, the first tensor is one int32 in the arena that the driver sets to 0 before the step;
            if it is something else behind it, the run ends with this message.
        then: What the driver does behind the step instead of going on with the next one.
        multiply_adds: How many terms the sums of its products have, all together: of matrices, convolutions and
            attentions.
    """

    kernel: str
    tensors: tuple[int, ...]
    scalars: tuple[Size, ...]
    items: Size
    cost: Size
    site: str | None = None
    error: str | None = None
    then: Jump | Measure | None = None
    multiply_adds: Size = 0


@dataclass(frozen=True)
class Limit:
    """A condition on the dimensions without which the program must not run.

    Attributes:
        size: What is limited.
        low: Least value allowed.
        high: Greatest value allowed.
        because: What a user is told when it does not hold: `rows of 70000 elements; ...` is made of it.
    """

    size: Size
    low: int
    high: int
    because: str


@dataclass(frozen=True)
class StepList:
    """What is executed.

    Attributes:
        inputs: Positions in `tensors` of the model's inputs, in their order.
        outputs: The same of its outputs.
        tensors: Every tensor. Two tensors may share a slot (a reshape is a view) and two outputs never share memory.
        slots: Size of each slot of the arena in bytes; a slot starts at a multiple of 64.
        steps: In the order of execution. Steps that lie behind one another may write the same slot.
        limits: What is checked before a run.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    slots: tuple[Size, ...]
    steps: tuple[Step, ...]
    limits: tuple[Limit, ...]


@dataclass(frozen=True)
class Program(StepList):
    """A whole model.

    Attributes:
        weights: Contents of the weights file by offset, one array for each weight tensor.
        objects: Object files with all kernels, for the machine that the program was lowered for. They may still be
            compiled when the rest is known: whoever reads them waits.
        scratch: Bytes of scratch that each thread needs; they start at a multiple of 64.
        measured: Names of the dimensions that data decide: no input's axis has them, a step measures them.
        notes: What the user should know, one sentence each.
        lives: Where each slot belongs to one tensor, the first and the last step that needs it, slot by slot.
    """

    weights: Mapping[int, NDArray[np.generic]]
    objects: Sequence[bytes]
    scratch: Size = 0
    measured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lives: tuple[tuple[int, int], ...] = ()
