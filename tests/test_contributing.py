"""CONTRIBUTING.md does what it says: the method and the test that it shows, in a copy of the repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_a_new_method_as_the_page_has_it(tmp_path: Path) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    method, test = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    named = [path for path in re.findall(r"`((?:softq|tests)/[\w/]+\.py)`", page) if "square_ramp" in path]
    assert named == ["softq/methods/square_ramp.py", "tests/test_method_square_ramp.py"]
    for name in ("softq", "tests", "models/mnist_vit"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, text in zip(named, (method, test), strict=True):
        (tmp_path / path).write_text(text)
    (tmp_path / "models" / "__init__.py").touch()
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    shown = [block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "square" in block]
    for line in "".join(shown).splitlines():
        words = shlex.split(line)
        programs = {"softq": [sys.executable, "-m", "softq"], "python": [sys.executable], "mkdir": ["mkdir"]}
        done = subprocess.run([*programs[words[0]], *words[1:]], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        if words[0] == "python":
            assert " passed" in done.stdout
            assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 5
    for command in (["check"], ["format", "--check"]):
        subprocess.run(["ruff", *command, *named], cwd=tmp_path, check=True)
