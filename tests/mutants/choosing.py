"""A plug-in of pytest that runs some tests in an order, each for a time, and writes which of them failed first.

`SOFTQ_MUTANTS_TESTS` is a JSON file with `tests`, a list of `[id, seconds that it may take]`, and `failed`, the file to
write.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

VARIABLE = "SOFTQ_MUTANTS_TESTS"
MOST_MEMORY = 10 << 30
"""Bytes of a process: a mutant may never end to ask for more."""

_JOB = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8")) if VARIABLE in os.environ else {}
_ORDER = {test: number for number, (test, _) in enumerate(_JOB.get("tests", ()))}


def _end(signal_number: int, frame: FrameType | None) -> NoReturn:
    pytest.fail("it does not end in time", pytrace=False)


def pytest_configure() -> None:
    """Bound the memory of this process and of those that it starts."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the chosen tests, in their order."""
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in _ORDER])
    items[:] = sorted((item for item in items if item.nodeid in _ORDER), key=lambda item: _ORDER[item.nodeid])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """End a test that takes too long."""
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, _JOB["tests"][_ORDER[item.nodeid]][1])
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the first test that fails."""
    _write(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write a file that cannot be imported."""
    _write(report)


def _write(report: pytest.TestReport | pytest.CollectReport) -> None:
    failed = Path(_JOB["failed"])
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ and not failed.exists():
        crash = getattr(report.longrepr, "reprcrash", None)
        text = str(report.longrepr if crash is None else crash.message)
        failed.write_text(json.dumps([report.nodeid, text[:300]]), encoding="utf-8")
