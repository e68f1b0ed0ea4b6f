"""ONNX's node tests through build and run: a sample here, all of them in `make test-all`."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("tvm")

from benchmarks.node_tests.__main__ import run, summary
from benchmarks.node_tests.cases import all_cases, left_out, outcome

FACTS = json.loads((Path(__file__).parent.parent / "benchmarks" / "node_tests.json").read_text(encoding="utf-8"))
KNOWN = {*FACTS["refused"], *FACTS["wrong"], *FACTS["crashed"]}


def test_little_is_left_out_each_with_its_reason() -> None:
    reasons = {name: left_out(case) for name, case in all_cases().items()}
    assert {name: reason for name, reason in reasons.items() if reason} == FACTS["left out"]
    assert len(FACTS["left out"]) <= 130


def test_none_is_wrong_and_most_are_right() -> None:
    assert not FACTS["wrong"]
    assert not FACTS["crashed"]
    assert FACTS["counts"]["right"] >= 0.9 * len(taken())


# Cases are computed when they are asked for first, which takes seconds: not where tests are only collected.
@cache
def taken() -> list[str]:
    return sorted(name for name, case in all_cases().items() if left_out(case) is None)


ONCE = ("test_spacetodepth_crd_mode_example", "test_qlinearconv")
"""What was wrong, or refused, once."""


@cache
def sample() -> list[str]:
    return sorted({*[name for name in taken() if name not in KNOWN][::25], *ONCE})


SIZE = 74


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize("number", range(SIZE))
def test_a_sample_is_right(number: int) -> None:
    found = outcome(sample()[number])
    assert found.status == "right", (found.name, found.why)


def test_the_sample_is_whole() -> None:
    assert len(sample()) == SIZE


@pytest.mark.slow
def test_all_are_as_the_table_says() -> None:
    found = run(sorted(all_cases()), 1)
    assert Counter(one.status for one in found) == FACTS["counts"]
    assert json.loads(json.dumps(summary(found))) == FACTS
