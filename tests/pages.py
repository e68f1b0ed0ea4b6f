"""The documentation, built once for all tests of a run."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def build_pages(factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `docs`, the pages that `make docs` builds, and `site`, what `make site` makes of them.

    Processes of pytest-xdist share one; the first that asks builds it.

    Raises:
        AssertionError: Committed parts are not as measured, or mkdocs has a warning.
    """
    # Under pytest-xdist each worker has its own folder in that of the run.
    base = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    folder = base / "pages"
    with (base / "pages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            _run([sys.executable, "docs/generate.py", "--check", "--out", str(folder / "docs")], folder)
            _run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")], folder)
            (folder / "done").touch()
    return folder


def _run(command: list[str], folder: Path) -> None:
    there = {**os.environ, "SOFTQ_DOCS": str(folder / "docs"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
