"""Mutants: small diffs that each break softq in one place, with the test that finds it.

A diff begins with one sentence that says what is broken, and `test: ` with the test's id; `git apply` takes the rest.
`make mutants` checks that each test fails with its diff and passes without.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """One mutant.

    Attributes:
        diff: Its file.
        breaks: What is broken, as a sentence.
        test: Id of the test that fails with it.
    """

    diff: Path
    breaks: str
    test: str

    @property
    def name(self) -> str:
        """The name of the file without its ending."""
        return self.diff.stem

    @property
    def test_file(self) -> Path:
        """The file of the test."""
        return ROOT / self.test.partition("::")[0]

    def apply(self, tree: Path, *, check: bool = False) -> str:
        """Apply the diff to a tree, or only check that it can be; return what git has against it."""
        command = ["git", "apply", *(["--check"] if check else []), str(self.diff)]
        # A repository around the tree would make git leave the files out.
        ceiling = {"GIT_CEILING_DIRECTORIES": str(tree.parent)} if not (tree / ".git").exists() else {}
        return subprocess.run(command, cwd=tree, env=os.environ | ceiling, capture_output=True, text=True).stderr


def mutants() -> list[Mutant]:
    """Return all mutants by name."""
    return [_read(diff) for diff in sorted(Path(__file__).parent.glob("*.diff"))]


def _read(diff: Path) -> Mutant:
    head = diff.read_text(encoding="utf-8").partition("diff --git")[0]
    sentence, _, test = head.strip().partition("\ntest: ")
    return Mutant(diff, " ".join(sentence.split()), test)
