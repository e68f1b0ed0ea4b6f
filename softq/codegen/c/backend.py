"""A model in C: the kernels of processors without vectors, for the sizes of one model, and the plan of its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from softq.artifact.firmware.program import Firmware, KernelText
from softq.artifact.machine import Cpu
from softq.artifact.program import Program
from softq.codegen.c import object_kernels
from softq.codegen.c.function import Function, constants_of
from softq.codegen.c.in_place import replaced_operands
from softq.codegen.c.layers import describe_layers
from softq.codegen.c.lowering import lower
from softq.codegen.c.memory import plan_memory
from softq.codegen.c.prelude import prelude
from softq.codegen.c.specialization import specialize
from softq.codegen.cpu.backend import CpuBackend
from softq.compiler.backend import KernelOperator
from softq.compiler.ops.linear import IntegerConvolutionOp, MatMulOp
from softq.compiler.pipeline import compile_model
from softq.compiler.steps.product import Epilogue
from softq.errors import RefusalError


class CBackend(CpuBackend):
    """A processor without a system; see `compiler.backend.Backend`."""

    shares_slots = False

    def __init__(self, machine: Cpu) -> None:
        super().__init__(machine)
        self.fuses_integers = self.kernels.dot.runs

    def supports(self, operator: type[KernelOperator], dtype: str) -> bool:
        """Say whether there is a kernel for an operator: convolutions of integers are products of their windows."""
        return operator is not IntegerConvolutionOp and super().supports(operator, dtype)

    def can_fuse(self, operator: KernelOperator, epilogue: Epilogue, result: str) -> bool:
        """Say whether a product's kernel can apply an epilogue: those of integers take every result."""
        if isinstance(operator, MatMulOp) and operator.integers:
            return all(operand.where != "channel" for operand in epilogue.operands)
        return super().can_fuse(operator, epilogue, result)

    def objects(self) -> Sequence[bytes]:
        """Return none: the kernels are made for the sizes of the model, by `firmware`."""
        return ()


def firmware(model: ir.Model, machine: Cpu) -> Firmware:
    """Return a converted model, which is not changed, in C.

    Raises:
        RefusalError: an operator or a shape has no form there; the message names it.
    """
    made = _firmware(model, machine)
    if machine.in_c:
        return made
    return replace(made, host=_firmware(model, replace(machine, vector_bytes=0, vectors=0, in_c=True)))


def _firmware(model: ir.Model, machine: Cpu) -> Firmware:
    backend = CBackend(machine)
    program = compile_model(model, backend)
    _check_static(program)
    calls: dict[str, list[list[int | None]]] = {}
    for step in program.steps:
        numbers = [int(size) for size in (*step.scalars, 0, step.items) if isinstance(size, int)]
        calls.setdefault(step.kernel, []).append([*[None] * len(step.tensors), *numbers])
    if machine.in_c:
        kernels, before = _texts(backend, calls)
        make = None
    else:
        found = specialize(backend.tir.functions(), calls, partial(object_kernels.lower, machine=machine))
        kernels = [KernelText(symbol, object_kernels.head(f, symbol), "", found.kept[symbol],
                              object_kernels.writes(f, found.kept[symbol]))
                   for symbol, f in found.functions.items() if symbol in calls]  # fmt: skip
        before = prelude(())
        make = partial(object_kernels.kernel_object, found.functions, {*calls}, machine)
    memory = plan_memory(program, {kernel.symbol: kernel.replaces for kernel in kernels})
    layers = describe_layers(program, kernels, memory)
    return Firmware(program, kernels, before, memory.offsets, memory.scratch, memory.bytes, memory.least, layers, make)


def _texts(backend: CBackend, calls: Mapping[str, list[list[int | None]]]) -> tuple[list[KernelText], str]:
    """Return the kernels in C, and what stands before them."""
    found = specialize(backend.tir.functions(), calls, partial(lower, fused=backend.machine.fused))
    used: set[str] = set()
    kernels: list[KernelText] = []
    for symbol, function in found.functions.items():
        text = Function(function, symbol, constants_of(function))
        kept = found.kept[symbol]
        writes = frozenset(at for at, written in zip(kept, text.writes(), strict=True) if written)
        places = {kept[at]: frozenset(kept[i] for i in of) for at, of in replaced_operands(function).items()}
        kernels.append(KernelText(symbol, text.head(), text.body(), kept, writes, places))
        used |= text.used
    return kernels, prelude(used, backend.machine.extremes)


def _check_static(program: Program) -> None:
    # Fixed shapes of the inputs settle all others, but for lengths that depend on data.
    for at in program.inputs:
        tensor = program.tensors[at]
        loose = [size for size in tensor.shape if not isinstance(size, int)]
        if loose:
            raise RefusalError(
                f"{tensor.name!r} has a length that is not known, {loose[0]}; a model in C has fixed shapes: give them "
                "by --input-shape NAME:1,3,224,224"
            )
    # The turn of a Loop is measured, too, which does no harm unless a size depends on it.
    sizes = [*program.slots, *(size for tensor in program.tensors for size in tensor.shape)]
    sizes += [size for step in program.steps for size in (*step.scalars, step.items)]
    if not all(isinstance(size, int) for size in sizes):
        raise RefusalError("lengths in the model depend on data; a model in C has fixed shapes")
