"""What a library of custom operators is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softq.artifact.machine import Cpu
from softq.artifact.program import Program
from softq.artifact.sizes import to_text


@dataclass(frozen=True)
class Parameter:
    """A number or table that an operator is given.

    Attributes:
        name: Name of the function's input.
        given: The function's element type, by NumPy's name.
        taken: The kernel's.
        per_head: Whether each head has one of its own; else one serves all rows.
        size: Number of elements, of each head if there are several.
    """

    name: str
    given: str
    taken: str
    per_head: bool
    size: int


@dataclass(frozen=True)
class Operator:
    """A custom operator: a row kernel with the interface of a function of softq's domain.

    Attributes:
        name: Name of the function.
        kernel: Symbol of the kernel.
        scores: The kernel's element type of the scores; `float32` takes those of 16 bits too.
        masked: Whether there is an input `valid` behind the scores.
        dense: Whether the kernel reads a mask with an element for each of the scores, even where there is no `valid`.
        parameters: The further inputs, in their order.
        offsets: Number of inputs behind those, which only the function's body reads.
        outputs: For each output by name, whether it has an element for each of the row's; all are float32.
        max_length: Greatest length of a row.
        scratch_bytes: Bytes of memory that the kernel needs for each element of the scores; 0 for none.
        sites: Ids of the softmaxes that it computes.
    """

    name: str
    kernel: str
    scores: str
    masked: bool
    parameters: tuple[Parameter, ...]
    offsets: int
    outputs: Mapping[str, bool]
    max_length: int
    scratch_bytes: int
    sites: tuple[str, ...]
    dense: bool = False


@dataclass(frozen=True)
class AttentionOperator:
    """A custom operator: the steps of a function of softq's domain that holds more than rows.

    Attributes:
        name: Name of the function.
        program: The steps; inputs and outputs are the function's. Its weights are the function's constants.
        sites: Ids of the softmaxes that it computes.
    """

    name: str
    program: Program
    sites: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return what a manifest says of it."""
        steps = [step.kernel for step in self.program.steps]
        return {
            "name": self.name,
            "kernel": steps[-1],
            "steps": steps,
            "inputs": [self._tensor(number) for number in self.program.inputs],
            "outputs": [self._tensor(number) for number in self.program.outputs],
            "sites": list(self.sites),
        }

    def _tensor(self, number: int) -> dict[str, object]:
        tensor = self.program.tensors[number]
        return {"name": tensor.name, "dtype": tensor.dtype, "shape": [to_text(size) for size in tensor.shape]}


@dataclass(frozen=True)
class Level:
    """Operators of rows with kernels for processors that have more features than the oldest that the library is for.

    Attributes:
        machine: What they have.
        operators: The operators, in the order of the library's.
    """

    machine: Cpu
    operators: tuple[Operator, ...]


@dataclass(frozen=True)
class OperatorLibrary:
    """Operators and their kernels.

    Attributes:
        operators: The operators of rows.
        attentions: The operators of whole attentions.
        objects: The kernels' object files, maybe not all compiled yet.
        levels: Further kernels of the operators of rows; the first level whose features a processor has is used there.
    """

    operators: tuple[Operator, ...]
    attentions: tuple[AttentionOperator, ...]
    objects: Sequence[bytes]
    levels: tuple[Level, ...] = ()
