"""Tries mutants that a script draws: `make mutants RANDOM=40 BASE=COMMIT`.

The seed is the hash of the base, the commit before the change under test, so nobody chooses the mutants, and nobody
draws again. Each is tried on the quick tests that run its line, those of the fewest lines first, then on the others of
the same files of tests, and on those that run any line of its file; when all have been, the survivors on all quick
tests. The checkout is only read: trees and records lie in a folder, and the same command goes on where it was ended.

`drawn.json` holds the results; a copy of it next to this file is the record of a change. A survivor that changes no
result may be called equivalent there: `outcome` becomes `equivalent` and `by` the reason.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from threading import Lock

from tests.mutants import ROOT
from tests.mutants.choosing import VARIABLE
from tests.mutants.drawing import Change, draw
from tests.mutants.recording import FOLDER, SITE, read_lines, read_results
from tests.mutants.trees import imports_from, run_python

RECORD = Path(__file__).with_name("drawn.json")
KILLED, SURVIVED, EQUIVALENT = "killed", "survived", "equivalent"
GOAL, MOST_EQUIVALENT = 0.85, 4
QUICK = ("-q", "-p", "no:cacheprovider", "-m", "not slow")
BOUND = 1800.0
"""Seconds for the tests that run a mutant's line; one that takes longer is tried on all tests next."""


def git(*arguments: str, folder: Path = ROOT) -> str:
    """Return the output of a git command."""
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@dataclass
class Suite:
    """The quick tests and the lines that they run.

    Attributes:
        seconds: Of each test that passes without a mutant.
        lines: The tests that ran each line of the files with mutants; an empty name while the file was imported.
        width: How many lines of these files each test runs.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[int, set[str]]]
    width: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Count the lines of each test."""
        for of_file in self.lines.values():
            for tests in of_file.values():
                for test in tests:
                    self.width[test] = self.width.get(test, 0) + 1

    def tests_of(self, change: Change) -> list[str]:
        """Return the tests that may see a change: those that run its lines, others of their files, others of its file.

        The last are all that a line has that runs while its file is imported.
        """
        of_file = self.lines[change.file]
        of_lines = {test for line in range(change.line, change.end + 1) for test in of_file.get(line, ())}
        direct = of_lines & self.seconds.keys()
        files = {_file(test) for test in direct}
        near = {test for test in self.seconds if _file(test) in files} - direct
        far = self.seconds.keys() & set[str]().union(*of_file.values()) - direct - near
        return [test for part in (direct, near, far) for test in self._in_order(part)]

    def _in_order(self, tests: Iterable[str]) -> list[str]:
        """Order files by their test of the fewest lines, so that what tests of a file share is made once."""
        first: dict[str, tuple[int, float]] = {}
        for test in tests:
            key = (self.width.get(test, 0), self.seconds[test])
            first[_file(test)] = min(first.get(_file(test), key), key)
        return sorted(tests, key=lambda t: (first[_file(t)], _file(t), self.width.get(t, 0), self.seconds[t], t))


def write(file: Path, source: bytes) -> None:
    """Write a file of Python, and remove what was compiled from it: a change within a second would not be seen."""
    file.write_bytes(source)
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()


def _file(test: str) -> str:
    return test.partition("::")[0]


class Trial:
    """The trees that mutants are tried in, and the records of one draw, in a folder."""

    def __init__(self, folder: Path, base: str, count: int, workers: int, tests: Sequence[str]) -> None:
        self.folder, self.base, self.workers, self.tests = folder, base, workers, list(tests)
        self.clean = folder / "clean"
        self.record = folder / RECORD.name
        self.lock = Lock()
        folder.mkdir(parents=True, exist_ok=True)
        if not self.clean.exists():
            git("clone", "-q", str(ROOT), str(self.clean))
        self.commit = git("rev-parse", "HEAD", folder=self.clean)
        if git("diff", "--name-only", self.commit, "--", "softq"):
            raise SystemExit(
                f"softq is no longer that of {self.commit[:12]}, whose mutants {folder} holds; remove the folder"
            )
        files = git("ls-files", "softq/*.py", folder=self.clean).split()
        self.drawn = draw(self.clean, files, base, count)
        self.sources = {change.file: (self.clean / change.file).read_bytes() for change in self.drawn}
        self.results = json.loads(self.record.read_text(encoding="utf-8"))["mutants"] if self.record.exists() else []

    def run_suite(self) -> Suite:
        """Return the quick tests with the lines that they run, after running them once."""
        lines = self.folder / "lines"
        done = lines / "done"
        if not done.exists():
            shutil.rmtree(lines, ignore_errors=True)
            (lines / "site").mkdir(parents=True)
            (lines / "site" / "sitecustomize.py").write_text(SITE, encoding="utf-8")
            variables = {FOLDER: str(lines), "SOFTQ_MUTANTS_TREE": str(self.clean), "PYTHONPATH": str(lines / "site")}
            command = [
                "-m",
                "pytest",
                *QUICK,
                "-n",
                str(self.workers),
                "--dist",
                "worksteal",
                "-p",
                "tests.mutants.recording",
            ]
            print(f"the quick tests run once, to see which lines each runs ({lines / 'pytest.txt'})", flush=True)
            ended = run_python(self.clean, *command, *self.tests, seconds=None, **variables)
            (lines / "pytest.txt").write_text(ended.stdout + ended.stderr, encoding="utf-8")
            if ended.returncode not in (0, 1):
                raise SystemExit(
                    f"the tests do not run without any mutant:\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
                )
            done.touch()
        found = read_lines(lines, [self.clean / file for file in self.sources])
        names = {str(path.relative_to(self.clean)): of_lines for path, of_lines in found.items()}
        return Suite(read_results(lines), names)

    def try_all(self, suite: Suite) -> None:
        """Try every mutant on the tests that may see it, and then the survivors on all others."""
        trees: Queue[Path] = Queue()
        for number in range(self.workers):
            tree = self.folder / f"tree{number}"
            if not tree.exists():
                shutil.copytree(self.clean, tree, symlinks=True)
            trees.put(tree)
        for is_last in (False, True):

            def attempt(change: Change, is_last: bool = is_last) -> None:
                tests = suite.tests_of(change)
                others = [test for test in suite.seconds if test not in set(tests)]
                tree = trees.get()
                try:
                    killer = self._first_failure(change, tree, others if is_last else tests, suite)
                finally:
                    trees.put(tree)
                tried = f"{len(tests)} tests that may see it, {len(others) if is_last else 'not yet all'} others"
                self._note(change, KILLED if killer else SURVIVED, killer or tried)

            with ThreadPoolExecutor(self.workers) as pool:
                list(pool.map(attempt, [change for change in self.drawn if self._is_open(change, is_last)]))

    def _is_open(self, change: Change, is_last: bool) -> bool:
        """Say whether a mutant has no result yet, or has survived what may see it and is to be tried on all others."""
        entry = next((one for one in self.results if (one["file"], one["line"]) == (change.file, change.line)), None)
        return entry is None or (is_last and entry["outcome"] == SURVIVED and "not yet all" in entry["by"])

    def _first_failure(self, change: Change, tree: Path, tests: Sequence[str], suite: Suite) -> str:
        """Return the first test that fails with a change and passes without, and how it fails."""
        left = list(tests)
        while left:
            write(tree / change.file, change.apply(self.sources[change.file]))
            try:
                failed = self._run(tree, left, suite)
            finally:
                write(tree / change.file, self.sources[change.file])
            if failed is None:
                return ""
            test, message = failed
            if test not in suite.seconds or self._run(tree, [test], suite) is None:
                return f"{test}: {message}"
            print(f"{test} fails without any mutant, too", flush=True)
            left = left[left.index(test) + 1 :]
        return ""

    def _run(self, tree: Path, tests: Sequence[str], suite: Suite) -> tuple[str, str] | None:
        """Return the first of some tests that fails in a tree, with its message."""
        job, failed, kernels = (self.folder / f"{tree.name}.{name}" for name in ("job", "failed", "kernels"))
        failed.unlink(missing_ok=True)
        limits = [(test, 60 + 20 * suite.seconds[test]) for test in tests]
        job.write_text(json.dumps({"tests": limits, "failed": str(failed)}), encoding="utf-8")
        files = list(dict.fromkeys(map(_file, tests)))
        bound = BOUND + 3 * sum(suite.seconds[test] for test in tests)
        variables = {VARIABLE: str(job), "SOFTQ_CACHE_DIR": str(kernels)}
        try:
            ended = run_python(
                tree, "-m", "pytest", *QUICK, "-x", "-p", "tests.mutants.choosing", *files, seconds=bound, **variables
            )
        except subprocess.TimeoutExpired:
            return "", f"the tests do not end within {bound:.0f} s"
        if failed.exists():
            test, message = json.loads(failed.read_text(encoding="utf-8"))
            return test, message
        # Without a test that fails, pytest or the process has ended.
        ending = f"pytest ends with {ended.returncode}: {ended.stdout[-300:]}{ended.stderr[-300:]}"
        assert ended.returncode != 5, ending
        return ("", ending) if ended.returncode else None

    def _note(self, change: Change, outcome: str, by: str) -> None:
        was = self.sources[change.file][change.start : change.start + change.length].decode()
        entry = {"file": change.file, "line": change.line, "kind": change.kind, "was": was, "is": change.text}
        with self.lock:
            self.results = [one for one in self.results if (one["file"], one["line"]) != (change.file, change.line)]
            self.results.append(entry | {"outcome": outcome, "by": by})
            order = [(change.file, change.line) for change in self.drawn]
            self.results.sort(key=lambda one: order.index((one["file"], one["line"])))
            text = json.dumps({"base": self.base, "commit": self.commit, "mutants": self.results}, indent=1)
            self.record.write_text(text + "\n", encoding="utf-8")
            place = f"{change.file}:{change.line} {change.kind}, {was!r} -> {change.text!r}"
            print(f"{len(self.results)}/{len(self.drawn)} {outcome} {place}: {by}", flush=True)


def rate(results: Sequence[dict[str, str]]) -> tuple[float, str]:
    """Return the share of mutants that are killed, those that are equivalent left out, and a line that says it."""
    count = {outcome: sum(one["outcome"] == outcome for one in results) for outcome in (KILLED, SURVIVED, EQUIVALENT)}
    different = count[KILLED] + count[SURVIVED]
    share = count[KILLED] / different if different and count[EQUIVALENT] <= MOST_EQUIVALENT else 0.0
    counts = ", ".join(f"{number} {outcome}" for outcome, number in count.items())
    return share, f"{counts}: {share:.1%} killed (at least {GOAL:.0%}, at most {MOST_EQUIVALENT} equivalent)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 if too many mutants survive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--base", default="", help="the commit before the change; where main is left, by default")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="fewer files of tests, to try this tool")
    given = parser.parse_args(arguments)
    base = git("rev-parse", f"{given.base or git('merge-base', 'HEAD', 'main')}^{{commit}}")
    trial = Trial(given.folder / base[:12], base, given.count, given.workers, given.tests)
    wrong = imports_from(trial.clean)
    if wrong:
        print(f"softq is imported from {wrong!r} and not from the copy, so nothing would be shown", file=sys.stderr)
        return 2
    trial.try_all(trial.run_suite())
    share, line = rate(trial.results)
    print(f"{line}\n{trial.record}")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
