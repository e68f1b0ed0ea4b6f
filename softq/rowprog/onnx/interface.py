"""The interface of an emitted function: its name, its inputs, and the arrays that a call passes for parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softq.errors import InputError
from softq.rowprog.evaluation import check_values
from softq.rowprog.onnx.carriers import carrier
from softq.rowprog.program import Param, Program

DOMAIN = "softq"
"""Domain of every emitted function."""

VALUES_DOMAIN = "softq.values"
"""Domain of functions that code V: what has the domain `softq` takes a softmax's place."""

_HEADS = "heads"

T = TypeVar("T")

INTERFACE = ("probabilities", "weights", "normalizer", "values")
"""The outputs that a function has; other outputs of a program are for kernels and tests."""


def function_name(program: Program) -> str:
    """Return the function's name: method, structure, `valid` if masked, the scores' type if integer."""
    method = "".join(word.capitalize() for word in program.name.split("-"))
    parts = [
        method,
        program.structure,
        "valid" * program.masked,
        "" if program.scores.is_float else program.scores.value,
    ]
    # A structure always follows, so that no name is that of a standard operator.
    return "_".join(part for part in parts if part) if any(parts[1:]) else f"{method}_f32"


def parameter_input(param: Param) -> str:
    """Return the name of the input for a parameter: never that of an output, which a parameter may share."""
    return f"given_{param.name}"


def signature(program: Program) -> tuple[str, ...]:
    """Return the names of the function's inputs in their order."""
    heads = offset_inputs(program.params).values()
    return ("scores", *(("valid",) if program.masked else ()), *map(parameter_input, program.params), *heads)


def offset_inputs(params: Iterable[Param]) -> dict[int, str]:
    """Return, by size, the inputs that hold for each head where its part of the tables of this size begins.

    There is one name where all tables of the heads have one size.
    """
    sizes = sorted({param.size for param in params if param.scope == "head" and param.size})
    return {size: _HEADS if len(sizes) == 1 else f"{_HEADS}_{size}" for size in sizes}


def offsets_among(inputs: Mapping[str, T], size: int) -> T:
    """Return the one of a function's inputs by name that holds where each head's tables of a size begin."""
    return inputs[name] if (name := f"{_HEADS}_{size}") in inputs else inputs[_HEADS]


def arguments(program: Program, values: Mapping[str, ArrayLike]) -> list[NDArray[np.generic]]:
    """Return the arrays to pass for the parameters, in the order of the signature behind `scores` and `valid`.

    Args:
        program: The program.
        values: For each parameter what the interpreter takes: a number per site as [1], one per head as
            [heads, 1, 1], a table per site as [size], one per head as [heads, 1, size].

    Raises:
        InputError: a parameter is missing or unknown, has another type or shape, or leaves its interval.
    """
    unknown = sorted(set(values) - {param.name for param in program.params})
    if unknown:
        raise InputError(f"unknown parameters {unknown}; the program takes {[p.name for p in program.params]}")
    arrays: list[NDArray[np.generic]] = []
    offsets: dict[int, NDArray[np.generic]] = {}
    for param in program.params:
        if param.name not in values:
            raise InputError(f"parameter {param.name} is missing; the function takes {', '.join(signature(program))}")
        value = np.asarray(values[param.name])
        _check(param, value)
        if param.size is not None and param.scope == "head":
            offsets[param.size] = (np.arange(value.shape[0], dtype=np.int64) * param.size).reshape(-1, 1, 1)
            value = value.reshape(-1)
        arrays.append(value.astype(carrier(param.dtype, param.low, param.high).numpy))
    return [*arrays, *(offsets[size] for size in offset_inputs(program.params))]


def _check(param: Param, value: NDArray[np.generic]) -> None:
    check_values(param, value)
    last = 1 if param.size is None else param.size
    expected = (last,) if param.scope == "site" else ("heads", 1, last)
    if value.ndim != len(expected) or value.shape[-1] != last or (value.ndim == 3 and value.shape[1] != 1):
        raise InputError(
            f"parameter {param.name} has shape {list(value.shape)}; expected [{', '.join(map(str, expected))}]"
        )
