"""Top-5 agreement: how often the reference's highest score is among the candidate's five highest."""

from __future__ import annotations

from functools import partial

from softq.metrics.base.kinds import PairedMetric
from softq.metrics.base.rows import agreement
from softq.metrics.base.values import PROPORTION

METRIC = PairedMetric(
    name="top5-agreement",
    direction="higher",
    unit="fraction",
    summary="how often the reference's highest score is among the candidate's five highest",
    needs_labels=False,
    contribute=partial(agreement, "top5-agreement", 5),
    kind=PROPORTION,
    bounds=(0.0, 1.0),
    distance="kl",
)
