"""Times beside the float model: what is timed, in which order, and where the numbers go."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import softq.compare
import softq.sweeps.evaluate.timer
from softq.cli import main
from softq.compare import check
from softq.conversion import convert
from softq.errors import UsageError
from softq.modelfile import save
from softq.reports import to_markdown, to_text
from softq.runner import OnnxRunner
from softq.sweeps import run
from softq.sweeps.formatting import sweep_to_json, sweep_to_text
from softq.sweeps.records import OUTCOMES, read
from softq.timing import TimeRatio, compare_times

MODELS = Path(__file__).parent.parent / "models"
VIT, IMAGES = MODELS / "mnist_vit/mnist_vit.onnx", MODELS / "mnist_vit/data.npz"
FIXED = TimeRatio(1.25, 1.125, 1.5, 0.008, 0.01, 7)


class Machine:
    """A machine on which a run takes as long as the test says, so that there is no chance in it."""

    def __init__(self, seconds: Callable[[str, int], float]) -> None:
        self.now, self.ran, self._seconds = 0.0, list[str](), seconds

    def program(self, name: str) -> Callable[[], None]:
        def run() -> None:
            self.now += self._seconds(name, self.ran.count(name))
            self.ran.append(name)

        return run


def compare(machine: Machine, seconds: float) -> TimeRatio:
    one, other = machine.program("a"), machine.program("b")
    return compare_times(one, other, seconds=seconds, clock=lambda: machine.now)


def test_median_and_quartiles_are_those_of_the_ratios_of_turns() -> None:
    # Behind two warm runs, turn i takes 10 ms and (10 + i) ms.
    machine = Machine(lambda name, number: 0.01 if name == "a" else 0.01 + 0.001 * max(number - 2, 0))
    found = compare(machine, 0.0)
    ratios = [1 + 0.1 * turn for turn in range(7)]
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    assert (found.low, found.median, found.high) == pytest.approx((low, median, high))
    assert (found.reference_seconds, found.candidate_seconds, found.turns) == pytest.approx((0.01, 0.013, 7))


def test_who_is_first_changes_so_that_a_slow_machine_slows_both() -> None:
    machine = Machine(lambda name, number: 0.01 * (1 if name == "a" else 2))
    compare(machine, 0.0)
    assert "".join(machine.ran) == "aabb" + "abba" * 3 + "ab"
    # The machine gets slower and slower: were one always first, its times would be the shorter ones.
    drifting = Machine(lambda name, number: 0.01 * 1.1**number)
    assert compare(drifting, 0.0).median == pytest.approx(1.0)


def test_turns_go_on_for_the_seconds_and_short_runs_are_repeated() -> None:
    machine = Machine(lambda name, number: 0.05)
    assert compare(machine, 2.0).turns == 20
    short = Machine(lambda name, number: 1e-4 if name == "a" else 0.01)
    found = compare(short, 0.0)
    assert found.median == pytest.approx(100)
    assert (short.ran.count("a"), short.ran.count("b")) == (2 + 7 * 20, 2 + 7)


def test_check_times_both_models(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []

    def look(reference: Callable[[], object], candidate: Callable[[], object]) -> TimeRatio:
        for one in (reference, candidate):
            outputs = one()
            assert isinstance(outputs, dict)
            seen.append(outputs["logits"])
        return FIXED

    monkeypatch.setattr(softq.compare, "compare_times", look)
    quantized = convert(VIT, bits=2).model
    report = check(VIT, quantized, IMAGES, batch=8, threads=1, time=True)
    with np.load(IMAGES) as arrays:
        images = arrays["images"][:8]
    for model, logits in zip((VIT, quantized), seen, strict=True):
        np.testing.assert_array_equal(OnnxRunner.open(model, threads=1)({"images": images})["logits"], logits)
    assert report.to_json()["time_ratio"] == {
        "median": 1.25, "low": 1.125, "high": 1.5, "reference_seconds": 0.008, "candidate_seconds": 0.01, "turns": 7
    }  # fmt: skip
    for text in (to_text(report), to_markdown(report)):
        assert (
            "time: 1.25 times the reference's, quartiles 1.12 to 1.5; 8 ms and 10 ms for 8 at a time, 7 turns" in text
        )
    assert check(VIT, quantized, IMAGES, batch=500, threads=1).to_json()["time_ratio"] is None


def test_a_sweep_times_what_convert_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(reference: Callable[[], object], candidate: Callable[[], object]) -> TimeRatio:
        mine, theirs = reference(), candidate()
        assert isinstance(mine, dict)
        assert isinstance(theirs, dict)
        change = float(np.abs(mine["logits"] - theirs["logits"]).mean())
        return TimeRatio(change, 0.0, 1.0, 0.1, 0.2, 7)

    monkeypatch.setattr(softq.sweeps.evaluate.timer, "compare_times", look)
    sweep = run(VIT, IMAGES, out=tmp_path / "out", metric="top1-accuracy", methods="deferred-log,exact", bits="2,3",
                limit=16, threads=1, batch=16, time=True)  # fmt: skip
    with np.load(IMAGES) as arrays:
        images = arrays["images"][:16]
    mine = OnnxRunner.open(VIT, threads=1)({"images": images})["logits"].astype(np.float32)
    for outcome in sweep.outcomes:
        made = convert(VIT, method=outcome.setting.method, settings=outcome.setting.options).model
        save(made, tmp_path / "made.onnx")
        assert outcome.size_bytes == (tmp_path / "made.onnx").stat().st_size
        theirs = OnnxRunner.open(tmp_path / "made.onnx", threads=1)({"images": images})["logits"].astype(np.float32)
        assert outcome.time_ratio is not None
        assert outcome.time_ratio.median == float(np.abs(mine - theirs).mean())
    assert sweep.study.size_bytes == VIT.stat().st_size
    record = json.loads((tmp_path / "out" / OUTCOMES).read_text("utf-8").splitlines()[0])
    assert {"median", "low", "high"} <= set(record["time_ratio"])
    assert sweep_to_json(sweep)["outcomes"][0]["size_bytes"] == record["size_bytes"]  # pyright: ignore
    assert "time / float" in sweep_to_text(sweep)
    assert f"{record['size_bytes']:,}" in sweep_to_text(sweep)
    with pytest.raises(UsageError, match="--time was True; now it is False"):
        run(VIT, IMAGES, out=tmp_path / "out", metric="top1-accuracy", methods="deferred-log,exact", bits="2,3",
            limit=16, threads=1, batch=16)  # fmt: skip


def test_records_of_before_are_read(tmp_path: Path) -> None:
    run(VIT, IMAGES, out=tmp_path, metric="top1-accuracy", methods="exact", limit=4, threads=1)
    for name, fields in ((OUTCOMES, ("time_ratio", "size_bytes")), ("study.json", ("size_bytes",))):
        plain = json.loads((tmp_path / name).read_text("utf-8"))
        for field in fields:
            assert plain.pop(field) is None
        (tmp_path / name).write_text(json.dumps(plain) + "\n", "utf-8")
    study, (outcome,) = read(tmp_path)
    assert (study.size_bytes, outcome.size_bytes, outcome.time_ratio) == (None, None, None)


def test_nothing_is_timed_beside_other_processes(tmp_path: Path) -> None:
    command = ["sweep", str(VIT), "--data", str(IMAGES), "--metric", "kl", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, [*command, "--time", "--workers", "2"])
    assert result.exit_code == 2
    assert result.output == "softq: --time: other processes take the cores meanwhile; measure in one process\n"


def test_the_command_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softq.compare, "compare_times", partial(compare_times, seconds=0.0))
    with np.load(IMAGES) as arrays:
        np.savez(tmp_path / "data.npz", **{name: arrays[name][:8] for name in arrays.files})  # pyright: ignore
    result = CliRunner().invoke(
        main, ["check", str(VIT), str(VIT), "--data", str(tmp_path / "data.npz"), "--time", "--json"]
    )
    assert result.exit_code == 0, result.output
    times = json.loads(result.output)["time_ratio"]
    assert times["low"] <= times["median"] <= times["high"]
    assert times["turns"] == 7
    assert statistics.median([times["reference_seconds"], times["candidate_seconds"]]) > 0
