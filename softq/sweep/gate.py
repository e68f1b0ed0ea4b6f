"""The budget of a sweep: which settings lose no more than is allowed, and by how much the others lose more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from softq.errors import UsageError
from softq.metrics import NanCounts, find_metric
from softq.report import Allowance, Gate, MetricResult, judge
from softq.sweep.engine import describe
from softq.sweep.records import Estimate, Outcome, Study


@dataclass(frozen=True)
class Budget:
    """What may be lost of a float model's value.

    Attributes:
        allowance: The amount as the user gave it.
        study: The study that has the float model's value.
    """

    allowance: Allowance
    study: Study

    def __post_init__(self) -> None:
        """Refuse a share of a value that is 0.

        Raises:
            UsageError: the budget is a share, and the float model's value is 0 or no number.
        """
        value = self.study.reference.value
        if self.allowance.relative and not abs(value) > 0:
            raise UsageError(
                f"max-drop is {self.allowance.text}, a share of the float model's {self.study.metric}, which is "
                f"{value:g}; give it without %"
            )

    @property
    def amount(self) -> float:
        """What may be lost, in the metric's unit."""
        allowed = self.allowance
        return allowed.amount * abs(self.study.reference.value) if allowed.relative else allowed.amount

    def judge(self, value: Estimate) -> Gate:
        """Return whether a value keeps the budget, by the rule of `softq check --max-drop`."""
        study, metric = self.study, find_metric(self.study.metric)
        result = MetricResult(
            metric.name, metric.unit, metric.direction, study.reference.value, value.value,
            value.value - study.reference.value, NanCounts(),
        )  # fmt: skip
        gate = judge([result], self.allowance, None)
        assert gate is not None
        over = self.excess(value)
        return gate if gate.passed or not over > 0 else Gate(False, f"{gate.sentence}: {over:.4g} too much")

    def excess(self, value: Estimate) -> float:
        """Return by how much a value loses more than is allowed, in the metric's unit; NaN is infinitely too much."""
        sign = 1.0 if self.study.direction == "lower" else -1.0
        over = sign * (value.value - self.study.reference.value) - self.amount
        return math.inf if math.isnan(over) else over


def judge_all(budget: Budget, outcomes: Sequence[Outcome]) -> Gate:
    """Return whether any setting keeps the budget, with the sentence on the best of them."""
    best = min(outcomes, key=lambda outcome: budget.excess(outcome.metric))
    kept = [outcome for outcome in outcomes if budget.judge(outcome.metric).passed]
    if len(outcomes) == 1 or not kept:
        gate = budget.judge(best.metric)
        none = "" if len(outcomes) == 1 else f"none of the {len(outcomes)} settings keeps the budget; the best, "
        return Gate(gate.passed, f"{none}{describe(best.setting)}: {gate.sentence}")
    sentence = budget.judge(best.metric).sentence
    return Gate(
        True, f"{len(kept)} of {len(outcomes)} settings keep the budget; the best, {describe(best.setting)}: {sentence}"
    )
