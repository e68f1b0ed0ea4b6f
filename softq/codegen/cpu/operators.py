"""Row functions of a model as custom operators of another runtime, with the kernels that a built model has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from softq.artifact.machine import Cpu
from softq.artifact.operators.library import Operator, OperatorLibrary, Parameter
from softq.codegen.cpu.kernels import CpuKernels
from softq.codegen.cpu.object_code import objects
from softq.errors import ProofError, RefusalError
from softq.provenance import RowFunction
from softq.rowprog.onnx import signature
from softq.rowprog.onnx.carriers import carrier
from softq.rowprog.onnx.emitter import output_names
from softq.rowprog.onnx.interface import DOMAIN, offset_inputs, parameter_input
from softq.rowprog.program import Param
from softq.rowprog.types import Kind


def compile_operators(
    functions: Mapping[str, RowFunction], sites: Mapping[str, Sequence[str]], machine: Cpu
) -> OperatorLibrary:
    """Return an operator for each function.

    Args:
        functions: What the functions compute, by name.
        sites: Ids of the softmaxes that each computes.
        machine: What to compile for.

    Raises:
        RefusalError: a function has no kernel; the message names it.
    """
    kernels = CpuKernels(machine)
    made: list[Operator] = []
    for name, function in sorted(functions.items()):
        program = function.program
        try:
            kernel = kernels.row(program, function.max_length)
        except ProofError as error:
            raise RefusalError(f"function {DOMAIN}::{name} has no kernel: {error}") from error
        made.append(
            Operator(
                name=name,
                kernel=kernel.symbol,
                scores=program.scores.numpy.name,
                masked=program.masked,
                parameters=tuple(map(_parameter, program.params)),
                offsets=len(offset_inputs(program.params)),
                outputs={out: program.outputs[out].kind is Kind.ROW for out in output_names(program, None)},
                max_length=function.max_length,
                scratch_bytes=kernel.scratch_bytes,
                sites=tuple(sites.get(name, ())),
            )
        )
        assert 1 + program.masked + len(program.params) + made[-1].offsets == len(signature(program))
    return OperatorLibrary(tuple(made), objects(kernels.tir.functions(), machine))


def _parameter(param: Param) -> Parameter:
    given = carrier(param.dtype, param.low, param.high)
    size = 1 if param.size is None else param.size
    return Parameter(parameter_input(param), given.numpy.name, param.dtype.numpy.name, param.scope == "head", size)
