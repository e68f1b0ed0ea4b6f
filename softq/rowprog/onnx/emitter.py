"""Row programs as ONNX functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from softq.errors import UsageError
from softq.rowprog.onnx.interface import DOMAIN, INTERFACE, function_name, signature
from softq.rowprog.onnx.loop import scan
from softq.rowprog.onnx.rules import RULES
from softq.rowprog.onnx.walker import Rule, Walker
from softq.rowprog.program import Program
from softq.rowprog.ranges import prove

OLDEST_OPSET = 18
"""The first opset whose reductions all take axes as an input."""

BACKEND: Mapping[str, Rule] = {**RULES, "scan": scan}


def emit(program: Program, *, opset: int, max_length: int = 65536, outputs: Sequence[str] | None = None) -> ir.Function:
    """Return the program as a function of the domain `softq` that imports exactly this opset.

    Scores may have any rank from 1 on, and any float type where the program's are f32. Of rows without elements
    onnxruntime gives the rows, but scalars without elements too ([..., 0]: its reductions keep an empty axis), and its
    Scan cannot go along them at all: it ends the process.

    Args:
        program: What to emit.
        opset: Version of the default domain, at least 18.
        max_length: Greatest length of a row that the proof covers.
        outputs: Names of the outputs; by default those of the interface. All are float32, rows [..., N] and scalars
            [..., 1]; an integer of more than 24 bits is rounded to it.

    Raises:
        ProofError: the program has no complete proof.
        RefusalError: a value does not fit any type that ONNX runtimes compute in.
        UsageError: the opset is too old, or an output unknown, named twice or named as an input is.
    """
    if opset < OLDEST_OPSET:
        raise UsageError(f"opset is {opset}; functions need {OLDEST_OPSET} or newer")
    names = output_names(program, outputs)
    inputs = {name: ir.Value(name=name) for name in signature(program)}
    for name in names:
        if name in inputs:
            raise UsageError(f"program {program.name} has an output {name!r}; its function has an input of that name")
    walker = Walker(prove(program, max_length=max_length), inputs, BACKEND, _prefix(names))
    results: list[ir.Value] = []
    for name in names:
        # A node of its own, so that two outputs of one value, or an input given back, have names of their own.
        result = walker.cast(walker.full(program.outputs[name])[0], ir.DataType.FLOAT)
        result.name = name
        results.append(result)
    graph = ir.Graph(
        list(inputs.values()),
        results,
        nodes=walker.nodes_for(results),
        opset_imports={"": opset},
        name=function_name(program),
    )
    return ir.Function(DOMAIN, function_name(program), graph=graph, attributes=[])


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


def _prefix(names: Sequence[str]) -> str:
    """Return what values inside the function begin with, so that none has the name of an output."""
    prefix = "v"
    while any(re.match(rf"{prefix}\d", name) for name in names):
        prefix += "_"
    return prefix
