"""The budget of a sweep: which settings lose no more than is allowed, and by how much the others lose more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from softq.errors import UsageError
from softq.metrics import Metric, NanCounts, find_metric
from softq.reports import Allowance, Gate, MetricResult, PairedInterval, judge
from softq.sweeps.engine import describe
from softq.sweeps.evaluate.evaluator import Measurement
from softq.sweeps.records import Estimate, Outcome, Study


@dataclass(frozen=True)
class Budget:
    """What may be lost of a float model's value.

    Attributes:
        allowance: The amount as the user gave it.
        metric: The metric.
        reference: The float model's value.
    """

    allowance: Allowance
    metric: Metric
    reference: float

    @classmethod
    def of(cls, allowance: Allowance, study: Study) -> Budget:
        """Return the budget of a sweep."""
        return cls(allowance, find_metric(study.metric), study.reference.value)

    def __post_init__(self) -> None:
        """Refuse a share of a value that is 0.

        Raises:
            UsageError: the budget is a share, and the float model's value is 0 or no number.
        """
        if self.allowance.relative and not abs(self.reference) > 0:
            raise UsageError(
                f"max-drop is {self.allowance.text}, a share of the float model's {self.metric.name}, which is "
                f"{self.reference:g}; give it without %"
            )

    @property
    def amount(self) -> float:
        """What may be lost, in the metric's unit."""
        allowed = self.allowance
        return allowed.amount * abs(self.reference) if allowed.relative else allowed.amount

    def judge(self, value: Estimate, loss: Estimate | None = None, samples: int = 0) -> Gate:
        """Return whether a value keeps the budget, by the rule of `softq check --max-drop`.

        With its loss, whether these samples show it; without, whether the value does.
        """
        metric, difference = self.metric, value.value - self.reference
        result = MetricResult(
            metric.name, metric.unit, metric.direction, self.reference, value.value, difference, NanCounts(),
            self._interval(loss, samples),
        )  # fmt: skip
        gate = judge([result], self.allowance, None)
        assert gate is not None
        over = self.excess(value)
        return gate if gate.passed or not 0 < over < math.inf else Gate(False, f"{gate.sentence}: {over:.4g} too much")

    def _interval(self, loss: Estimate | None, samples: int) -> PairedInterval | None:
        if loss is None or loss.low is None or loss.high is None:
            return None
        sign = 1.0 if self.metric.direction == "lower" else -1.0
        of, base = ("ratio", 1.0) if self.metric.interval_of == "ratio" else ("difference", 0.0)
        low, high = sorted(base + sign * end for end in (loss.low, loss.high))
        return PairedInterval(of, base + sign * loss.value, low, high, samples, loss.flips)

    def judge_measured(self, found: Outcome | Measurement) -> Gate:
        """Return whether what was measured shows that the budget is kept."""
        return self.judge(found.metric, found.loss, found.samples)

    def excess(self, value: Estimate) -> float:
        """Return by how much a value loses more than is allowed, in the metric's unit; NaN is infinitely too much."""
        sign = 1.0 if self.metric.direction == "lower" else -1.0
        over = sign * (value.value - self.reference) - self.amount
        return math.inf if math.isnan(over) else over


def judge_all(budget: Budget, outcomes: Sequence[Outcome]) -> Gate:
    """Return whether any setting keeps the budget, with the sentence on the best of them."""
    kept = [outcome for outcome in outcomes if budget.judge_measured(outcome).passed]
    best = min(kept or outcomes, key=lambda outcome: budget.excess(outcome.metric))
    if len(outcomes) == 1 or not kept:
        gate, many = budget.judge_measured(best), len(outcomes)
        none = f"none of the {many} settings is shown to keep the budget; the best, " if many > 1 else ""
        return Gate(gate.passed, f"{none}{describe(best.setting)}: {gate.sentence}")
    return Gate(
        True,
        f"{len(kept)} of {len(outcomes)} settings are shown to keep the budget; the best, {describe(best.setting)}:"
        f" {budget.judge_measured(best).sentence}",
    )
