"""Sequences of symbols: what a recognizer of speech or of writing gives, and how far it is from what stands there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from softq.data import Array
from softq.errors import InputError
from softq.metrics.base.meter import PerSample
from softq.metrics.base.rows import by_blocks, first_best

Symbols = list[int]
PACKAGE = ("rapidfuzz", "text")


def symbols_of(metric: str, output: Array, blank: int) -> list[Symbols]:
    """Return the symbols of each sample.

    Scores [N, T, C] are decoded greedily: the best symbol of each step, runs of equal ones once, without the blank
    (connectionist temporal classification, A. Graves et al., ICML 2006). Integers [N, T] are symbols already; negative
    ones are padding.

    Raises:
        InputError: the output has another form, or too few symbols for the blank.
    """
    if output.ndim == 2 and output.dtype.kind in "iu":
        return [row[row >= 0].tolist() for row in output.astype(np.int64)]
    if output.ndim != 3 or output.dtype.kind != "f" or not 0 <= blank < output.shape[-1]:
        raise InputError(
            f"metric {metric} needs scores [samples, steps, symbols] with the blank {blank} among them, or integers"
            f" [samples, steps]; this output is {output.dtype.name}{list(output.shape)}"
        )
    best = by_blocks(lambda rows: first_best(rows).astype(np.float64), output.reshape(-1, output.shape[-1]))
    steps = best.astype(np.int64).reshape(output.shape[:2])
    new = np.ones(steps.shape, np.bool_)
    new[:, 1:] = steps[:, 1:] != steps[:, :-1]
    return [row[here].tolist() for row, here in zip(steps, new & (steps != blank), strict=True)]


def labels_of(metric: str, labels: Array, samples: int) -> list[Symbols]:
    """Return the symbols of each sample's label; negative ones are padding.

    Raises:
        InputError: they are no integers [N, L].
    """
    if labels.dtype.kind not in "iu" or labels.ndim != 2 or len(labels) != samples:
        raise InputError(
            f"metric {metric}: labels are {labels.dtype.name}{list(labels.shape)}; expected integers"
            f" [{samples}, length] with negative ones behind the end"
        )
    return [row[row >= 0].tolist() for row in labels.astype(np.int64)]


def error_rate(
    metric: str, blank: int, split: Callable[[Symbols], Sequence[Hashable]], output: Array, labels: Array
) -> PerSample:
    """Return the Levenshtein distance of each sample to its label and the label's length, in what `split` makes."""
    from rapidfuzz.distance import Levenshtein

    found, wanted = (
        [split(one) for one in each]
        for each in (symbols_of(metric, output, blank), labels_of(metric, labels, len(output)))
    )
    errors = [float(Levenshtein.distance(theirs, ours)) for ours, theirs in zip(found, wanted, strict=True)]
    return PerSample(np.array(errors), np.array([len(one) for one in wanted], np.float64))
