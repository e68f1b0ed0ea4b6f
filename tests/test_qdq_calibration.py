"""What `convert --qdq` fits where data are given: the width of weights and the sum that products are divided by."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import softq
from softq.calibration import fit
from softq.calibration.errors import Errors
from softq.errors import UsageError
from softq.methods import METHODS, Fit, Method, Options, Sample
from softq.plan_making import plan_sites
from softq.plans import load_plan, parse_plan
from softq.rowprog import run as run_rows
from softq.site import Site
from tests.attention import run, softmax64
from tests.built import check
from tests.fused import ATTENTIONS, Attention, Feeds

METHOD = METHODS.get("deferred-log")
BYTES = {"weight_bits": 8, "peak": "full"}
PER_HEAD = {"weight_bits": "head", "exact_sum": "head"}


def options_of(settings: dict[str, int | float | str], *, calibrated: bool = False) -> Options:
    return METHOD.resolve(METHOD.configure(settings), calibrated)


def sample(head: int, mean: float, seed: int) -> Sample:
    """Rows of one great score, the others of a row equal, with values around a common mean or around 0."""
    rng = np.random.default_rng([head, seed])
    scores = np.repeat(-rng.uniform(2, 4, (8, 1)), 64, axis=1).astype(np.float32)
    scores[:, 0] = 0
    return Sample(scores, (rng.normal(size=(64, 16)) + mean).astype(np.float32), head)


def test_the_exact_sum_is_that_of_the_distances_in_bytes() -> None:
    scores = np.random.default_rng(0).normal(size=(4, 300)).astype(np.float32) * 4
    scores[1, :7], scores[2, 3], scores[3, 5] = -np.inf, np.inf, np.nan
    plain, exact = (run_rows(METHOD.program(options_of({**BYTES, "exact_sum": each})), scores) for each in (0, 1))
    np.testing.assert_array_equal(exact["weights"], plain["weights"])
    coded, summed = (out["normalizer"].astype(np.float64)[:, 0] for out in (plain, exact))
    distances = scores[:2].max(axis=1, keepdims=True) - scores[:2].astype(np.float64)
    units = np.minimum(np.rint(distances * 16 / np.log(2)), 255)
    wanted = np.where(units < 255, np.rint(255 * 128 * 2.0 ** (-units / 16)), 0).sum(axis=1) / 128
    np.testing.assert_allclose(summed[:2], wanted, rtol=1e-6)
    assert np.abs(summed[:2] / coded[:2] - 1).min() > 1e-3
    assert (summed[2], np.isnan(summed[3])) == (255, True)


def test_the_sum_follows_the_mean_of_the_values() -> None:
    """Of weights that were multiplied where values have a mean in common, exact where they have none."""
    samples = [sample(head, mean, seed) for head, mean in enumerate((3, 0)) for seed in range(8)]
    found = fit(METHOD, options_of({**BYTES, "bits": 2, "exact_sum": "head"}), samples)
    assert found == {"exact_sum": (0, 1)}
    assert fit(METHOD, options_of({**BYTES, "bits": 2, "exact_sum": "site"}), samples[8:]) == {"exact_sum": 1}


def test_a_single_sample_leaves_what_is_usual() -> None:
    chosen = options_of({**BYTES, "weight_bits": "head", "exact_sum": "head"})
    usual = {"weight_bits": (8.0,), "exact_sum": (0.0,)}
    assert fit(METHOD, chosen, [sample(0, 0, 0)]) == usual


def test_what_is_better_on_one_sample_and_worse_on_another_is_in_doubt() -> None:
    options = options_of({**BYTES, "bits": 2, "exact_sum": "site"})
    samples = [sample(0, mean, seed) for mean, seed in ((0, 1), (0.5, 2))]
    errors = Errors(METHOD, options, samples)
    gains = errors({"exact_sum": 0}) - errors({"exact_sum": 1})
    assert gains.min() < 0 < gains.mean()
    assert fit(METHOD, options, samples) == {"exact_sum": 0}


def test_a_narrower_weight_is_taken_where_it_is_better() -> None:
    """Of 7 bits and less a weight of 2^-8 is zero: better where all that has its code weighs less than that."""
    rng, samples = np.random.default_rng(0), list[Sample]()
    for _ in range(4):
        scores = np.full((4, 50), -6.5, np.float32)
        scores[:, 0] = 0
        samples.append(Sample(scores, rng.normal(size=(50, 8)).astype(np.float32), 0))
    chosen = {**BYTES, "bits": 2, "steps": "equal", "r": 0.25, "weight_bits": "site"}
    found = fit(METHOD, options_of(chosen), samples)["weight_bits"]
    errors = {
        bits: sum(_error(options_of({**chosen, "weight_bits": bits}), one) for one in samples) for bits in range(4, 9)
    }
    assert found == min(errors, key=lambda bits: (errors[bits], -bits)) < 8


def _error(options: Options, given: Sample) -> float:
    assert given.values is not None
    out = run_rows(METHOD.program(options), given.scores)
    exact = softmax64(given.scores) @ given.values
    product = out["weights"].astype(np.float64) @ given.values
    return float(np.sum((product / out["normalizer"].astype(np.float64) - exact) ** 2))


def _data(given: Attention) -> list[Feeds]:
    dims = {"B": 2, "S": 8, "N": 64, "P": 3}
    return [
        {**feeds, "q": feeds["q"].astype(np.float32) * 3} for feeds in (given.feeds(dims, seed=n) for n in range(3))
    ]


def test_calibrated_attentions_have_tables_per_head_and_one_function(tmp_path: Path) -> None:
    given = ATTENTIONS["plain"]
    model, data = given.model(), _data(given)
    made = softq.convert(model, settings=PER_HEAD, qdq=True, calibration=data)
    (site,) = made.plan.sites
    assert {name: site.options[name] for name in ("r", "weight_bits", "exact_sum")} == {
        "r": "site", "weight_bits": "head", "exact_sum": "head"
    }  # fmt: skip
    assert [len(np.atleast_1d(site.fitted[name])) for name in ("r", "weight_bits", "exact_sum")] == [1, 4, 4]
    assert len(made.model.functions) == 1
    (tmp_path / "plan.json").write_text(made.plan.to_text())
    again = softq.convert(model, plan=load_plan(tmp_path / "plan.json"), qdq=True)
    assert again.model.SerializeToString() == made.model.SerializeToString()
    exact = run(model, data[0])
    assert _relative(run(made.model, data[0]), exact) < 1.05 * _relative(
        run(softq.convert(model, qdq=True).model, data[0]), exact
    )


def _relative(found: NDArray[np.generic], wanted: NDArray[np.generic]) -> float:
    wide = wanted.astype(np.float64)
    return float(np.linalg.norm(found.astype(np.float64) - wide) / np.linalg.norm(wide))


def test_data_fit_what_is_usual_without_them() -> None:
    """Where nobody says a width of weights, data choose it for each head; without data it is 8 bits."""
    given = ATTENTIONS["plain"]
    model = given.model()
    (usual,) = softq.convert(model, bits=2, qdq=True).plan.sites
    assert usual.options["weight_bits"] == 8
    assert not usual.fitted
    data = [{**feeds, "q": feeds["q"].astype(np.float32) / 15} for feeds in _data(given)]
    made = softq.convert(model, bits=2, qdq=True, calibration=data)
    (fitted,) = made.plan.sites
    assert fitted.options["weight_bits"] == "head"
    widths = np.asarray(fitted.fitted["weight_bits"])
    assert widths.shape == (4,)
    assert 4 <= widths.min() < 8
    fixed = softq.convert(model, bits=2, settings={"weight_bits": 8}, qdq=True, calibration=data)
    errors = [
        np.mean([_relative(run(one, feeds), run(model, feeds)) for feeds in data]) for one in (made.model, fixed.model)
    ]
    assert errors[0] < errors[1]


def test_chosen_numbers_reach_the_model() -> None:
    """A plan that says another sum for one head changes that head alone, and by the quotient of the sums."""
    given = ATTENTIONS["plain"]
    model, data = given.model(), _data(given)
    made = softq.convert(model, settings=PER_HEAD, qdq=True, calibration=data)
    text = json.loads(made.plan.to_text())
    text["sites"][0]["fitted"]["exact_sum"] = [0, 0, 1, 0]
    text["sites"][0]["fitted"]["weight_bits"] = [8, 8, 8, 4]
    before, after = (run(softq.convert(model, plan=plan, qdq=True).model, data[0]) for plan in (
        made.plan, parse_plan(text)
    ))  # fmt: skip
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    quotient = after[:, 2] / before[:, 2]
    np.testing.assert_allclose(quotient, np.broadcast_to(quotient[..., :1], quotient.shape), rtol=1e-5)
    assert np.abs(quotient - 1).max() > 0.005
    assert not np.array_equal(after[:, 3], before[:, 3])


def test_heads_that_agree_have_constants() -> None:
    """Nothing is looked up per head where all heads have the same, unless somebody asked for it."""
    given = ATTENTIONS["plain"]
    (site,) = softq.convert(given.model(), qdq=True, calibration=_data(given)).plan.sites
    assert (site.options["weight_bits"], site.options.get("exact_sum", 0)) == (8, 0)
    assert set(site.fitted) == {"r", "first", "shift"}

    def fit(site: Site, method: Method, options: Options) -> Fit:
        return Fit(
            {"weight_bits": (8, 7, 8, 8), "exact_sum": (1, 1, 1, 1), **dict.fromkeys(("r", "first", "shift"), 1.0)}
        )

    found = softq.inspect(given.model())
    (planned,) = plan_sites(found, "deferred-log", {**BYTES, "weight_bits": "auto", "exact_sum": "auto"}, fit)
    assert (planned.options["weight_bits"], planned.options["exact_sum"]) == ("head", 1)
    assert planned.fitted["weight_bits"] == (8, 7, 8, 8)
    assert "exact_sum" not in planned.fitted


def test_sites_without_heads_are_fitted_whole() -> None:
    lines = """scores = MatMul(q, k) p = Softmax <axis: int = -1> (scores) out = MatMul(p, v)"""
    given = Attention({"q": "float[B,S,16]", "k": "float[B,16,N]", "v": "float[B,N,16]"}, lines, "float[B,S,16]")
    seen: list[Options] = []

    def fit(site: Site, method: Method, options: Options) -> Fit:
        seen.append(options)
        return Fit({name: 8.0 if name == "weight_bits" else 1.0 for name in options.fitted})

    made = softq.convert(given.model(), qdq=True, calibration=_data(given))
    plan_sites(made.sites, "deferred-log", {**BYTES, "weight_bits": "auto", "exact_sum": "auto"}, fit)
    assert {name: scope for name, scope in seen[0].fitted.items() if name in PER_HEAD} == dict.fromkeys(
        PER_HEAD, "site"
    )
    assert np.isfinite(run(made.model, _data(given)[0])).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exact_sum": 1, "bits": 8}, "exact_sum is 1; it is for distance=byte"),
        ({"exact_sum": 1, "rest": "mean"}, "exact_sum is 1, or one of it and weight_bits is fitted, with rest=mean"),
        ({"weight_bits": "head", "rest": "mean"}, "with rest=mean"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, int | float | str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options_of(settings)
    # What nobody asked for is left out where it does not go.
    left = {name: value for name, value in settings.items() if name not in ("exact_sum", "weight_bits")}
    automatic = options_of({"weight_bits": "auto", "exact_sum": "auto", **left}, calibrated=True)
    assert automatic.to_json().get("exact_sum", 0) == 0


def test_tables_per_head_are_built(tmp_path: Path) -> None:
    """What a head is divided by and multiplied with is data of the kernel, too."""
    given = ATTENTIONS["plain"]
    feeds = _data(given)
    made = softq.convert(given.model(), settings=PER_HEAD, calibration=feeds)
    text = json.loads(made.plan.to_text())
    text["sites"][0]["fitted"] |= {"exact_sum": [0, 1, 0, 1], "weight_bits": [8, 7, 5, 8]}
    check(softq.convert(given.model(), plan=parse_plan(text)).model, feeds, tmp_path)
