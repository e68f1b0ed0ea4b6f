"""A softmax as a row program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from softq.artifact.program import Size
from softq.compiler.backend import Lowering, RowKernel
from softq.compiler.steps.builder import StepCall, Value, tensor_types
from softq.compiler.tir.symbolic import multiplied
from softq.rowprog import Program

ROW_COST = 2
"""What an element of a row costs in a row program, in elements that are moved."""


@dataclass(frozen=True)
class RowProgramOp:
    """A softmax: arguments are scores, the mask if the program has one, and its run-time parameters.

    Attributes:
        program: What it computes; the results are its interface's outputs.
        max_length: Greatest length of a row that is proved.
        site: Id of the softmax in the model.
    """

    program: Program
    max_length: int
    site: str

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Any:
        """Append the step; return the weights, or weights and scalars where Relax has a tuple."""
        out = lowering.builder
        values = [lowering.value(x) for x in arguments]
        outputs = [out.new(ty) for ty in tensor_types(result)]
        out.append(self.step(lowering, values, outputs, out.allocated))
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def step(
        self,
        lowering: Lowering,
        values: list[Value],
        outputs: list[Value],
        allocated: Callable[[tuple[Size, ...], str], Value],
        kernel: RowKernel | None = None,
    ) -> StepCall:
        """Return the step; what it needs beside inputs and outputs is given by `allocated`.

        Args:
            lowering: What lowers the model.
            values: The scores [..., rows, length], the mask, which broadcasts to them, and parameters.
            outputs: The weights, of the scores' shape, and the scalars, one per row.
            allocated: Returns memory of a shape and an element type.
            kernel: The kernel, by default the backend's for the program.
        """
        kernel = kernel or lowering.backend.row(self.program, self.max_length)
        dims: list[Size] = [*([1] * max(0, 4 - len(values[0].dims))), *values[0].dims]
        outer, heads, queries, length = multiplied(dims[:-3]), *dims[-3:]
        scalars: list[Size] = [length, heads, queries]
        if self.program.masked:
            scalars += mask_strides(values[1].dims, dims)
        rows = multiplied([outer, heads, queries])
        tensors = [*values, *outputs]
        if kernel.scratch_bytes:
            # Rows have their own parts of it, so that they may still be spread over threads.
            tensors.append(allocated((values[0].elements, kernel.scratch_bytes), "uint8"))
        return StepCall(kernel.symbol, tensors, scalars, rows, multiplied([rows, length, ROW_COST]), self.site)


def mask_strides(mask: Sequence[Size], scores: Sequence[Size]) -> list[Size]:
    """Return the mask's element strides over the leading axes taken together, heads, queries and elements."""
    dims: list[Size] = [*([1] * (len(scores) - len(mask))), *mask]
    strides: list[Size] = [0 if dims[-1] == 1 else 1]
    for axis in (2, 3):
        strides.insert(0, 0 if dims[-axis] == 1 else multiplied(dims[len(dims) - axis + 1 :]))
    broadcast = all(d == 1 for d in dims[:-3])
    return [0 if broadcast else multiplied(dims[-3:]), *strides]
