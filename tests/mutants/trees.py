"""Copies of the repository that mutants are tried in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.mutants import ROOT

MOST_SECONDS = 600
"""Of one run of Python."""


def copy_tree(to: Path) -> None:
    """Copy the files that git knows, as they are in the working tree."""
    known = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, known.split("\0")):
        if os.path.lexists(ROOT / name):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)


def run_python(
    tree: Path, *arguments: str, seconds: float | None = MOST_SECONDS, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a tree, whose softq is the one that is imported.

    Raises:
        subprocess.TimeoutExpired: it does not end in time.
    """
    path = os.pathsep.join(filter(None, (str(tree), variables.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"} | variables | {"PYTHONPATH": path}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=seconds)


def imports_from(tree: Path) -> str:
    """Return the file of the softq that is imported in a tree, or nothing if it is the tree's."""
    imported = run_python(tree, "-c", "import softq; print(softq.__file__)").stdout.strip()
    return "" if Path(imported).is_relative_to(tree) else imported or "nowhere"
