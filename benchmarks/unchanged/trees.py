"""The two checkouts: running this benchmark's code with the softq of either, and how long their commands start."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu.timing import ratio, take_turns

OWN = Path(__file__).resolve().parents[2]
"""This checkout."""


@dataclass(frozen=True)
class Tree:
    """A checkout of softq.

    Attributes:
        name: What it is called in tables.
        root: Its folder.
    """

    name: str
    root: Path

    def version(self) -> str | None:
        """Return the commit; None where files were changed since, or it is no checkout."""
        changed, commit = (
            subprocess.run(["git", *asked], cwd=self.root, capture_output=True, text=True)
            for asked in (["status", "--porcelain", "--", "softq"], ["rev-parse", "HEAD"])
        )
        return None if changed.returncode or changed.stdout else commit.stdout.strip()

    def run(self, arguments: Sequence[str | Path], folder: Path) -> None:
        """Run one of this checkout's modules in a folder, with the tree's softq.

        Raises:
            subprocess.CalledProcessError: it fails.
        """
        with tempfile.TemporaryDirectory(prefix="softq-tree-") as links:
            # Of the tree nothing but softq: its benchmarks and tests are other ones.
            (Path(links) / "softq").symlink_to(self.root / "softq", target_is_directory=True)
            environment = {**os.environ, **QUIET, "PYTHONPATH": f"{links}{os.pathsep}{OWN}"}
            # No kernels that were compiled some time ago.
            environment["SOFTQ_CACHE_DIR"] = os.path.join(links, "kernels")
            # -P: not what lies in the folder.
            subprocess.run([sys.executable, "-P", "-m", *map(str, arguments)], cwd=folder, env=environment, check=True)

    def own(self, arguments: Sequence[str]) -> str:
        """Run Python with all of the tree's own code, its benchmarks too, and return what it prints.

        Raises:
            subprocess.CalledProcessError: it fails.
        """
        environment = {**os.environ, **QUIET, "PYTHONPATH": str(self.root)}
        command = [sys.executable, "-P", *arguments]
        return subprocess.run(
            command, cwd=self.root, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def started(self, folder: Path) -> Callable[[], object]:
        """Return a call that runs `softq --help` in a process of its own."""
        environment = {**os.environ, **QUIET, "PYTHONPATH": str(self.root)}
        command = [sys.executable, "-P", "-m", "softq", "--help"]
        return lambda: subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


QUIET = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "80"}


def starts(trees: Sequence[Tree], folder: Path, rounds: int = 25) -> str:
    """Return how long `softq --help` takes in two checkouts, run in turns."""
    before, now = trees
    times = take_turns({tree.name: tree.started(folder) for tree in trees}, rounds)
    found = ratio(times, now.name, before.name, work="softq --help", place="")
    medians = ", ".join(f"{tree.name} {statistics.median(times[tree.name]):.3f} s" for tree in trees)
    return f"softq --help: {medians}; ratio {found.ratio:.3f} ({found.low:.3f}-{found.high:.3f})"
