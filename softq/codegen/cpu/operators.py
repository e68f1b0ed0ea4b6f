"""Functions of a model as custom operators of another runtime, with the kernels that a built model has."""

from __future__ import annotations

from collections.abc import Sequence

from softq.artifact.machine import Cpu
from softq.artifact.operators.library import AttentionOperator, Operator, OperatorLibrary, Parameter
from softq.codegen.cpu.backend import CpuBackend
from softq.codegen.cpu.rows import RowKernel
from softq.compiler.attention_functions import FoundFunctions
from softq.compiler.pipeline import compile_model
from softq.errors import ProofError, RefusalError
from softq.rowprog import Program
from softq.rowprog.onnx import signature
from softq.rowprog.onnx.carriers import carrier
from softq.rowprog.onnx.emitter import output_names
from softq.rowprog.onnx.interface import DOMAIN, offset_inputs, parameter_input
from softq.rowprog.program import Param
from softq.rowprog.types import Kind


def compile_operators(found: FoundFunctions, machine: Cpu) -> OperatorLibrary:
    """Return an operator for each function.

    Args:
        found: The functions of a model.
        machine: What to compile for.

    Raises:
        RefusalError: a function has no kernel; the message names it.
    """
    backend = CpuBackend(machine)
    rows = [_rows(name, found, backend) for name in sorted(found.rows)]
    attentions = [_attention(name, found, backend) for name in sorted(found.attentions)]
    return OperatorLibrary(tuple(rows), tuple(attentions), backend.objects())


def _rows(name: str, found: FoundFunctions, backend: CpuBackend) -> Operator:
    function = found.rows[name]
    program = function.program
    try:
        kernel = backend.row(program, function.max_length)
    except ProofError as error:
        raise RefusalError(f"function {DOMAIN}::{name} has no kernel: {error}") from error
    return row_operator(name, program, kernel, function.max_length, sites=found.sites.get(name, ()))


def row_operator(
    name: str,
    program: Program,
    kernel: RowKernel,
    max_length: int,
    *,
    sites: Sequence[str] = (),
    dense: bool = False,
) -> Operator:
    """Return the operator of a row function.

    Args:
        name: The function's name.
        program: What the function computes.
        kernel: A kernel of it.
        max_length: Greatest length of a row that the kernel is proved for.
        sites: Ids of the softmaxes that it computes.
        dense: Whether the kernel reads a mask with an element for each of the scores in any case.
    """
    parameters, offsets = tuple(map(_parameter, program.params)), len(offset_inputs(program.params))
    assert 1 + program.masked + len(parameters) + offsets == len(signature(program))
    return Operator(
        name=name,
        kernel=kernel.symbol,
        scores=program.scores.numpy.name,
        masked=program.masked,
        parameters=parameters,
        offsets=offsets,
        outputs={out: program.outputs[out].kind is Kind.ROW for out in output_names(program, None)},
        max_length=max_length,
        scratch_bytes=kernel.scratch_bytes,
        sites=tuple(sites),
        dense=dense,
    )


def _attention(name: str, found: FoundFunctions, backend: CpuBackend) -> AttentionOperator:
    attention = found.attentions[name]
    try:
        program = compile_model(attention.model, backend, found.called)
    except RefusalError as error:
        what = f"function {DOMAIN}::{name} has no operator"
        raise RefusalError(f"{what}: {error}; convert without --fuse-attention") from error
    return AttentionOperator(name, program, tuple(attention.sites))


def _parameter(param: Param) -> Parameter:
    given = carrier(param.dtype, param.low, param.high)
    size = 1 if param.size is None else param.size
    return Parameter(parameter_input(param), given.numpy.name, param.dtype.numpy.name, param.scope == "head", size)
