"""The cases, what is left out of them, and what becomes of one that is built and run."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase

import softq

Array = np.ndarray[Any, Any]
Status = Literal["right", "wrong", "refused", "crashed", "left out"]

NARROW = {int(onnx.TensorProto.FLOAT16): 2.0**-9, int(onnx.TensorProto.BFLOAT16): 2.0**-6}
"""Tolerances of types whose results are those of one order of roundings among many: two units in the last place."""

_DOMAINS = {
    "ai.onnx.preview.training": "an operator of training",
    "ai.onnx.preview": "a preview, whose meaning may still change",
    "ai.onnx.ml": "an operator of ai.onnx.ml, which a built model has none of",
}

_OPERATORS = {
    "ImageDecoder": "it decodes files of images",
    **dict.fromkeys(
        ("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"),
        "a random operator",
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        name: Its name.
        operator: The operator that it is about.
        status: Whether its results are right, or what happened instead.
        why: What is wrong or was refused; empty if it is right.
    """

    name: str
    operator: str
    status: Status
    why: str


@cache
def all_cases() -> dict[str, TestCase]:
    """Return every case that the installed onnx has, by name."""
    with warnings.catch_warnings():
        # The cases divide by zero where they want infinity, and cast what is too large.
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}  # type: ignore[arg-type]


def model_of(case: TestCase) -> onnx.ModelProto:
    """Return the model of a case."""
    assert case.model is not None
    return case.model


def operator_of(case: TestCase) -> str:
    """Return the operator that a case is about: of an expanded function, the first one that is no Constant."""
    nodes = model_of(case).graph.node
    node = next((node for node in nodes if node.op_type != "Constant"), nodes[0])
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def left_out(case: TestCase) -> str | None:
    """Return why a case is none of a built model's, or None."""
    nodes = list(_nodes(model_of(case).graph))
    for node in nodes:
        if node.domain in _DOMAINS or node.op_type in _OPERATORS:
            return _DOMAINS.get(node.domain) or _OPERATORS[node.op_type]
    graph = model_of(case).graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.WhichOneof("value")
        if kind not in ("tensor_type", None):
            return "a sequence or an optional"
        if value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            return "strings"
    if any(re.search("(?<!Reverse)Sequence|Optional", node.op_type) for node in nodes):
        return "a sequence or an optional"
    if case.name.startswith("test_training_"):
        return "a case of training"
    return None


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)


def outcome(name: str) -> Outcome:
    """Build a case, run it on its data, and return what became of it."""
    case = all_cases()[name]
    reason = left_out(case)
    if reason is not None:
        return Outcome(name, operator_of(case), "left out", reason)
    try:
        difference = _difference(case)
    except softq.SoftqError as error:
        # The folder's name is another one each time.
        why = re.sub(r"^\S*softq-case-\S*: ", "", str(error))
        return Outcome(name, operator_of(case), "refused", why)
    except Exception as error:
        return Outcome(name, operator_of(case), "crashed", f"{type(error).__name__}: {error}")
    return Outcome(name, operator_of(case), "wrong" if difference else "right", difference)


def _difference(case: TestCase) -> str:
    """Return what is wrong with the results of a case; empty if nothing is."""
    graph = model_of(case).graph
    assert case.data_sets is not None
    with tempfile.TemporaryDirectory(prefix="softq-case-") as scratch:
        softq.build(model_of(case), Path(scratch) / "built", target="cpu")
        with softq.load(Path(scratch) / "built") as built:
            named = {spec.name for spec in built.inputs}
            for inputs, outputs in case.data_sets:
                feeds = {v.name: _array(x) for v, x in zip(graph.input, inputs, strict=True) if v.name in named}
                found = built(feeds)
                for value, output in zip(graph.output, outputs, strict=True):
                    got, want = found[value.name], _array(output)
                    one, other = (f"{x.dtype}{list(x.shape)}" for x in (got, want))
                    if one != other:
                        return f"{value.name} is {one}; it should be {other}"
                    relative, absolute = tolerances(case)
                    if not _close(got, want, relative, max(absolute, _rounding(want))):
                        return f"{value.name} has other values"
    return ""


def _array(data: object) -> Array:
    return numpy_helper.to_array(data) if isinstance(data, onnx.TensorProto) else np.asarray(data)


def tolerances(case: TestCase) -> tuple[float, float]:
    """Return the relative and the absolute tolerance of a case."""
    graph = model_of(case).graph
    kinds = {int(value.type.tensor_type.elem_type) for value in (*graph.input, *graph.output)}
    loose = max((NARROW[kind] for kind in kinds & NARROW.keys()), default=0.0)
    return max(case.rtol, loose), max(case.atol, loose)


def _rounding(want: Array) -> float:
    """Return one rounding of the greatest element as float32: a sum that cancels is not nearer than that."""
    values = np.abs(want.astype(np.float64)) if want.dtype.kind == "f" else np.zeros(1)
    return 2.0**-23 * float(values[np.isfinite(values)].max(initial=0))


def _close(got: Array, want: Array, relative: float, absolute: float) -> bool:
    if want.dtype.kind in "iub":
        return bool(np.array_equal(got, want))
    # As float64: NumPy has no tolerance for some of the narrow types.
    return np.allclose(got.astype(np.float64), want.astype(np.float64), relative, absolute, equal_nan=True)
