"""Top-1 agreement: how often the highest scores of both models are in the same column."""

from __future__ import annotations

from functools import partial

from softq.metrics.base.kinds import PairedMetric
from softq.metrics.base.rows import agreement
from softq.metrics.base.values import PROPORTION

METRIC = PairedMetric(
    name="top1-agreement",
    direction="higher",
    unit="fraction",
    summary="how often the highest scores of both models are in the same column",
    needs_labels=False,
    contribute=partial(agreement, "top1-agreement", 1),
    kind=PROPORTION,
    bounds=(0.0, 1.0),
    distance="kl",
)
