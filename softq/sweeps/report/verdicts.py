"""Which setting is recommended, and in which words: nothing inside an interval is called better or worse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from softq.sweeps.records import Estimate
from softq.sweeps.report.content import BITS, Answer, Measured, Step, Subject, Verdict
from softq.sweeps.report.interval import Interval
from softq.wording import counted

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


def shown(loss: Estimate, samples: int, subject: Subject, budget: float | None) -> str:
    """Return what the samples show of a loss, and what more would; empty without an interval."""
    evidence = loss.evidence(samples)
    return "" if evidence is None else evidence.statement(budget, lambda amount: _amount(amount, subject))


def answer(rows: Sequence[Measured], subject: Subject, budget: float | None, axis: str = BITS) -> Answer:
    """Return the answer, from the settings of all sites.

    What is saved is bits, or the number that `axis` names; here it is called bits.

    Under a budget it is the setting with the fewest bits of those that are shown to keep it; of several with as many
    bits one of the methods that are integer-only, then the one with the least loss, then the one whose interval ends
    lower; the others whose intervals meet its own are named as its peers. Without one it is the front: what has fewer
    bits than all that lose less.
    """
    rows = [row for row in rows if row.site is None and row.head is None and row.amount(axis) is not None]
    if not rows:
        nothing = f"Nothing with a number of {axis} was measured for all sites together, so nothing is recommended."
        return Answer(nothing, None, (), "", budget, axis=axis)
    finite = sorted((row for row in rows if row.loss.value is not None), key=lambda row: _rank(row, axis))
    if not finite:
        return Answer("No setting can be recommended: no loss is a number.", None, (), "", budget, axis=axis)
    front = _front(finite, axis)
    told = _choose(front, subject, axis) if budget is None else _recommend(finite, subject, budget, axis)
    return replace(told, front=tuple(row.setting for row in front), by_budget=tuple(_steps(finite)), axis=axis)


def _rank(row: Measured, axis: str) -> tuple[float, bool, float, float, str]:
    """Order settings by what is recommended first, if all keep the budget."""
    amount = row.amount(axis)
    assert amount is not None
    return amount, not row.integer_only, _loss(row), _worst(row), row.name


def _front(rows: Sequence[Measured], axis: str) -> list[Measured]:
    """Return those of the ranked settings that lose less than all with fewer bits, or as many."""
    front: list[Measured] = []
    for row in rows:
        if not front or _loss(row) < _loss(front[-1]):
            if front and front[-1].amount(axis) == row.amount(axis):
                front.pop()
            front.append(row)
    return front


def _steps(rows: Sequence[Measured]) -> list[Step]:
    """Return which of the ranked settings is recommended from which budget on.

    The greater the budget, the more settings keep it; of those the first is recommended.
    """
    steps: list[Step] = []
    budgets = [max(0.0, _worst(row)) for row in rows]
    best = len(rows)
    for place in sorted(range(len(rows)), key=lambda place: (budgets[place], place)):
        if place < best:
            best = place
            steps.append(Step(budgets[place], rows[place].setting))
    return steps


def _recommend(rows: Sequence[Measured], subject: Subject, budget: float, axis: str) -> Answer:
    allowed = f"the budget of {loss_text(budget, subject)}"
    good = [row for row in rows if row.within]
    if not good:
        nearest = min(rows, key=lambda row: (_loss(row), _rank(row, axis)))
        none = f"No setting is shown to keep {allowed}; the least loss has {nearest.name}"
        return Answer(f"{none}: {numbers(nearest, subject)}{_behind(nearest)}.", None, (), "", budget)
    best = good[0]
    sentence = f"Use {best.name}: {numbers(best, subject)}, within {allowed}{_behind(best)}."
    peers = [row for row in good[1:] if row.amount(axis) == best.amount(axis) and _meet(row.loss, best.loss)]
    named = ", ".join(row.name for row in peers)
    told = f"These data do not tell it from {named}: their intervals meet." if peers else ""
    return Answer(sentence, best.setting, tuple(row.setting for row in peers), told, budget)


def _choose(front: Sequence[Measured], subject: Subject, axis: str) -> Answer:
    """Return the answer without a budget."""

    def tell(row: Measured) -> str:
        amount = "" if axis == BITS else f", {axis} {row.amount(axis):,.6g}"
        return f"{row.name}{amount}, loss {loss_text(row.loss.value, subject)}{_behind(row)}"

    listed = "; ".join(map(tell, front))
    saved = "Fewer bits" if axis == BITS else f"Less {axis}"
    sentence = f"{saved} for more loss, and what may be lost decides (--max-drop): {listed}."
    told = [_apart(one, other) for one, other in pairwise(front) if _meet(one.loss, other.loss)]
    return Answer(sentence, None, (), " ".join(told), None)


def _loss(row: Measured) -> float:
    return math.inf if row.loss.value is None else row.loss.value


def _worst(row: Measured) -> float:
    """Return the least budget that a setting is shown to keep: the upper end of its loss, where it has one."""
    return _loss(row) if row.loss.high is None else row.loss.high


def _apart(one: Measured, other: Measured) -> str:
    """Return about how many samples would part the intervals of two settings, whose widths shrink with the root."""
    (_, high), (low, _) = other.loss.ends or (0.0, 0.0), one.loss.ends or (0.0, 0.0)
    between = _loss(one) - _loss(other)
    needed = math.ceil(one.samples * ((high - _loss(other) + _loss(one) - low) / between) ** 2)
    return f"These data do not tell {one.name} from {other.name}; about {counted(needed, 'sample')} would."


def _behind(row: Measured) -> str:
    return f" ({row.shown})" if row.shown else " (no interval)"


def _meet(one: Interval, other: Interval) -> bool:
    if one.ends is None or other.ends is None:
        return False
    return one.ends[0] <= other.ends[1] and other.ends[0] <= one.ends[1]


def numbers(row: Measured, subject: Subject) -> str:
    """Return metric, float metric and loss of a setting as a phrase."""
    interval = "no interval" if row.loss.ends is None else f"95 % interval {loss_interval_text(row.loss, subject)}"
    loss = f"loss {loss_text(row.loss.value, subject)} ({interval}, {counted(row.samples, 'sample')})"
    value, reference = number_text(row.metric.value), number_text(subject.reference.value)
    return f"{subject.metric} {value} against {reference} in float, {loss}"


def loss_text(loss: float | None, subject: Subject, samples: int = 1) -> str:
    """Return a loss with its sign, in percent where losses are shares; of no samples none was measured."""
    if loss is None:
        return number_text(None, samples)
    return f"{'+' * (not loss < 0)}{_amount(loss, subject)}"


def _amount(loss: float, subject: Subject) -> str:
    return f"{100 * loss:.3g} %" if subject.relative else f"{loss:.3g}"


def number_text(value: float | None, samples: int = 1) -> str:
    """Return a number to five digits; of no samples none was measured."""
    if value is None:
        return "not a number" if samples else "not measured"
    return f"{value:.5g}"


def interval_text(interval: Interval) -> str:
    """Return the ends of an interval of a metric."""
    return "none" if interval.ends is None else " to ".join(map(number_text, interval.ends))


def loss_interval_text(interval: Interval, subject: Subject) -> str:
    """Return the ends of an interval of a loss."""
    return "none" if interval.ends is None else " to ".join(loss_text(end, subject) for end in interval.ends)
