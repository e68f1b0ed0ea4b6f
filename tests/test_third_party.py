"""The trials of third-party models: their table, and what counts as right."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.third_party.models import MODELS
from benchmarks.third_party.results import state, summary
from benchmarks.third_party.trial import difference


def test_every_model_stands_once() -> None:
    """By name and by content."""
    assert len({model.name for model in MODELS}) == len(MODELS)
    assert len({model.sha256 for model in MODELS}) == len(MODELS)
    assert {model.family for model in MODELS} >= {"OCR", "detection", "segmentation", "speech", "language"}


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        (np.array([1, 2], "float32"), np.array([1, 2], "float32"), 0.0),
        (np.array([1, 3], "float32"), np.array([1, 4], "float32"), 0.25),
        (np.array([np.nan, 1], "float32"), np.array([np.nan, 1], "float32"), 0.0),
        (np.array([np.nan, 1], "float32"), np.array([0, 1], "float32"), np.inf),
        (np.array([0, 1], "float32"), np.array([np.inf, 1], "float32"), np.inf),
        (np.array([[1]], "float32"), np.array([1], "float32"), np.inf),
        (np.array([1], "float64"), np.array([1], "float32"), np.inf),
        (np.array([1], "int64"), np.array([2], "int64"), np.inf),
        (np.array([], "float32"), np.array([], "float32"), 0.0),
    ],
)
def test_differences(found: np.ndarray, wanted: np.ndarray, expected: float) -> None:
    """Relative to the greatest magnitude; NaN, infinities, shapes, types and integers must be equal."""
    assert difference({"y": found}, {"y": wanted}) == expected


def test_what_ended_badly_is_said() -> None:
    """A process that crashed before it built anything, and a model that is no usable one."""
    assert state({"name": "m", "stage": "build", "crash": "signal 11"}, "shipped") == "crash"
    assert state({"name": "m", "refused": "no"}, "shipped") == "refused"
    assert "signal 11" in summary({"name": "m", "stage": "build", "crash": "signal 11"})
