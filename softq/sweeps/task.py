"""What a sweep, a sensitivity analysis and a search for a plan are asked for in common."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict, Unpack

from softq.calibration import Sampling
from softq.data import DataSource
from softq.errors import UsageError
from softq.nearest import nearest
from softq.plans import check_names
from softq.runner import Runner
from softq.sweeps.built import check_built
from softq.sweeps.costs import parse_cost
from softq.sweeps.evaluate.evaluator import Subject, open_subject
from softq.sweeps.evaluate.framework import ModelSource, Opened
from softq.sweeps.frameworks import FRAMEWORKS
from softq.sweeps.planner import Selection


@dataclass(frozen=True)
class Tls:
    """PEM files with which this side of a cluster proves who it is, and by which it knows the other.

    Attributes:
        ca_file: Certificates of those whose certificates are trusted.
        cert: This side's certificate.
        key: Its private key, without a passphrase.
    """

    ca_file: str
    cert: str
    key: str


class TaskOptions(TypedDict, total=False):
    """What a study may be told beside its model, its data and its metric; see `make_task`.

    Attributes:
        calibration: Data for options that are fitted.
        sampling: How many rows of them are fitted on, and how they are drawn.
        samples: How many, from the first; all if None.
        limit: What `samples` was called; it goes with a later release.
        sites, all_sites, masks, allow_float32, allow_substitute, max_length: As in `softq.convert`.
        labels, output: As in `softq.check`.
        batch: Samples per run, of the evaluation and of the calibration.
        threads: Threads of the runtime; all cores if None.
        workers: How many processes measure, each with so many threads; more than one need `softq[cluster]`. The
            values are those of one process to the bit, and in the same order.
        scheduler: The address of a dask scheduler whose workers measure instead; see `softq.sweeps.distributed`.
        timeout: Seconds after which a worker that gives no answer is reported and another one measures; by default ten
            times the longest so far, a minute at least.
        tls: The files with which the processes of a cluster know one another; dask's own configuration if None.
        framework: What the model is of: `onnx`, or `torch` for a module (`softq.sweeps.frameworks`).
        time: Time each setting beside the float model, too, by turns on the first batch, with its file as `convert`
            writes it; not with other processes, which take the cores.
        time_on: Targets that each setting is built for and timed there, too, `TARGET[,KEY=VALUE...]` each
            (`softq.sweeps.built`); then `time` is meant, too.
        cost: A target whose costs are told of each setting, `TARGET[,KEY=VALUE...]` (`softq.sweeps.costs`).
        command: What reproduces the study, for its record.
    """

    calibration: DataSource | None
    sampling: Sampling | None
    samples: int | None
    limit: int | None
    sites: Sequence[str]
    all_sites: bool
    masks: Sequence[str]
    allow_float32: bool
    allow_substitute: bool
    max_length: int | None
    labels: str | None
    output: str | None
    batch: int | None
    threads: int | None
    workers: int
    scheduler: str | None
    timeout: float | None
    tls: Tls | None
    framework: str
    time: bool
    time_on: Sequence[str]
    cost: str | None
    command: str


@dataclass(frozen=True)
class Task:
    """What a sweep is asked for: a model, data, a metric, and what their values depend on.

    Attributes:
        model: A path, a name or a model, as the framework has it.
        data: See `softq.data.open_data`.
        metric: Name of the metric.
        selection: Which sites take a method.
        calibration: Data for options that are fitted, or None.
        samples: How many, from the first; None for all.
        labels: As in `softq.compare.check`.
        output: As in `softq.compare.check`.
        threads: Threads of the runtime; all cores if None.
        command: What reproduces the sweep, for the study.
        workers: How many processes measure, each with so many threads; more than one need `softq[cluster]`.
        scheduler: Address of a dask scheduler whose workers measure, or None.
        timeout: Seconds after which a worker that gives no answer hangs; None to judge by the longest answer so far.
        sampling: Which rows of the calibration data are fitted on.
        tls: How the processes of a cluster know one another; None for dask's own configuration, or no proof at all.
        framework: What the model is of: see `softq.sweeps.frameworks`.
        time: Whether candidates are timed, too.
        time_on: Targets that candidates are built for and timed there, with their options.
        cost: The target whose costs are told, with its options; None for none.
    """

    model: ModelSource
    data: DataSource
    metric: str
    selection: Selection
    calibration: DataSource | None = None
    samples: int | None = None
    labels: str | None = None
    output: str | None = None
    threads: int | None = None
    command: str = ""
    workers: int = 1
    scheduler: str | None = None
    timeout: float | None = None
    sampling: Sampling = field(default_factory=Sampling)
    tls: Tls | None = None
    framework: str = "onnx"
    time: bool = False
    time_on: tuple[str, ...] = ()
    cost: str | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return os.fspath(self.model) if isinstance(self.model, (str, os.PathLike)) else "<model>"

    @property
    def distributed(self) -> bool:
        """Whether other processes than this one measure."""
        return self.workers > 1 or self.scheduler is not None

    def open(self) -> Opened:
        """Return the model as its framework opens it.

        Raises:
            UsageError: there is no such framework, or it is not installed.
            SoftqError: the model cannot be opened.
        """
        data = [self.data] if self.calibration is None else [self.data, self.calibration]
        return FRAMEWORKS.open(self.framework).open(self.model, data, self.selection.batch, self.threads)

    def subject(self, runner: Runner, part: tuple[int, int | None] | None = None) -> Subject:
        """Return what is measured with, on some of the samples: the first, as many as are asked for, if not said.

        Raises:
            UsageError: fewer than one sample are asked for, or an option makes no sense.
        """
        if self.samples is not None and self.samples < 1:
            raise UsageError(f"samples is {self.samples}; it must be at least 1")
        return open_subject(
            runner, self.data, self.metric, labels=self.labels, output=self.output, batch=self.selection.batch,
            part=part or (0, self.samples),
        )  # fmt: skip


def make_task(model: ModelSource, data: DataSource, metric: str, **options: Unpack[TaskOptions]) -> Task:
    """Return what a study is asked for.

    Args:
        model: A path, a name or a model, as the framework has it.
        data: See `softq.data.open_data`.
        metric: Name of the metric.
        **options: See `TaskOptions`.

    Raises:
        UsageError: the target of `cost` is unknown, or says none before a build; or one of `time_on` is unknown, does
            not run here, or cannot be built; or there is no option of a name; or `limit` is given beside `samples`,
            whose former name it is.
    """
    for name in options:
        if name not in TaskOptions.__annotations__:
            near = ", ".join(nearest(name, TaskOptions.__annotations__))
            raise UsageError(f"no option is called {name!r}" + (f"; nearest: {near}" if near else ""))
    # None is how a caller says that he has none.
    given: dict[str, Any] = {name: value for name, value in options.items() if (name, value) != ("sampling", None)}
    if "limit" in given:
        if "samples" in given:
            raise UsageError("samples and limit are the same; limit is the name it had")
        warnings.warn("limit is samples now: how many samples, from the first", DeprecationWarning, stacklevel=3)
        given["samples"] = given.pop("limit")
    chosen: dict[str, Any] = {field.name: given.pop(field.name) for field in fields(Selection) if field.name in given}
    for name in {"sites", "masks"} & set(chosen):
        check_names(name, chosen[name])
        chosen[name] = tuple(chosen[name])
    if (cost := given.get("cost")) is not None:
        parse_cost(cost)  # Refused before a folder is made.
    if targets := given.get("time_on"):
        check_names("time_on", targets)
        check_built(targets)
        given |= {"time": True, "time_on": tuple(targets)}
    return Task(model, data, metric, Selection(**chosen), **given)
