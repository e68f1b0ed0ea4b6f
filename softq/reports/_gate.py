"""The accuracy gate: is the candidate good enough?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from softq.errors import UsageError
from softq.metrics import Metric
from softq.reports._types import Gate, MetricResult


@dataclass(frozen=True)
class Allowance:
    """What a candidate may lose: `amount` in the metric's unit, or that fraction of the reference's value."""

    amount: float
    relative: bool
    text: str


def parse_drop(drop: str | float, option: str = "max-drop") -> Allowance:
    """Return what `--max-drop X` or `X%` allows; `option` is what a message calls it.

    Raises:
        UsageError: it is not a finite number of at least 0, with or without a percent sign.
    """
    text = str(drop).strip()
    relative = text.endswith("%")
    try:
        amount = float(text.removesuffix("%"))
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise UsageError(f"{option} is {text!r}; it must be a number of at least 0, or one followed by %")
    return Allowance(amount / 100 if relative else amount, relative, text)


def check_gate(metric: Metric, max_drop: str | float | None, limit: float | None) -> Allowance | None:
    """Return the parsed `max_drop`, after checking that the gate makes sense for the metric.

    Raises:
        UsageError: both gates are given, a number is out of range, no model could pass, or the drop is a share of 0.
    """
    if max_drop is not None and limit is not None:
        raise UsageError(f"max-drop {max_drop} and limit {limit} are both given; one gate at a time")
    if limit is not None and not math.isfinite(limit):
        raise UsageError(f"limit is {limit}; it must be a finite number")
    if limit is not None and (limit > metric.best if metric.direction == "higher" else limit < metric.best):
        most = "at most" if metric.direction == "higher" else "at least"
        raise UsageError(f"limit is {limit:g}; {metric.name} is {most} {metric.best:g}, so that no model could pass")
    if max_drop is None:
        return None
    drop = parse_drop(max_drop)
    if metric.paired and drop.relative and metric.best == 0:
        raise UsageError(
            f"max-drop is {drop.text}, a share of the {metric.name} of the reference compared with itself, which is 0;"
            " give it without %"
        )
    return drop


def judge(results: Sequence[MetricResult], drop: Allowance | None, limit: float | None) -> Gate | None:
    """Return the gate's verdict on the first result, or None without a gate; new NaN in any result fails it always.

    A drop is within what is allowed where the samples show it: the upper end of its 95 % interval is. A value without
    an interval is judged by itself, and so is a limit.
    """
    for result in results:
        if result.nan.candidate_only:
            count = result.nan.candidate_only
            return Gate(False, f"{result.name}: the candidate has {count} NaN where the reference has numbers")
    first = results[0]
    if drop is not None:
        return _drop(first, drop)
    if limit is not None:
        higher = first.direction == "higher"
        passed = first.candidate >= limit if higher else first.candidate <= limit
        bound = f"{'at least' if higher else 'at most'} {limit:.6g} is asked for"
        return Gate(passed, f"{first.name} is {first.candidate:.6g}; {bound}")
    return None


def _without_number(name: str, reference: float, candidate: float) -> str:
    """Return the sentence on two values that have no difference."""
    if math.isnan(reference):
        return f"{name} of the reference is NaN: nothing can be compared with it; are there NaN in the data?"
    if math.isnan(candidate):
        return f"{name} goes from {reference:.6g} to NaN"
    return f"{name} goes from {reference:.6g} to {candidate:.6g}, which have no difference"


def _drop(result: MetricResult, drop: Allowance) -> Gate:
    reference, candidate = result.reference, result.candidate
    if reference is None:
        raise UsageError(f"metric {result.name} has no value for the reference, so no drop")
    worse = reference - candidate if result.direction == "higher" else candidate - reference
    allowed = drop.amount * abs(reference) if drop.relative else drop.amount
    # 0.970 - 0.967 is 0.0030000000000000027: the rounding of the inputs must not fail a gate of 0.003.
    slack = 4 * math.ulp(max(abs(reference), abs(candidate), allowed)) if math.isfinite(candidate) else 0.0
    evidence = None if result.interval is None else result.interval.evidence(result.direction, reference)
    # Shown is what the whole interval says; without one there is the value alone.
    most = worse if evidence is None else evidence.high
    passed = math.isfinite(reference) and most <= allowed + slack
    values = f"{result.name} goes from {reference:.6g} to {candidate:.6g}"
    if math.isnan(worse):
        return Gate(False, _without_number(result.name, reference, candidate))
    change = "no change" if worse == 0 else f"{'worse' if worse > 0 else 'better'} by {abs(worse):.4g}"
    limit = f"{drop.text} (that is {allowed:.4g})" if drop.relative else f"{allowed:.6g}"
    shown = "" if evidence is None else f": {evidence.statement(allowed, lambda amount: f'{amount:.4g}')}"
    return Gate(passed, f"{values}, {change}{shown}; at most {limit} worse is allowed")
