"""Plans under a budget: the order of the search, that a plan holds on other data, and that a broken budget is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.compare import check
from softq.conversion import convert
from softq.errors import UsageError
from softq.metrics import find_metric
from softq.plans import load_plan, plan_schema
from softq.reports import parse_drop
from softq.runner import OnnxRunner
from softq.sweeps import Selection, Task
from softq.sweeps.budget import Budget
from softq.sweeps.evaluate.evaluator import Measurement
from softq.sweeps.plan.descent import Search
from softq.sweeps.plan.frontier import (
    FLOAT_BITS,
    Rung,
    State,
    build_ladder,
    choose,
    descend,
    mean_bits,
    uniform_choices,
    uniform_state,
)
from softq.sweeps.plan.record import read_record
from softq.sweeps.plan.search import Found, find_plan
from softq.sweeps.records import Estimate
from tests.test_sweep import IMAGES, LM, TEXT, VIT, cut

ONE, TWO = ("one", {"bits": 2}), ("two", {"bits": 2})


def test_a_ladder_has_the_least_error_for_its_bits() -> None:
    rungs = [Rung(2, ONE, 0.3), Rung(2, TWO, 0.2), Rung(4, ONE, 0.25), Rung(3, ONE, 0.1), Rung(8, TWO, 0.01)]
    assert build_ladder(rungs) == (
        Rung(FLOAT_BITS, None, 0.0),
        Rung(8, TWO, 0.01),
        Rung(3, ONE, 0.1),
        Rung(2, TWO, 0.2),
    )
    assert build_ladder([Rung(2, ONE, float("inf"))])[1:] == (Rung(2, ONE, float("inf")),)


def test_uniform_choices_serve_most_sites_with_the_least_error() -> None:
    wide, one, two = ("one", {"bits": 4}), ONE, TWO
    rungs = {
        "a": [Rung(2, one, 0.3), Rung(2, two, 0.2), Rung(4, wide, 0.1)],
        "b": [Rung(2, one, 0.1), Rung(4, wide, 0.05)],
    }
    assert uniform_choices(rungs) == [one, wide]
    assert uniform_choices({"a": [*rungs["a"], Rung(8, ("two", {"bits": 8}), 0.15)]}) == [two, wide]
    ladders = [build_ladder(some, [one]) for some in rungs.values()]
    assert [rung.choice for rung in ladders[0]] == [None, wide, two, one]
    assert uniform_state(ladders, one) == (3, 2)
    assert uniform_state(ladders, two) == (2, 0)
    # Behind a rung that was kept there is none of its width.
    assert descend(ladders, (3, 1)) == [(3, 1), (3, 2)]


def test_bits_are_given_up_where_they_cost_least() -> None:
    float_, eight, four = Rung(FLOAT_BITS, None, 0.0), Rung(8, ONE, 0.1), Rung(4, ONE, 0.2)
    ladders = [(float_, eight, four), (float_, Rung(8, TWO, 0.01), Rung(4, TWO, 0.02))]
    # Squared errors over bits saved, site 1: 4e-6 for the first step (1.43e-5 straight to 4 bits), then 7.5e-5;
    # site 0: 4.2e-4, then 7.5e-3.
    assert descend(ladders) == [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2)]
    assert mean_bits(ladders, (1, 2)) == 6
    assert choose({"a": ladders[0], "b": ladders[1]}, (0, 1)) == {"b": TWO}


@pytest.mark.parametrize(("drop", "share"), [("10", 10 / 40), ("25%", 0.25)])
def test_a_budget_of_perplexity_is_the_same_in_its_unit_and_as_a_share(drop: str, share: float) -> None:
    budget = Budget(parse_drop(drop), find_metric("perplexity"), 40.0)
    assert budget.amount == 40 * share
    assert budget.judge(Estimate(40.0), Estimate(0.0, -0.1, 0.25), 9).passed
    assert not budget.judge(Estimate(40.0), Estimate(0.0, -0.1, 0.26), 9).passed
    assert budget.judge(Estimate(50.0)).passed
    broken = budget.judge(Estimate(52.0))
    assert not broken.passed
    assert broken.sentence.endswith(": 2 too much")
    assert not budget.judge(Estimate(float("nan"))).passed


def test_a_plan_holds_on_data_that_the_search_did_not_see(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    arguments = ["plan", str(LM), "--data", str(TEXT), "--metric", "perplexity", "--max-drop", "0.5%",
                 "--out", str(out), "--methods", "deferred-log,uniform", "--samples", "32",
                 "--bits", "2-8", "--threads", "1", "--json"]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["split"] == "searched on samples 1 to 16, verified on samples 17 to 32"
    assert said["gate"]["passed"]
    assert said["mean_bits"] < 4
    assert said["mean_bits"] == np.mean(list(said["bits"].values()))
    _, record = read_record(out)
    assert (record["gate"]["passed"], record["budget"], record["bits"]) == (True, "0.5%", said["bits"])
    assert record["verification"] == said["verification"]
    assert record["search"] == said["search"]
    jsonschema.validate(json.loads(out.read_text()), plan_schema())
    converted = convert(LM, plan=out)
    data = cut(TEXT, tmp_path / "other.npz", 16, start=16)
    report = check(LM, converted.model, data, metrics=["perplexity"], max_drop="0.5%", threads=1)
    lost, of = report.metrics[0].difference, report.metrics[0].reference
    assert lost is not None
    assert of is not None
    assert lost <= 0.005 * of
    assert "with 95 % confidence, 16 samples" in said["gate"]["sentence"]
    assert report.metrics[0].candidate == said["verification"]["metric"]["value"]


@pytest.mark.slow
def test_the_command_finds_the_plan_that_the_function_finds(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    arguments = ["plan", str(LM), "--data", str(TEXT), "--metric", "perplexity", "--max-drop", "0.5%", "--out",
                 str(out), "--methods", "deferred-log,uniform", "--samples", "32", "--threads", "1"]  # fmt: skip
    assert CliRunner().invoke(main, arguments).exit_code == 0
    task = Task(LM, TEXT, "perplexity", Selection(), samples=32, threads=1)
    assert find_plan(task, max_drop="0.5%", methods="deferred-log,uniform").plan == load_plan(out)


def test_an_impossible_budget(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    arguments = ["plan", str(VIT), "--data", str(IMAGES), "--metric", "kl", "--max-drop", "0", "--samples", "16",
                 "--methods", "deferred-log", "--bits", "4-5", "--out", str(out)]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1, result.output
    assert "FAILED: no plan keeps the budget; with the best, in the search kl goes from 0" in result.output
    assert "too much" in result.output
    assert load_plan(out).sites
    assert not read_record(out)[1]["gate"]["passed"]
    assert convert(VIT, plan=out).plan.sites


def predictions(images: np.ndarray[Any, Any], **options: Any) -> np.ndarray[Any, Any]:
    """Return the digits that the ViT sees, float or converted with the options."""
    model = convert(VIT, **options).model if options else VIT
    return np.asarray(OnnxRunner.open(model)({"images": images})["logits"]).argmax(axis=-1)


def labelled(path: Path, images: np.ndarray[Any, Any], chosen: np.ndarray[Any, Any]) -> Path:
    """Write some images with the labels that the float model gives them: a plan can only lose."""
    np.savez(path, **{"images": images[chosen], "label.digit": predictions(images)[chosen]})  # pyright: ignore
    return path


@pytest.fixture(scope="module")
def images() -> np.ndarray[Any, Any]:
    with np.load(IMAGES) as arrays:
        return arrays["images"][:256]


def test_a_plan_that_breaks_on_the_other_data_steps_back(tmp_path: Path, images: np.ndarray[Any, Any]) -> None:
    """The other data are those that 2 bits everywhere make wrong: fewer sites of 2 bits are verified next."""
    few = images[:64]
    other = labelled(tmp_path / "other.npz", few, predictions(few) != predictions(few, method="uniform", bits=2))
    task = Task(VIT, IMAGES, "top1-accuracy", Selection(), samples=64, threads=1)
    found = find_plan(task, max_drop=0.5, methods="uniform", bits="2", verify=other)
    first, *others = found.tried
    assert (first.name, first.mean_bits) == ("uniform bits=2", 2)
    assert first.verified is not None
    assert first.verified.loss.value == 1.0
    assert found.gate.passed
    assert found.searched.loss.value <= 0.5
    assert found.verified.loss.value <= 0.5
    assert found.mean_bits > 2
    assert found.verified in [one.verified for one in others if one.mean_bits == found.mean_bits]
    verified = sum(one.verified is not None for one in found.tried)
    assert verified > 1
    plans = "1 narrower plan" if verified == 2 else f"{verified - 1} narrower plans"
    assert f"; {plans} did not pass there" in found.gate.sentence
    assert gate_of(found, other, 0.5) == (True, True)


def gate_of(found: Found, other: Path, drop: float) -> tuple[bool, bool]:
    """Return whether a plan passed, and whether the model that it makes passes `softq check` on the same samples."""
    gate = check(VIT, convert(VIT, plan=found.plan).model, other, metrics=["top1-accuracy"], max_drop=drop,
                 threads=1).gate  # fmt: skip
    assert gate is not None
    return found.gate.passed, gate.passed


def test_few_samples_do_not_show_what_their_value_keeps(tmp_path: Path, images: np.ndarray[Any, Any]) -> None:
    other = labelled(tmp_path / "other.npz", images, np.arange(5))
    task = Task(VIT, IMAGES, "top1-accuracy", Selection(), samples=64, threads=1)
    found = find_plan(task, max_drop=0.01, methods="deferred-log", bits="4", verify=other)
    assert found.verified.loss.value == 0
    assert gate_of(found, other, 0.01) == (False, False)
    assert "with 95 % confidence, 5 samples" in found.gate.sentence
    # Of those that keep it by their value the narrowest.
    kept = [one.mean_bits for one in found.tried if one.verified and one.verified.loss.value <= 0]
    assert found.mean_bits == min(kept)


@pytest.mark.slow
def test_a_plan_that_breaks_on_the_other_data_however_wide_it_is_fails(
    tmp_path: Path, images: np.ndarray[Any, Any]
) -> None:
    """The other data are those that any one softmax of 2 bits makes wrong; the search sees what 2 bits leave right."""
    right = predictions(images)
    sites = [site.id for site in convert(VIT, method="uniform", bits=2).sites]
    alone = {site: predictions(images, method="uniform", bits=2, sites=[site]) != right for site in sites}
    breaking = [site for site, wrong in alone.items() if wrong.any()]
    broken = np.any([alone[site] for site in breaking], axis=0)
    together = predictions(images, method="uniform", bits=2, sites=breaking) != right
    safe = labelled(tmp_path / "safe.npz", images, ~(broken | together))
    other = labelled(tmp_path / "other.npz", images, broken)
    task = Task(VIT, safe, "top1-accuracy", Selection(breaking), threads=1)
    found = find_plan(task, max_drop=0, methods="uniform", bits="2", verify=other)
    assert found.searched.loss.value <= 0
    assert found.verified.loss.value > 0
    assert not found.gate.passed
    assert gate_of(found, other, 0) == (False, False)
    assert all(one.verified is not None for one in found.tried if one.mean_bits >= found.mean_bits)
    assert found.gate.sentence.startswith("none of the ")


def ladder(*errors: tuple[int, float]) -> tuple[Rung, ...]:
    return (Rung(FLOAT_BITS, None, 0.0), *(Rung(bits, ("m", {"bits": bits}), error) for bits, error in errors))


def searched(
    ladders: Sequence[Sequence[Rung]], loss: Callable[[State], float], uniform: Sequence[State], drop: str = "1"
) -> Search:
    """Return a search on a model of perplexity 10, whose plans lose what is said, without an interval."""

    def measure(state: State) -> Measurement:
        return Measurement(Estimate(10 + loss(state)), Estimate(loss(state) / 10), 5, 0.0)

    return Search(ladders, uniform, Budget(parse_drop(drop), find_metric("perplexity"), 10.0), measure, None)


def test_a_search_starts_from_the_narrowest_uniform_setting_that_keeps_the_budget() -> None:
    """The order from float, by errors that mislead, meets no plan that keeps the budget."""
    ladders = [ladder((4, 0.1), (2, 0.1001))] * 3
    losses: dict[State, float] = {(2, 2, 2): 3.0, (1, 1, 1): 0.0, (1, 1, 2): 0.5, (1, 2, 2): 2.0}
    search = searched(ladders, lambda state: losses.get(state, 9.0), [(2, 2, 2), (1, 1, 1)])
    assert search.run() == ((1, 1, 2), True)
    assert not searched(ladders, lambda state: losses.get(state, 9.0), []).run()[1]


def test_a_search_asks_for_what_the_verification_asks_for() -> None:
    """A loss of half the budget, with a standard error of 40 % of it, keeps the budget and is not shown to."""
    found = {2: Estimate(0.05, -0.03, 0.13), 1: Estimate(0.02, -0.03, 0.07)}

    def measure(state: State) -> Measurement:
        loss = found.get(state[0], Estimate(0.0, 0.0, 0.0))
        return Measurement(Estimate(10 * (1 + loss.value)), loss, 5, 0.0)

    budget = Budget(parse_drop("10%"), find_metric("perplexity"), 10.0)
    ladders = [ladder((4, 0.1), (2, 0.2))]
    search = Search(ladders, [(2,), (1,)], budget, measure, None)
    assert search.run() == ((1,), True)
    assert search.by_value((2,))
    assert budget.judge_measured(search.measured[1,]).passed
    assert not budget.judge_measured(search.measured[2,]).passed
    # Where nothing is shown, the value is what there is.
    del found[1]
    assert Search([ladder((2, 0.2))], [(1,)], budget, lambda _: measure((2,)), None).run() == ((1,), True)


def test_what_is_found_is_not_worse_than_another_plan_that_was_measured() -> None:
    ladders = [ladder((4, 0.1), (2, 0.2))] * 2
    # With a budget that has room, all float down to (1, 0) keeps it, 4 bits everywhere too, and 2 bits lose nothing.
    losses: dict[State, float] = {(2, 2): 1.5, (1, 1): -1.0, (2, 1): 0.9}
    search = searched(ladders, lambda state: losses.get(state, 0.5), [(1, 1)])
    state, kept = search.run()
    assert kept
    bits, loss = search.saved(state), losses.get(state, 0.5)
    for other in search.measured:
        costs = search.saved(other), losses.get(other, 0.5)
        assert not (costs[0] <= bits and costs[1] <= loss and costs != (bits, loss)), (state, other)


def test_steps_back_are_wider_and_keep_the_budget_on_the_samples_of_the_search() -> None:
    ladders = [ladder((4, 0.1 * (site + 1)), (2, 1.0 * (site + 1))) for site in range(3)]
    search = searched(ladders, lambda state: 5.0 if state == (1, 1, 1) else 0.0, [(1, 1, 1), (2, 2, 2)])
    back = list(search.back((2, 2, 2)))
    assert back
    assert (1, 1, 1) not in back
    assert [search.saved(one) for one in back] == sorted(search.saved(one) for one in back)
    assert all(search.saved(one) > 2 for one in back)
    assert back[-1] == (1, 0, 0)


def test_a_sweep_says_which_settings_a_search_starts_from(tmp_path: Path) -> None:
    """Its widest setting keeps the budget there, so that it is measured first; another metric's sweep is refused."""
    data = cut(IMAGES, tmp_path / "data.npz", 32)
    common = [str(VIT), "--data", str(data), "--methods", "uniform", "--threads", "1", "--metric", "top1-accuracy"]
    swept = CliRunner().invoke(main, ["sweep", *common, "--bits", "3,8", "--out", str(tmp_path / "sweep")])
    assert swept.exit_code == 0, swept.output
    arguments = ["plan", *common, "--bits", "2-8", "--max-drop", "0.5", "--out", str(tmp_path / "plan.json"), "--json",
                 "--sweep", str(tmp_path / "sweep")]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["tried"][0]["name"] == "uniform bits=3"
    # The function finds what the command does.
    again = find_plan(Task(VIT, data, "top1-accuracy", Selection(), threads=1), max_drop="0.5", methods="uniform",
                      sweep=tmp_path / "sweep")  # fmt: skip
    assert again.plan == load_plan(tmp_path / "plan.json")
    refused = CliRunner().invoke(main, [*arguments, "--metric", "kl"])
    assert refused.exit_code == 2
    assert "its metric is 'top1-accuracy', here it is 'kl'" in refused.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max-drop", "-1"], "max-drop is '-1'"),
        (["--methods", "exact"], "none has a width"),
        (["--samples", "1"], "cannot be split into two halves"),
        (["--verify", str(IMAGES), "--samples", "2000"], "a plan is verified on other data"),
        (["--out", "/nowhere/at/all"], "does not exist"),
        (["--out", str(IMAGES)], "inputs are never written"),
        (["--out", "."], "--out . is a folder"),
    ],
)
def test_bad_usage_is_one_line(tmp_path: Path, more: list[str], message: str) -> None:
    arguments = ["plan", str(VIT), "--data", str(IMAGES), "--metric", "top1-accuracy", "--max-drop", "1%",
                 "--samples", "8", "--out", str(tmp_path / "plan.json")]  # fmt: skip
    result = CliRunner().invoke(main, [*arguments, *more])
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.glob("plan.*"))


def test_the_same_data_twice_are_refused_under_another_name(tmp_path: Path) -> None:
    task = Task(VIT, cut(IMAGES, tmp_path / "a.npz", 4), "top1-accuracy", Selection(), threads=1)
    with pytest.raises(UsageError, match="verified on other data"):
        find_plan(task, max_drop=1, methods="uniform", verify=cut(IMAGES, tmp_path / "b.npz", 4))
