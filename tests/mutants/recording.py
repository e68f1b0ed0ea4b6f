"""A plug-in of pytest that records which lines of softq each test runs, in its process and in those that it starts.

`SITE` starts coverage in every process of Python. A process that a test starts has the test's name from pytest.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path

import coverage
import pytest
from coverage.exceptions import DataError

FOLDER = "SOFTQ_MUTANTS_LINES"
"""The variable with the folder for what is recorded."""

RESULTS = "results.jsonl"

SITE = f"""import os

if {FOLDER!r} in os.environ:
    import coverage

    coverage.Coverage(
        data_file=os.path.join(os.environ[{FOLDER!r}], "lines"), data_suffix=True, config_file=False, auto_data=True,
        source=[os.path.join(os.environ["SOFTQ_MUTANTS_TREE"], "softq")],
        context=os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0],
    ).start()
"""
"""The text of `sitecustomize.py`."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record what a test runs under its name."""
    running = coverage.Coverage.current()
    assert running is not None
    running.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        running.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write how long each part of a test took, and how it ended."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with (Path(os.environ[FOLDER]) / RESULTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, report.outcome, report.duration]) + "\n")


def read_results(folder: Path) -> dict[str, float]:
    """Return the seconds of each test that passed."""
    seconds: defaultdict[str, float] = defaultdict(float)
    others: set[str] = set()
    for line in (folder / RESULTS).read_text(encoding="utf-8").splitlines():
        test, outcome, duration = json.loads(line)
        seconds[test] += duration
        if outcome != "passed":
            others.add(test)
    return {test: duration for test, duration in seconds.items() if test not in others}


def read_lines(folder: Path, files: Iterable[Path]) -> dict[Path, dict[int, set[str]]]:
    """Return the tests that ran each line of some files; without a name what ran while files were imported."""
    found: dict[Path, defaultdict[int, set[str]]] = {file: defaultdict(set) for file in files}
    for part in sorted(folder.glob("lines.*")):
        data = coverage.CoverageData(str(part))
        try:
            data.read()
        except DataError:
            continue  # of a process that a test has killed
        for file, lines in found.items():
            for line, contexts in data.contexts_by_lineno(str(file)).items():
                lines[line].update(contexts)
    return {file: dict(lines) for file, lines in found.items()}
