"""ONNX's own node tests of everything that holds a softmax: converted with the exact method, the outputs are theirs.

Tolerances are those of each test (1e-3 relative, 1e-7 absolute). Where a tensor is float16 or bfloat16, the results of
a test case are those of one order of roundings among many: there the tolerance is 2^-6, two units in the last place of
a bfloat16 near 1, and for float16 2^-9.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase
from onnx.reference import ReferenceEvaluator

import softq

Array = np.ndarray[Any, Any]

NAMED = ("softmax", "hardmax", "attention")

# A module computes its cases when it is imported: those of all operators take seconds.
with warnings.catch_warnings():
    # The test cases divide by zero where they want infinity.
    warnings.simplefilter("ignore")
    for module in pkgutil.iter_modules(node.__path__):
        if any(part in module.name for part in NAMED):
            importlib.import_module(f"{node.__name__}.{module.name}")
ALL: dict[str, TestCase] = {case.name: case for case in node._NodeTestCases}
CASES = sorted(name for name in ALL if any(part in name for part in NAMED) and "linear_attention" not in name)
"""LinearAttention has no softmax."""

REFUSED: dict[str, str] = json.loads((Path(__file__).parent / "onnx_node_tests_refused.json").read_text())
"""The test cases of which nothing is converted, with the reason that the first softmax gets."""

NARROW = {int(onnx.TensorProto.FLOAT16): 2.0**-9, int(onnx.TensorProto.BFLOAT16): 2.0**-6}


def model_of(case: TestCase) -> onnx.ModelProto:
    assert case.model is not None
    return case.model


@cache
def converted(name: str, method: str, r: float | None = None) -> softq.Conversion[onnx.ModelProto]:
    exact, bits = method == "exact", None if method == "exact" else 4
    settings = {} if r is None else {"r": r}
    return softq.convert(model_of(ALL[name]), method=method, bits=bits, settings=settings, all_sites=exact)


def run(model: onnx.ModelProto, inputs: list[Array]) -> list[Array]:
    """Return the outputs from onnxruntime, or from onnx's reference where onnxruntime lacks a kernel."""
    feeds = {value.name: array for value, array in zip(model.graph.input, inputs, strict=True)}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        # Kernels that are missing and operator sets that are too new come as many kinds of exceptions.
        return [np.asarray(output) for output in ReferenceEvaluator(model).run(None, feeds)]
    return [np.asarray(output) for output in session.run(None, feeds)]


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def inputs_and_outputs(case: TestCase) -> tuple[list[Array], list[Array]]:
    assert case.data_sets is not None
    inputs, outputs = case.data_sets[0]
    return [np.asarray(array) for array in inputs], [np.asarray(array) for array in outputs]


def tolerances(case: TestCase) -> tuple[float, float]:
    graph = model_of(case).graph
    kinds = {int(value.type.tensor_type.elem_type) for value in (*graph.input, *graph.output)}
    loose = max((NARROW[kind] for kind in kinds & NARROW.keys()), default=0.0)
    return max(case.rtol, loose), max(case.atol, loose)


def test_there_are_as_many_as_are_known() -> None:
    assert len(CASES) == 257
    assert set(REFUSED) <= set(CASES)


@pytest.mark.quick_cases(64)
@pytest.mark.parametrize("name", CASES)
def test_the_exact_method_changes_nothing(name: str) -> None:
    case, result = ALL[name], converted(name, "exact")
    if not result.plan.sites:
        assert {site.verdict.action for site in result.sites} <= {"keep", "refuse"}
        assert result.sites[0].verdict.reason == REFUSED.get(name)
        assert operators(result.model) == operators(model_of(case))
        return
    assert name not in REFUSED, "it is converted now: take it off the list"
    onnx.checker.check_model(result.model, full_check=True)
    assert "Attention" not in operators(result.model)
    inputs, want = inputs_and_outputs(case)
    got = run(result.model, inputs)
    relative, absolute = tolerances(case)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=relative, atol=absolute)


MODIFIED = "test_flexattention_prob_mod_expanded_ver26"
"""Multiplies the weights by a constant before they meet V: by default that is not taken for attention."""

ATTENTION = [name for name in CASES if "attention" in name and name not in (MODIFIED, *REFUSED)]


@pytest.mark.quick_cases(30)
@pytest.mark.parametrize("name", ATTENTION)
def test_four_bits_keep_what_is_finite_and_what_is_zero(name: str) -> None:
    # onnx's reference, which runs bfloat16, fails in GatherElements of a row of more than 32 elements.
    case, result = ALL[name], converted(name, "deferred-log", 1.0 if "bf16" in name else None)
    assert result.plan.sites, "attention is converted by default"
    inputs, want = inputs_and_outputs(case)
    for g, w in zip(run(result.model, inputs), want, strict=True):
        assert (np.isfinite(g.astype(np.float64)) == np.isfinite(w.astype(np.float64))).all()
        empty = (w == 0).all(axis=-1)
        assert not g[empty].astype(np.float64).any()
