"""Word error rate: insertions, deletions and substitutions per word of the label, over all samples."""

from __future__ import annotations

import math
from functools import partial
from itertools import groupby

from softq.data import Array
from softq.errors import UsageError
from softq.metrics.base.kinds import AloneMetric
from softq.metrics.base.meter import PerSample
from softq.metrics.base.symbols import PACKAGE, Symbols, error_rate
from softq.metrics.base.values import MEAN


def split_words(space: int, symbols: Symbols) -> list[tuple[int, ...]]:
    """Return the words: what stands between spaces."""
    groups = groupby(symbols, key=lambda symbol: symbol == space)
    return [tuple(word) for is_space, word in groups if not is_space]


def _contribute(blank: int, space: int, output: Array, labels: Array) -> PerSample:
    if space < 0:
        raise UsageError("metric wer needs the symbol that stands between words, such as wer,space=4")
    return error_rate("wer", blank, partial(split_words, space), output, labels)


def _make(blank: int = 0, space: int = -1) -> AloneMetric:
    return AloneMetric(
        name="wer",
        direction="lower",
        unit="errors per word",
        summary="Levenshtein distance per word, outputs and labels as of cer; the space must be named: wer,space=4",
        needs_labels=True,
        contribute=partial(_contribute, blank, space),
        kind=MEAN,
        bounds=(0.0, math.inf),
        make=_make,
        needs=PACKAGE,
    )


METRIC = _make()
