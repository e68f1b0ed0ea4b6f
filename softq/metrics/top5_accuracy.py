"""Top-5 accuracy: how often the label is among the five highest scores."""

from __future__ import annotations

from functools import partial

from softq.metrics.base.kinds import AloneMetric
from softq.metrics.base.rows import IGNORED, accuracy
from softq.metrics.base.values import PROPORTION

METRIC = AloneMetric(
    name="top5-accuracy",
    direction="higher",
    unit="fraction",
    summary=f"how often the label is among the five highest scores; rows with a NaN are wrong, label {IGNORED} ignored",
    needs_labels=True,
    contribute=partial(accuracy, "top5-accuracy", 5),
    kind=PROPORTION,
    bounds=(0.0, 1.0),
    distance="kl",
)
