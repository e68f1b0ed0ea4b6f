"""Methods, metrics and targets from outside: a package that is built and installed, and files of one's own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import softq
import softq.registry
from softq.cli import main
from softq.errors import UsageError
from softq.methods import METHODS
from softq.runner import OnnxRunner
from tests.attention import Feed, attention, inputs

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "examples" / "plugin"
MODELS = ROOT / "models"
VIT, IMAGES = MODELS / "mnist_vit/mnist_vit.onnx", MODELS / "mnist_vit/data.npz"


@pytest.fixture
def method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of docs/plug-ins.md; what it makes known is forgotten behind the test."""
    monkeypatch.setattr(softq.registry, "_OWN", {})
    page = (ROOT / "docs" / "plug-ins.md").read_text("utf-8")
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    path = tmp_path / "my_ramp.py"
    path.write_text(found[1])
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def attend(feed: Feed, width: float) -> np.ndarray:
    """The attention of `tests.attention` with a ramp for its softmax, in float64."""
    scores, v = (feed[name].astype(np.float64) for name in ("scores", "v"))
    weights = np.maximum(0, 1 - (scores.max(-1, keepdims=True) - scores) / width)
    return weights / weights.sum(-1, keepdims=True) @ v


def test_a_method_of_a_file_computes_what_the_file_says(method: Path) -> None:
    feed = inputs(batch=4)
    converted = softq.convert(attention(), method=str(method), settings={"width": 4.0})
    (found,) = OnnxRunner.open(converted.model)(feed).values()
    np.testing.assert_allclose(found.astype(np.float64), attend(feed, 4.0), atol=1e-5)
    assert {site.method for site in converted.plan.sites} == {"my-ramp"}
    assert METHODS.get("my-ramp").name in METHODS.entries()


def test_a_plan_is_followed_with_the_file(method: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, out, again = (tmp_path / name for name in ("plan.json", "out.onnx", "again.onnx"))
    assert run("convert", VIT, out, "--method", method, "--save-plan", plan).exit_code == 0
    monkeypatch.setattr(softq.registry, "_OWN", {})  # another process
    result = run("convert", VIT, again, "--plan", plan)
    assert result.exit_code == 2
    assert "unknown method 'my-ramp'" in result.output
    assert run("convert", VIT, again, "--plan", plan, "--method", method).exit_code == 0
    assert again.read_bytes() == out.read_bytes()
    other = tmp_path / "other_ramp.py"
    other.write_text(method.read_text().replace('"my-ramp"', '"other-ramp"'))
    result = run("convert", VIT, again, "--plan", plan, "--method", other)
    assert result.exit_code == 2
    assert "a plan settles method already, and this one does not name other-ramp" in result.output


def test_a_sweep_goes_on_only_with_the_same_file(method: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "swept"
    command = ["sweep", VIT, "--data", IMAGES, "--metric", "top1-accuracy", "--samples", 8, "--bits", 3, "--out", out,
               "--methods", f"exact,{method}"]  # fmt: skip
    assert run(*command, "--set", "my-ramp.width=2").exit_code == 0
    settings = [json.loads(line)["setting"] for line in (out / "outcomes.jsonl").read_text().splitlines()]
    assert [(one["method"], one["options"]) for one in settings] == [("exact", {}), ("my-ramp", {"width": 2.0})]
    method.write_text(method.read_text() + "# changed\n")
    result = run(*command, "--set", "my-ramp.width=2")
    assert result.exit_code == 2
    assert "holds a sweep for which the file of a method was" in result.output
    result = run(*command[:-1], method, "--workers", 2)
    assert result.exit_code == 2
    assert "methods of files are measured in one process" in result.output
    # Elsewhere nobody knows the file: the page has all but what only the program tells.
    monkeypatch.setattr(softq.registry, "_OWN", {})
    assert run("report", out).exit_code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("METHOD = ", "METHODS = "), "exposes no METHOD of type Method"),
        (('"my-ramp"', '"ramp"'), "method is named 'ramp'; the file's name asks for 'my-ramp'"),
        (("8.0", "80.0"), "cannot be imported: .*default of width is 80"),
        (
            ("import DType, Trace", "import DType, Tracer"),
            "cannot be imported: ImportError: cannot import name 'Tracer'",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(method: Path, change: tuple[str, str], message: str) -> None:
    method.write_text(method.read_text().replace(*change))
    result = run("methods", method)
    assert result.exit_code == 2
    assert re.search(message, result.output), result.output
    assert result.output.count("\n") == 1


def test_names_are_taken_once(method: Path, tmp_path: Path) -> None:
    METHODS.get(str(method))
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "my_ramp.py"
    twin.write_text(method.read_text())
    with pytest.raises(UsageError, match=rf"has the name of that of {re.escape(str(method))}"):
        METHODS.get(str(twin))
    exact = tmp_path / "exact.py"
    exact.write_text(method.read_text().replace('"my-ramp"', '"exact"'))
    with pytest.raises(UsageError, match="softq or an installed package"):
        METHODS.get(str(exact))
    with pytest.raises(UsageError, match=r"method 'missing\.py': no such file"):
        METHODS.get("missing.py")


def test_the_package_is_built_installed_and_used(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "--wheel-dir", tmp_path, PLUGIN], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("softq_ramp-0.1.0-*.whl")
    subprocess.run([*pip, "install", *offline, "--target", tmp_path / "site", wheel], check=True, capture_output=True)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)])}

    def command(*arguments: object) -> str:
        given = [sys.executable, "-m", "softq", *map(str, arguments)]
        done = subprocess.run(given, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert re.search("^ramp +drop-in", command("methods"), re.MULTILINE)
    assert re.search("^tidy-onnx +Plain operators, constants folded", command("targets"), re.MULTILINE)
    command("convert", VIT, "out.onnx", "--method", "ramp", "--set", "width=4")
    with np.load(IMAGES) as arrays:
        images, part = arrays["images"][:32], {name: arrays[name][:32] for name in arrays.files}
    np.savez(tmp_path / "data.npz", **part)  # pyright: ignore
    report = json.loads(command("check", VIT, "out.onnx", "--data", "data.npz", "--metric", "margin-change", "--json"))
    leads: list[np.ndarray] = []
    for model in (VIT, tmp_path / "out.onnx"):
        logits = np.sort(OnnxRunner.open(model)({"images": images})["logits"].astype(np.float64), axis=-1)
        leads.append(logits[:, -1] - logits[:, -2])
    expected = float(np.abs(leads[1] - leads[0]).mean())
    assert expected > 0.1
    assert report["metrics"][0]["candidate"] == pytest.approx(expected, rel=1e-6)
