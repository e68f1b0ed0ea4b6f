"""Row programs as ONNX functions, and models that call one: for tests, golden vectors, and looking at in a viewer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import ArrayLike, NDArray

from softq.errors import UsageError
from softq.rowprog.onnx.carriers import Carrier
from softq.rowprog.onnx.interface import DOMAIN, INTERFACE, arguments, function_name, signature
from softq.rowprog.onnx.rules import RULES
from softq.rowprog.onnx.walker import INT64, Walker, values_of
from softq.rowprog.program import Program
from softq.rowprog.ranges import Interval, prove
from softq.rowprog.types import Kind

OLDEST_OPSET = 18
"""The first opset whose reductions all take axes as an input."""


@dataclass(frozen=True)
class Emission:
    """A function, and the constants that are inputs behind those of its signature.

    Attributes:
        function: The function.
        constants: An array for each of these inputs, in their order.
        weights: What the weights lie in for every row that has elements; None of a program that gives probabilities.
    """

    function: ir.Function
    constants: tuple[NDArray[np.generic], ...]
    weights: Interval | None = None


def emit(
    program: Program,
    *,
    opset: int,
    max_length: int = 65536,
    outputs: Sequence[str] | None = None,
    domain: str = DOMAIN,
    trims: bool = True,
) -> ir.Function:
    """Return the program as a function of the domain `softq` that imports exactly this opset.

    Scores may have any rank from 1 on, and any float type where the program's are f32. Of rows without elements
    onnxruntime gives the rows, but scalars without elements too ([..., 0]: its reductions keep an empty axis), and its
    Scan cannot go along them at all: it ends the process. Without rows there are no scalars, [..., 1].

    Args:
        program: What to emit.
        opset: Version of the default domain, at least 18.
        max_length: Greatest length of a row that the proof covers.
        outputs: Names of the outputs; by default those of the interface. All are float32, rows [..., N] and scalars
            [..., 1]; an integer of more than 24 bits is rounded to it.
        domain: The function's domain.
        trims: Whether scalars are cut to [..., 1], also without rows. Functions of softq at af0a849 do not cut them.

    Raises:
        ProofError: the program has no complete proof.
        RefusalError: a value does not fit any type that ONNX runtimes compute in.
        UsageError: the opset is too old, or an output unknown, named twice or named as an input is.
    """
    return _emit(program, opset, max_length, outputs, exposed=False, domain=domain, trims=trims).function


def emit_exposed(program: Program, *, opset: int, max_length: int = 65536) -> Emission:
    """Return the program's function with its numbers and tables as inputs: programs that differ in them share a body.

    Arguments and errors are those of `emit`.
    """
    return _emit(program, opset, max_length, None, exposed=True)


def emit_with_bounds(program: Program, *, opset: int, max_length: int = 65536) -> Emission:
    """Return the program's function as `emit` does, with what its weights lie in.

    Arguments and errors are those of `emit`.
    """
    return _emit(program, opset, max_length, None, exposed=False)


def _emit(
    program: Program,
    opset: int,
    max_length: int,
    outputs: Sequence[str] | None,
    *,
    exposed: bool,
    domain: str = DOMAIN,
    trims: bool = True,
) -> Emission:
    if opset < OLDEST_OPSET:
        raise UsageError(f"opset is {opset}; functions need {OLDEST_OPSET} or newer")
    names = output_names(program, outputs)
    inputs = {name: ir.Value(name=name) for name in signature(program)}
    for name in names:
        if name in inputs:
            raise UsageError(f"program {program.name} has an output {name!r}; its function has an input of that name")
    constants: dict[ir.Value, NDArray[np.generic]] = {}
    proof = prove(program, max_length=max_length)
    walker = Walker(proof, inputs, RULES, _choose_prefix(names), constants if exposed else None, opset=opset)
    results: list[ir.Value] = []
    for name in names:
        # A node of its own, so that two outputs of one value, or an input given back, have names of their own.
        kind = Carrier.FLOAT if walker.is_float(program.outputs[name]) else None
        result = walker.full(program.outputs[name], kind)[0]
        if program.outputs[name].kind is Kind.SCALAR and trims:
            # Of tensors without elements onnxruntime's reductions give the shape of the operand.
            bounds = walker.constant([0], INT64), walker.constant([1], INT64), walker.last_axis()
            result = walker.add("Slice", result, *bounds)
        result = walker.cast(result, ir.DataType.FLOAT)
        result.name = name
        results.append(result)
    nodes = walker.nodes_for(results)
    used = {value for node in nodes for value in values_of(node)}
    constants = {value: array for value, array in constants.items() if value in used}
    graph = ir.Graph(
        [*inputs.values(), *constants], results, nodes=nodes, opset_imports={"": opset}, name=function_name(program)
    )
    function = ir.Function(domain, function_name(program), graph=graph, attributes=[])
    weights = proof.filled[program.outputs["weights"]] if program.is_pair else None
    return Emission(function, tuple(constants.values()), weights)


def output_names(program: Program, outputs: Sequence[str] | None) -> list[str]:
    """Return the names of a function's outputs: those given, by default those of the interface.

    Raises:
        UsageError: there is none, or one is unknown or named twice.
    """
    names = [name for name in INTERFACE if name in program.outputs] if outputs is None else list(outputs)
    for name in names:
        if name not in program.outputs:
            raise UsageError(f"program {program.name} has no output {name!r}; it has {', '.join(program.outputs)}")
    if not names or len(set(names)) < len(names):
        raise UsageError(f"outputs are {', '.join(names) or 'none'}; expected at least one, each once")
    return names


def _choose_prefix(names: Sequence[str]) -> str:
    """Return what values inside the function begin with, so that none has the name of an output."""
    prefix = "v"
    while any(re.match(rf"{prefix}\d", name) for name in names):
        prefix += "_"
    return prefix


def to_model(
    program: Program,
    values: Mapping[str, ArrayLike] | None = None,
    *,
    shape: Sequence[int | str] = ("rows", "N"),
    opset: int = 18,
    max_length: int = 65536,
    outputs: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """Return a model that calls the program's function once.

    Args:
        program: What to call.
        values: Run-time parameters, as the interpreter takes them.
        shape: Shape of the scores; a mask has the same.
        opset: Version of the default domain.
        max_length: Greatest length of a row that the proof covers.
        outputs: Names of the outputs; by default those of the interface.
    """
    function = emit(program, opset=opset, max_length=max_length, outputs=outputs)
    inputs = [
        ir.Value(name="scores", type=ir.TensorType(ir.DataType.from_numpy(program.scores.numpy)), shape=ir.Shape(shape))
    ]
    if program.masked:
        inputs.append(ir.Value(name="valid", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(shape)))
    nodes: list[ir.Node] = []
    given: list[ir.Value] = []
    arrays = arguments(program, values or {})
    for name, array in zip(signature(program)[len(inputs) :], arrays, strict=True):
        node = ir.node("Constant", [], {"value": ir.tensor(array)}, name=name)
        node.outputs[0].name = f"given.{name}"
        nodes.append(node)
        given.append(node.outputs[0])
    names = output_names(program, outputs)
    call = ir.node(function.name, [*inputs, *given], domain=DOMAIN, num_outputs=len(names), name="softmax")
    for name, out in zip(names, call.outputs, strict=True):
        scalar = program.outputs[name].kind is Kind.SCALAR
        out.name, out.type = name, ir.TensorType(ir.DataType.FLOAT)
        out.shape = ir.Shape([*shape[:-1], 1] if scalar else shape)
    graph = ir.Graph(
        inputs, list(call.outputs), nodes=[*nodes, call], opset_imports={"": opset, DOMAIN: 1}, name=program.name
    )
    # The lowest that knows functions and goes with the opset's types.
    ir_version = 8 if opset < 19 else 9 if opset < 21 else 10
    return ir.to_proto(ir.Model(graph, ir_version=ir_version, functions=[function]))
