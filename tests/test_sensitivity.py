"""Sensitivities: errors of rows against a computation by hand, and the metric of sites that are converted alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.compare import check
from softq.conversion import convert
from softq.errors import InputError, UsageError
from softq.methods import METHODS, Fitted, Sample
from softq.plans import SitePlan
from softq.sweeps.evaluate.row_errors import SiteRows
from softq.sweeps.records import OUTCOMES, read
from softq.sweeps.sensitivity import run
from tests.test_sweep import IMAGES, LM, TEXT, VIT, cut, plain


def planned(method: str, fitted: Fitted | None = None, **options: object) -> SitePlan:
    configured = METHODS.get(method).configure(options)
    resolved = METHODS.get(method).resolve(configured, False)
    return SitePlan("site", "", method, resolved.to_json(), dict(fitted or {}))


def test_errors_of_a_row_by_hand() -> None:
    """Uniform codes of 2 bits stand for 0, 1/3, 2/3 and 1; these probabilities become 2/3, 1/3, 0, 0, 0."""
    p = np.array([[0.55, 0.25, 0.15, 0.05, 0.0]])
    with np.errstate(divide="ignore"):
        scores = np.log(p).astype(np.float32)
    v = np.array([[1.0], [-1.0], [2.0], [0.0], [5.0]], np.float32)
    sample = Sample(np.concatenate([scores, np.full((1, 5), -np.inf, np.float32)]), v, 0)
    errors = SiteRows([sample]).errors(planned("uniform", bits=2))
    assert errors.rows == 1  # the fully masked row does not count
    assert errors.masked == pytest.approx(1 / 5)
    assert errors.row_sums == pytest.approx((1.0,) * 5)
    # P V is 0.55 - 0.25 + 0.3 = 0.6, with the codes 2/3 - 1/3; float32 scores are good to 1e-6.
    assert errors.output_error == pytest.approx((0.6 - 1 / 3) / 0.6, rel=1e-6)
    assert (errors.argmax_flips, errors.top5_flips) == (0.0, 0.0)


def test_weights_that_become_equal_lose_their_order() -> None:
    scores = np.log(np.array([[0.10, 0.20, 0.10, 0.20, 0.10, 0.21, 0.09]])).astype(np.float32)
    errors = SiteRows([Sample(scores, None, 0)]).errors(planned("uniform", bits=2))
    assert errors.output_error is None
    assert errors.argmax_flips == 1.0  # 0.20 and 0.21 both have code 1, and the first of them stands in front
    assert errors.top5_flips == 0.0


def test_a_finite_mask_masks() -> None:
    scores = np.array([[0.0, 1.0, -3.4e38, -1e4]], np.float32)
    assert SiteRows([Sample(scores, None, 0)]).errors(planned("exact")).masked == 0.5


def test_numbers_a_head_go_to_their_heads() -> None:
    rng = np.random.default_rng(0)
    samples = [Sample(rng.normal(size=(8, 16)).astype(np.float32), None, head) for head in (0, 1)]
    numbers = {"r": (12.0, 30.0), "first": (0.02, 0.3), "shift": (0.0, 0.8)}
    both = planned("deferred-log", numbers, bits=4, r="head")
    for head in (0, 1):
        own = {name: pair[head] for name, pair in numbers.items()}
        alone = planned("deferred-log", own, bits=4, r="site", steps=both.options["steps"])
        assert SiteRows(samples).errors(both, head) == SiteRows([samples[head]]).errors(alone)


def test_no_rows() -> None:
    with pytest.raises(InputError, match="no row with an unmasked element"):
        SiteRows([Sample(np.full((2, 3), -math.inf, np.float32), None, 0)]).errors(planned("exact"))


def test_each_site_alone(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "metric": "top1-accuracy",
        "samples": 64,
        "methods": "uniform,exact",
        "bits": "2",
    }
    found = run(VIT, IMAGES, out=tmp_path / "out", threads=1, top=2, **given)
    assert {o.setting.site for o in found.outcomes} == {"softmax", "softmax_1", "softmax_2", "softmax_3"}
    errors = {o.setting.key: next(iter(o.sites.values())) for o in found.outcomes}
    measured = [o for o in found.outcomes if o.samples]
    assert len(found.outcomes) == 8
    assert len(measured) == 2
    worst = sorted((e.output_error or 0.0 for e in errors.values()), reverse=True)[:2]
    assert [errors[o.setting.key].output_error for o in measured] == worst
    data = cut(IMAGES, tmp_path / "data.npz", 64)
    for outcome in measured:
        alone = convert(VIT, method="uniform", bits=2, sites=[str(outcome.setting.site)])
        assert outcome.metric.value == check(VIT, alone.model, data, metrics=["top1-accuracy"], threads=1).metrics[
            0
        ].candidate  # fmt: skip
    for outcome in found.outcomes:
        if outcome.setting.method == "exact":
            (one,) = outcome.sites.values()
            assert one.output_error is not None
            assert one.output_error < 1e-6  # the bound of `exact`, and float32 scores
            assert one.argmax_flips == 0.0
    # Interrupted after some outcomes, it goes on and ends with the same.
    lines = (tmp_path / "out" / OUTCOMES).read_bytes().splitlines(keepends=True)
    (tmp_path / "out" / OUTCOMES).write_bytes(b"".join(lines[:3]) + lines[3][:20])
    again = run(VIT, IMAGES, out=tmp_path / "out", threads=1, top=2, **given)
    assert plain(again.outcomes) == plain(found.outcomes)


def test_heads(tmp_path: Path) -> None:
    arguments = ["sensitivity", str(LM), "--data", str(TEXT), "--metric", "perplexity", "--methods", "deferred-log",
                 "--bits", "3", "--samples", "2", "--out", str(tmp_path / "out"), "--granularity", "head"]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    outcomes = read(tmp_path / "out")[1]
    assert {(o.setting.site, o.setting.head) for o in outcomes} == {
        (site, head) for site in ("softmax", "softmax_1", "softmax_2", "softmax_3") for head in range(4)
    }
    assert all(math.isnan(o.metric.value) and o.samples == 0 for o in outcomes)
    # A causal mask of whole rows leaves half; rows are drawn evenly, and a site has 4 heads of 4 maps of 8 rows.
    assert all(0.2 < errors.masked < 0.8 for o in outcomes for errors in o.sites.values())
    refused = CliRunner().invoke(main, [*arguments, "--top", "1"])
    assert refused.exit_code == 2
    assert "a head alone cannot be converted" in refused.stderr


def test_a_negative_count_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="top is -1"):
        run(VIT, IMAGES, out=tmp_path / "out", metric="top1-accuracy", top=-1)
