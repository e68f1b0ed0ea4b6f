"""Random graphs, built and run, against onnxruntime."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

import softq
from tests.built import check
from tests.random_graph import draw_graph
from tests.random_operators import OPERATORS

pytest.importorskip("tvm")

REFUSED: list[str] = []


def compare(seed: int) -> None:
    """Draw a graph, and compare it; a refusal is counted."""
    model, feeds = draw_graph(OPERATORS, Random(seed))
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, dict(feeds)
        )
    except NoKernel:
        return  # Some operators have no kernel for some types there.
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(model, [feeds], Path(folder), relative=1e-4, absolute=1e-4)
        except softq.SoftqError as error:
            REFUSED.append(f"{seed}: {error}")


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_random_graphs(seed: int) -> None:
    compare(seed)


@pytest.mark.slow
def test_two_thousand_random_graphs() -> None:
    REFUSED.clear()
    for seed in range(2000):
        compare(seed)
    # What is refused is refused by name; more than these would be a front door that got narrower.
    assert len(REFUSED) <= 100, REFUSED
