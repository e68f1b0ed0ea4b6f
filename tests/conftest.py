"""What all tests share."""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Generator

import pytest

from tests.amount import VARIABLE, spread
from tests.skips import is_allowed

# Two spinning thread pools on two cores cost more than they give.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Where tests run beside one another every core is taken.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("SOFTQ_JOBS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fail-on-skip`, with which CI and `make test-all` cannot pass by leaving something out."""
    text = "count a skipped test, or file of tests, as failed, but for the reasons in tests/skips.py"
    parser.addoption("--fail-on-skip", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Say whether this is the quick run; its drivers are not optimised: half of a build."""
    quick = config.getoption("markexpr") == "not slow"
    os.environ[VARIABLE] = "1" * quick
    if quick:
        # Libraries read the environment, which is set above, when they are loaded.
        from softq.artifact import toolchain

        toolchain.FLAGS = tuple("-O0" if flag == "-O2" else flag for flag in toolchain.FLAGS)


def params_of(item: pytest.Item) -> dict[str, object]:
    """Return the values of a case's parameters by name."""
    return getattr(item, "callspec").params  # noqa: B009 (of functions alone)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow all but some cases of each test that has the marker `quick_cases`, the same in every process."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("quick_cases") and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for test, of_test in cases.items():
        marker = of_test[0].get_closest_marker("quick_cases")
        assert marker is not None
        values = [{(name, repr(value)) for name, value in params_of(item).items()} for item in of_test]
        kept = spread(values, marker.args[0], test)
        for number, item in enumerate(of_test):
            if number not in kept:
                item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Leave what is there now out of all garbage collections: the modules and thousands of tests stay anyway."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn skips into failures where that is asked for."""
    report = yield
    if not hasattr(report, "wasxfail"):
        fail_if_skipped(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn files that are skipped as a whole into failures, too."""
    report = yield
    fail_if_skipped(report, collector.config)
    return report


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport, config: pytest.Config) -> None:
    """Make a report that skips without an allowed reason one that fails."""
    if not report.skipped or not config.getoption("--fail-on-skip"):
        return
    assert isinstance(report.longrepr, tuple)
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if not is_allowed(reason):
        report.outcome = "failed"
        report.longrepr = f"skipped, which --fail-on-skip does not allow (tests/skips.py): {reason}"
