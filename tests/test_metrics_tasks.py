"""Metrics of recognizers, detectors and retrieval against plain formulas, and what they refuse."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from softq.compare import check
from softq.data import Array
from softq.errors import InputError, UsageError
from softq.metrics import Measured, find_metric
from softq.runner import OnnxRunner
from softq.sweeps.evaluate.evaluator import open_subject

NAN = math.nan
needs_text = pytest.mark.skipif(importlib.util.find_spec("rapidfuzz") is None, reason="needs rapidfuzz")
needs_detection = pytest.mark.skipif(importlib.util.find_spec("pycocotools") is None, reason="needs pycocotools")


def measure(name: str, reference: Array, candidate: Array, labels: Array, *, cuts: Sequence[int] = ()) -> Measured:
    meter = find_metric(name).start("out", "y")
    for low, high in itertools.pairwise([0, *cuts, len(reference)]):
        meter.update({"out": reference[low:high]}, {"out": candidate[low:high]}, {"y": labels[low:high]})
    return meter.result()


def edits(a: Sequence[object], b: Sequence[object]) -> int:
    """The least number of insertions, deletions and substitutions, by the recursion of its definition."""
    table = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
    for i, j in itertools.product(range(1, len(a) + 1), range(1, len(b) + 1)):
        change = table[i - 1, j - 1] + (a[i - 1] != b[j - 1])
        table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, change)
    return table[len(a), len(b)]


def decode(steps: Sequence[int], blank: int) -> list[int]:
    return [symbol for symbol, _ in itertools.groupby(steps) if symbol != blank]


def pad(rows: Sequence[Sequence[int]], width: int) -> NDArray[np.int64]:
    return np.array([[*row, *[-1] * (width - len(row))] for row in rows])


@needs_text
@pytest.mark.parametrize("blank", [0, 5])
def test_cer_and_wer_of_scores(blank: int) -> None:
    rng = np.random.default_rng(blank)
    scores = rng.normal(size=(12, 30, 6)).astype(np.float32)
    symbols = [one for one in range(6) if one != blank]
    space = symbols[0]
    labels = [rng.choice(symbols, rng.integers(1, 15)).tolist() for _ in range(12)]
    found = [decode(steps, blank) for steps in scores.argmax(-1).tolist()]
    y = pad(labels, 15)
    result = measure(f"cer,blank={blank}", scores, scores, y, cuts=(5, 6))
    expected = sum(map(edits, found, labels)) / sum(map(len, labels))
    assert result.candidate == result.reference == pytest.approx(expected, abs=1e-15)

    def words(row: list[int]) -> list[str]:
        return str("".join(" " if one == space else "abcdef"[one] for one in row)).split()

    result = measure(f"wer,blank={blank},space={space}", scores, scores, y, cuts=(3,))
    pairs = [(words(theirs), words(ours)) for theirs, ours in zip(found, labels, strict=True)]
    expected = sum(edits(*pair) for pair in pairs) / sum(len(ours) for _, ours in pairs)
    assert result.candidate == pytest.approx(expected, abs=1e-15)


@needs_text
def test_cer_of_symbols_and_what_it_refuses() -> None:
    ours, theirs = pad([[1, 2, 3], [4]], 4), pad([[1, 3], [4, 4, 4]], 4)
    result = measure("cer", ours, theirs, ours)
    assert (result.reference, result.candidate) == (0.0, 3 / 4)
    with pytest.raises(InputError, match="metric cer needs scores"):
        measure("cer", np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32), ours)
    with pytest.raises(InputError, match="with the blank 6 among them"):
        measure("cer,blank=6", np.zeros((2, 3, 6), np.float32), np.zeros((2, 3, 6), np.float32), ours)
    with pytest.raises(InputError, match=r"labels are float64\[2, 4\]"):
        measure("cer", ours, theirs, ours.astype(np.float64))
    with pytest.raises(UsageError, match="such as wer,space=4"):
        measure("wer", ours, theirs, ours)


def test_options_of_metrics() -> None:
    assert find_metric("recall,k=3").name == "recall,k=3"
    for wrong in ("recall,n=3", "recall,k", "recall,k=x", "recall,k=1,k=2"):
        with pytest.raises(UsageError, match="is no option; there are, with their defaults: k=10"):
            find_metric(wrong)
    with pytest.raises(UsageError, match="metric kl: 'k=3' is no option; there are, with their defaults: none"):
        find_metric("kl,k=3")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("cer", "rapidfuzz", "text"), ("wer", "rapidfuzz", "text"), ("average-precision", "pycocotools", "detection")],
)
def test_what_is_not_installed_is_one_line(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softq.metrics.find_spec", lambda name: None)  # pyright: ignore
    with pytest.raises(UsageError) as told:
        find_metric(name)
    assert str(told.value) == f"metric {name} needs {package}: pip install 'softq[{extra}]'"


def test_top5_accuracy() -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(size=(40, 3, 12)).astype(np.float32), rng.integers(0, 12, (40, 3))
    labels[0, 0] = -100
    scores[1, 1, 4] = NAN
    right = [
        labels[i, j] in np.argsort(-scores[i, j], kind="stable")[:5] and not np.isnan(scores[i, j]).any()
        for i in range(40) for j in range(3) if labels[i, j] != -100
    ]  # fmt: skip
    assert measure("top5-accuracy", scores, scores, labels, cuts=(7,)).candidate == pytest.approx(np.mean(right))
    equal = np.zeros((1, 9), np.float32)
    assert [measure("top5-accuracy", equal, equal, np.array([n])).candidate for n in (4, 5)] == [1.0, 0.0]
    with pytest.raises(InputError, match=r"label 12 is not in 0\.\.11"):
        measure("top5-accuracy", scores, scores, np.full((40, 3), 12))


def test_recall_of_documents() -> None:
    rng = np.random.default_rng(4)
    scores, relevant = rng.normal(size=(20, 15)), (rng.random((20, 15)) < 0.2).astype(np.int64)
    relevant[3] = 0
    shares = [
        len({*np.argsort(-scores[i])[:4]} & {*np.flatnonzero(relevant[i])}) / relevant[i].sum()
        for i in range(20) if relevant[i].any()
    ]  # fmt: skip
    assert measure("recall,k=4", scores, scores, relevant, cuts=(9,)).candidate == pytest.approx(np.mean(shares))
    with pytest.raises(InputError, match="expected scores"):
        measure("recall", scores, scores, relevant[:, :3])


def test_recall_of_neighbours() -> None:
    rng = np.random.default_rng(5)
    groups = np.array([*np.arange(24) % 6, 99])
    rows = rng.normal(size=(25, 4)) + 0.7 * rng.normal(size=(100, 4))[groups]
    hits: list[bool] = []
    for i in range(24):
        others = [j for j in range(25) if j != i]
        cosine = [rows[i] @ rows[j] / np.linalg.norm(rows[i]) / np.linalg.norm(rows[j]) for j in others]
        hits.append(any(groups[others[j]] == groups[i] for j in np.argsort(cosine)[::-1][:2]))
    assert 0.2 < np.mean(hits) < 0.9
    assert measure("recall,k=2", rows, rows, groups, cuts=(9,)).candidate == pytest.approx(np.mean(hits))


def iou(a: Sequence[float], b: Sequence[float]) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0) * max(height, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def average_precision(found: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    """COCO's AP by its definition: for each class and threshold, precision at 101 recalls, made monotone."""
    values: list[float] = []
    for kind, threshold in itertools.product(np.unique(wanted[..., 4]), np.arange(0.5, 1.0, 0.05)):
        if kind < 0:
            continue
        guesses = sorted(
            ((score, image, (x, y, x2, y2)) for image in range(len(found))
             for x, y, x2, y2, score, guessed in found[image].tolist() if guessed == kind and score > 0),
            key=lambda one: -one[0],
        )  # fmt: skip
        truth = [[row[:4] for row in wanted[image].tolist() if row[4] == kind] for image in range(len(wanted))]
        taken: set[tuple[int, int]] = set()
        right: list[bool] = []
        for _, image, box in guesses:
            free = [(iou(box, one), n) for n, one in enumerate(truth[image]) if (image, n) not in taken]
            best = max(free, default=(0.0, -1))
            right.append(best[0] >= threshold - 1e-9)
            if right[-1]:
                taken.add((image, best[1]))
        hits = np.cumsum(right)
        recall, precision = hits / sum(map(len, truth)), hits / np.arange(1, len(hits) + 1)
        at = [max(precision[recall >= level - 1e-12], default=0.0) for level in np.linspace(0, 1, 101)]
        values.append(float(np.mean(at)))
    return float(np.mean(values))


@needs_detection
def test_average_precision() -> None:
    rng = np.random.default_rng(6)
    wanted, found = np.full((8, 4, 5), -1.0), np.full((8, 7, 6), -1.0)
    for image in range(8):
        for number in range(int(rng.integers(1, 5))):
            x, y, width, height = rng.uniform(5, 90, 2).tolist() + rng.uniform(10, 60, 2).tolist()
            kind = float(rng.integers(0, 2))
            wanted[image, number] = (x, y, x + width, y + height, kind)
            moved = np.array([x, y, x + width, y + height]) + rng.normal(size=4) * 3
            found[image, number] = (*moved, rng.uniform(0.1, 1), kind if rng.random() < 0.8 else 1 - kind)
        found[image, 5] = (3.0, 4.0, 30.0, 40.0, rng.uniform(0.1, 1), 1.0)
        found[image, 6] = (3.0, 4.0, 30.0, 40.0, NAN, 1.0)
    expected = average_precision(np.nan_to_num(found), wanted)
    assert 0.05 < expected < 0.9
    result = measure("average-precision", np.nan_to_num(found), np.nan_to_num(found), wanted, cuts=(3,))
    assert result.candidate == pytest.approx(expected, abs=1e-6)
    nothing = np.full((8, 1, 6), -1.0)
    assert measure("average-precision", nothing, nothing, wanted).candidate == 0.0
    assert math.isnan(measure("average-precision", found, found, np.full((8, 1, 5), -1.0)).candidate)
    with pytest.raises(InputError, match="expected \\[N, boxes, 6\\]"):
        measure("average-precision", found[..., :5], found[..., :5], wanted)


@needs_text
def test_a_recognizer_is_checked_with_options(tmp_path: Path) -> None:
    graph = '<ir_version: 8, opset_import: ["": 18]> g (float[n, 9, 5] x) => (float[n, 9, 5] out) { out = Softmax(x) }'
    onnx.save(onnx.parser.parse_model(graph), tmp_path / "model.onnx")
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(6, 9, 5)).astype(np.float32), rng.integers(0, 4, (6, 5))
    np.savez(tmp_path / "data.npz", **{"x": x, "label.text": y})  # pyright: ignore
    report = check(tmp_path / "model.onnx", tmp_path / "model.onnx", tmp_path / "data.npz", metrics=["cer,blank=4"])
    expected = sum(edits(decode(steps, 4), list(label)) for steps, label in zip(x.argmax(-1).tolist(), y, strict=True))
    assert report.metrics[0].candidate == pytest.approx(expected / y.size)
    assert report.metrics[0].name == "cer,blank=4"
    subject = open_subject(OnnxRunner.open(tmp_path / "model.onnx"), tmp_path / "data.npz", "cer,blank=4")
    assert subject.label == "text"
