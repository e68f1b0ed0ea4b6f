"""softq inside other tools, as docs/integrations.md says: each script in an environment of its own."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "examples" / "integrations"
SCRIPTS = sorted(path.stem for path in HOME.glob("*.py") if path.stem != "run")
LINES = 40


@pytest.mark.slow
@pytest.mark.integrations
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_in_its_environment(name: str) -> None:
    done = subprocess.run([sys.executable, HOME / "run.py", name], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(rf"{name}: \S+==\S+: ok: ", done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "needs"), [("torch_onnx", "torch"), ("onnxscript_rules", "onnxscript")])
def test_script_here(name: str, needs: str) -> None:
    pytest.importorskip(needs)
    done = subprocess.run([sys.executable, HOME / f"{name}.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_script_is_short_pinned_and_described() -> None:
    page = (ROOT / "docs" / "integrations.md").read_text("utf-8")
    assert SCRIPTS == sorted(path.stem for path in (HOME / "requirements").glob("*.txt"))
    for name in SCRIPTS:
        pins = (HOME / "requirements" / f"{name}.txt").read_text("utf-8").split()
        assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", pin) for pin in pins), name
        assert len((HOME / f"{name}.py").read_text("utf-8").splitlines()) < LINES, name
        assert f"examples/integrations/{name}.py" in page, name
        assert f"{pins[0].replace('==', ' ')}" in page, name


def test_runner_says_what_failed(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, HOME / "run.py", "nothing"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown: nothing; there are " in done.stderr


def test_all_output_is_in_the_log_and_the_last_command_is_told(tmp_path: Path) -> None:
    run, log = runpy.run_path(str(HOME / "run.py"))["_run"], tmp_path / "log"
    log.write_text("before\n")
    for code, text in ((0, "one\n\ntwo"), (3, "three")):
        done, lines = run([sys.executable, "-c", f"import os; os.write(2, {text.encode()!r}); os._exit({code})"], log)
        assert (done, lines) == (code == 0, text.split())
    assert log.read_text() == "before\none\n\ntwothree"


def test_an_environment_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    parts = runpy.run_path(str(HOME / "run.py"))
    (tmp_path / "file").write_text("")
    parts["_install"].__globals__["ENVIRONMENTS"] = tmp_path / "file"
    why = parts["_install"]("tool", tmp_path / "none.txt", ["tool==1"], tmp_path / "log")
    assert why.startswith("there is no environment: ")
