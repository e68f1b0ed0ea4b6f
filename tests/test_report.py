"""The gate's verdicts, and the forms in which a report is written."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from softq.errors import UsageError
from softq.metrics import Direction, Flips, NanCounts, PairedSamples, find_metric
from softq.reports import (
    MetricResult,
    PairedInterval,
    Report,
    check_gate,
    judge,
    parse_drop,
    to_json,
    to_markdown,
    to_text,
)

NAN, INF = math.nan, math.inf


def result(reference: float | None, candidate: float, direction: Direction = "higher", new: int = 0) -> MetricResult:
    return MetricResult(
        name="score",
        unit="fraction",
        direction=direction,
        reference=reference,
        candidate=candidate,
        difference=None if reference is None else candidate - reference,
        nan=NanCounts(candidate=new, candidate_only=new),
    )


@pytest.mark.parametrize(
    ("reference", "candidate", "direction", "drop", "passed"),
    [
        (0.970, 0.967, "higher", "0.003", True),  # 0.970 - 0.967 is 0.0030000000000000027.
        (0.970, 0.9669, "higher", "0.003", False),
        (0.970, 0.99, "higher", 0, True),
        (0.970, 0.970, "higher", 0, True),
        (16.0, 16.08, "lower", "0.5%", True),
        (16.0, 16.09, "lower", "0.5%", False),
        (16.0, 15.0, "lower", "0.5%", True),
        (-2.0, -2.1, "higher", "5%", True),  # Relative to the size of the reference's value.
        (-2.0, -2.11, "higher", "5%", False),
        (0.5, NAN, "higher", "1e300", False),
        (0.5, NAN, "lower", "1e300", False),
        (NAN, 0.5, "higher", "1e300", False),
        (NAN, NAN, "lower", "100%", False),
        (INF, INF, "lower", "1", False),
        (INF, 3.0, "higher", "50%", False),
        (16.0, INF, "lower", "1e300", False),
    ],
)
def test_max_drop(reference: float, candidate: float, direction: Direction, drop: str | float, passed: bool) -> None:
    gate = judge([result(reference, candidate, direction)], parse_drop(drop), None)
    assert gate is not None
    assert gate.passed is passed, gate.sentence
    begin = "score of the reference is NaN" if math.isnan(reference) else "score goes from"
    assert gate.sentence.startswith(begin)


@pytest.mark.parametrize(
    ("interval", "direction", "drop", "passed", "said"),
    [
        # No change in 5 images shows nothing of 1 %, in 400 it does.
        (
            PairedInterval("difference", 0.0, -0.434, 0.434, 5, Flips(0, 0)),
            "higher",
            0.01,
            False,
            "5 samples; 381 would",
        ),
        (PairedInterval("difference", 0.0, -0.0095, 0.0095, 400, Flips(0, 0)), "higher", 0.01, True, "at most 0.0095"),
        (
            PairedInterval("difference", -0.005, -0.015, 0.005, 100),
            "higher",
            0.01,
            False,
            "100 samples; 400 would show",
        ),
        (PairedInterval("difference", -0.02, -0.03, -0.01, 100), "lower", 0, True, "at least 0.01 better"),
        # The reference is 0.9: a ratio of at most 1.02 is a loss of at most 0.018.
        (PairedInterval("ratio", 1.01, 1.0, 1.02, 100), "lower", 0.0181, True, "at most 0.018 worse"),
        (PairedInterval("ratio", 1.01, 1.0, 1.02, 100), "lower", "1.5%", False, "would show 0.0135"),
    ],
)
def test_a_drop_must_be_shown(
    interval: PairedInterval, direction: Direction, drop: str | float, passed: bool, said: str
) -> None:
    gate = judge([replace(result(0.9, 0.9, direction), interval=interval)], parse_drop(drop), None)
    assert gate is not None
    assert gate.passed is passed, gate.sentence
    assert said in gate.sentence


@pytest.mark.parametrize(
    ("candidate", "direction", "limit", "passed"),
    [
        (0.97, "higher", 0.97, True),
        (0.96, "higher", 0.97, False),
        (0.97, "lower", 0.97, True),
        (0.98, "lower", 0.97, False),
        (NAN, "lower", 1e300, False),
        (NAN, "higher", -1e300, False),
        (INF, "higher", 1.0, True),
        (INF, "lower", 1e300, False),
    ],
)
def test_limit(candidate: float, direction: Direction, limit: float, passed: bool) -> None:
    gate = judge([result(None, candidate, direction)], None, limit)
    assert gate is not None
    assert gate.passed is passed


def test_new_nan_fails_without_a_gate_and_behind_a_passing_one() -> None:
    good, bad = result(1.0, 1.0), replace(result(None, NAN, new=7), name="other")
    assert judge([good], None, None) is None
    for gate in (judge([good, bad], None, None), judge([good, bad], parse_drop(1), None), judge([good, bad], None, 0)):
        assert gate is not None
        assert not gate.passed
        assert gate.sentence == "other: the candidate has 7 NaN where the reference has numbers"


@pytest.mark.parametrize("drop", ["-1", "nan", "inf", "", "%", "1%%", "a lot", -0.1, NAN])
def test_a_drop_that_is_no_number_is_refused(drop: str | float) -> None:
    with pytest.raises(UsageError, match="it must be a number of at least 0"):
        parse_drop(drop)


def test_gates_that_make_no_sense() -> None:
    with pytest.raises(UsageError, match="one gate at a time"):
        check_gate(find_metric("top1-accuracy"), 1, 1)
    with pytest.raises(UsageError, match=r"a share of the kl of the reference compared with itself, which is 0"):
        check_gate(find_metric("kl"), "1%", None)
    with pytest.raises(UsageError, match="limit is 2; cosine is at most 1, so that no model could pass"):
        check_gate(find_metric("cosine"), None, 2)
    assert check_gate(find_metric("cosine"), "1%", None) == parse_drop("1%")
    with pytest.raises(UsageError, match="limit is nan; it must be a finite number"):
        check_gate(find_metric("kl"), None, NAN)
    assert check_gate(find_metric("kl"), None, 3) is None


def report() -> Report:
    first = replace(
        result(0.97, 0.96),
        interval=PairedInterval("difference", -0.01, -0.015, -0.005, 2, Flips(1, 0)),
        samples=PairedSamples(np.ones(2), np.array([1.0, NAN]), np.ones(2)),
    )
    results = (first, replace(result(None, INF, "lower"), name="a|b", nan=NanCounts(2, 2, 2, 0)))
    return Report(
        reference="ref.onnx",
        candidate="cand_4|bits.onnx",
        data="d.npz",
        output="logits",
        labels="y",
        count=2,
        batch=32,
        metrics=results,
        gate=judge(results, parse_drop("0.5%"), None),
        versions={"softq": "0.1.0", "numpy": "2"},
        hashes={"reference": "abc"},
    )


def test_text() -> None:
    assert to_text(report()) == (
        "reference  ref.onnx\n"
        "candidate  cand_4|bits.onnx\n"
        "data       d.npz, 2 samples, 32 at a time\n"
        "output     logits, labels y\n"
        "\n"
        "metric  reference  candidate  difference  95 % interval                unit      better\n"
        "score        0.97       0.96       -0.01  difference -0.015 to -0.005  fraction  higher\n"
        "a|b                      inf                                           fraction  lower\n"
        "\n"
        "NaN seen by a|b: 2 in the reference, 2 in the candidate, 2 in both at the same place,"
        " 0 in the candidate alone\n"
        "score: samples that are right under the reference alone: 1 of 2, under the candidate alone: 0;"
        " McNemar's exact test: p = 1\n"
        "FAILED: score goes from 0.97 to 0.96, worse by 0.01: at most 0.015 worse with 95 % confidence, 2 samples;"
        " no number of samples would show 0.00485; at most 0.5% (that is 0.00485) worse is allowed\n"
    )
    pretty = to_text(report(), terminal=True, width=120)
    assert "\x1b[" in pretty
    assert "score goes from 0.97 to 0.96" in pretty
    assert pretty == to_text(report(), terminal=True, width=120)


def test_markdown() -> None:
    text = to_markdown(report())
    assert "# cand_4\\|bits.onnx against ref.onnx\n" in text
    assert "| a\\|b |  | inf |  |  | fraction | lower |\n" in text
    assert "FAILED: score goes from" in text
    assert "Versions: numpy 2, softq 0.1.0." in text
    assert text == to_markdown(report())


def test_json() -> None:
    def refuse(constant: str) -> object:
        pytest.fail(f"{constant} is not JSON")

    text = to_json(report(), samples=True)
    plain = json.loads(text, parse_constant=refuse)
    assert list(plain)[:3] == ["schema", "reference", "candidate"]
    assert plain["schema"] == 1
    assert plain["metrics"][1]["candidate"] == "Infinity"
    assert plain["metrics"][0]["per_sample"]["candidate"] == [1.0, "NaN"]
    assert plain["metrics"][0]["interval"] == {
        "of": "difference",
        "level": 0.95,
        "estimate": -0.01,
        "low": -0.015,
        "high": -0.005,
        "samples": 2,
        "flips": {"lost": 1, "gained": 0},
    }
    assert plain["gate"]["passed"] is False
    assert plain == report().to_json(samples=True)
    assert "per_sample" not in to_json(report())
