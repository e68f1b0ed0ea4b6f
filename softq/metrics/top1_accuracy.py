"""Top-1 accuracy: how often the highest score is at the label."""

from __future__ import annotations

from functools import partial

from softq.metrics.base.kinds import AloneMetric
from softq.metrics.base.rows import IGNORED, accuracy
from softq.metrics.base.values import PROPORTION

METRIC = AloneMetric(
    name="top1-accuracy",
    direction="higher",
    unit="fraction",
    summary=f"how often the highest score is at the label; a row with a NaN is wrong, label {IGNORED} is ignored",
    needs_labels=True,
    contribute=partial(accuracy, "top1-accuracy", 1),
    kind=PROPORTION,
    bounds=(0.0, 1.0),
    distance="kl",
)
