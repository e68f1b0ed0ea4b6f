"""Checks that every mutant, or each that is named, is found: `python -m tests.mutants [NAME ...]`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.mutants import Mutant, mutants
from tests.mutants.trees import MOST_SECONDS, copy_tree, imports_from, run_python

AT_ONCE = 2

_NO_KILL = re.compile(r"^E +(ImportError|ModuleNotFoundError|SyntaxError|IndentationError|NameError)\b", re.MULTILINE)
"""Errors of a diff that makes no program; no test is needed to find these."""


def run_tests(tree: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run tests in a tree; a test that is skipped finds nothing, so it counts as failed."""
    return run_python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fail-on-skip", *tests)


def reason_to_live(mutant: Mutant, clean: Path) -> str:
    """Return why a mutant is not killed; nothing if it is."""
    with tempfile.TemporaryDirectory(prefix="softq-mutant-") as folder:
        tree = Path(folder) / "tree"
        # With the bytecode of what stays the same: a file that is patched has another time.
        shutil.copytree(clean, tree, symlinks=True)
        complaint = mutant.apply(tree)
        if complaint:
            return f"does not apply: {complaint.strip()}"
        try:
            result = run_tests(tree, [mutant.test])
        except subprocess.TimeoutExpired:
            # A mutant that never ends counts as one that survives.
            return f"its test does not end within {MOST_SECONDS} s"
    if result.returncode == 0:
        return f"{mutant.test} passes"
    if result.returncode != 1 or " failed" not in result.stdout or _NO_KILL.search(result.stdout):
        return f"{mutant.test} does not run (exit code {result.returncode}):\n{result.stdout[-2000:]}{result.stderr}"
    return ""


def main(names: Sequence[str]) -> int:
    """Return the exit code: 1 if a mutant survives, 2 if there is none of a name."""
    known = {mutant.name: mutant for mutant in mutants()}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no mutant {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in names] or list(known.values())
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="softq-mutants-") as folder:
        clean = Path(folder) / "tree"
        copy_tree(clean)
        imported = imports_from(clean)
        if imported:
            print(f"softq is imported from {imported!r} and not from the copy, so nothing would be shown")
            return 1
        without = run_tests(clean, list(dict.fromkeys(mutant.test for mutant in chosen)))
        if without.returncode != 0:
            print(f"{without.stdout}{without.stderr}\nthe tests are to pass without any mutant")
            return 1
        print(f"{len(chosen)} tests pass without mutants ({time.monotonic() - start:.0f} s)", flush=True)
        survived = 0
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for mutant, reason in zip(chosen, pool.map(partial(reason_to_live, clean=clean), chosen), strict=True):
                survived += bool(reason)
                print(f"SURVIVED {mutant.name}: {reason}" if reason else f"killed {mutant.name}", flush=True)
    print(f"{time.monotonic() - start:.0f} s")
    print(f"{len(chosen) - survived} killed, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
