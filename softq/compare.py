"""Running two models on the same data, and the report of what that shows.

Models of every kind are compared by the same code: it needs their inputs, outputs and a call (`softq.runner.Runner`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from softq.data import DataSource, TensorSpec, open_data
from softq.errors import UsageError
from softq.io_binding import (
    batch_size,
    check_labels,
    common_inputs,
    common_output,
    label_of,
    labels_of,
    run_batch,
    spec_of_label,
    with_sample_axis,
)
from softq.metrics import Measured, Metric, PerSample, change_interval, count_flips, find_metric, value_interval
from softq.reports import MetricResult, PairedInterval, Report, check_gate, judge
from softq.runner import OnnxRunner, Runner, name_of_model
from softq.timing import compare_times

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from softq.input_shapes import InputShapes

Model: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | ir.Model | Runner"


def check(
    reference: Model,
    candidate: Model,
    data: DataSource,
    *,
    metrics: str | Sequence[str] = (),
    labels: str | None = None,
    output: str | None = None,
    batch: int | None = None,
    max_drop: str | float | None = None,
    limit: float | None = None,
    threads: int | None = None,
    input_shapes: InputShapes | None = None,
    time: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> Report:
    """Return the report on how far `candidate` is from `reference` on `data`.

    The gate applies to the first metric. A NaN in the candidate where the reference has a number fails always, even
    without a gate.

    Args:
        reference: A path, an `onnx.ModelProto`, an `onnx_ir.Model` or a `Runner`.
        candidate: The same; its inputs and the compared output must agree with the reference's.
        data: See `softq.data`.
        metrics: Names of metrics, or `package.module:function`; a text is one name. By default, those that the data
            allow: with integer labels and an output [N, C], top1-accuracy and top1-agreement; with token ids and an
            output [N, T, V], perplexity, top1-agreement and kl; with real labels, spearman and cosine; always
            relative-error and max-error after these; without labels top1-agreement (for [N, C]) and cosine before
            them; and changed-choices for each output of integers or booleans.
        labels: The label to use, or the name of a model input (token ids); by default the data's only label.
        output: The output to compare; by default the first one of floats.
        batch: Samples to run at a time; by default what the model prescribes, else as many of 32 as keep the output
            below 64 MiB.
        max_drop: The gate: worse than the reference by at most so much in the metric's unit, or `X%` of its value. Of a
            metric that compares the two, the reference's value is that of the reference compared with itself.
        limit: The gate: a value of at least (at most, if lower is better) so much.
        threads: Threads of onnxruntime; all cores by default.
        input_shapes: For an input's name its lengths (None for an axis that stays open), or lengths by the names that
            the reference gives its axes; for both models, as far as they are ONNX models.
        time: Time both on the first batch, too; see `softq.timing`.
        progress: Called with the number of samples done and of all samples (None if unknown).

    Raises:
        InputError: a model or the data cannot be used, or they do not fit each other.
        UsageError: an argument makes no sense.
    """
    chosen = _find(metrics)
    if chosen:
        check_gate(chosen[0], max_drop, limit)
    ours, theirs = _open([reference, candidate], input_shapes, threads, spin=not time)
    inputs = common_inputs(ours, theirs)
    return _compare((ours, theirs), data, inputs, chosen, labels, output, batch, max_drop, limit, time, progress)


def score(
    model: Model,
    data: DataSource,
    *,
    metrics: str | Sequence[str] = (),
    labels: str | None = None,
    output: str | None = None,
    batch: int | None = None,
    limit: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Report:
    """Return the report on one model alone: its metrics against the labels in `data`, which stand as the reference.

    Args:
        model: A path, an `onnx.ModelProto`, an `onnx_ir.Model` or a `Runner`.
        data: See `softq.data`.
        metrics: Names of metrics that score a model by itself; by default those of `check` that do.
        labels, output, batch, progress: As in `check`.
        limit: The gate: a value of the first metric of at least (at most, if lower is better) so much.
        threads: Threads of onnxruntime; all cores by default.

    Raises:
        InputError: the model or the data cannot be used, or they do not fit each other.
        UsageError: an argument makes no sense, or no metric is left without another model.
    """
    chosen = _find(metrics)
    for metric in chosen:
        if metric.paired:
            raise UsageError(f"metric {metric.name} compares two models; without a reference there is only one")
    runner = model if isinstance(model, Runner) else OnnxRunner.open(model, threads=threads)
    return _compare((runner,), data, runner.inputs, chosen, labels, output, batch, None, limit, False, progress)


def _open(
    models: Sequence[Model], shapes: InputShapes | None, threads: int | None, *, spin: bool
) -> tuple[Runner, ...]:
    """Return a runner of each model, under the name that the caller gave it; runners stay as they are."""
    names = [model.name if isinstance(model, Runner) else name_of_model(model) for model in models]
    return tuple(
        model if isinstance(model, Runner) else OnnxRunner.open(model, threads=threads, spin=spin, name=name)
        for name, model in zip(names, _fixed(models, shapes), strict=True)
    )


def _fixed(models: Sequence[Model], shapes: InputShapes | None) -> Sequence[Model]:
    """Return the models with inputs of these shapes; runners stay as they are."""
    if not shapes:
        return models
    from softq.input_shapes import fix_input_shapes, resolve
    from softq.modelfile import as_model

    copies = [model if isinstance(model, Runner) else as_model(model) for model in models]
    for number, copy in enumerate(c for c in copies if not isinstance(c, Runner)):
        if number == 0:
            shapes = resolve(copy, shapes)
        else:
            fix_input_shapes(copy, shapes)
    return copies


def _find(metrics: str | Sequence[str]) -> list[Metric]:
    metrics = [metrics] if isinstance(metrics, str) else metrics
    chosen = [find_metric(name) for name in metrics]
    if len({metric.name for metric in chosen}) < len(chosen):
        raise UsageError(f"metrics {', '.join(metrics)}: one is named twice")
    return chosen


def _compare(
    runners: Sequence[Runner],
    data: DataSource,
    inputs: Sequence[TensorSpec],
    chosen: Sequence[Metric],
    labels: str | None,
    output: str | None,
    batch: int | None,
    max_drop: str | float | None,
    limit: float | None,
    time: bool,
    progress: Callable[[int, int | None], None] | None,
) -> Report:
    """Return the report on the last of one or two models; where there is one, the labels stand as the reference."""
    ours, theirs, alone = runners[0], runners[-1], len(runners) == 1
    spec = common_output(ours, theirs, output)
    dataset = open_data(data, inputs, ours.outputs)
    label = label_of(dataset, labels)
    size = batch_size(dataset, spec, batch)
    choices: dict[str, str] = {}
    if not chosen:
        choices = {} if alone or output else _find_choices(ours, theirs, spec)
        shown = with_sample_axis(spec, size)
        defaults = map(find_metric, _defaults(shown, None if label is None else spec_of_label(dataset, label)))
        chosen = [metric for metric in defaults if not (alone and metric.paired)]
        chosen += [replace(find_metric("changed-choices"), name=name) for name in choices]
    if not chosen:
        raise UsageError(
            f"{dataset.source}: has no labels that a metric of one model fits; name one with its labels, or give a"
            " reference to compare with"
        )
    drop = check_gate(chosen[0], max_drop, limit)
    check_labels(chosen, dataset, label)
    # A user's metric sees every output unless one was asked for; the built-in ones only the chosen.
    names = [spec.name]
    if output is None and any(":" in metric.name for metric in chosen):
        names = [s.name if alone else common_output(ours, theirs, s.name).name for s in ours.outputs]
    names += choices.values()
    meters = [metric.start(choices.get(metric.name, spec.name), label) for metric in chosen]
    # What a paired metric has lost is counted from the reference compared with itself.
    itself = chosen[0].start(spec.name, label) if drop is not None and chosen[0].paired else None
    done, times = 0, None
    for part in dataset.batches(size):
        if time and times is None:
            runs = [partial(run_batch, runner, part, names, size) for runner in runners]
            times = compare_times(runs[0], runs[-1])
        results = [run_batch(runner, part, names, size) for runner in runners]
        for meter in meters:
            meter.update(results[0], results[-1], labels_of(part, label))
        if itself is not None:
            itself.update(results[0], results[0], labels_of(part, label))
        done += part.samples
        if progress is not None:
            progress(done, dataset.samples)
    measured = [meter.result() for meter in meters]
    found = tuple(_result(metric, one) for metric, one in zip(chosen, measured, strict=True))
    judged = found if itself is None else (_change(chosen[0], itself.result(), measured[0], found[0]), *found[1:])
    if alone:
        found = tuple(replace(one, reference=None, difference=None, interval=None, samples=None) for one in found)
    return Report(
        reference="labels" if alone else ours.name,
        candidate=theirs.name,
        data=dataset.source,
        output=spec.name,
        labels=label,
        count=done,
        batch=size,
        metrics=found,
        gate=judge(judged, drop, limit),
        versions=versions(),
        time_ratio=times,
    )


def _find_choices(ours: Runner, theirs: Runner, output: TensorSpec) -> dict[str, str]:
    """Return other outputs of indices or flags that have as many samples as the output, by the names of metrics."""
    first, shared = output.shape and output.shape[0], {spec.name for spec in theirs.outputs} - {output.name}
    chosen = [s for s in ours.outputs if s.name in shared and s.dtype.startswith(("int", "uint", "bool"))]
    return {f"changed-choices of {s.name}": s.name for s in chosen if first and s.shape and s.shape[0] == first}


def _defaults(output: TensorSpec, label: TensorSpec | None) -> list[str]:
    rank = None if output.shape is None else len(output.shape)
    if "float" not in output.dtype:
        return ["relative-error", "max-error", "changed-choices"]
    integer = label is not None and "int" in label.dtype
    label_rank = None if label is None or label.shape is None else len(label.shape)
    if rank == 2 and integer and label_rank == 1:
        chosen = ["top1-accuracy", "top1-agreement"]
    elif rank == 3 and integer and label_rank == 2:
        chosen = ["perplexity", "top1-agreement", "kl"]
    elif rank == 2 and label is not None and "float" in label.dtype and label_rank == 2:
        chosen = ["spearman", "cosine"]
    else:
        classes = rank == 2 and output.shape is not None and output.shape[1] != 1
        chosen = ["top1-agreement", "cosine"] if classes else ["cosine"]
    return [*chosen, "relative-error", "max-error"]


def _result(metric: Metric, measured: Measured) -> MetricResult:
    difference = None if measured.reference is None else measured.candidate - measured.reference
    return MetricResult(
        name=metric.name,
        unit=metric.unit,
        direction=metric.direction,
        reference=measured.reference,
        candidate=measured.candidate,
        difference=difference,
        nan=measured.nan,
        interval=_interval(metric, measured),
        samples=measured.samples,
    )


def _change(metric: Metric, itself: Measured, measured: Measured, result: MetricResult) -> MetricResult:
    """Return the result of a paired metric as a change from the value of the reference compared with itself."""
    base, interval = itself.candidate, result.interval
    if interval is not None and metric.kind is not None and itself.samples is not None and measured.samples is not None:
        ours, theirs = (PerSample(one.candidate, one.weight) for one in (itself.samples, measured.samples))
        interval = PairedInterval(
            "difference", interval.estimate - base, interval.low - base, interval.high - base, interval.samples,
            count_flips(metric.kind, ours, theirs),
        )  # fmt: skip
    return replace(result, reference=base, difference=result.candidate - base, interval=interval)


def _interval(metric: Metric, measured: Measured) -> PairedInterval | None:
    samples, subject, kind = measured.samples, metric.interval_of, metric.kind
    if samples is None or subject is None or kind is None or measured.nan.candidate_only:
        return None
    candidate, flips = PerSample(samples.candidate, samples.weight), None
    if samples.reference is None:
        interval = value_interval(kind, metric.bounds, candidate)
    else:
        reference = PerSample(samples.reference, samples.weight)
        interval = change_interval(kind, metric.bounds, reference, candidate)
        flips = count_flips(kind, reference, candidate)
    if interval is None:
        return None
    return PairedInterval.about(subject, interval, int(np.count_nonzero(samples.weight)), flips)


def versions(more: Sequence[str] = ()) -> dict[str, str]:
    """Return the versions of the packages that the values depend on, and of more of them, by name."""
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str] = {}
    for package in ("softq", "numpy", "onnx", "onnxruntime", *more):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            # A checkout that was never installed still runs.
            versions[package] = "unknown"
    return versions
