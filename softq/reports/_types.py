"""The report of a comparison: one type for model against model and for artifact against model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from softq.json_values import to_plain
from softq.metrics import Direction, Evidence, Flips, Interval, NanCounts, PairedSamples
from softq.timing import TimeRatio


@dataclass(frozen=True)
class PairedInterval:
    """A 95 % interval over the samples, and what it is `of`: the values' `difference`, their `ratio`, the `value`.

    Attributes:
        of: What it is of.
        estimate: The value.
        low: The lower end.
        high: The upper end.
        samples: How many samples it rests on.
        flips: Those that are right under one model alone, where the values are their shares.
    """

    of: str
    estimate: float
    low: float
    high: float
    samples: int = 0
    flips: Flips | None = None

    @classmethod
    def about(cls, of: str, interval: Interval, samples: int, flips: Flips | None) -> PairedInterval:
        """Return `interval` with its subject."""
        return cls(of, interval.estimate, interval.low, interval.high, samples, flips)

    def evidence(self, direction: Direction, reference: float) -> Evidence | None:
        """Return how much worse the candidate is, in the unit of the values; None for one of a value alone."""
        sign, scale, base = (1.0 if direction == "lower" else -1.0), 1.0, 0.0
        if self.of == "ratio":
            scale, base = abs(reference), 1.0
        elif self.of != "difference":
            return None
        ends = [sign * (end - base) * scale for end in (self.low, self.high)]
        flips = self.flips if sign < 0 or self.flips is None else Flips(self.flips.gained, self.flips.lost)
        return Evidence(sign * (self.estimate - base) * scale, max(ends), self.samples, flips)


@dataclass(frozen=True)
class MetricResult:
    """One metric's values.

    Attributes:
        name: The metric.
        unit: What the values count.
        direction: Whether a higher or a lower value is better.
        reference: The reference's value; None if the metric compares the two models.
        candidate: The candidate's value, or the value of the comparison.
        difference: Candidate minus reference; None if there is no value of the reference.
        nan: NaN counts of the outputs that the metric saw.
        interval: The 95 % interval over samples, where that means something and there are at least two.
        samples: What each sample added, where that means something.
    """

    name: str
    unit: str
    direction: Direction
    reference: float | None
    candidate: float
    difference: float | None
    nan: NanCounts
    interval: PairedInterval | None = None
    samples: PairedSamples | None = None


@dataclass(frozen=True)
class Gate:
    """Whether the candidate is good enough, and the sentence that says why."""

    passed: bool
    sentence: str


@dataclass(frozen=True)
class Report:
    """What a comparison found.

    Attributes:
        reference: The reference's name as the caller gave it.
        candidate: The candidate's name as the caller gave it.
        data: The data's name as the caller gave it.
        output: The output that was compared.
        labels: The label that was used, or None.
        count: Number of samples.
        batch: Samples that ran at a time.
        metrics: The results, the gated one first.
        gate: None if no gate was asked for and no NaN appeared.
        versions: Versions of what computed the values.
        hashes: Hashes of graphs and data, filled in by whoever has them.
        schema: Version of this form.
        time_ratio: The candidate's time over the reference's on the first batch, if they were timed.
    """

    reference: str
    candidate: str
    data: str
    output: str
    labels: str | None
    count: int
    batch: int
    metrics: tuple[MetricResult, ...]
    gate: Gate | None
    versions: Mapping[str, str]
    hashes: Mapping[str, str] = field(default_factory=dict[str, str])
    schema: int = 1
    time_ratio: TimeRatio | None = None

    @property
    def passed(self) -> bool:
        """Whether no gate failed."""
        return self.gate is None or self.gate.passed

    def to_json(self, *, samples: bool = False) -> dict[str, object]:
        """Return plain values that `json` can write; `samples` adds what each sample contributed.

        JSON has no NaN and no infinities: they are the texts `NaN`, `Infinity` and `-Infinity`.
        """
        found = {
            "schema": self.schema,
            "reference": self.reference,
            "candidate": self.candidate,
            "hashes": dict(sorted(self.hashes.items())),
            "data": self.data,
            "output": self.output,
            "labels": self.labels,
            "samples": self.count,
            "batch": self.batch,
            "versions": dict(sorted(self.versions.items())),
            "metrics": [_metric(result, samples=samples) for result in self.metrics],
            "gate": None if self.gate is None else asdict(self.gate),
            "time_ratio": None if self.time_ratio is None else asdict(self.time_ratio),
        }
        return {name: to_plain(value) for name, value in found.items()}


def _metric(result: MetricResult, *, samples: bool) -> dict[str, object]:
    found = asdict(replace(result, samples=None))
    del found["samples"]
    if result.interval is not None:
        found["interval"] = {"of": result.interval.of, "level": 0.95} | found["interval"]
    if samples and result.samples is not None:
        found["per_sample"] = {
            name: None if values is None else values.tolist() for name, values in vars(result.samples).items()
        }
    return found
