"""Cores under `verilator --lint-only -Wall`: as many warnings as tests/verilator_warnings.json records, and no more."""

from __future__ import annotations

import pytest

from tests.verilog_lint import all_warnings, names, read, release, text_of, warnings

QUICK = (
    *("deferred-log||", "deferred-log||packed", "deferred-log||registers heads=2", "deferred-log||values averages"),
    *("ita|uint8|no constants", "edge-moe||", "tflite-int8|int8|serial"),
)
AGAIN = (
    "other numbers than tests/verilator_warnings.json; `python -m tests.verilog_lint` records fewer, more are a fault"
)


@pytest.mark.parametrize("name", QUICK)
def test_a_core_has_the_warnings_that_are_recorded(name: str) -> None:
    recorded = read()
    if release() != recorded["verilator"]:
        pytest.skip(f"the record is of Verilator {recorded['verilator']}")
    text = text_of(name)
    assert text is not None
    assert warnings(text) == recorded["cores"][name], AGAIN


def test_every_method_and_option_is_recorded() -> None:
    """Cores that are refused alone are not."""
    recorded = set(read()["cores"])
    assert recorded <= set(names())
    assert {name.split("|")[2] for name in recorded} == {name.split("|")[2] for name in names()}
    assert {name.split("|")[0] for name in recorded} == {name.split("|")[0] for name in names()}


@pytest.mark.slow
def test_all_cores_have_the_warnings_that_are_recorded() -> None:
    recorded = read()
    if release() != recorded["verilator"]:
        pytest.skip(f"the record is of Verilator {recorded['verilator']}")
    assert all_warnings() == recorded["cores"], AGAIN
