"""A model in C before it is written to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from softq.artifact.program import Program


@dataclass(frozen=True)
class KernelText:
    """A kernel in C.

    Attributes:
        symbol: Its name in the program's steps.
        head: Its first line, without `static` and without an end.
        body: What stands in its braces, with them; empty of a kernel that is no text.
        kept: Which of a step's arguments it takes: tensors, then scalars, then the range of work items.
        writes: Which of them it writes to.
        replaces: For a result the operands whose place it may take, which are read before it is written.
    """

    symbol: str
    head: str
    body: str
    kept: tuple[int, ...]
    writes: frozenset[int]
    replaces: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """What a step takes.

    Attributes:
        kernel: The kernel.
        site: The softmax that it computes, or None.
        shape: Of what it makes.
        multiply_adds: Terms of the sums of its products.
        weights: Bytes of the weights that it reads; other steps may read the same.
        arena: Bytes of the arena that are needed while it runs.
    """

    kernel: str
    site: str | None
    shape: tuple[int, ...]
    multiply_adds: int
    weights: int
    arena: int


@dataclass(frozen=True)
class Firmware:
    """A model in C.

    Attributes:
        program: The steps; all sizes are numbers, and each slot belongs to one tensor.
        kernels: The kernels, each behind those that it calls.
        prelude: What stands before them.
        offsets: Where each slot lies in the arena, in bytes.
        scratch: Where the scratch of a step lies, by the step's number.
        arena: Bytes of the arena.
        least: The most bytes that are needed at once, which no arena can be smaller than.
        layers: What each step takes.
        kernel_object: Makes the object file of kernels that are no text, whose symbols begin with a name.
        host: The model all in C, for other processors, where kernels are an object.
    """

    program: Program
    kernels: Sequence[KernelText]
    prelude: str
    offsets: Sequence[int]
    scratch: Mapping[int, int]
    arena: int
    least: int
    layers: Sequence[Layer]
    kernel_object: Callable[[str], bytes] | None = None
    host: Firmware | None = None
