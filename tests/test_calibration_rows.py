"""Which rows of attention maps are sampled: scores carry the sample, head and row that they stand for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from softq.calibration import collect_rows, input_specs
from softq.data import open_data
from softq.graph.facts import NOTHING
from softq.methods import Sample

SAMPLES, HEADS, ROWS, LENGTH = 48, 3, 16, 8


@pytest.fixture(scope="module", params=[1, 8])
def sampled(request: pytest.FixtureRequest) -> list[Sample]:
    """The sampled rows of scores [SAMPLES, HEADS, ROWS, LENGTH] that begin with their place; so does V."""
    proto = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[b,{HEADS},{ROWS},{LENGTH}] x, float[b,{HEADS},{LENGTH},2] v) => (float[b,{HEADS},{ROWS},2] y) {{
            p = Softmax (x)
            y = MatMul (p, v)
        }}""")
    scores = np.random.default_rng(0).normal(size=(SAMPLES, HEADS, ROWS, LENGTH)).astype(np.float32)
    places = np.meshgrid(np.arange(SAMPLES), np.arange(HEADS), np.arange(ROWS), indexing="ij")
    for number, place in enumerate(places):
        scores[..., number] = place
    values = np.zeros((SAMPLES, HEADS, LENGTH, 2), np.float32)
    values[..., 0], values[..., 1] = np.arange(SAMPLES)[:, None, None], np.arange(HEADS)[None, :, None]
    model = ir.from_proto(proto)
    starts = range(0, SAMPLES, request.param)
    batches = [{"x": scores[i : i + request.param], "v": values[i : i + request.param]} for i in starts]
    data = open_data(batches, input_specs(model), reject_nan=True)
    (samples,) = collect_rows(model, ["p"], data, False, NOTHING).values()
    return samples


def places(samples: list[Sample], axis: int) -> list[set[int]]:
    """Return the samples (0), heads (1) or rows (2) that the rows of each sampled map stand for."""
    return [set(sample.scores[:, axis].astype(int).tolist()) for sample in samples]


def test_rows_belong_to_the_head_that_they_are_given_to(sampled: list[Sample]) -> None:
    assert places(sampled, 1) == [{sample.head} for sample in sampled]
    assert {sample.head for sample in sampled} == set(range(HEADS))


def test_the_values_are_those_of_the_sample_and_head(sampled: list[Sample]) -> None:
    for sample, of in zip(sampled, places(sampled, 0), strict=True):
        assert sample.values is not None
        np.testing.assert_array_equal(sample.values, np.tile([*of, sample.head], (LENGTH, 1)))


def test_maps_come_from_all_of_the_data(sampled: list[Sample]) -> None:
    """All 12 maps are of the same half of the samples with a probability of 2^-11 if they are drawn evenly."""
    late = [of for of in places(sampled, 0) if max(of) >= SAMPLES // 2]
    early = [of for of in places(sampled, 0) if max(of) < SAMPLES // 2]
    assert late
    assert early


def test_every_map_has_its_own_rows(sampled: list[Sample]) -> None:
    rows = places(sampled, 2)
    assert len({tuple(sorted(of)) for of in rows}) > 1
    seen = set().union(*rows)
    assert min(seen) < ROWS // 4
    assert max(seen) >= ROWS - ROWS // 4
