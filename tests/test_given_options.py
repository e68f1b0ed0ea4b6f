"""Options that are given back: what `convert` prints, an r alone, and the numbers that calibration fits."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from softq.cli import main
from softq.codegen.verilog.weighted_plan import ValueSettings
from softq.errors import UsageError
from softq.methods import METHODS, Method
from softq.rtl import rtl, rtl_with_values
from softq.rtl.hls import hls
from softq.sweeps.settings import expand
from softq.vectors import vectors

ROOT = Path(__file__).resolve().parent.parent
VIT = ROOT / "models/mnist_vit/mnist_vit.onnx"


def softq(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def converted(out: Path, *options: str) -> tuple[bytes, Result]:
    """Return the model that a method with these options makes."""
    done = softq("convert", VIT, out, *(part for option in options for part in ("--set", option)))
    assert done.exit_code == 0, done.output
    return out.read_bytes(), done


@pytest.mark.parametrize("bits", range(2, 9))
def test_what_is_printed_makes_the_same_model(tmp_path: Path, bits: int) -> None:
    """The line as a whole, and without what it says of how steps lie: the numbers alone say that, too."""
    model, done = converted(tmp_path / "model.onnx", f"bits={bits}")
    method, *options = done.stdout.splitlines()[0].removesuffix(":").split()
    assert method == "deferred-log"
    again, said = converted(tmp_path / "again.onnx", *options)
    assert again == model
    assert "warning" not in said.output
    numbers = [option for option in options if not option.startswith(("steps=", "distance="))]
    short, said = converted(tmp_path / "short.onnx", *numbers)
    assert short == model
    assert "warning" not in said.output


def test_an_r_alone_is_of_equal_steps_and_one_that_leaves_them_no_range_is_warned_of(tmp_path: Path) -> None:
    _, done = converted(tmp_path / "model.onnx", "bits=4", "r=1")
    assert (re.findall("steps=[a-z]+ distance=[a-z]+ r=1.0", done.output), done.stderr) == (
        ["steps=equal distance=float r=1.0"], ""
    )  # fmt: skip
    for bits, r in ((4, 23.7), (3, 6.5), (2, 1.3), (5, 60), (8, 64)):
        _, done = converted(tmp_path / "model.onnx", f"bits={bits}", f"r={r}")
        assert f"steps=equal distance=float r={float(r)}" in done.output
        # (2^b - 2) / r octaves down lies the last code that weighs anything.
        short = (2**bits - 2) / r < 2
        lines = [line for line in done.stderr.splitlines() if "warning" in line]
        assert len(lines) == short
        assert not short or (f"r is {r:g} with equal steps of {bits} bits" in lines[0] and "steps=growing" in lines[0])
    done = softq("convert", VIT, tmp_path / "x.onnx", "--bits", 5, "--set", "r=110")
    assert (done.exit_code, done.stderr) == (
        2, "softq: deferred-log: r is 110; allowed is up to 64 with equal steps, more with steps=growing\n"
    )  # fmt: skip
    _, done = converted(tmp_path / "model.onnx", "bits=5", "r=110", "steps=growing")
    assert "steps=growing distance=byte r=110.0" in done.output


def test_a_plan_of_equal_steps_is_followed_with_a_warning(tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", tmp_path / "out.onnx"
    assert softq("convert", VIT, out, "--bits", 4, "--set", "r=23.7", "--save-plan", plan).exit_code == 0
    again = tmp_path / "again.onnx"
    done = softq("convert", VIT, again, "--plan", plan)
    assert done.exit_code == 0
    assert done.stderr.count("warning: deferred-log: r is 23.7 with equal steps of 4 bits") == 1
    assert again.read_bytes() == out.read_bytes()


def test_a_sweep_says_so_too() -> None:
    _, notes = expand("deferred-log,deferred-log-online", "4", ["deferred-log.r=12", "deferred-log-online.r=1"], False)
    assert [note.split(" with ")[0] for note in notes] == ["deferred-log: r is 12"]
    _, notes = expand("deferred-log-online", "4", ["deferred-log-online.r=12"], False)
    assert [note.split(" with ")[0] for note in notes] == ["deferred-log-online: r is 12"]


def test_a_missing_step_is_asked_for_as_the_command_takes_it(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    converted(model, "bits=4")
    done = softq("build", model, tmp_path / "cores", "--target", "verilog")
    assert done.exit_code == 2
    assert "--set" not in done.stderr
    (target,) = re.findall(r"as in --target (\S+)\n$", done.stderr)
    assert softq("build", model, tmp_path / "cores", "--target", target).exit_code == 0
    done = softq("rtl", "deferred-log", "--out", tmp_path / "core")
    assert done.exit_code == 2
    (setting,) = re.findall(r"as in --set (\S+)\n$", done.stderr)
    assert softq("rtl", "deferred-log", "--set", setting, "--length", 8, "--out", tmp_path / "core").exit_code == 0


@pytest.mark.parametrize("name", ["my_npu.toml", "a folder/my_npu.toml"])
def test_the_command_for_a_profile_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "softq/profiles/tensorrt-int8.toml").read_text("utf-8")
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(re.sub('^name = ".*"', 'name = "my-npu"', text, count=1, flags=re.MULTILINE), "utf-8")
    done = softq("inspect", VIT, "--for", name)
    assert done.exit_code == 0, done.output
    (command,) = re.findall("after `(convert --for .*?)`", done.stdout)
    command, *options = shlex.split(command)
    done = softq(command, VIT, "out.onnx", *options, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "for my-npu" in done.stdout


# Numbers that calibration fits

NUMBERS = {"r": 21.5, "first": 0.2, "shift": 1.25, "slope": 0.5, "weight_bits": 8, "exact_sum": 0,
           "clip": 4.0, "reach": 4.0, "floor": 0.0, "beta": 0.5, "gamma": 20.0}  # fmt: skip


def fitted_cases() -> list[tuple[str, dict[str, str]]]:
    """Return each method that cores are made of with what it fits by itself, and once more with all that it can fit."""
    found: list[tuple[str, dict[str, str]]] = []
    for name, method in METHODS.entries().items():
        if not method.integer_scores:
            continue
        usual = {option: str(scope) for option, scope in method.resolve(method.configure({}), True).fitted.items()}
        every = {str(option): "site" for option, spec in method.options.specs().items() if "site" in spec.words}
        found += [(name, scopes) for scopes in (usual, every if every != usual else {}) if scopes]
    return found


def test_the_methods_with_numbers_that_are_fitted() -> None:
    assert sorted({name for name, _ in fitted_cases()}) == ["consmax", "deferred-log", "exaq", "hccs"]


@pytest.mark.parametrize(("name", "scopes"), fitted_cases(), ids=str)
def test_fitted_numbers_are_constants_of_hardware(name: str, scopes: dict[str, str]) -> None:
    """They make what `--set` with the same numbers makes: a core, a function, and vectors of integers."""
    method: Method = METHODS.get(name)
    step = {"step": 0.06} if "step" in method.options.specs() else {}
    numbers = {option: NUMBERS[option] for option in scopes}
    usual = method.resolve(method.configure(step), True).fitted
    asked = {**step, **({} if dict(scopes) == dict(usual) else scopes)}
    as_set = {**step, **numbers}
    theirs = vectors(name, as_set, scores="i8", rows=1, lengths=[3])
    ours = vectors(name, asked, fitted=numbers, scores="i8", rows=1, lengths=[3])
    assert ours.manifest["program"] == theirs.manifest["program"]
    assert ours.manifest["options"] == theirs.manifest["options"]
    assert ours.manifest["fitted"] == numbers
    assert {key: value.tolist() for key, value in ours.arrays.items()} == {
        key: value.tolist() for key, value in theirs.arrays.items()
    }
    assert rtl(name, asked, fitted=numbers, length=8, rows=0).core.text == rtl(name, as_set, length=8, rows=0).core.text
    assert hls(name, asked, fitted=numbers, length=8, rows=0).function == hls(name, as_set, length=8, rows=0).function
    if name == "consmax":
        return  # Its weights are divided by a constant, and a core with V divides by their sum.
    wanted = ValueSettings(2, 2)
    made = rtl_with_values(name, wanted, asked, fitted=numbers, length=8, rows=0)
    assert made.core.text == rtl_with_values(name, wanted, as_set, length=8, rows=0).core.text


def test_fitted_numbers_are_asked_for_by_name(tmp_path: Path) -> None:
    done = softq("rtl", "deferred-log", "--set", "step=0.06", "--fitted", "r=33.8", "--out", tmp_path / "core")
    assert done.exit_code == 2
    assert "has fitted numbers: r=X first=X shift=X; given is r" in done.output
    with pytest.raises(UsageError, match=r"fitted r is 9999\.0; allowed is"):
        rtl("deferred-log", {"step": 0.06}, fitted={"r": 9999.0, "first": 0.2, "shift": 1.0})


def test_no_head_of_the_pages_core_loses_what_is_8_below_the_maximum(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "fpga.md").read_text("utf-8")
    (command,) = re.findall(r"^softq (rtl .*--per-head .*) --out core_heads$", page, re.MULTILINE)
    done = softq(*command.split(), "--length", 16, "--rows", 0, "--out", tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    facts = json.loads((tmp_path / "deferred_log.json").read_text())
    tables = {table["name"]: table["initial"] for table in facts["registers"]["tables"]}
    (driver,) = re.findall(r'^other = rtl\("deferred-log", (\{.*?\}), registers=True\)', page, re.MULTILINE)
    other = rtl("deferred-log", json.loads(driver), registers=True)
    given = {table.name: table.initial[0] for table in other.core.plan.registers}
    heads = [*zip(tables["codes"], tables["weights"], strict=True), (given["codes"], given["weights"])]
    for r, (codes, weights) in zip((12, 16, 23.7, 31.5, 40), heads, strict=True):
        # Of 2 units of 1 weight each the distance has to be told from none, and what is far has to have a weight:
        # e^-d, where the last code begins 14.5^2 / r octaves down.
        for d in (0.6, 2.4):
            exact = 2**14 * np.exp(-d)
            assert weights[codes[round(d / 0.06)]] == pytest.approx(exact, rel=0.5), (r, d)
        last = 14.5**2 / r * np.log(2)
        assert (weights[codes[min(round(8 / 0.06), 255)]] > 0) == (last > 8), (r, last)
    done = softq(*command.replace("--set steps=growing ", "").split(), "--rows", 0, "--length", 16, "--out", tmp_path)
    assert done.stderr.count("warning") == 4
