"""Random graphs, built and run, against onnxruntime."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import softq
from softq.compiler.frontend.converters import converters, full_name
from softq.compiler.tvm_errors import is_of_tvm
from softq.passes import PASSES
from tests.amount import amount
from tests.built import causes
from tests.random_graph import DrawnModel, Graph, draw_graph, is_absent
from tests.random_operators import OLD, OPERATORS

pytest.importorskip("tvm")

REFUSED: list[str] = []


def compare(drawn: DrawnModel, name: object) -> None:
    """Build a model and compare its run; a refusal of softq's is counted, one that TVM fails on is a fault."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "built"
        try:
            softq.build(drawn.model, built, target="cpu")
            with softq.load(built) as session:
                found = session(dict(drawn.feeds))
        except softq.SoftqError as error:
            if any(map(is_of_tvm, causes(error))):
                raise
            REFUSED.append(f"{name}: {error}")
            return
    for output, want in drawn.wanted.items():
        got = np.asarray(found[output])
        assert (got.shape, got.dtype) == (want.shape, want.dtype), output
        if want.dtype.kind == "f":
            np.testing.assert_allclose(np.float64(got), np.float64(want), rtol=1e-4, atol=1e-4, err_msg=output)
        elif output in drawn.loose and want.dtype.kind in "iu":
            assert np.abs(got.astype(np.int64) - want).max(initial=0) <= 1, output
        else:
            np.testing.assert_array_equal(got, want, err_msg=output)


EXCEPTIONS = {
    "com.microsoft::DynamicQuantizeLSTM": "onnxruntime rounds inputs and states to 8 bits; a built model does not",
    "com.microsoft::QLinearReduceMean": "onnxruntime has no kernel of it, and ONNX's reference has none",
    "com.microsoft::SimplifiedLayerNormalization": "onnxruntime has it in ONNX's domain, where it is drawn",
    "softq.compiler::LookUpCodes": "build alone writes it, and refuses models with it: tests/test_build_qdq.py",
    "softq.compiler::MatMulWords": "build alone writes it, and refuses models with it: tests/test_native_integers.py",
    "softq.compiler::NormalizeCodes": "build alone writes it and refuses it in models: tests/test_normalize_codes.py",
}
"""Operators that build takes and that no graph has, each with the reason."""


def taken() -> set[str]:
    """Return the operators that build takes: those with a right node test, with a converter, and that passes open."""
    table = json.loads((Path(__file__).parent.parent / "benchmarks" / "node_tests.json").read_text(encoding="utf-8"))
    right = {name for name, counts in table["operators"].items() if counts.get("right")}
    opened = {full_name(domain, name) for entry in PASSES.entries().values() for domain, name in entry.opens}
    return right | converters().keys() | opened


def test_each_operator_that_build_takes_is_drawn() -> None:
    assert taken() - OPERATORS.keys() == EXCEPTIONS.keys()


def test_what_is_drawn_for_an_operator_has_it() -> None:
    for operator, one in OPERATORS.items():
        opset = 9 if is_absent(operator, 28) else 28
        assert opset == 28 or operator in OLD
        g = Graph(Random(0), opset)
        for _ in range(8):
            one(g)
        assert operator.rpartition("::")[2] in {node.op_type for node in g.nodes}, operator


def draw(seed: int) -> DrawnModel:
    return draw_graph(OPERATORS, OLD, Random(seed))


@settings(max_examples=amount(7, 12), deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_random_graphs(seed: int) -> None:
    compare(draw(seed), seed)


@pytest.mark.slow
def test_two_thousand_random_graphs() -> None:
    REFUSED.clear()
    for seed in range(2000):
        compare(draw(seed), seed)
    # What is refused is refused by name; more than these would be a front door that got narrower.
    assert len(REFUSED) <= 100, REFUSED
