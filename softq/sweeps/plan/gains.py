"""What the error of each site does to the model's output, measured: a site's error alone does not tell.

One site at a time gets a method while the others stay float. How far the output moves, over the square of the site's
error, is the site's gain. The others must be float: behind quantized sites any change of a score moves codes, so that
all their rounding errors are drawn anew, which is more than most sites do to the output by themselves.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from softq.errors import ProofError, RefusalError
from softq.metrics import MEAN, PairedMetric, find_metric
from softq.plans import Plan
from softq.runner import Runner
from softq.sweeps.evaluate.evaluator import Evaluator, LocalEvaluator, Subject
from softq.sweeps.evaluate.framework import Sessions
from softq.sweeps.plan.frontier import Rung, State

BATCHES = 4
"""Batches, spread evenly over the data, that gains are measured on: they put sites in an order, where they differ many
times over, and the cost is bounded whatever the size of the data."""


def with_gains(
    ladders: Sequence[Sequence[Rung]],
    plan_of: Callable[[State], Plan],
    subject: Subject,
    float_model: Runner,
    sessions: Sessions,
    folder: Path,
    progress: Callable[[int, int | None], None] | None = None,
) -> list[tuple[Rung, ...]]:
    """Return the ladders with errors that are the same for all sites in what they do to the output.

    The distance is that of the metric (`Metric.distance`), a mean that grows as the square of a small error: so errors
    of sites, scaled by the root of the gain, still add up as squares. A site whose gain cannot be measured gets the
    median of the others'.

    Args:
        ladders: For each site its rungs, the first of them float, with the errors of its rows.
        plan_of: Makes the plan for a state.
        subject: What the search measures with; a part of its samples is used.
        float_model: Runs the model without a plan.
        sessions: Runs the models that plans make.
        folder: For scratch files.
        progress: Called with the sites done and the sites there are.
    """
    distance = find_metric(subject.metric.distance)
    assert isinstance(distance, PairedMetric)
    measured = replace(
        subject, metric=replace(distance, kind=MEAN), names=(subject.output,), label=None,
        data=subject.data.spread(BATCHES, subject.batch),
    )  # fmt: skip
    evaluator = LocalEvaluator(float_model, measured, folder, sessions)
    gains: list[float | None] = []
    for site, rungs in enumerate(ladders):
        gains.append(_gain(evaluator, rungs, lambda at, site=site: plan_of(_only(site, at, len(ladders)))))
        if progress is not None:
            progress(site + 1, len(ladders))
    known = [gain for gain in gains if gain is not None]
    usual = statistics.median(known) if known else 1.0
    return [
        tuple(replace(rung, error=rung.error * math.sqrt(usual if gain is None else gain)) for rung in rungs)
        for rungs, gain in zip(ladders, gains, strict=True)
    ]


def _only(site: int, at: int, sites: int) -> State:
    return tuple(at if number == site else 0 for number in range(sites))


def _gain(evaluator: Evaluator, rungs: Sequence[Rung], plan_of: Callable[[int], Plan]) -> float | None:
    """Return by how much the output moves for the square of a site's error; None if that cannot be measured."""
    finite = sum(math.isfinite(rung.error) for rung in rungs)
    if finite < 2:
        return None
    # The middle one: neither lost in rounding nor so coarse that the output no longer follows the error.
    at = (1 + finite) // 2
    try:
        moved = evaluator.measure(plan_of(at)).metric.value
    except (RefusalError, ProofError):
        return None  # The search comes to the same plan, or to one like it, and tells.
    square = rungs[at].error ** 2
    return moved / square if math.isfinite(moved) and square > 0 else None
