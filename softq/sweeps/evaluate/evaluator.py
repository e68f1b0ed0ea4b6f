"""What a sweep measures with: one data set, one metric, the float model run once, then the candidates."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from softq.data import LABEL, Array, Batch, Dataset, DataSource, open_data
from softq.errors import ProofError, RefusalError, UsageError
from softq.io_binding import batch_size, check_labels, common_output, label_of, labels_of
from softq.io_binding import run_batch as run_samples
from softq.metrics import Meter, Metric, Part, find_metric
from softq.plans import Plan
from softq.runner import Runner
from softq.sweeps.eta import Eta
from softq.sweeps.evaluate.framework import Sessions
from softq.sweeps.evaluate.intervals import estimate_candidate, estimate_reference
from softq.sweeps.records import Estimate
from softq.wording import counted

Report = Callable[[int], None]
"""Called with the number of samples done."""

Refused = RefusalError | ProofError
"""Why a candidate cannot be measured."""


@dataclass(frozen=True)
class Measurement:
    """What a candidate measured: value, loss, samples, and seconds of the run."""

    metric: Estimate
    loss: Estimate
    samples: int
    seconds: float


@dataclass(frozen=True)
class Subject:
    """What is measured with: a metric of an output and a label over the samples of a data set, in batches.

    Attributes:
        metric: The metric.
        output: The output that it looks at.
        names: The outputs that are computed.
        label: The label, or None.
        data: The samples.
        batch: Samples per run.
        part: Which samples of the source these are: the first, and the one behind the last.
    """

    metric: Metric
    output: str
    names: tuple[str, ...]
    label: str | None
    data: Dataset
    batch: int
    part: tuple[int, int | None]

    def start(self, folder: Path) -> Meter:
        """Return an empty meter; what it must keep of the float model's outputs lies in the folder."""
        return self.metric.start(self.output, self.label, folder)

    def hash(self) -> str:
        """Return the SHA-256 over names, types, shapes and values of the samples, whatever the batches and files."""
        return data_hash(self.data, self.batch)


def data_hash(data: Dataset, batch: int | None = None) -> str:
    """Return the SHA-256 over names, types, shapes and values of all samples, whatever the batches and files."""
    digests: dict[str, hashlib._Hash] = {}  # pyright: ignore[reportPrivateUsage]
    for part in data.batches(batch):
        arrays = {name: part.each(name) for name in part.inputs}
        for name, samples in [*arrays.items(), *((LABEL + name, array) for name, array in part.labels.items())]:
            digest = digests.setdefault(name, hashlib.sha256())
            for sample in samples:  # shapes may differ from file to file, and where a file ends says nothing
                digest.update(f"{sample.dtype.str}{sample.shape}".encode())
                digest.update(np.ascontiguousarray(sample).tobytes())
    whole = hashlib.sha256()
    for name in sorted(digests):
        whole.update(f"{name}\0{digests[name].hexdigest()}\0".encode())
    return whole.hexdigest()


def open_subject(
    runner: Runner,
    data: DataSource,
    metric: str,
    *,
    labels: str | None = None,
    output: str | None = None,
    batch: int | None = None,
    part: tuple[int, int | None] = (0, None),
) -> Subject:
    """Return what a model is to be measured with; batches are those of `softq.compare.check` on the same samples.

    Args:
        runner: The float model.
        data: See `softq.data.open_data`.
        metric: Name of the metric.
        labels, output, batch: As in `check`.
        part: First sample, and the one behind the last (None for all that are left).

    Raises:
        InputError: the data cannot be used, or have no sample there.
        UsageError: an argument makes no sense.
    """
    chosen = find_metric(metric)
    spec = common_output(runner, runner, output)
    whole = open_data(data, runner.inputs, runner.outputs)
    if whole.samples is not None and part[0] >= whole.samples:
        raise UsageError(
            f"{whole.source}: has {counted(whole.samples, 'sample')}; there is none from number {part[0]} on"
        )
    cut = whole if part == (0, None) else whole.between(*part)
    label = label_of(cut, labels)
    check_labels([chosen], cut, label)
    several = output is None and ":" in metric
    names = tuple(one.name for one in runner.outputs) if several else (spec.name,)
    return Subject(chosen, spec.name, names, label, cut, batch_size(cut, spec, batch), part)


def run_batch(runner: Runner, subject: Subject, part: Batch) -> tuple[Mapping[str, Array], dict[str, Array]]:
    """Return a model's outputs for a batch, and the labels; a label may be a model input."""
    return run_samples(runner, part, subject.names, subject.batch), labels_of(part, subject.label)


@dataclass(frozen=True, eq=False)
class Form:
    """A model that no plan makes; `open` gives what runs it."""

    open: Callable[[], Runner]


@dataclass(frozen=True)
class Candidate:
    """Something to measure.

    Attributes:
        kind: Candidates of one kind cost about the same time.
        title: What a message calls it.
        plan: Its plan, or its model if no plan makes that, or why there is none.
    """

    kind: str
    title: str
    plan: Plan | Form | Refused


class Evaluator(Protocol):
    """Measures candidates against a float model that was run once.

    Attributes:
        subject: What is measured with.
        reference: The float model's value.
        samples: Number of samples.
        seconds: Of the float model's run.
        pieces: Pieces of work per candidate.
    """

    subject: Subject
    reference: Estimate
    samples: int
    seconds: float
    pieces: int

    def measure(self, plan: Plan) -> Measurement:
        """Return what the outputs of the model that a plan makes give on the same samples.

        Raises:
            SoftqError: as in `softq.conversion.convert`.
            InputError: the framework cannot load or run it, or its outputs do not fit; or no worker can be used.
        """
        ...

    def measure_each(self, candidates: Iterable[Candidate], eta: Eta) -> Iterator[tuple[int, Measurement | Refused]]:
        """Yield the number of each candidate with what it gives, or why it cannot be measured, in their order."""
        ...


class LocalEvaluator:
    """Measures in this process; see `Evaluator`.

    Args:
        runner: The float model.
        subject: What to measure with.
        folder: Where the float model's outputs can lie, if they are needed again.
        sessions: Runs the candidates.
        report: Called with the number of samples done of the float model.
    """

    pieces = 1

    def __init__(
        self,
        runner: Runner,
        subject: Subject,
        folder: Path,
        sessions: Sessions,
        report: Report | None = None,
    ) -> None:
        self.subject, self._sessions = subject, sessions
        self._meter = subject.start(folder)
        self.samples, self.seconds = self._pass(runner, self._meter.look, self._meter.add_reference, report)
        self.reference = estimate_reference(self._meter)

    def measure(self, plan: Plan | Form, report: Report | None = None) -> Measurement:
        """Return what a candidate's model gives; `report` is called with the number of samples done."""
        runner = plan.open() if isinstance(plan, Form) else self._sessions.runner(plan)
        self._meter.begin()
        samples, seconds = self._pass(runner, self._meter.compare, self._meter.add, report)
        return Measurement(*estimate_candidate(self._meter), samples, seconds)

    def measure_each(self, candidates: Iterable[Candidate], eta: Eta) -> Iterator[tuple[int, Measurement | Refused]]:
        """Yield what each candidate gives; see `Evaluator`."""
        eta.begin()
        for number, one in enumerate(candidates):
            found = one.plan
            if isinstance(found, Plan | Form):
                try:
                    found = self.measure(found, lambda n: eta.part(n / self.samples))
                except (RefusalError, ProofError) as error:
                    found = error
            eta.done(one.kind)
            yield number, found
            eta.begin()

    def _pass(
        self, runner: Runner, look: Callable[..., Part], add: Callable[[Part], None], report: Report | None
    ) -> tuple[int, float]:
        subject, done, start = self.subject, 0, time.perf_counter()
        for number, part in enumerate(subject.data.batches(subject.batch)):
            add(look(number, *run_batch(runner, subject, part)))
            done += part.samples
            if report is not None:
                report(done)
        return done, time.perf_counter() - start
