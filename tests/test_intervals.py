"""Intervals by the kind of metric: against SciPy, published examples, and how often they hold the truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from softq.metrics import (
    MEAN,
    METRICS,
    PROPORTION,
    AloneMetric,
    Flips,
    PairedMetric,
    PerSample,
    change_interval,
    count_flips,
    mean_interval,
    value_interval,
)
from softq.metrics.base.evidence import Evidence
from softq.metrics.base.proportions import tango_ends, wilson_ends
from softq.sweeps.evaluate.intervals import loss_of, value_of
from softq.sweeps.records import Estimate, estimate_of

UNIT = (0.0, 1.0)


def ones(*right: int) -> PerSample:
    return PerSample(np.array(right, np.float64), np.ones(len(right)))


def test_wilson_against_scipy() -> None:
    for right, count in [(0, 1), (0, 5), (5, 5), (81, 263), (15, 148), (1990, 2000)]:
        expected = stats.binomtest(right, count).proportion_ci(method="wilson")
        assert wilson_ends(right, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_tango_against_published_examples() -> None:
    # M. W. Fagerland, S. Lydersen & P. Laake, Statistical Analysis of Contingency Tables, 2017, chapter 8: airway
    # hyper-responsiveness (Bentur 2009) and response to consolidation therapy (Cavo 2012).
    assert tango_ends(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)
    assert tango_ends(6, 16, 161) == pytest.approx((-0.1240, -0.0054), abs=5e-5)
    assert Flips(6, 16).p_value == pytest.approx(0.052479, abs=5e-7)


@pytest.mark.parametrize("count", [1, 5, 10, 400])
def test_no_flip_is_no_certainty(count: int) -> None:
    # Of n samples without a flip the score test solves to z^2 / (n + z^2).
    z2 = stats.norm.ppf(0.975) ** 2
    low, high = tango_ends(0, 0, count)
    assert (low, high) == pytest.approx((-z2 / (count + z2), z2 / (count + z2)), rel=1e-9)


def test_score_intervals_stay_in_range_and_hold_the_estimate() -> None:
    for count in (1, 2, 5, 9):
        for more, less in itertools.product(range(count + 1), repeat=2):
            if more + less <= count:
                low, high = tango_ends(more, less, count)
                assert -1 <= low <= (more - less) / count <= high <= 1
                assert high - low > 0.1
                assert tango_ends(less, more, count) == (-high, -low)


@pytest.mark.parametrize("count", [10, 30])
def test_tango_covers_as_often_as_it_says(count: int) -> None:
    """By enumeration, no simulation: 0.95 on the mean over flip probabilities, never below 0.9."""
    pairs = [(b, c) for b in range(count + 1) for c in range(count + 1 - b)]
    ends = {pair: tango_ends(*pair, count) for pair in pairs}
    covered: list[float] = []
    for lost, gained in itertools.product((0.01, 0.05, 0.1, 0.2, 0.4), repeat=2):
        law = stats.multinomial(count, [lost, gained, 1 - lost - gained])
        inside = [p for p in pairs if ends[p][0] <= lost - gained <= ends[p][1]]
        covered.append(float(np.sum(law.pmf([[b, c, count - b - c] for b, c in inside]))))
    assert min(covered) > 0.9
    assert 0.94 < np.mean(covered) < 0.985


def test_mcnemar_against_scipy() -> None:
    for lost, gained in itertools.product((0, 1, 3, 20), repeat=2):
        flips = lost + gained
        expected = stats.binomtest(lost, flips).pvalue if flips else 1.0
        assert Flips(lost, gained).p_value == pytest.approx(expected, rel=1e-9)


def test_each_kind_stays_in_its_range() -> None:
    rng = np.random.default_rng(0)
    for metric in METRICS.entries().values():
        if not isinstance(metric, (PairedMetric, AloneMetric)):
            continue
        low, high = metric.bounds
        for count in (1, 2, 3, 8):
            weight = rng.integers(1, 4, count).astype(np.float64)
            share = rng.random(count) ** 8
            share = 1 - share if metric.direction == "higher" else share
            for samples in (PerSample(share * weight, weight), PerSample(weight * 1.0, weight), ones(*[1] * count)):
                value = value_of(metric, samples)
                loss = loss_of(metric, ones(*[1] * count) if samples.weight.max() == 1 else samples, samples)
                if value.low is not None and value.high is not None:
                    assert low <= value.low <= value.value <= value.high <= high, (metric.name, samples)
                if loss.low is not None and loss.high is not None:
                    assert loss.low <= loss.value <= loss.high, (metric.name, samples)
                    assert loss.high <= high - low


def test_five_images_without_a_flip() -> None:
    metric = METRICS.entries()["top1-accuracy"]
    assert isinstance(metric, AloneMetric)
    right = ones(1, 1, 1, 1, 1)
    value, loss = value_of(metric, right), loss_of(metric, right, right)
    assert (value.low, value.high) == pytest.approx((0.5655, 1.0), abs=1e-4)
    assert (loss.low, loss.high) == pytest.approx((-0.4345, 0.4345), abs=1e-4)
    assert loss.flips == Flips(0, 0)
    two = loss_of(metric, ones(1, 1, 1, 0), ones(0, 0, 1, 1))
    assert (two.value, two.flips) == (0.25, Flips(2, 1))
    assert two.high == tango_ends(2, 1, 4)[1]


def test_agreement_loses_what_does_not_agree() -> None:
    metric = METRICS.entries()["top1-agreement"]
    assert isinstance(metric, PairedMetric)
    loss = loss_of(metric, ones(*[1] * 20), ones(*[1] * 18, 0, 0))
    assert (loss.value, loss.low, loss.high) == pytest.approx((0.1, *wilson_ends(2, 20)), abs=1e-12)
    # Nothing is gained on a comparison with itself; of the upper end Tango's interval is Wilson's.
    assert loss.flips == Flips(2, 0)
    assert loss.high == pytest.approx(tango_ends(2, 0, 20)[1], rel=1e-12)


def test_tokens_of_one_window_are_not_independent() -> None:
    """Windows of 50 tokens that are all right or all wrong are worth one token each; independent ones all 50."""
    rng = np.random.default_rng(1)
    fifty = np.full(400, 50.0)
    whole = rng.random(400) < 0.7
    one = value_interval(PROPORTION, UNIT, PerSample(np.where(whole, fifty, 0.0), fifty))
    assert one is not None
    low, high = wilson_ends(int(whole.sum()), 400)
    assert (one.low, one.high) == pytest.approx((low, high), abs=1e-3)
    apart = rng.binomial(50, 0.7, 400).astype(np.float64)
    many = value_interval(PROPORTION, UNIT, PerSample(apart, fifty))
    assert many is not None
    low, high = wilson_ends(float(apart.sum()), 20000)
    assert many.high - many.low == pytest.approx(high - low, rel=0.1)
    # No change in 32 windows is no change in 32 samples, however many tokens they have.
    same = PerSample(apart[:32], fifty[:32])
    still = change_interval(PROPORTION, UNIT, same, same)
    assert still is not None
    assert (still.low, still.high) == tango_ends(0, 0, 32)
    assert count_flips(PROPORTION, same, same) is None


def test_a_mean_near_its_bound_has_the_bootstrap() -> None:
    rng = np.random.default_rng(2)
    near = 1 - rng.exponential(0.01, 6) ** 2
    plain, kept = mean_interval(near, np.ones(6)), value_interval(MEAN, (-1.0, 1.0), PerSample(near, np.ones(6)))
    assert kept is not None
    assert plain.high > 1
    assert near.min() <= kept.low < kept.estimate < kept.high <= near.max()
    expected = stats.bootstrap((near,), np.mean, method="percentile", n_resamples=20000, rng=3).confidence_interval
    # 2,000 draws leave a quantile of 2.5 % known to a tenth of the width.
    width = expected.high - expected.low
    assert (kept.low, kept.high) == pytest.approx((expected.low, expected.high), abs=0.1 * width)
    assert value_interval(MEAN, (-1.0, 1.0), PerSample(near, np.ones(6))) == kept
    inside = value_interval(MEAN, (-9.0, 9.0), PerSample(near, np.ones(6)))
    assert inside == plain


def test_what_more_samples_would_show() -> None:
    none = Evidence(0.0, tango_ends(0, 0, 5)[1], 5, Flips(0, 0))
    needed = none.samples_to_show(0.01)
    assert needed is not None
    assert tango_ends(0, 0, needed)[1] <= 0.01 < tango_ends(0, 0, needed - 1)[1]
    some = Evidence(0.01, 0.03, 100)
    assert some.samples_to_show(0.02) == 400
    assert some.samples_to_show(0.01) is None
    assert none.samples_to_show(0.0) is None
    assert "1 sample;" in Evidence(0.0, 0.8, 1, Flips(0, 0)).statement(0.01, str)


def test_records_of_earlier_versions_are_read() -> None:
    assert estimate_of({"value": 0.5, "low": 0.4, "high": "Infinity"}) == Estimate(0.5, 0.4, math.inf)
    told = {"value": 0.5, "low": None, "high": None, "flips": {"lost": 2, "gained": 1}}
    assert estimate_of(told).flips == Flips(2, 1)
