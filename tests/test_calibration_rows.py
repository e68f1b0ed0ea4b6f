"""Which rows of attention maps are sampled: scores carry the sample, head and row that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx import parser

import softq
from softq.calibration import collect_rows, fit, input_specs
from softq.data import open_data
from softq.graph.facts import NOTHING
from softq.methods import METHODS, Sample
from softq.plans import parse_plan

SAMPLES, HEADS, ROWS, LENGTH = 48, 3, 16, 8
PLAIN = softq.Sampling()


def model(samples: str = "b", heads: int = HEADS) -> onnx.ModelProto:
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[{samples},{heads},{ROWS},{LENGTH}] x, float[{samples},{heads},{LENGTH},2] v)
            => (float[{samples},{heads},{ROWS},2] y) {{
            p = Softmax (x)
            y = MatMul (p, v)
        }}""")


def arrays(heads: int = HEADS) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scores [SAMPLES, heads, ROWS, LENGTH] that begin with their place, and V with that of its sample and head."""
    scores = np.random.default_rng(0).normal(size=(SAMPLES, heads, ROWS, LENGTH)).astype(np.float32)
    for number, place in enumerate(np.meshgrid(np.arange(SAMPLES), np.arange(heads), np.arange(ROWS), indexing="ij")):
        scores[..., number] = place
    values = np.zeros((SAMPLES, heads, LENGTH, 2), np.float32)
    values[..., 0], values[..., 1] = np.arange(SAMPLES)[:, None, None], np.arange(heads)[None, :, None]
    return scores, values


def collect(
    batch: int, order: Sequence[int] = range(SAMPLES), heads: int = HEADS, sampling: softq.Sampling = PLAIN
) -> list[Sample]:
    read = ir.from_proto(model(heads=heads))
    scores, values = arrays(heads)
    starts = range(0, len(order), batch)
    batches = [{"x": scores[list(order[i : i + batch])], "v": values[list(order[i : i + batch])]} for i in starts]
    data = open_data(batches, input_specs(read), reject_nan=True)
    (samples,) = collect_rows(read, ["p"], data, False, NOTHING, sampling=sampling, threads=1).values()
    return samples


@pytest.fixture(scope="module", params=[1, 8])
def sampled(request: pytest.FixtureRequest) -> list[Sample]:
    return collect(request.param)


def places(samples: list[Sample], axis: int) -> list[set[int]]:
    """Return the samples (0), heads (1) or rows (2) that the rows of each sampled map stand for."""
    return [set(sample.scores[:, axis].astype(int).tolist()) for sample in samples]


def same(one: list[Sample], other: list[Sample]) -> bool:
    return [(s.scores.tobytes(), s.head, s.draw) for s in one] == [(s.scores.tobytes(), s.head, s.draw) for s in other]


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
    rows = [tuple(sample.scores[:, 2]) for sample in sampled]
    assert len(set(rows)) == len(rows)
    seen = {row for of in rows for row in of}
    assert min(seen) < ROWS // 4
    assert max(seen) >= ROWS - ROWS // 4


@pytest.mark.parametrize("batch", [7, 32, 48])
def test_rows_and_fits_do_not_depend_on_batch_and_order(batch: int) -> None:
    """Nor does a fit, to the bit: its sums go through the rows in the order of their keys."""
    shuffled = np.random.default_rng(batch).permutation(SAMPLES).tolist()
    first, other = collect(1), collect(batch, shuffled)
    assert same(first, other)
    method = METHODS.get("deferred-log")
    for scope in ("site", "head"):
        options = method.resolve(method.configure({"bits": 2, "r": scope}), True)
        assert fit(method, options, first) == fit(method, options, other)


def test_maps_and_rows_are_drawn_evenly() -> None:
    """Over 40 seeds each sample, head and row is taken as often as any other, within 5 standard deviations."""
    found = [s for seed in range(40) for s in collect(48, sampling=softq.Sampling(rows=4, seed=seed))]
    drawn = np.concatenate([sample.scores[:, :3] for sample in found]).astype(int)
    for axis, size in enumerate((SAMPLES, HEADS, ROWS)):
        counts = np.bincount(drawn[:, axis], minlength=size)
        # The four rows of a map are of one sample and head.
        each = 1 if axis == 2 else 4
        assert np.all(np.abs(counts / each - len(drawn) / each / size) <= 5 * np.sqrt(len(drawn) / each / size))


def test_a_sample_may_have_more_maps_than_were_expected() -> None:
    many = collect(8, heads=20)
    assert places(many, 1) == [{sample.head} for sample in many]
    assert sorted({sample.head for sample in many}) == list(range(20))
    assert len({tuple(sample.scores[:, 2]) for sample in many}) == len(many)
    # A map's numbers do not depend on how many there are beside it, nor on other samples and draws.
    some = PLAIN.words("p", [b"one"], 3)
    np.testing.assert_array_equal(replace(PLAIN, draws=2).words("p", [b"other", b"one"], 20)[1:, :3, :1], some)
    assert len(np.unique(some)) == some.size


def test_draws_are_other_rows_and_the_first_stays() -> None:
    one, three = collect(8), collect(8, sampling=softq.Sampling(draws=3))
    draws = [[s for s in three if s.draw == draw] for draw in range(3)]
    assert same(one, draws[0])
    assert len({tuple(of[0].scores[:, 2]) for of in draws}) == 3
    assert not same(one, collect(8, sampling=softq.Sampling(seed=1)))
    counted = collect(8, sampling=softq.Sampling(rows=5, maps=2))
    assert [sample.scores.shape for sample in counted] == [(5, LENGTH)] * 2 * HEADS


def test_equal_samples_count_once() -> None:
    assert same(collect(8), collect(8, [*range(SAMPLES), *range(SAMPLES)]))


@pytest.mark.parametrize("name", ["rows", "maps", "draws", "seed"])
def test_numbers_that_make_no_sample_are_refused(name: str) -> None:
    with pytest.raises(softq.UsageError, match=f"calibration {name} is -1"):
        replace(PLAIN, **{name: -1})


@pytest.mark.parametrize("scope", ["site", "head"])
def test_a_plan_has_the_spread_over_the_draws(scope: str, tmp_path: Path) -> None:
    scores, values = arrays()
    np.savez(tmp_path / "data.npz", x=scores / 4, v=values)
    settings = {"bits": 2, "r": scope, "steps": "equal"}

    def planned(sampling: softq.Sampling) -> softq.SitePlan:
        data = str(tmp_path / "data.npz")
        return softq.convert(model(), settings=settings, calibration=data, sampling=sampling).plan.sites[0]

    spread = planned(softq.Sampling(draws=3)).spread["r"]
    one = planned(PLAIN)
    assert not one.spread
    # Other seeds are not other draws, so the draws' own numbers come from their rows.
    method = METHODS.get("deferred-log")
    read = ir.from_proto(model())
    data = open_data(str(tmp_path / "data.npz"), input_specs(read), reject_nan=True)
    (rows,) = collect_rows(read, ["p"], data, False, NOTHING, sampling=softq.Sampling(draws=3)).values()
    options = method.resolve(method.configure(settings), True)
    each = np.array([fit(method, options, [s for s in rows if s.draw == draw])["r"] for draw in range(3)])
    np.testing.assert_array_equal(spread.low, each.min(axis=0))
    np.testing.assert_array_equal(spread.high, each.max(axis=0))
    np.testing.assert_allclose(spread.deviation, np.sqrt(((each - each.mean(0)) ** 2).sum(0) / 2), rtol=1e-12)
    assert np.any(np.array(spread.low) < np.array(spread.high))
    plan = softq.convert(
        model(), settings=settings, calibration=str(tmp_path / "data.npz"), sampling=softq.Sampling(draws=3)
    ).plan
    assert parse_plan(plan.to_json()) == plan
    assert '"spread"' in plan.to_text()
    assert "spread" not in softq.convert(model(), settings={"bits": 2, "r": 1.0}).plan.to_text()
