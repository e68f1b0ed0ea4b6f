"""Character error rate: insertions, deletions and substitutions per character of the label, over all samples."""

from __future__ import annotations

import math
from functools import partial

from softq.metrics.base.kinds import AloneMetric
from softq.metrics.base.symbols import PACKAGE, error_rate
from softq.metrics.base.values import MEAN


def _make(blank: int = 0) -> AloneMetric:
    return AloneMetric(
        name="cer",
        direction="lower",
        unit="errors per character",
        summary="Levenshtein distance per character: CTC scores [N,T,C] or symbols [N,T], label [N,L]; cer,blank=0",
        needs_labels=True,
        contribute=partial(error_rate, "cer", blank, list),
        kind=MEAN,
        bounds=(0.0, math.inf),
        make=_make,
        needs=PACKAGE,
    )


METRIC = _make()
