"""ONNX's node tests through build and run: a sample here, all of them in `make test-all`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("tvm")

from benchmarks.node_tests.__main__ import run, summary
from benchmarks.node_tests.cases import all_cases, left_out, outcome

FACTS = json.loads((Path(__file__).parent.parent / "benchmarks" / "node_tests.json").read_text(encoding="utf-8"))
TAKEN = sorted(name for name, case in all_cases().items() if left_out(case) is None)
KNOWN = {*FACTS["refused"], *FACTS["wrong"], *FACTS["crashed"]}


def test_little_is_left_out_each_with_its_reason() -> None:
    reasons = {name: left_out(case) for name, case in all_cases().items()}
    assert {name: reason for name, reason in reasons.items() if reason} == FACTS["left out"]
    assert len(FACTS["left out"]) <= 130


def test_none_is_wrong_and_most_are_right() -> None:
    assert not FACTS["wrong"]
    assert not FACTS["crashed"]
    assert FACTS["counts"]["right"] >= 0.9 * len(TAKEN)


ONCE = ("test_spacetodepth_crd_mode_example", "test_qlinearconv")
"""What was wrong, or refused, once."""


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize("name", sorted({*[name for name in TAKEN if name not in KNOWN][::25], *ONCE}))
def test_a_sample_is_right(name: str) -> None:
    found = outcome(name)
    assert found.status == "right", found.why


@pytest.mark.slow
def test_all_are_as_the_table_says() -> None:
    found = run(sorted(all_cases()), 1)
    assert Counter(one.status for one in found) == FACTS["counts"]
    assert json.loads(json.dumps(summary(found))) == FACTS
