"""The quoted figures are those of these models, data, programs and fits, and say what the samples say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.figures.measuring import Measured
from benchmarks.figures.studies import (
    BITS,
    METHOD,
    RESULTS,
    SETTINGS,
    STUDIES,
    Setting,
    file_hash,
    identity_of,
    text_hash,
)
from benchmarks.figures.tables import Found, calibration_table, figures_table, headline_table
from models.splits import SPLITS
from softq.plans import Plan

ROOT = Path(__file__).resolve().parent.parent
RESULTS_HERE: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
RECORDS: dict[str, dict[str, Any]] = {record["name"]: record for record in RESULTS_HERE["studies"]}
COMMITTED = [study for study in STUDIES if not study.builder]
NOWHERE = Path("nowhere")  # Where committed models are not.

by_study = pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
by_committed = pytest.mark.parametrize("study", COMMITTED, ids=lambda study: study.name)


def _row(study: Any, setting: Setting) -> dict[str, Any]:
    (row,) = (row for row in RECORDS[study.name]["rows"] if {k: row[k] for k in setting.to_json()} == setting.to_json())
    return row


def _hash(study: Any, plan: Plan) -> str:
    """Return the hash of a plan as the softq that measured would have written it: a plan names its version."""
    measured = RECORDS[study.name]["versions"]["softq"]
    return text_hash(replace(plan, softq=measured).to_text().encode())


@by_study
def test_every_setting_is_measured_with_the_program_of_today(study: Any) -> None:
    record = RECORDS[study.name]
    assert len(record["rows"]) == len(SETTINGS)
    assert len(record["samples"]) == SPLITS[study.split].files["evaluation"]["evaluation.npz"]
    for setting in SETTINGS:
        row = _row(study, setting)
        assert row["program"] == setting.program_hash(), "a method changed: run make figures"
        assert len(row["samples"]) == len(row["distances"]) == len(record["samples"])


@by_committed
def test_figures_are_of_the_committed_bytes(study: Any) -> None:
    record = RECORDS[study.name]
    assert record["model"] == identity_of(study.place(NOWHERE) / study.model)
    assert record["data"] == file_hash(study.data(NOWHERE, "evaluation"))
    assert record["calibration"] == file_hash(study.data(NOWHERE, "calibration"))


def test_a_fit_of_today_is_the_one_that_was_measured() -> None:
    """A sampler, a criterion or a search that changes makes other plans, and the figures stale."""
    for study in COMMITTED:
        setting = Setting(METHOD, {"bits": 2}, 1)
        plan = setting.convert(study, NOWHERE).plan
        assert all(site.fitted for site in plan.sites)
        assert _hash(study, plan) == _row(study, setting)["plan"], "fits changed: run make figures"


@pytest.mark.slow
@by_committed
def test_every_fit_of_today_is_the_one_that_was_measured(study: Any) -> None:
    for setting in SETTINGS:
        plan = setting.convert(study, NOWHERE).plan
        assert _hash(study, plan) == _row(study, setting)["plan"], setting


@pytest.mark.slow
def test_a_figure_can_be_measured_again(tmp_path: Path) -> None:
    study, setting = COMMITTED[0], Setting(METHOD, {"bits": 2})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    measured = Measured(study, tmp_path, study.data(tmp_path, "evaluation"), scratch)
    found, row = measured.candidate(setting.convert(study, tmp_path), "again"), _row(study, setting)
    # Another processor may add in another order.
    assert np.mean(np.array(found["samples"]) != row["samples"]) <= 1e-3
    np.testing.assert_allclose(found["distances"], row["distances"], rtol=1e-2, atol=1e-5)


def test_tables_say_what_the_samples_say() -> None:
    assert figures_table(RESULTS_HERE) in (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    headline = headline_table(RESULTS_HERE)
    assert headline in (ROOT / "README.md").read_text(encoding="utf-8")
    for line in headline.splitlines()[2:]:
        name, metric, *cells = line.strip("| ").split(" | ")
        assert RECORDS[name]["metric"] == metric
        assert all(f"| {cell} |" in figures_table(RESULTS_HERE) for cell in cells)
    assert calibration_table(RESULTS_HERE) in (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
    for study in STUDIES:
        found, record = Found(study, RECORDS[study.name]), RECORDS[study.name]
        ours, weights = np.array(record["samples"], float), np.array(record["weights"], float)
        for bits in BITS:
            rows = found.rows(METHOD, {"bits": bits}, fitted=True)
            change = found.change(rows)
            theirs = np.mean([np.array(row["samples"], float).sum() / weights.sum() for row in rows])
            mean = ours.sum() / weights.sum()
            direct = {"perplexity": np.exp(theirs - mean), "cosine": theirs}.get(study.metric.name, theirs - mean)
            assert change.estimate == pytest.approx(direct, rel=1e-3, abs=1e-9)
            # The draws' intervals are held.
            for row in rows:
                one = found.change([row])
                assert change.low <= one.low <= one.high <= change.high


@by_study
def test_no_width_loses_to_a_smaller_one(study: Any) -> None:
    found = Found(study, RECORDS[study.name])
    losses = [found.harm({"bits": bits})[0] for bits in sorted(BITS)]
    assert losses == sorted(losses, reverse=True)


def test_a_wider_interval_comes_of_draws_that_differ() -> None:
    (study,) = (study for study in STUDIES if study.name == "SmolLM2-135M")
    found = Found(study, RECORDS[study.name])
    rows = found.rows(METHOD, {"bits": 2}, fitted=True)
    moved = [{**rows[0], "samples": [1.02 * value for value in rows[0]["samples"]]}, *rows[1:]]
    assert found.change(moved).high > found.change(rows).high
