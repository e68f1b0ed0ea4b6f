"""A library of custom operators for tests: methods, and calls of their functions with scores that are hard."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import softq
from softq.artifact.operators.library import OperatorLibrary
from softq.artifact.operators.writing import write_operators
from softq.codegen.cpu.machines import host
from softq.codegen.cpu.operators import compile_operators
from softq.compiler.attention_functions import FoundFunctions, find_functions
from softq.methods import METHODS, Fitted, Method, Options, Sample
from softq.modelfile import as_model
from softq.prebuilt.functions import usual_options
from softq.provenance import RowFunction
from softq.rowprog import DType, Program
from softq.rowprog.onnx import function_name, to_model
from tests.fused import ATTENTIONS, Attention
from tests.test_methods import some_fitted

Array = NDArray[np.generic]
LONGEST = 2048
MACHINE = host("onnxruntime", "x86-64-v3" if platform.machine() == "x86_64" else "native", "")
"""Narrower vectors than this computer's, perhaps: their kernels are compiled in a fraction of the time."""

# Method, settings, type of the scores, masked.
CHOSEN: tuple[tuple[str, Mapping[str, Any], DType, bool], ...] = (
    ("deferred-log", {}, DType.F32, True),
    ("exact", {}, DType.F32, False),
    ("deferred-log", {"step": 0.1}, DType.I8, False),
    ("deferred-log", {"r": "head"}, DType.F32, True),
    ("deferred-log", {"r": "site", "distance": "float", "bits": 8}, DType.F32, False),
    ("log2", {}, DType.F32, False),
    ("i-exp", {}, DType.F32, False),
    ("index-softmax", {}, DType.F32, True),
)


@dataclass(frozen=True)
class Chosen:
    """A program with the values of its run-time parameters."""

    program: Program
    values: Mapping[str, Array]

    @property
    def name(self) -> str:
        """Name of its function."""
        return function_name(self.program)


def chosen(method: str, settings: Mapping[str, Any], scores: DType, masked: bool) -> Chosen:
    """Return the program of a method with settings, and fitted numbers where it takes them."""
    found = METHODS.get(method)
    fits = any(value in ("site", "head") for value in settings.values())
    options = found.resolve(found.configure(settings), fits)
    values = found.parameters(options, some_fitted(options)) if fits else {}
    return Chosen(found.program(options, scores=scores, masked=masked), values)


DROP_IN = tuple(name for name, method in METHODS.entries().items() if method.drop_in)


def calls(methods: Sequence[str], widths: Sequence[int]) -> Iterator[Chosen]:
    """Yield the functions that a library ahead of all models has of methods, with numbers for what is fitted."""
    seen: set[str] = set()
    for method in map(METHODS.get, methods):
        for options, _ in usual_options(method, widths):
            values = method.parameters(options, _some_numbers(method, options))
            for masked in (False, True):
                each = Chosen(method.program(options, masked=masked), values)
                if each.name not in seen:
                    seen.add(each.name)
                    yield each


def _some_numbers(method: Method, options: Options) -> Fitted:
    """Return a number for each option that is to be fitted, or three, for heads."""
    with suppress(KeyError):
        return some_fitted(options)
    heads = [_tried(method, options, near) for near in (0.3, 1.0, 3.0)]
    return {
        name: tuple(head[name] for head in heads) if scope == "head" else heads[1][name]
        for name, scope in options.fitted.items()
    }


def _tried(method: Method, options: Options, near: float) -> Mapping[str, float]:
    """Return the numbers among those that a fit would try whose sum is the nearest."""

    def error(numbers: Mapping[str, float]) -> float:
        return abs(sum(numbers.values()) - near)

    if method.fit is not None:
        rows = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
        return method.fit(options, [Sample(rows, rows.T.copy(), 0)], error)
    assert method.candidates is not None
    return {name: min(method.candidates(options, name), key=lambda x: abs(x - near)) for name in options.fitted}


@cache
def programs() -> tuple[Chosen, ...]:
    """Return the programs of `CHOSEN`."""
    return tuple(chosen(*each) for each in CHOSEN)


def library_of(made: Sequence[Chosen]) -> OperatorLibrary:
    """Return compiled operators for programs."""
    functions = {each.name: RowFunction(each.program, LONGEST) for each in made}
    return compile_operators(FoundFunctions(functions), MACHINE)


def write_library(folder: Path) -> Path:
    """Write the library of all programs."""
    return write_operators(_all(), MACHINE, folder)


def write_attentions(folder: Path) -> Path:
    """Write the library of all `ATTENTIONS`, converted to 4 bits."""
    found = [find_functions(as_model(fused_model(each))) for each in ATTENTIONS.values()]
    attentions = {name: function for each in found for name, function in each.attentions.items()}
    called = {name: function for each in found for name, function in each.called.items()}
    made = compile_operators(FoundFunctions({}, {}, attentions, called), MACHINE)
    return write_operators(made, MACHINE, folder)


def fused_model(given: Attention) -> onnx.ModelProto:
    """Return an attention converted to 4 bits, as a function."""
    return softq.convert(given.model(), bits=4, fuse_attention=True).model


@cache
def _all() -> OperatorLibrary:
    return library_of(programs())


def heads_of(each: Chosen) -> int | None:
    """Return for how many heads a program is fitted, if it is."""
    return next((v.shape[0] for v in each.values.values() if v.ndim == 3), None)


def model_of(each: Chosen, rank: int, dtype: type[np.generic] | None = None, mask_rank: int | None = None) -> bytes:
    """Return a model that calls a program's function, of scores whose axes are all open."""
    proto = to_model(each.program, each.values, shape=[f"d{i}" for i in range(rank)], max_length=LONGEST)
    if dtype is not None:
        proto.graph.input[0].type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    if each.program.masked:
        kind = proto.graph.input[1].type.tensor_type
        kind.shape.CopyFrom(onnx.TensorShapeProto())
        for axis in range(rank if mask_rank is None else mask_rank):
            kind.shape.dim.add().dim_param = f"m{axis}"
    return proto.SerializeToString()


def hard_scores(shape: Sequence[int], dtype: DType) -> Array:
    """Return scores of which some rows hold -inf, +inf, NaN, ties, or nothing but -inf."""
    rng = np.random.default_rng(sum(shape))
    if not dtype.is_float:
        return rng.integers(dtype.low, dtype.high + 1, size=shape).astype(dtype.numpy)
    x = (rng.normal(size=shape) * rng.choice([0.1, 3.0, 30.0], size=(*shape[:-1], 1))).astype(np.float32)
    rows = x.reshape(-1, shape[-1]) if x.size else x.reshape(0, 1)
    for number, row in enumerate(rows):
        match number % 11:
            case 2:
                row[::3] = -np.inf
            case 4:
                row[len(row) // 2] = np.nan
            case 5:
                row[...] = -np.inf
            case 7:
                row[-1] = np.inf
            case 9:
                row[...] = -10_000
            case _:
                pass
    return x


SHAPES = (
    ((7,), (1,)),
    ((3, 40), (0, 5), (5, 1)),
    ((2, 3, 33),),
    ((2, 3, 5, 64), (1, 3, 70, 500), (2, 0, 4, 9)),
    ((2, 2, 3, 4, 17),),
)


@dataclass(frozen=True)
class Case:
    """A model that calls one function, and the inputs of its runs."""

    name: str
    model: bytes
    runs: list[dict[str, Array]]


def cases() -> Iterator[Case]:
    """Yield a case for each program with four axes, and for each rank with two of the programs."""
    for number, each in enumerate(programs()):
        for shapes in SHAPES if number < 2 else SHAPES[3:4]:
            rank, runs = len(shapes[0]), list[dict[str, Array]]()
            for shape in shapes:
                dims = list(shape)
                if rank > 2:
                    dims[-3] = heads_of(each) or dims[-3]
                runs.append({"scores": hard_scores(dims, each.program.scores)})
                if each.program.masked:
                    runs[-1]["valid"] = np.random.default_rng(1).random(dims) < 0.7
            yield Case(f"{each.name}-{rank}", model_of(each, rank), runs)
