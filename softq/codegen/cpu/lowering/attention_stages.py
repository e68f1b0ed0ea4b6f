"""What lies between the products of an attention, and behind the second one, as stages of its kernel."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tvm import tirx

from softq.artifact.program import Size
from softq.codegen.cpu.attention.form import PRODUCT, Region, Stage
from softq.codegen.cpu.gemm.scaled_sums import ScaledSums, scaled_sums
from softq.codegen.cpu.kernels import CpuKernels
from softq.compiler.backend import Lowering
from softq.compiler.fusion.bindings import kernel_of
from softq.compiler.fusion.epilogue import read_epilogue
from softq.compiler.fusion.tir_patterns import same_rows
from softq.compiler.ops.row_program import RowProgramOp
from softq.compiler.steps.attention import Attention
from softq.compiler.steps.builder import StepCall, Value, tensor_types
from softq.compiler.steps.product import Epilogue
from softq.compiler.tir.symbolic import is_number, multiplied, same_size
from softq.errors import RefusalError
from softq.rowprog import DType


@dataclass
class Stages:
    """What lies between the products, while it is gathered.

    Scores and what is made of them are in two regions in turn: a kernel reads one and writes the other. Given scores
    are in no region.

    Attributes:
        rows: Number of rows.
        known: Lengths of rows of the attention, and others of stages, by the name of the kernel's scalar.
    """

    kernels: CpuKernels
    lowering: Lowering
    given: bool
    rows: Size
    known: dict[str, Size]
    found: list[Stage] = field(default_factory=list)
    others: list[Value] = field(default_factory=list)
    scalars: list[Size] = field(default_factory=list)
    lengths: list[Size] = field(default_factory=list)
    last: int = 0
    site: str | None = None
    _more: int = 1

    def scale(self, binding: Any, position: int, dtype: str) -> tuple[ScaledSums, tuple[int, ...]] | None:
        """Return how a binding scales the sums of the first product, and the numbers of the pointers to factors.

        Args:
            binding: The binding.
            position: Of its argument that is the product.
            dtype: Type of the sums.

        Returns:
            None if that is another function.
        """
        epilogue = self._function(binding, position, dtype)
        scaled = None if epilogue is None else scaled_sums(epilogue)
        if epilogue is None or scaled is None:
            return None
        given = binding.value.args[1].fields
        return scaled, tuple(self._number(self.lowering.value(given[o.position])) for o in epilogue.operands)

    def casts(self, binding: Any, position: int) -> bool:
        """Say whether a binding gives float32 numbers another type and does nothing else."""
        epilogue = self._function(binding, position, "float32")
        return (
            epilogue is not None
            and isinstance(epilogue.value, tirx.Cast)
            and (epilogue.value.value.same_as(epilogue.element))
        )

    def _function(self, binding: Any, position: int, dtype: str) -> Epilogue | None:
        """Return what a binding makes of each element of an argument, if it is one kernel that reads nothing else."""
        if kernel_of(binding) is not None or len(binding.value.args) > 2:
            return None
        if not same_rows(binding.value.args[1].fields[position].ty, binding.var.ty):
            return None
        callee = binding.value.args[0]
        nests = self.lowering.backend.nests(callee.name_hint, self.lowering.module[callee], True)
        places = position, len(binding.value.args[1].fields)
        return read_epilogue(nests[0], str(callee.name_hint), places, dtype) if len(nests) == 1 else None

    def add(self, binding: Any, position: int, stored: DType | None = None) -> None:
        """Add a binding, whose argument at `position` is what the one before gave.

        Args:
            binding: The binding.
            position: See above.
            stored: The type of integers that the weights of a row program are written as; float32 by default.
        """
        call = binding.value
        target = 1 - self.last
        name = kernel_of(binding)
        if name is None:
            given = list(call.args[1].fields)
            tensors = [(i, x) for i, x in enumerate(given) if not is_number(x)]
            inputs = [self._here(x) if i == position else self.lowering.value(x) for i, x in tensors]
            output = self._value(binding.var.ty, target)
            (step,) = self.lowering.tir_steps(call, inputs, [output], rows=True)
        else:
            row = self.lowering.operators[name]
            assert isinstance(row, RowProgramOp)
            arguments = list(call.args[1].fields)
            given = self.given and not self.found
            scores = self.lowering.value(arguments[0]) if given else self._here(arguments[0])
            inputs = [scores, *map(self.lowering.value, arguments[1:])]
            weights = self._value(tensor_types(binding.var.ty)[0], target, stored)
            kernel = self.kernels.row(row.program, row.max_length, stored)
            outputs = [weights, *self.lowering.scalars(binding)]
            step = row.step(self.lowering, inputs, outputs, lambda dims, _: self._add_region(scores, dims[-1]), kernel)
            self.site = row.site
        self.last = target
        self._stage(step)

    def finish(self, attention: Attention, result: Value) -> Stage:
        """Return the kernel that makes the result of the second product's."""
        call, position = attention.finish.value, attention.finish_input
        fields = call.args[1].fields
        product = self.lowering.builder.typed(fields[position].ty, "scratch", PRODUCT)
        tensors = [(i, x) for i, x in enumerate(fields) if not is_number(x)]
        given = [product if i == position else self.lowering.value(x) for i, x in tensors]
        (step,) = self.lowering.tir_steps(call, given, [result], rows=True)
        self._stage(step)
        return self.found.pop()

    def _stage(self, step: StepCall) -> None:
        pointers = [self._find_region(x, step) if x.place == "scratch" else self._number(x) for x in step.tensors]
        widths = [np.dtype(tensor.dtype).itemsize for tensor in step.tensors if tensor.place == "scratch"]
        symbol = step.kernel
        if self.kernels.machine.in_c and widths:
            moved = tuple(at for at, pointer in enumerate(pointers) if isinstance(pointer, Region))
            symbol = self.kernels.shifted(symbol, moved)
        else:
            widths = []
        self.found.append(Stage(symbol, tuple(pointers), len(step.scalars), tuple(widths)))
        self.scalars += step.scalars

    def _find_region(self, tensor: Value, step: StepCall) -> Region:
        """Return the memory of a tensor of a stage.

        Raises:
            RefusalError: it is not proved that the stage's rows are those of the attention, whose memory they take.
        """
        *rows, length, each = (*tensor.dims, np.dtype(tensor.dtype).itemsize) if tensor.at < 2 else tensor.dims
        if not (same_size(multiplied(rows), self.rows) and same_size(step.items, self.rows)):
            raise RefusalError(
                f"kernel {step.kernel} of an attention computes rows that are not proved to be those of its scores, "
                "so that a block of them might not fit the memory of a thread"
            )
        name = next((name for name, known in self.known.items() if same_size(length, known)), None)
        if name is None:
            name = f"length{len(self.lengths)}"
            self.known[name] = length
            self.lengths.append(length)
        return Region(tensor.at, int(each), name)

    def _number(self, tensor: Value) -> int:
        """Return the number of one of the kernel's further pointers."""
        if tensor not in self.others:
            self.others.append(tensor)
        return self.others.index(tensor)

    def _here(self, expr: Any) -> Value:
        return self._value(expr.ty, self.last)

    def _value(self, ty: Any, region: int, stored: DType | None = None) -> Value:
        typed = self.lowering.builder.typed(ty, "scratch", region)
        return typed if stored is None else replace(typed, dtype=stored.numpy.name)

    def _add_region(self, scores: Value, each: Size) -> Value:
        """Return a value in a new region, with `each` bytes for each score."""
        self._more += 1
        return Value((*scores.dims, each), "uint8", "scratch", self._more)
