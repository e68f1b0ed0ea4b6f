"""What a metric is: a frozen description that starts a meter, which takes batches of outputs and gives numbers.

To add a metric, put a file into this folder that exposes `METRIC`, named as the file is (`top1_accuracy.py` holds
`top1-accuracy`). Three classes in `kinds` serve:

* `PairedMetric` compares the candidate's output with the reference's and has one value;
* `AloneMetric` scores each model by itself, against labels as a rule, and has a value for each model;
* `HeldMetric` also scores each model by itself, but needs the outputs of all samples at once. It keeps them in memory.

The first two give, for each sample, a total and a weight, and reduce all of these to one number; so thousands of
samples cost two numbers each, and intervals over samples come for free.

NaN: one in the candidate where the reference has a number makes the candidate's value NaN, whatever the metric, and no
gate passes a NaN. Where the reference is NaN there is nothing to compare with: paired metrics leave that element (or
row) out, and the report counts it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from softq.metrics.base.meter import Direction, IntervalOf, Meter


@dataclass(frozen=True)
class Metric(ABC):
    """A figure of merit.

    Attributes:
        name: The name that users type.
        direction: Whether a higher or a lower value is better.
        unit: What the value counts.
        summary: One line on what it says.
        needs_labels: Whether it needs a label.
        distance: The paired metric that shows how far an output moved long before this one does; its mean grows as the
            square of a small error.
    """

    name: str
    direction: Direction
    unit: str
    summary: str
    needs_labels: bool
    distance: str = field(default="relative-error", kw_only=True)

    @property
    def paired(self) -> bool:
        """Whether the one value compares the candidate with the reference."""
        return False

    @property
    def interval_of(self) -> IntervalOf | None:
        """What a confidence interval over the samples is about, or None if there is none."""
        return None

    @abstractmethod
    def start(self, output: str, label: str | None, folder: Path | None = None) -> Meter:
        """Return an empty meter for the output and the label of these names; see `Meter` for the folder."""
