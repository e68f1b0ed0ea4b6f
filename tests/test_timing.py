"""Times beside the float model: what is timed, in which order, and where the numbers go."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import softq.building
import softq.compare
import softq.onnxruntime
import softq.registry
import softq.sweeps.built
import softq.sweeps.evaluate.timer
import softq.sweeps.frameworks.onnx
from softq.cli import main
from softq.compare import check
from softq.conversion import convert
from softq.errors import UsageError
from softq.modelfile import save
from softq.reports import to_markdown, to_text
from softq.runner import OnnxRunner, Runner, Written
from softq.sweeps import run
from softq.sweeps.formatting import sweep_to_json, sweep_to_text
from softq.sweeps.records import OUTCOMES, Timed, read
from softq.sweeps.report import report
from softq.timing import TimeRatio, compare_times
from tests.test_sweep import cut

MODELS = Path(__file__).parent.parent / "models"
VIT, IMAGES = MODELS / "mnist_vit/mnist_vit.onnx", MODELS / "mnist_vit/data.npz"
DEVICE = """
from dataclasses import dataclass
from softq.errors import RefusalError
from softq.runner import OnnxRunner, Written
from softq.targets import Result, Target

@dataclass(frozen=True)
class Nothing(Result):
    def write(self, order):
        order.folder.mkdir()
        (order.folder / "manifest.json").write_text("{}")
        return order.folder

def build(model, options):
    if not any("Log" in function.name for function in model.functions.values()):
        raise RefusalError("the device has logarithms only")
    return Nothing()

def open_built(model, folder, threads):
    assert (folder / "manifest.json").is_file()
    return Written(OnnxRunner.open(model, threads=threads), 321)

TARGET = Target("device", "", "", "", tuple, build=build, needs_tvm=False, open=open_built)
"""
"""A target that runs converted models as they are."""

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


def test_check_times_both_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = cut(IMAGES, tmp_path / "data.npz", 16)
    seen: list[np.ndarray] = []

    def look(reference: Callable[[], object], candidate: Callable[[], object]) -> TimeRatio:
        for one in (reference, candidate):
            outputs = one()
            assert isinstance(outputs, dict)
            seen.append(outputs["logits"])
        return FIXED

    monkeypatch.setattr(softq.compare, "compare_times", look)
    quantized = convert(VIT, bits=2).model
    report = check(VIT, quantized, data, batch=8, threads=1, time=True)
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
    assert check(VIT, quantized, data, batch=16, threads=1).to_json()["time_ratio"] is None


def test_a_sweep_times_what_convert_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(reference: Callable[[], object], candidate: Callable[[], object]) -> TimeRatio:
        mine, theirs = reference(), candidate()
        assert isinstance(mine, dict)
        assert isinstance(theirs, dict)
        change = float(np.abs(mine["logits"] - theirs["logits"]).mean())
        return TimeRatio(change, 0.0, 1.0, 0.1, 0.2, 7)

    monkeypatch.setattr(softq.sweeps.evaluate.timer, "compare_times", look)
    sweep = run(VIT, IMAGES, out=tmp_path / "out", metric="top1-accuracy", methods="deferred-log,exact", bits="2,3",
                samples=16, threads=1, batch=16, time=True)  # fmt: skip
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
            samples=16, threads=1, batch=16)  # fmt: skip


def test_records_of_before_are_read(tmp_path: Path) -> None:
    run(VIT, IMAGES, out=tmp_path, metric="top1-accuracy", methods="exact", samples=4, threads=1)
    for name, fields in ((OUTCOMES, ("time_ratio", "size_bytes", "built")), ("study.json", ("size_bytes",))):
        plain = json.loads((tmp_path / name).read_text("utf-8"))
        for field in fields:
            assert not plain.pop(field)
        (tmp_path / name).write_text(json.dumps(plain) + "\n", "utf-8")
    study, (outcome,) = read(tmp_path)
    assert (study.size_bytes, outcome.size_bytes, outcome.time_ratio, outcome.built) == (None, None, None, {})


def logits_of(run: Callable[[], object]) -> np.ndarray:
    outputs = run()
    assert isinstance(outputs, dict)
    return np.asarray(outputs["logits"], np.float32)


def test_a_sweep_times_what_a_target_makes_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softq.registry, "_OWN", {})
    monkeypatch.setattr(
        softq.sweeps.evaluate.timer,
        "compare_times",
        # A ratio that says who ran: the greatest change of the logits.
        lambda one, other: TimeRatio(float(np.abs(logits_of(one) - logits_of(other)).max()), 0.0, 1.0, 0.1, 0.2, 7),
    )
    device, out = tmp_path / "device.py", tmp_path / "out"
    device.write_text(DEVICE, "utf-8")
    command: dict[str, Any] = {"metric": "kl", "methods": "deferred-log,exact", "bits": "2", "samples": 4, "threads": 1}
    sweep = run(VIT, IMAGES, out=out, time_on=[str(device)], **command)
    deferred, exact = sweep.outcomes
    assert deferred.time_ratio is not None
    assert deferred.time_ratio.median > 0
    assert deferred.built == {str(device): Timed(deferred.time_ratio, 321)}
    assert exact.built == {str(device): Timed(refused="the device has logarithms only")}
    assert exact.time_ratio is not None
    assert read(out)[1] == sweep.outcomes
    text = sweep_to_text(sweep)
    assert f"time on {device} / float" in text
    assert f"no time on {device} of exact: the device has logarithms only" in text

    written = report(out, front=f"time_ratio@{device}")
    assert [column.name for column in written.content.columns][-2:] == [f"time_ratio@{device}", f"size_bytes@{device}"]
    head, *rows = csv.reader((out / "report.csv").read_text("utf-8").splitlines())
    told = {row[head.index("method")]: row[head.index(f"size_bytes@{device}")] for row in rows}
    assert told == {"deferred-log": "321", "exact": ""}
    assert f"size, {device}" in (out / "report.html").read_text("utf-8")
    with pytest.raises(UsageError, match=r"--time-on was \['/.*; now it is None"):
        run(VIT, IMAGES, out=out, time=True, **command)


def test_targets_that_cannot_be_timed_are_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["sweep", "no.onnx", "--data", "no.npz", "--metric", "kl", "--out", str(tmp_path / "out")]

    def said(*targets: str) -> str:
        result = CliRunner().invoke(main, [*command, *(word for target in targets for word in ("--time-on", target))])
        assert result.exit_code == 2
        return result.output

    assert said("verilog").endswith("target verilog builds is not timed here; that of these is: cpu, onnxruntime\n")
    assert said("cpu,speed=3").startswith("softq: target cpu has no option 'speed'")
    assert said("cpu", "cpu") == "softq: --time-on cpu cpu: one is named twice\n"
    monkeypatch.setattr(softq.building.importlib.util, "find_spec", lambda name: None)
    assert said("cpu") == "softq: building for cpu needs TVM; install it with: pip install 'softq[tvm]'\n"
    assert not (tmp_path / "out").exists()


def test_models_without_files_are_built_for_no_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of PyTorch are, which run where they were made."""

    def unfiled(runner: Runner, size: int, path: Path) -> Written:
        return Written(runner, None)

    monkeypatch.setattr(softq.sweeps.frameworks.onnx, "Written", unfiled)
    with pytest.raises(UsageError, match="--time-on: targets build ONNX models, and what runs here is none"):
        run(VIT, IMAGES, out=tmp_path, metric="kl", methods="exact", samples=4, threads=1, time_on=["cpu"])
    assert not any(tmp_path.glob("*.json*"))


@pytest.mark.slow
def test_operators_and_artifacts_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logits: list[np.ndarray] = []
    files: dict[str, dict[str, int]] = {}
    registered: list[str] = []
    build, register = softq.building.build, softq.onnxruntime.register

    def look(reference: Callable[[], object], candidate: Callable[[], object]) -> TimeRatio:
        logits.append(logits_of(candidate))
        return FIXED

    def look_at_files(model: Path, folder: Path, *, target: str) -> softq.building.BuiltArtifact:
        made = build(model, folder, target=target)
        files[target] = {file.name: file.stat().st_size for file in folder.iterdir()}
        return made

    def look_at_operators(options: softq.onnxruntime.SessionOptions, path: Path) -> None:
        registered.append(path.name)
        register(options, path)

    monkeypatch.setattr(softq.sweeps.evaluate.timer, "compare_times", look)
    monkeypatch.setattr(softq.sweeps.built, "build", look_at_files)
    monkeypatch.setattr(softq.onnxruntime, "register", look_at_operators)
    sweep = run(VIT, IMAGES, out=tmp_path / "out", metric="kl", methods="deferred-log", bits="4", samples=16, threads=1,
                batch=16, time_on=["onnxruntime", "cpu"])  # fmt: skip
    (outcome,) = sweep.outcomes
    model, libraries = outcome.size_bytes, files["onnxruntime"]
    assert model is not None
    loaded = sum(files["cpu"][name] for name in ("libmodel.so", "weights.bin", "manifest.json"))
    assert outcome.built == {
        "onnxruntime": Timed(FIXED, model + libraries["libsoftq_operators.so"]),
        "cpu": Timed(FIXED, loaded),
    }
    assert registered == ["built"]
    plain, with_operators, artifact = logits
    # The operators compute the same integers; the artifact adds its products of matrices in another order.
    np.testing.assert_allclose(with_operators, plain, rtol=0, atol=1e-5)
    np.testing.assert_allclose(artifact, plain, rtol=0, atol=1e-2 * float(np.abs(plain).max()))
    assert np.mean(artifact.argmax(-1) == plain.argmax(-1)) == 1


@pytest.mark.slow
def test_what_comes_with_softq_is_timed_instead_of_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, own = tmp_path / "model.onnx", tmp_path / "own"
    converted = convert(VIT, bits=4)
    save(converted.model, model)
    softq.building.build(model, own, target="onnxruntime")
    registered: list[Path] = []
    register = softq.onnxruntime.register

    def look(options: softq.onnxruntime.SessionOptions, path: Path) -> None:
        registered.append(path)
        register(options, path)

    monkeypatch.setattr(softq.onnxruntime, "_OURS", own)
    monkeypatch.setattr(softq.onnxruntime, "register", look)
    monkeypatch.setattr(softq.sweeps.built, "build", lambda *_, **__: pytest.fail("it is there"))
    monkeypatch.setattr(softq.building.importlib.util, "find_spec", lambda name: None)
    given: dict[str, Any] = {"metric": "kl", "bits": "4", "samples": 4, "threads": 1, "time_on": ["onnxruntime"]}
    (outcome,) = run(VIT, IMAGES, out=tmp_path / "a", methods="deferred-log", **given).outcomes
    assert outcome.built["onnxruntime"].time_ratio is not None
    assert registered == [own]
    # A library without an operator for it serves no other method.
    (outcome,) = run(VIT, IMAGES, out=tmp_path / "b", methods="uniform", **given).outcomes
    assert outcome.built["onnxruntime"].refused.startswith("what comes with softq does not serve it, and building for ")
    given["time_on"] = ["onnxruntime,mcpu=x86-64-v3"]
    with pytest.raises(UsageError, match=r"building for onnxruntime needs TVM"):
        run(VIT, IMAGES, out=tmp_path / "c", methods="uniform", **given)


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
