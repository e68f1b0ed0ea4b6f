"""Which setting is recommended, and in which words: nothing inside an interval is called better or worse."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from softq.sweeps.report.content import Answer, Measured, Subject, Verdict
from softq.sweeps.report.interval import Interval

SAYS: dict[Verdict, str] = {
    "same": "not distinguishable from float",
    "worse": "worse than float",
    "better": "better than float",
    "open": "no interval, so it cannot be said whether it differs from float",
    "broken": "not a number",
    "unmeasured": "only the errors of the site were measured",
}
"""Each verdict in words."""


def verdict(loss: Interval, samples: int) -> Verdict:
    """Return what the interval of a loss over so many samples says."""
    if samples == 0:
        return "unmeasured"
    if loss.value is None:
        return "broken"
    if loss.low is None or loss.high is None:
        return "open"
    return "worse" if loss.low > 0 else "better" if loss.high < 0 else "same"


def within(loss: Interval, budget: float | None) -> bool | None:
    """Return whether a loss is within the budget, its upper end where it has one; None without a budget."""
    if budget is None:
        return None
    worst = loss.value if loss.high is None else loss.high
    return loss.value is not None and worst is not None and worst <= budget


def acceptable(row: Measured) -> bool:
    """Return whether a setting may be recommended: within the budget, or not worse than float by its interval."""
    if row.verdict == "open" and row.within is None:
        return row.loss.value is not None and row.loss.value <= 0
    return bool(row.within) or row.verdict in ("same", "better")


def answer(
    rows: Sequence[Measured], subject: Subject, budget: float | None, integer_only: Collection[str] = ()
) -> Answer:
    """Return the recommended setting: the fewest bits among the acceptable settings of all sites.

    Of several with as many bits it is one within the budget, then one of the methods that are `integer_only`, then the
    one with the least loss; the others whose intervals meet its own are named as its peers.
    """
    rows = [row for row in rows if row.site is None and row.head is None and row.bits is not None]
    if not rows:
        nothing = "Nothing with a number of bits was measured for all sites together, so nothing is recommended."
        return Answer(nothing, None, (), "", budget)

    def rank(row: Measured) -> tuple[int, bool, bool, float, str]:
        assert row.bits is not None
        loss = math.inf if row.loss.value is None else row.loss.value
        return row.bits, not row.within, row.method not in integer_only, loss, row.name

    good = sorted(filter(acceptable, rows), key=rank)
    asked = " within the budget or" if budget is not None else ""
    if not good:
        finite = [row for row in rows if row.loss.value is not None]
        none = f"No setting is{asked} indistinguishable from float"
        if not finite:
            return Answer(f"{none}: no loss is a number.", None, (), "", budget)
        nearest = min(finite, key=lambda row: (row.loss.value or 0.0, rank(row)))
        sentence = f"{none}; the least loss has {nearest.name}: {numbers(nearest, subject)}."
        return Answer(sentence, None, (), "", budget)
    best = good[0]
    met = " and within the budget" if best.within else " though not within the budget" if best.within is False else ""
    if best.within and best.verdict in ("worse", "open"):
        met = f" and within the budget of {loss_text(budget or 0.0, subject)}"
    sentence = f"Use {best.name}: {numbers(best, subject)}, {SAYS[best.verdict]}{met}."
    peers = [row for row in good[1:] if row.bits == best.bits and _meet(row.loss, best.loss)]
    named = ", ".join(row.name for row in peers)
    told = f"These data do not tell it from {named}: their intervals meet." if peers else ""
    return Answer(sentence, best.setting, tuple(row.setting for row in peers), told, budget)


def _meet(one: Interval, other: Interval) -> bool:
    if one.ends is None or other.ends is None:
        return False
    return one.ends[0] <= other.ends[1] and other.ends[0] <= one.ends[1]


def numbers(row: Measured, subject: Subject) -> str:
    """Return metric, float metric and loss of a setting as a phrase."""
    interval = "no interval" if row.loss.ends is None else f"95 % interval {loss_interval_text(row.loss, subject)}"
    loss = f"loss {loss_text(row.loss.value, subject)} ({interval}, {row.samples:,} samples)"
    value, reference = number_text(row.metric.value), number_text(subject.reference.value)
    return f"{subject.metric} {value} against {reference} in float, {loss}"


def loss_text(loss: float | None, subject: Subject) -> str:
    """Return a loss with its sign, in percent where losses are shares."""
    if loss is None:
        return "not a number"
    return f"{100 * loss:+.3g} %" if subject.relative else f"{loss:+.3g}"


def number_text(value: float | None) -> str:
    """Return a number to five digits."""
    return "not a number" if value is None else f"{value:.5g}"


def interval_text(interval: Interval) -> str:
    """Return the ends of an interval of a metric."""
    return "none" if interval.ends is None else " to ".join(map(number_text, interval.ends))


def loss_interval_text(interval: Interval, subject: Subject) -> str:
    """Return the ends of an interval of a loss."""
    return "none" if interval.ends is None else " to ".join(loss_text(end, subject) for end in interval.ends)
