"""Methods, metrics and targets from outside: a package that is built and installed, and files of one's own."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
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
from softq.rowprog import DType
from softq.rowprog import run as run_program
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


def test_the_page_does_what_it_says(method: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the page, as in a process of its own, that knows the file only where it is named."""
    pytest.importorskip("tvm")
    monkeypatch.chdir(tmp_path)
    shutil.copy(VIT, "model.onnx")
    page = (ROOT / "docs" / "plug-ins.md").read_text("utf-8")
    commands = re.findall(r"^softq (.*my_ramp\.py.*)$", page, re.MULTILINE)
    assert [command.split()[0] for command in commands] == [
        "methods", "convert", "sweep", "build", "build", "rtl", "vectors"
    ]  # fmt: skip
    shutil.copy(IMAGES, "data.npz")
    for command in commands:
        monkeypatch.setattr(softq.registry, "_OWN", {})
        given = shlex.split(command)
        done = run(*given, *(["--samples", 8] if given[0] == "sweep" else []))
        assert done.exit_code == 0, (command, done.output)
        if given[0] == "methods":
            assert "Weights that fall along a straight line: w = max(0, 1 - d / width)" in done.output
    assert json.loads(Path("cores/manifest.json").read_text())["cores"][0]["method"] == "my-ramp"
    for target in ("onnxruntime", "c"):
        monkeypatch.setattr(softq.registry, "_OWN", {})
        build = ["build", "quantized.onnx", target, "--target", target]
        build += ["--input-shape", "images:batch=1"] if target == "c" else []
        done = run(*build)
        assert done.exit_code == 2, done.output
        assert done.stderr == (
            f"softq: unknown method 'my-ramp'; softq methods lists all {len(METHODS.entries())}; one of your own is "
            "named by its file: --method my_ramp.py\n"
        )
        done = run(*build, "--method", method)
        assert done.exit_code == 0, done.output


def test_a_model_of_a_file_is_built_in_python(method: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converted = softq.convert(VIT, method=str(method)).model
    monkeypatch.setattr(softq.registry, "_OWN", {})
    with pytest.raises(UsageError, match="unknown method 'my-ramp'"):
        softq.build(converted, tmp_path / "cores", target="verilog,step=0.06")
    with pytest.raises(UsageError, match=r"methods is 'my_ramp\.py'; expected a list"):
        softq.build(converted, tmp_path / "cores", target="verilog,step=0.06", methods="my_ramp.py")
    built = softq.build(converted, tmp_path / "cores", target="verilog,step=0.06", methods=[method])
    assert [core["method"] for core in built.manifest["cores"]] == ["my-ramp"]


def test_whole_numbers_of_a_method_of_a_file_are_those_of_its_floats(method: Path) -> None:
    own = METHODS.open(str(method))
    options = own.configure({"width": 4, "step": 0.0625})
    x = np.random.default_rng(0).integers(-128, 128, (5, 40)).astype(np.int8)
    out = run_program(own.program(options, scores=DType.I8), x)
    d = (x.max(-1, keepdims=True).astype(np.float64) - x) * 0.0625
    # Half a unit of 255, and as much of the factor's rounding at most.
    np.testing.assert_allclose(out["weights"].astype(np.float64) / 255, np.maximum(0, 1 - d / 4), atol=1 / 255)


def test_a_file_without_a_docstring_has_no_specification(method: Path) -> None:
    text = method.read_text()
    method.write_text(text[text.index("from dataclasses") :])
    done = run("methods", method)
    assert done.exit_code == 0
    assert done.output.startswith("my-ramp: A straight line instead of the exponential.\n\nsource         none\n")


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
    METHODS.open(str(method))
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "my_ramp.py"
    twin.write_text(method.read_text())
    with pytest.raises(UsageError, match=rf"has the name of that of {re.escape(str(method))}"):
        METHODS.open(str(twin))
    exact = tmp_path / "exact.py"
    exact.write_text(method.read_text().replace('"my-ramp"', '"exact"'))
    with pytest.raises(UsageError, match="softq or an installed package"):
        METHODS.open(str(exact))
    with pytest.raises(UsageError, match=r"method 'missing\.py': no such file"):
        METHODS.open("missing.py")


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
