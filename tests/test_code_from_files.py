"""Names in files load no code: those in plans, models and studies never, those of `--config` only with `--trust`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import softq
import softq.registry
from softq.artifact import manifest
from softq.cli import main
from softq.errors import UsageError
from softq.graph import inference
from softq.methods import METHODS
from softq.passes import PASSES
from softq.plans import PLAN_KEY
from tests.attention import attention, inputs

EVIL = """open("RAN", "a").write("x")
def data(): return []
def function(scores, axis): return scores
"""
NAMES = ("evil.py", "./evil.py", "{here}/evil.py", "../here/evil.py")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder with evil.py, which leaves a file RAN where it is run, and m.onnx, out.onnx, p.json, d.npz."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(softq.registry, "_OWN", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("evil.py").write_text(EVIL)
    sys.modules.pop("evil", None)
    onnx.save(attention(), "m.onnx")
    arrays: dict[str, Any] = dict(inputs(batch=4))
    np.savez("d.npz", **arrays)
    assert run("convert", "m.onnx", "out.onnx", "--save-plan", "p.json").exit_code == 0
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def refused(result: Result, name: str) -> None:
    """Hold a result against what is promised: exit code 2, one line with the name, and nothing was run."""
    assert result.exit_code == 2, result.output
    assert name in result.output
    assert result.output.count("\n") == 1
    assert not Path("RAN").exists()


def named(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**plan, "sites": [{**site, "method": name} for site in plan["sites"]]}


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_names_methods_that_are_registered(here: Path, name: str) -> None:
    name = name.format(here=here)
    plan = named(json.loads(Path("p.json").read_text()), name)
    Path("bad.json").write_text(json.dumps(plan))
    refused(run("convert", "m.onnx", "o.onnx", "--plan", "bad.json"), name)
    with pytest.raises(UsageError, match=re.escape(name)):
        softq.convert("m.onnx", plan=plan)
    rewrites = {**plan, "sites": [], "rewrites": {plan["sites"][0]["id"]: name}}
    Path("bad.json").write_text(json.dumps(rewrites))
    assert run("convert", "m.onnx", "o.onnx", "--plan", "bad.json").exit_code == 2
    assert not Path("RAN").exists()


def test_a_pass_or_a_method_of_a_name_out_of_a_file_is_registered(here: Path) -> None:
    for folder in (METHODS, PASSES):
        with pytest.raises(UsageError, match=r"unknown .* 'evil\.py'"):
            folder.get("evil.py")
    assert not Path("RAN").exists()


@pytest.mark.parametrize("target", ["verilog,step=0.06", "onnxruntime", "cpu", "c"])
def test_the_plan_in_a_model_names_methods_that_are_registered(here: Path, target: str) -> None:
    if target != "verilog,step=0.06":
        pytest.importorskip("tvm")
    model = onnx.load("out.onnx")
    for entry in model.metadata_props:
        if entry.key == PLAN_KEY:
            entry.value = json.dumps(named(json.loads(entry.value), "evil.py"))
    onnx.save(model, "bad.onnx")
    refused(run("build", "bad.onnx", "built", "--target", target), "evil.py")


def test_a_study_is_reported_and_gone_on_with_without_its_names(here: Path) -> None:
    sweep = ("sweep", "m.onnx", "--data", "d.npz", "--metric", "max-error", "--bits", "3", "--out", "s")
    assert run(*sweep, "--methods", "uniform").exit_code == 0
    line = json.loads(Path("s/outcomes.jsonl").read_text())
    line["setting"]["method"] = "evil.py"
    Path("s/outcomes.jsonl").write_text(json.dumps(line) + "\n")
    study = json.loads(Path("s/study.json").read_text())
    Path("s/study.json").write_text(json.dumps(study | {"metric": "evil:function", "model": "evil.py:data"}))
    assert run("report", "s", "--max-drop", "1").exit_code == 0
    assert "for which the metric was evil:function" in run(*sweep, "--methods", "uniform").output
    Path("s/study.json").write_text(json.dumps(study))
    assert run(*sweep, "--methods", "uniform").exit_code == 0
    assert not Path("RAN").exists()


def test_flags_of_a_manifest_load_no_plug_in_of_a_compiler(here: Path) -> None:
    pytest.importorskip("tvm")
    onnx.save(attention(keys="7"), "m.onnx")
    shape = [word for name in inputs() for word in ("--input-shape", f"{name}:batch=1")]
    assert run("build", "m.onnx", "built", *shape, "--target", "cortex-m,cpu=m7").exit_code == 0
    facts = json.loads(Path("built", manifest.NAME).read_text())
    assert facts["compiler_flags"]
    for flag in ("-fplugin=./evil.so", "-specs=evil", "-wrapper", "@evil", "-B.", "-fno-a=b", "-mcpu=x -fplugin=y"):
        Path("built", manifest.NAME).write_text(json.dumps(facts | {"compiler_flags": [flag]}))
        refused(run("size", "built", "--compile"), flag)


CODE: Mapping[str, tuple[str, str]] = {
    "method": ("convert m.onnx o.onnx", "method = 'evil.py'"),
    "methods": ("sweep m.onnx --data d.npz --metric max-error --out s", "methods = ['log2', ' evil.py']"),
    "methods in a text": ("sweep m.onnx --data d.npz --metric max-error --out s", "methods = 'log2, evil.py'"),
    "data": ("check m.onnx out.onnx", "data = 'evil.py:data'"),
    "data of a module": ("check m.onnx out.onnx", "data = 'evil:data'"),
    "calibration": ("convert m.onnx o.onnx --set r=site", "calibration = 'evil:data'"),
    "metric": ("check m.onnx out.onnx --data d.npz", "metric = ['cosine', 'evil:function']"),
    "metric in a file": ("check m.onnx out.onnx --data d.npz", "metric = 'evil.py'"),
    "target": ("build m.onnx o", "target = 'evil.py,a=b'"),
    "package": ("build m.onnx o --target c", "package = 'evil.py'"),
    "time-on": ("sweep m.onnx --data d.npz --metric max-error --out s", "time-on = 'evil.py,a=b'"),
    "cost": ("sweep m.onnx --data d.npz --metric max-error --out s", "cost = 'evil.py:luts'"),
    "framework": ("sweep m.onnx --data d.npz --metric max-error --out s", "framework = 'evil.py'"),
    "method of a core": ("rtl --out o", "method = 'evil.py'"),
    "method of a function": ("hls --out o", "method = 'evil.py'"),
    "name of vectors": ("vectors --out o", "name = 'evil.py'"),
    "method of a build": ("build m.onnx o --target verilog", "method = ['evil.py']"),
    "method that explains": ("explain m.onnx p", "method = 'evil.py'"),
    "runtime": ("audit --only axes --out o", "runtime = 'evil.py:function'"),
    "runtime with an option": ("audit --only axes --out o", "runtime = 'function,of=evil.py:function'"),
    "python": ("audit --only axes --runtime onnxruntime --out o", "python = './evil.py'"),
    "artifact": ("run --data d.npz", "out-dir = 'built'"),
}


@pytest.mark.parametrize("case", CODE)
def test_a_file_of_options_names_no_code(here: Path, case: str) -> None:
    command, text = CODE[case]
    name = command.split()[0]
    Path("c.toml").write_text(f"[{name}]\n{text}\n")
    Path("built").mkdir()
    code = re.findall(r"[\w./:]*(?:evil|built)[\w./:]*", text)[-1].removesuffix(":luts")
    result = run(*command.split(), "--config", "c.toml")
    refused(result, f"c.toml names '{code}', which is code")
    assert not {"o.onnx", "o.npz", "s"} & {path.name for path in here.iterdir()}
    assert not [path for path in here.glob("o/*") if path.stat().st_size]
    # What is trusted is tried; it is not what was asked for, and nothing else is wrong with it.
    assert "which is code" not in run(*command.split(), "--config", "c.toml", "--trust").output
    assert "which is code" not in run(*command.split(), "--trust", "--config", "c.toml").output


@pytest.mark.parametrize("name", [" evil.py", "evil.py ", "\tevil.py"])
@pytest.mark.parametrize("case", ["method", "data", "metric", "target", "package", "framework"])
def test_blanks_in_the_name_of_a_file_hide_no_code(here: Path, case: str, name: str) -> None:
    shutil.copy("evil.py", name)
    command, text = CODE[case]
    text = re.sub(r"'[^']*evil\.py", lambda match: "'" + name.replace("\t", "\\t"), text).replace("'", '"')
    Path("c.toml").write_text(f"[{command.split()[0]}]\n{text}\n")
    assert run(*command.split(), "--config", "c.toml").exit_code == 2
    assert not Path("RAN").exists()


def test_a_whole_run_is_trusted_or_not(here: Path) -> None:
    Path("c.toml").write_text("[check]\nreference = 'm.onnx'\ncandidate = 'out.onnx'\ndata = 'evil.py:data'\n")
    assert run("config", "c.toml").exit_code == 0
    result = run("config", "c.toml", "--run")
    assert (result.exit_code, Path("RAN").exists()) == (2, False)
    assert "c.toml names 'evil.py:data', which is code" in result.output
    run("config", "c.toml", "--run", "--trust")
    assert Path("RAN").exists()
    Path("c.toml").write_text("trust = true\n")
    assert "unknown key 'trust'" in run("config", "c.toml").output


def test_what_the_command_line_names_is_run(here: Path) -> None:
    Path("c.toml").write_text("[check]\nreference = 'm.onnx'\ncandidate = 'out.onnx'\nbatch = 1\n")
    run("check", "--config", "c.toml", "--data", "evil.py:data")
    assert Path("RAN").exists()


@pytest.mark.parametrize("name", ["onnx", "numpy", "json"])
def test_a_module_of_the_working_folder_is_not_imported_by_a_child(
    here: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy("evil.py", f"{name}.py")
    monkeypatch.setattr(inference, "may_explode", lambda model: True)
    assert inference.infer_shapes(onnx.load("m.onnx")).graph.value_info
    assert not Path("RAN").exists()
    command = [sys.executable, "-P", "-m", "softq", "audit", "--runtime", "onnxruntime", "--out", "a", "--only", "axes"]
    environment = {"PYTHONPATH": str(Path(softq.__file__).parent.parent), "PATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert not Path("RAN").exists()
