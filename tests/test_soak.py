"""A short soak: what it holds to stands in `benchmarks/soak/__main__.py`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="builds need TVM"),
]


def test_half_a_minute_of_kills() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--seconds", "30", "--processes", "2"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
