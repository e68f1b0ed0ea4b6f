"""Plans under a budget: the order of the search, that a plan holds on other data, and that a broken budget is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.compare import check
from softq.conversion import convert
from softq.errors import UsageError
from softq.metrics import find_metric
from softq.plans import load_plan
from softq.reports import parse_drop
from softq.sweeps import Selection, Task
from softq.sweeps.budget import Budget
from softq.sweeps.plan.frontier import FLOAT_BITS, Rung, build_ladder, choose, descend, mean_bits
from softq.sweeps.plan.record import read_record
from softq.sweeps.plan.search import find_plan
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
    assert budget.probably(Estimate(0.0, -0.1, 0.5))
    assert not budget.probably(Estimate(0.0, -0.1, 0.52))
    assert not budget.probably(Estimate(0.0))
    assert budget.judge(Estimate(50.0)).passed
    broken = budget.judge(Estimate(52.0))
    assert not broken.passed
    assert broken.sentence.endswith(": 2 too much")
    assert not budget.judge(Estimate(float("nan"))).passed


def test_a_plan_holds_on_data_that_the_search_did_not_see(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    arguments = ["plan", str(LM), "--data", str(TEXT), "--metric", "perplexity", "--max-drop", "0.5%",
                 "--out", str(out), "--methods", "deferred-log,uniform",
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
    converted = convert(LM, plan=out)
    data = cut(TEXT, tmp_path / "other.npz", 16, start=16)
    report = check(LM, converted.model, data, metrics=["perplexity"], max_drop="0.5%", threads=1)
    lost, of = report.metrics[0].difference, report.metrics[0].reference
    assert lost is not None
    assert of is not None
    assert lost <= 0.005 * of
    assert "with 95 % confidence, 16 samples" in said["gate"]["sentence"]
    assert report.metrics[0].candidate == said["verification"]["metric"]["value"]
    again = find_plan(Task(LM, TEXT, "perplexity", Selection(), threads=1), max_drop="0.5%",
                      methods="deferred-log,uniform")  # fmt: skip
    assert again.plan == load_plan(out)


def test_an_impossible_budget(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    arguments = ["plan", str(VIT), "--data", str(IMAGES), "--metric", "kl", "--max-drop", "0", "--limit", "16",
                 "--methods", "deferred-log", "--bits", "4-5", "--out", str(out)]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1, result.output
    assert "FAILED: no plan keeps the budget; with the best, in the search kl goes from 0" in result.output
    assert "too much" in result.output
    assert load_plan(out).sites
    assert not read_record(out)[1]["gate"]["passed"]
    assert convert(VIT, plan=out).plan.sites


def test_a_plan_that_breaks_on_the_other_data_fails(tmp_path: Path) -> None:
    """The other data are labelled by what 2-bit deferred-log makes of them wrongly: there it can only lose."""
    other = tmp_path / "other.npz"
    with np.load(IMAGES) as arrays:
        images = arrays["images"][:64]
    from softq.runner import OnnxRunner

    labels = np.asarray(OnnxRunner.open(VIT)({"images": images})["logits"]).argmax(axis=-1)
    coarse = np.asarray(
        OnnxRunner.open(convert(VIT, method="uniform", bits=2).model)({"images": images})["logits"]
    ).argmax(axis=-1)
    wrong = labels != coarse
    assert wrong.any()
    np.savez(other, **{"images": images[wrong], "label.digit": labels[wrong]})  # pyright: ignore
    task = Task(VIT, IMAGES, "top1-accuracy", Selection(), limit=64, threads=1)
    found = find_plan(task, max_drop=0.5, methods="uniform", bits="2", verify=other)
    assert found.searched.loss.value <= 0.5
    assert found.verified.loss.value == 1.0
    assert not found.gate.passed
    assert "on " + str(int(wrong.sum())) + " samples that the search did not see" in found.gate.sentence
    assert found.gate.sentence.endswith("0.5 too much")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max-drop", "-1"], "max-drop is '-1'"),
        (["--methods", "exact"], "none has a width"),
        (["--limit", "1"], "cannot be split into two halves"),
        (["--verify", str(IMAGES), "--limit", "2000"], "a plan is verified on other data"),
        (["--out", "/nowhere/at/all"], "does not exist"),
        (["--out", str(IMAGES)], "inputs are never written"),
        (["--out", "."], "--out . is a folder"),
    ],
)
def test_bad_usage_is_one_line(tmp_path: Path, more: list[str], message: str) -> None:
    arguments = ["plan", str(VIT), "--data", str(IMAGES), "--metric", "top1-accuracy", "--max-drop", "1%",
                 "--limit", "8", "--out", str(tmp_path / "plan.json")]  # fmt: skip
    result = CliRunner().invoke(main, [*arguments, *more])
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.glob("plan.*"))


def test_the_same_data_twice_are_refused_under_another_name(tmp_path: Path) -> None:
    task = Task(VIT, cut(IMAGES, tmp_path / "a.npz", 4), "top1-accuracy", Selection(), threads=1)
    with pytest.raises(UsageError, match="verified on other data"):
        find_plan(task, max_drop=1, methods="uniform", verify=cut(IMAGES, tmp_path / "b.npz", 4))
