"""What a setting does to the rows of one site: errors that need no run of the model, from a sample of its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from softq.errors import InputError
from softq.methods import METHODS, Fitted, Options, Sample
from softq.passes._forms._levels import MASKED
from softq.plan import SitePlan
from softq.rowprog import run
from softq.sweep.records import SiteErrors

_QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)
_TOP = 5

Floats = NDArray[np.float64]


def site_errors(planned: SitePlan, samples: Sequence[Sample], head: int | None = None) -> SiteErrors:
    """Return what a site's plan does to a sample of its rows, by the row program in the interpreter.

    Of equal weights the first is the greater one, so that a code too coarse to tell weights apart flips their order.

    Args:
        planned: What the site gets.
        samples: Rows of the site with their V, as `softq.calibrate.collect` gives them.
        head: Only the rows of this head; None for all.

    Raises:
        InputError: no row is left that has an unmasked element.
    """
    options = planned.configure()
    change = size = 0.0
    sums: list[Floats] = []
    flips: list[NDArray[np.bool_]] = []
    top5: list[NDArray[np.bool_]] = []
    masked = elements = 0
    valued = True
    for sample in samples:
        alive = np.max(sample.scores, axis=-1) > -math.inf
        if (head is not None and sample.head != head) or not bool(alive.any()):
            continue
        scores = sample.scores[alive]
        exact, found = _exact(scores), _weights(planned.method, options, planned.fitted, scores, sample.head)
        sums.append(found.sum(axis=-1))
        flips.append(_moved(exact, found, 1))
        top5.append(_moved(exact, found, _TOP))
        masked += int((scores <= MASKED / 2).sum())  # the score itself is added to the mask
        elements += scores.size
        if sample.values is None:
            valued = False
            continue
        v = sample.values.astype(np.float64)
        change += float(np.sum(((found - exact) @ v) ** 2))
        size += float(np.sum((exact @ v) ** 2))
    if not sums:
        raise InputError(f"site {planned.id}: the data have no row with an unmasked element to tell errors from")
    total = np.concatenate(sums)
    quantiles = [float(q) for q in np.quantile(total, _QUANTILES)]
    return SiteErrors(
        output_error=math.sqrt(change / size) if valued and size > 0 else None,
        row_sums=(quantiles[0], quantiles[1], quantiles[2], quantiles[3], quantiles[4]),
        mean_row_sum=float(total.mean()),
        argmax_flips=float(np.concatenate(flips).mean()),
        top5_flips=float(np.concatenate(top5).mean()),
        masked=masked / elements,
        rows=len(total),
    )


def _exact(scores: NDArray[np.float32]) -> Floats:
    wide = scores.astype(np.float64)
    weights = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _weights(method: str, options: Options, fitted: Fitted, scores: NDArray[np.float32], head: int) -> Floats:
    # The rows are those of one head, so what is fitted one a head is that head's number for a site.
    mine = {name: value[head] if isinstance(value, tuple) else value for name, value in fitted.items()}
    here = replace(options, **dict.fromkeys(mine, "site"))
    entry = METHODS.get(method)
    program = entry.program(here)
    out = run(program, scores, params=entry.parameters(here, mine))
    if not program.is_pair:
        return out["probabilities"].astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)
    return np.where(out["normalizer"] == 0, 0.0, share)  # where nothing is left of a row its output is zeros


def _moved(exact: Floats, found: Floats, count: int) -> NDArray[np.bool_]:
    """Return for each row whether its greatest `count` weights are at other positions; of equal ones the first count.

    A NaN is at no position.
    """
    ours, theirs = (np.sort(np.argsort(-w, axis=-1, kind="stable")[:, :count], axis=-1) for w in (exact, found))
    return (ours != theirs).any(axis=-1) | np.isnan(found).any(axis=-1)
