"""Sweeps: the values of `check`, results that survive a kill, and what is refused."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.compare import check
from softq.conversion import convert
from softq.errors import InputError, UsageError
from softq.metrics import AloneMetric, Kind, PairedMetric, PerSample, find_metric
from softq.sweeps import run
from softq.sweeps.eta import Eta
from softq.sweeps.evaluate.intervals import loss_of, value_of
from softq.sweeps.records import OUTCOMES, REPORTS, STUDY, Outcome, read
from softq.sweeps.settings import expand, parse_bits

MODELS = Path(__file__).parent.parent / "models"
VIT, IMAGES = MODELS / "mnist_vit/mnist_vit.onnx", MODELS / "mnist_vit/data.npz"
LM, TEXT = MODELS / "wikipedia_lm/wikipedia_lm.onnx", MODELS / "wikipedia_lm/data.npz"


def cut(source: Path, to: Path, count: int, start: int = 0) -> Path:
    """A part of a data file as a file of its own."""
    with np.load(source) as arrays:
        np.savez(to, **{name: arrays[name][start : start + count] for name in arrays.files})  # pyright: ignore
    return to


def plain(outcomes: Sequence[Outcome]) -> list[str]:
    """Outcomes without their seconds."""
    return [repr((o.setting, o.metric, o.loss, o.samples, o.sites)) for o in outcomes]


def test_a_value_is_that_of_check_of_the_converted_model(tmp_path: Path) -> None:
    calibration = MODELS / "mnist_vit/calibration.npz"
    sweep = run(VIT, IMAGES, out=tmp_path / "out", metric="top1-accuracy", methods="deferred-log,uniform,exact",
                bits="2,3", samples=80, calibration=calibration, threads=1)  # fmt: skip
    data = cut(IMAGES, tmp_path / "data.npz", 80)
    assert len(sweep.outcomes) == 5
    for outcome in sweep.outcomes:
        one = convert(VIT, method=outcome.setting.method, settings=outcome.setting.options, calibration=calibration)
        result = check(VIT, one.model, data, metrics=["top1-accuracy"], threads=1).metrics[0]
        assert (outcome.metric.value, outcome.samples) == (result.candidate, 80)
        assert result.difference is not None
        assert outcome.loss.value == -result.difference
        assert sweep.study.reference.value == result.reference
        assert result.interval is not None
        assert outcome.loss.low == pytest.approx(-result.interval.high)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("metric", ["perplexity", "kl", "top1-agreement", "relative-error", "max-error"])
def test_metrics_of_every_kind(tmp_path: Path, metric: str) -> None:
    sweep = run(LM, TEXT, out=tmp_path / "out", metric=metric, methods="deferred-log", bits="3", samples=6, threads=1)
    data = cut(TEXT, tmp_path / "data.npz", 6)
    result = check(LM, convert(LM, bits=3).model, data, metrics=[metric], threads=1).metrics[0]
    (outcome,) = sweep.outcomes
    assert outcome.metric.value == result.candidate
    assert metric == "perplexity" or outcome.loss.value > 0
    if metric == "max-error":
        assert outcome.loss.low is None
    else:
        assert outcome.loss.low is not None
        assert outcome.loss.high is not None
        assert outcome.loss.low <= outcome.loss.value <= outcome.loss.high
    if metric == "perplexity":
        assert sweep.study.relative
        assert result.reference is not None
        assert result.interval is not None
        assert outcome.loss.value == result.candidate / result.reference - 1
        assert (outcome.loss.low, outcome.loss.high) == (result.interval.low - 1, result.interval.high - 1)


def test_a_held_metric_is_scored_on_halves(tmp_path: Path) -> None:
    # Spearman's rank correlation of all pairs of images with whether they show the same digit.
    with np.load(IMAGES) as arrays:
        digits = arrays["label.digit"][:40]
        np.savez(tmp_path / "d.npz", **{
            "images": arrays["images"][:40], "label.same": (digits[:, None] == digits[None]).astype(np.float32)
        })  # pyright: ignore # fmt: skip
    sweep = run(VIT, tmp_path / "d.npz", out=tmp_path / "out", metric="spearman", methods="deferred-log", bits="2",
                threads=1)  # fmt: skip
    result = check(VIT, convert(VIT, bits=2).model, tmp_path / "d.npz", metrics=["spearman"], threads=1).metrics[0]
    (outcome,) = sweep.outcomes
    assert outcome.metric.value == result.candidate
    assert outcome.loss.low is not None
    assert outcome.loss.high is not None
    assert outcome.loss.low < outcome.loss.high


def test_halves_have_the_spread_of_the_mean() -> None:
    """Of a mean the interval over halves must be the one by Student's t, within what 200 halves can tell (10 %)."""
    rng = np.random.default_rng(0)
    samples = PerSample(rng.normal(size=400) ** 2, np.ones(400))
    metric = find_metric("kl")
    assert isinstance(metric, PairedMetric)
    other = Kind("mean of another form", lambda s: float(s.total.mean()), None)
    exact, halved = value_of(metric, samples), value_of(replace(metric, kind=other), samples)
    assert exact.low is not None
    assert exact.high is not None
    assert halved.low is not None
    assert halved.high is not None
    assert halved.high - halved.low == pytest.approx(exact.high - exact.low, rel=0.1)
    ratio = find_metric("relative-error")
    assert isinstance(ratio, PairedMetric)
    none = loss_of(ratio, PerSample(np.zeros(3), np.ones(3)), PerSample(np.ones(3), np.ones(3)))
    assert (none.value, none.low) == (1.0, None)


def test_nan_where_the_float_model_has_numbers() -> None:
    metric = find_metric("top1-accuracy")
    assert isinstance(metric, AloneMetric)
    lost = loss_of(metric, PerSample(np.ones(4), np.ones(4)), PerSample(np.full(4, np.nan), np.ones(4)))
    assert np.isnan(lost.value)
    assert lost.low is None


def test_the_outputs_of_the_float_model_go_with_the_sweep(tmp_path: Path) -> None:
    run(VIT, IMAGES, out=tmp_path / "out", metric="kl", methods="deferred-log", bits="4", samples=8, threads=1)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {STUDY, OUTCOMES}


def test_a_framework_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "softq.torch" or name.startswith("softq.torch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # pyright: ignore
    command = ["sweep", "a:b", "--framework", "torch", "--data", str(IMAGES), "--metric", "kl"]
    result = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert result.output == "softq: models of the framework torch need PyTorch: pip install 'softq[torch]'\n"


COMMAND = ["sweep", str(VIT), "--metric", "top1-accuracy", "--methods", "deferred-log,exact", "--bits", "2-6",
           "--samples", "96", "--threads", "1"]  # fmt: skip


def command(data: Path, out: Path, *more: str) -> list[str]:
    return [*COMMAND, "--data", str(data), "--out", str(out), *more]


def killed_and_resumed(tmp_path: Path, times: int, seed: int) -> None:
    start = time.monotonic()
    # The command is part of a report, so each has a folder of its own to be the same in.
    line = [sys.executable, "-m", "softq", *command(IMAGES, Path("out"))]
    whole = tmp_path / "whole"
    whole.mkdir()
    subprocess.run(line, cwd=whole, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took = time.monotonic() - start
    study, outcomes = read(whole / "out")
    assert all(len(outcome.sites) == 4 for outcome in outcomes)
    report = without_seconds(whole / "out")
    moments = random.Random(seed)
    for number in range(times):
        home = tmp_path / str(number)
        home.mkdir()
        out = home / "out"
        for attempt in range(30):
            child = subprocess.Popen(line, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                # Later from time to time, so that a machine that is busy elsewhere comes to the end.
                _, error = child.communicate(timeout=took * moments.uniform(0.4, 1.0) * 1.1**attempt)
                assert child.returncode == 0, error
                break
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                child.communicate()
        else:
            pytest.fail("a sweep that is killed again and again does not come to an end")
        again = read(out)
        assert plain(again[1]) == plain(outcomes)
        assert again[0].reference == study.reference
        assert without_seconds(out) == report


def without_seconds(folder: Path) -> dict[str, object]:
    """A sweep's report, its five files, without how long the settings took."""
    found: dict[str, object] = {name: (folder / name).read_bytes() for name in REPORTS}
    plain_report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    for row in plain_report["settings"]:
        assert row.pop("seconds") > 0
    return found | {"report.json": plain_report}


def test_kill_and_resume(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 1, 0)


@pytest.mark.slow
def test_kill_and_resume_often(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 10, 1)


def test_every_place_at_which_a_line_can_be_cut(tmp_path: Path) -> None:
    out = tmp_path / "out"
    small = ["--methods", "exact", "--bits", "4", "--samples", "4"]
    assert CliRunner().invoke(main, command(IMAGES, out, *small)).exit_code == 0
    outcomes = read(out)[1]
    text = (out / OUTCOMES).read_bytes()
    for length in (0, 1, len(text) // 2, len(text) - 1):
        (out / OUTCOMES).write_bytes(text[:length])
        assert read(out)[1] == ()
        result = CliRunner().invoke(main, command(IMAGES, out, *small))
        assert result.exit_code == 0, result.output
        assert plain(read(out)[1]) == plain(outcomes)


def test_a_sweep_goes_on_under_the_same_conditions_only(tmp_path: Path) -> None:
    data, out = cut(IMAGES, tmp_path / "data.npz", 8), tmp_path / "out"
    one = ["--methods", "deferred-log", "--bits", "4"]

    def refused(*more: str) -> str:
        result = CliRunner().invoke(main, command(data, out, *one, *more))
        assert result.exit_code == 2, result.output
        assert result.stderr.count("\n") == 1
        return result.stderr

    assert CliRunner().invoke(main, command(data, out, *one)).exit_code == 0
    assert "--samples was 96; now it is 7" in refused("--samples", "7")
    assert "--bits was 4; now it is 2-4" in refused("--bits", "2-4")
    assert "--set was []; now it is ['deferred-log.r=1.5']" in refused("--set", "deferred-log.r=1.5")
    assert "the metric was top1-accuracy; now it is kl" in refused("--metric", "kl")
    calibration = str(MODELS / "mnist_vit/calibration.npz")
    assert "the calibration data was None" in refused("--calibration", calibration)
    shutil.copy(data, tmp_path / "kept.npz")
    cut(IMAGES, data, 8, start=1)
    assert "for which the data was" in refused()
    # What cannot start anew loses nothing of what is there.
    held = {file.name: file.read_bytes() for file in out.iterdir()}
    assert "label" in refused("--force", "--labels", "nothing")
    assert "no-such" in refused("--force", "--calibration", "no-such.npz")
    assert {file.name: file.read_bytes() for file in out.iterdir()} == held
    again = CliRunner().invoke(main, command(data, out, *one, "--force"))
    assert again.exit_code == 0, again.output
    shutil.copy(tmp_path / "kept.npz", data)
    assert "for which the data was" in refused()
    os.remove(out / STUDY)
    assert f"has {OUTCOMES} without {STUDY}" in refused()


def test_a_sweep_goes_on_where_the_float_model_gives_the_same_only(tmp_path: Path) -> None:
    """Another value of the same model on the same data: the machine computes otherwise."""
    given: dict[str, Any] = {"out": tmp_path / "out", "metric": "top1-accuracy", "methods": "exact", "samples": 4}
    run(VIT, IMAGES, **given)
    (tmp_path / "out" / OUTCOMES).write_bytes(b"")
    study = json.loads((tmp_path / "out" / STUDY).read_text())
    study["reference"]["value"] = math.nextafter(study["reference"]["value"], 0)
    (tmp_path / "out" / STUDY).write_text(json.dumps(study))
    with pytest.raises(UsageError, match="the float model's value was"):
        run(VIT, IMAGES, **given)


def test_a_sweep_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Its intervals were others and its losses had no flips."""
    out, given = tmp_path / "out", ["--methods", "uniform", "--samples", "8"]
    assert CliRunner().invoke(main, command(IMAGES, out, *given, "--bits", "2,4")).exit_code == 0
    study = json.loads((out / STUDY).read_text(encoding="utf-8"))
    study["reference"] = {"value": study["reference"]["value"], "low": 0.968, "high": 1.002}
    (out / STUDY).write_text(json.dumps(study), encoding="utf-8")
    first = json.loads((out / OUTCOMES).read_text(encoding="utf-8").splitlines()[0])
    del first["loss"]["flips"], first["metric"]["flips"]
    (out / OUTCOMES).write_text(json.dumps(first) + "\n", encoding="utf-8")
    again = CliRunner().invoke(main, command(IMAGES, out, *given, "--bits", "2,4"))
    assert again.exit_code == 0, again.output
    assert [one.loss.flips is None for one in read(out)[1]] == [True, False]


def test_another_model_is_refused(tmp_path: Path) -> None:
    from softq.modelfile import save

    kept = tmp_path / "model.onnx"
    shutil.copy(VIT, kept)
    given = {"out": tmp_path / "out", "metric": "top1-accuracy", "methods": "exact", "samples": 4, "threads": 1}
    run(kept, IMAGES, **given)  # pyright: ignore
    os.remove(kept)
    save(convert(VIT, bits=2).model, kept)
    with pytest.raises(UsageError, match="the model's graph was"):
        run(kept, IMAGES, **given)  # pyright: ignore


def test_two_writers(tmp_path: Path) -> None:
    from softq.sweeps.folder import open_folder

    with open_folder(tmp_path / "out", False):
        result = CliRunner().invoke(main, command(IMAGES, tmp_path / "out"))
    assert result.exit_code == 2
    assert "another softq is measuring into this folder" in result.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--bits", "8-2"], "bits '8-2': expected widths"),
        (["--bits", "x"], "bits 'x': expected widths"),
        (["--methods", "nothing"], "nothing"),
        (["--methods", "exact,exact"], "exact is named twice"),
        (["--methods", "log2", "--bits", "9"], "log2 bits is 9; allowed is"),
        (["--methods", "log2", "--bits", "9-10"], "no setting of log2 is legal"),
        (["--set", "deferred-log.r"], "expected METHOD.KEY=VALUE"),
        (["--set", "uniform.top=0.5"], "uniform is none of the methods here"),
        (["--set", "deferred-log.rr=1"], "has no option 'rr'"),
        (["--set", "deferred-log.r=site", "--methods", "deferred-log", "--bits", "4"], "give --calibration DATA"),
        (["--samples", "0"], "invalid value for '--samples': 0 is not in the range x>=1"),
        (["--metric", "nothing"], "unknown metric"),
        (["--max-drop", "x"], "max-drop is 'x'"),
        (["--out", "/nowhere/at/all"], "does not exist"),
        (["--sites", "nothing"], "nothing"),
        (["--workers", "0"], "workers is 0"),
        (["--calibration-draws", "2"], "--calibration-draws says how --calibration is drawn from, which is missing"),
        (["--cost", "verilog,step=-1"], "step is -1; it must be a number above 0"),
        (["--cost", "verilog,step=0.06:LUT9"], "target verilog says no LUT9"),
        (["--granularity", "head"], "granularity is head: a number per head is fitted on data; give --calibration"),
    ],
)
def test_bad_usage_is_one_line(tmp_path: Path, more: list[str], message: str) -> None:
    result = CliRunner().invoke(main, command(IMAGES, tmp_path / "out", *more))
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_was_there_stays_where_nothing_is_measured(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, command(IMAGES, tmp_path, "--workers", "0")).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_workers_find_what_one_process_finds(tmp_path: Path) -> None:
    given = {"metric": "kl", "methods": "deferred-log,uniform", "bits": "3,4", "samples": 24, "threads": 1}
    one = run(VIT, IMAGES, out=tmp_path / "one", **given)  # pyright: ignore
    two = run(VIT, IMAGES, out=tmp_path / "two", workers=2, **given)  # pyright: ignore
    assert plain(two.outcomes) == plain(one.outcomes)
    assert {path.name for path in (tmp_path / "two").iterdir()} == {STUDY, OUTCOMES}


def test_what_is_left_out_is_said() -> None:
    settings, notes = expand("deferred-log,exact,log2", "6-8", ["deferred-log.r=2"], False)
    assert [s.options["bits"] for s in settings if s.method == "log2"] == [6]
    assert [s for s in settings if s.method == "exact"] == [s for s in settings if not s.options]
    assert all(s.options["r"] == 2.0 for s in settings if s.method == "deferred-log")
    assert notes == ("left out: log2 with 7 and 8 bits: log2 bits is 7; allowed is a whole number from 2 to 6",)
    assert parse_bits("2,4,6-8") == (2, 4, 6, 7, 8)


def test_the_gate(tmp_path: Path) -> None:
    out, junit = tmp_path / "out", tmp_path / "junit.xml"
    given = ["--methods", "deferred-log,uniform", "--bits", "2", "--samples", "200", "--junit", str(junit)]
    hard = CliRunner().invoke(main, command(IMAGES, out, *given, "--max-drop", "0"))
    assert hard.exit_code == 1, hard.output
    assert "FAILED: none of the 2 settings is shown to keep the budget" in hard.output
    assert "too much" in hard.output
    cases = ElementTree.parse(junit).getroot().findall("./testsuite/testcase")
    assert [case.get("name") for case in cases] == ["deferred-log bits=2", "uniform bits=2"]
    assert all(case.find("failure") is not None for case in cases)
    easy = CliRunner().invoke(main, command(IMAGES, out, *given, "--max-drop", "50%", "--json"))
    assert easy.exit_code == 0, easy.output
    found = json.loads(easy.stdout)
    assert found["gate"]["passed"]
    assert found["study"]["samples"] == 200
    assert ElementTree.parse(junit).getroot().get("failures") == "0"


def test_a_share_of_zero_is_no_budget(tmp_path: Path) -> None:
    given = ["--methods", "exact", "--metric", "kl", "--samples", "4"]
    result = CliRunner().invoke(main, command(IMAGES, tmp_path / "out", *given, "--max-drop", "1%"))
    assert result.exit_code == 2
    assert "give it without %" in result.stderr
    assert result.stderr.count("\n") == 1
    assert len(read(tmp_path / "out")[1]) == 1


def test_the_time_left_is_reckoned_from_what_each_method_costs() -> None:
    eta = Eta("sweep", ["a", "a", "b"], 2.0, None)
    assert eta.remaining() == 6.0
    eta.begin()
    eta.done("a")
    eta._costs["a"] = [5.0]
    assert eta.remaining() == 10.0
    eta.done("a")
    eta._costs["a"] = [5.0]
    assert eta.remaining() == 5.0


def test_a_folder_that_holds_no_sweep(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no sweep"):
        read(tmp_path)


def test_options_are_fitted_one_a_head(tmp_path: Path) -> None:
    calibration = MODELS / "mnist_vit/calibration.npz"
    given = ["--calibration", str(calibration), "--granularity", "head", "--methods", "deferred-log,uniform,exact",
             "--bits", "3", "--samples", "16"]  # fmt: skip
    result = CliRunner().invoke(main, command(IMAGES, tmp_path / "out", *given))
    assert result.exit_code == 0, result.output
    outcomes = {outcome.setting.method: outcome for outcome in read(tmp_path / "out")[1]}
    assert outcomes["deferred-log"].setting.options == {"bits": 3, "r": "head"}
    assert outcomes["uniform"].setting.options == {"bits": 3}  # nothing is fitted unless asked for
    converted = convert(VIT, bits=3, settings={"r": "head"}, calibration=calibration)
    assert {len(site.fitted["r"]) for site in converted.plan.sites} == {4}  # pyright: ignore[reportArgumentType]
    data = cut(IMAGES, tmp_path / "data.npz", 16)
    value = check(VIT, converted.model, data, metrics=["top1-accuracy"], threads=1).metrics[0].candidate
    assert outcomes["deferred-log"].metric.value == value
    again = CliRunner().invoke(main, command(IMAGES, tmp_path / "out", *given, "--granularity", "site"))
    assert "--granularity was head; now it is site" in again.stderr


def test_what_the_user_names_keeps_its_word() -> None:
    settings, _ = expand("deferred-log,minifloat", "3", ["deferred-log.r=site"], True, "head")
    assert [one.options for one in settings] == [
        {"bits": 3, "r": "site"}, {"bits": 3, "mantissa": "head", "top": "head"}
    ]  # fmt: skip
    with pytest.raises(UsageError, match="for a site or for a head, not mantissa=site, top=head"):
        expand("minifloat", "4", ["minifloat.top=head"], True)
    (plain_one,), _ = expand("deferred-log", "3", [], True)
    assert plain_one.options == {"bits": 3}


def test_a_sweep_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["--methods", "uniform", "--bits", "2,8", "--samples", "8"]
    done = CliRunner().invoke(main, command(IMAGES, tmp_path / "out", *small, "--max-drop", "50%"))
    assert done.exit_code == 0, done.output
    assert f"wrote {tmp_path / 'out' / 'report.html'}" in done.output
    found = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert found["answer"]["budget"] == pytest.approx(0.5 * found["subject"]["reference"]["value"])
    assert len(found["errors"]) == 2 * 4
    # Without the extra everything but the report is there, and a line says what to install.
    monkeypatch.setitem(sys.modules, "jinja2", None)
    bare = CliRunner().invoke(main, command(IMAGES, tmp_path / "bare", *small))
    assert bare.exit_code == 0, bare.output
    assert bare.stderr == (
        "softq: no report was written: the report's page needs jinja2: pip install 'softq[report]'\n"
    )
    assert len(read(tmp_path / "bare")[1]) == 2
    assert not list((tmp_path / "bare").glob("report.*"))
    # What is started anew has no report of what was there.
    shutil.copy(tmp_path / "out" / "report.html", tmp_path / "bare")
    assert CliRunner().invoke(main, command(IMAGES, tmp_path / "bare", *small, "--force")).exit_code == 0
    assert not list((tmp_path / "bare").glob("report.*"))
