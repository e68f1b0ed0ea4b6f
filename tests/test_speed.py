"""What the benchmark makes of its measurements; no test asserts a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cpu.results import table
from benchmarks.cpu.section import Result, Settings
from benchmarks.cpu.timing import ratio, take_turns


def test_calls_take_turns_and_are_counted_once_a_round() -> None:
    order: list[str] = []

    def call(name: str) -> None:
        order.append(name)
        deadline = sum(range(20_000))  # long enough to be called once a round
        assert deadline

    times = take_turns({"a": lambda: call("a"), "b": lambda: call("b")}, 3)
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 3, "b": 3}
    assert order[-6:] == ["a", "b"] * 3
    assert order.count("a") == order.count("b")


def test_a_ratio_is_that_of_the_medians_with_the_quartiles_round_by_round() -> None:
    times = {"ours": [1.0, 2.0, 9.0], "theirs": [4.0, 4.0, 12.0]}
    found = ratio(times, "ours", "theirs", work="w", place="p")
    assert (found.ratio, found.least) == (0.5, 0.25)
    assert (found.low, found.high) == (0.25, 0.75)


def test_a_line_of_the_table_is_a_work_a_rival_and_a_number_of_threads() -> None:
    one = Result("w", "r", "4x2", 1, 0.5, 1.0, 2.0, 0.5, 0.5, 0.5, 0.5)
    rows = [one, replace(one, place="8x2", ratio=0.03, low=0.02, high=0.04), replace(one, unit="B")]
    assert table(rows).splitlines() == [
        "| work | against | threads | 4x2 | 8x2 | aim |",
        "| --- | --- | --- | --- | --- | --- |",
        "| w | r | 1 | 0.50 | 0.03 (0.02-0.04) | 0.5 |",
        "| w: peak memory | r | 1 | 0.50 |  | 0.5 |",
    ]


@pytest.mark.parametrize(
    ("place", "work", "wanted"),
    [("a", "long name", True), ("a", None, True), ("b", "name", False), ("a", "x", False)],
)
def test_a_part_of_a_section_can_be_asked_for(place: str, work: str | None, wanted: bool) -> None:
    assert Settings(places=("a",), works=("name",)).wants(place, work) is wanted
