"""Running two models on the same data, and the report of what that shows.

A model is anything that satisfies `Runner`; `OnnxRunner` makes one of an ONNX model. Built artifacts are compared by
the same code once they offer the same three things: inputs, outputs and a call.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np

from softq.data import DEFAULT_BATCH, Array, Dataset, DataSource, TensorSpec, open_data
from softq.errors import InputError, UsageError
from softq.metrics import Measured, Metric, find_metric, mean_interval, paired_ratio_interval
from softq.report import MetricResult, PairedInterval, Report, check_gate, judge

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    import onnxruntime as ort

# Logits of a language model: 32 samples of 512 tokens and 49,152 words are 3.2 GB, twice. The default batch keeps the
# compared output below this; metrics then need about as much again in float64.
_OUTPUT_BYTES = 64 << 20

# A protobuf message ends at 2 GiB; the rest is for the graph itself.
_SERIAL_BYTES = (2 << 30) - (64 << 20)

_MOST_THREADS = 1024

# onnxruntime's names for element types, where NumPy's is another.
_DTYPES = {"float": "float32", "double": "float64", "string": "str"}


@runtime_checkable
class Runner(Protocol):
    """A model that can be run: a name for the report, its inputs and outputs, and a call."""

    @property
    def name(self) -> str:
        """What the report calls it."""
        ...

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What it takes."""
        ...

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What it can give."""
        ...

    def __call__(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> Mapping[str, Array]:
        """Return the named outputs, or all, for one batch."""
        ...


class _Options(Protocol):
    """What is used of onnxruntime's `SessionOptions`, which has no types."""

    def add_session_config_entry(self, config_key: str, config_value: str, /) -> None: ...


class _Node(Protocol):
    """What is used of onnxruntime's `NodeArg`, which has no types."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def shape(self) -> Sequence[object]: ...


Model: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | ir.Model | Runner"


@dataclass(frozen=True)
class OnnxRunner:
    """An ONNX model in onnxruntime on the CPU; made by `OnnxRunner.open`."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    session: ort.InferenceSession

    @classmethod
    def open(
        cls, model: str | os.PathLike[str] | onnx.ModelProto | ir.Model, *, threads: int | None = None
    ) -> OnnxRunner:
        """Return a runner of a model; `threads` is the number of threads, all cores by default.

        A path is given to onnxruntime as it is, so weights beside the model are mapped, not copied.

        Raises:
            InputError: the model cannot be loaded, or takes something other than tensors.
            UsageError: `threads` is below 1.
        """
        import onnxruntime as ort

        if threads is not None and not 1 <= threads <= _MOST_THREADS:
            raise UsageError(f"threads is {threads}; allowed is 1 to {_MOST_THREADS}")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = 4  # What fails is raised; nothing is printed.
        name = _name(model)
        with tempfile.TemporaryDirectory() as folder:
            source = _source(model, name, options, Path(folder))
            try:
                session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
            except Exception as error:
                raise InputError(f"{name}: onnxruntime cannot load it: {_line(error)}") from error
        inputs = tuple(_spec(name, node) for node in session.get_inputs())
        outputs = tuple(_spec(name, node) for node in session.get_outputs() if node.type.startswith("tensor("))
        return cls(name, inputs, outputs, session)

    def __call__(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> Mapping[str, Array]:
        """Return the named outputs, or all, for one batch.

        Raises:
            InputError: onnxruntime fails.
        """
        names = [spec.name for spec in self.outputs] if outputs is None else list(outputs)
        try:
            values = self.session.run(names, dict(inputs))
        except Exception as error:
            raise InputError(f"{self.name}: onnxruntime fails while running it: {_line(error)}") from error
        return dict(zip(names, cast("list[Array]", values), strict=True))


def check(
    reference: Model,
    candidate: Model,
    data: DataSource,
    *,
    metrics: Sequence[str] = (),
    labels: str | None = None,
    output: str | None = None,
    batch: int | None = None,
    max_drop: str | float | None = None,
    limit: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Report:
    """Return the report on how far `candidate` is from `reference` on `data`.

    The gate applies to the first metric. A NaN in the candidate where the reference has a number fails always, even
    without a gate.

    Args:
        reference: A path, an `onnx.ModelProto`, an `onnx_ir.Model` or a `Runner`.
        candidate: The same; its inputs and the compared output must agree with the reference's.
        data: See `softq.data`.
        metrics: Names of metrics, or `package.module:function`. By default, those that the data allow: with integer
            labels and an output [N, C], top1-accuracy and top1-agreement; with token ids and an output [N, T, V],
            perplexity, top1-agreement and kl; with real labels, spearman and cosine; always relative-error and
            max-error behind these; and without labels top1-agreement (for [N, C]) and cosine before them.
        labels: The label to use, or the name of a model input (token ids); by default the data's only label.
        output: The output to compare; by default the first one of floats.
        batch: Samples to run at a time; by default what the model prescribes, else as many of 32 as keep the output
            below 64 MiB.
        max_drop: The gate: worse than the reference by at most so much in the metric's unit, or `X%` of its value.
        limit: The gate: a value of at least (at most, if lower is better) so much.
        threads: Threads of onnxruntime; all cores by default.
        progress: Called with the number of samples done and of all samples (None if unknown).

    Raises:
        InputError: a model or the data cannot be used, or they do not fit each other.
        UsageError: an argument makes no sense.
    """
    chosen = [find_metric(name) for name in metrics]
    if len({metric.name for metric in chosen}) < len(chosen):
        raise UsageError(f"metrics {', '.join(metrics)}: one is named twice")
    if chosen:
        check_gate(chosen[0], max_drop, limit)
    ours, theirs = (m if isinstance(m, Runner) else OnnxRunner.open(m, threads=threads) for m in (reference, candidate))
    inputs = _common_inputs(ours, theirs)
    spec = _common_output(ours, theirs, output)
    dataset = open_data(data, inputs)
    label = _label(dataset, labels)
    label_spec = None if label is None else _label_spec(dataset, label)
    chosen = chosen or [find_metric(name) for name in _defaults(spec, label_spec)]
    drop = check_gate(chosen[0], max_drop, limit)
    _check_labels(chosen, dataset, label)
    # A user's metric sees every output unless one was asked for; the built-in ones only the chosen.
    names = [spec.name]
    if output is None and any(":" in metric.name for metric in chosen):
        names = [_common_output(ours, theirs, s.name).name for s in ours.outputs]
    size = _batch_size(dataset, spec, batch)
    measured, done = _measure([ours, theirs], dataset, chosen, spec.name, names, label, size, progress)
    results = tuple(map(_result, chosen, measured))
    return Report(
        reference=ours.name,
        candidate=theirs.name,
        data=dataset.source,
        output=spec.name,
        labels=label,
        count=done,
        batch=size,
        metrics=results,
        gate=judge(results, drop, limit),
        versions=_versions(),
    )


def score(
    model: Model,
    data: DataSource,
    *,
    metrics: Sequence[str] = (),
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
        labels: As in `check`.
        output: As in `check`.
        batch: As in `check`.
        limit: The gate: a value of the first metric of at least (at most, if lower is better) so much.
        threads: Threads of onnxruntime; all cores by default.
        progress: As in `check`.

    Raises:
        InputError: the model or the data cannot be used, or they do not fit each other.
        UsageError: an argument makes no sense, or no metric is left without another model.
    """
    chosen = [find_metric(name) for name in metrics]
    if len({metric.name for metric in chosen}) < len(chosen):
        raise UsageError(f"metrics {', '.join(metrics)}: one is named twice")
    for metric in chosen:
        if metric.paired:
            raise UsageError(f"metric {metric.name} compares two models; without a reference there is only one")
    runner = model if isinstance(model, Runner) else OnnxRunner.open(model, threads=threads)
    spec = _common_output(runner, runner, output)
    dataset = open_data(data, runner.inputs)
    label = _label(dataset, labels)
    if not chosen:
        label_spec = None if label is None else _label_spec(dataset, label)
        chosen = [metric for metric in map(find_metric, _defaults(spec, label_spec)) if not metric.paired]
    if not chosen:
        raise UsageError(
            f"{dataset.source}: has no labels that a metric of one model fits; name one with its labels, or give a"
            " reference to compare with"
        )
    check_gate(chosen[0], None, limit)
    _check_labels(chosen, dataset, label)
    several = output is None and any(":" in metric.name for metric in chosen)
    names = [s.name for s in runner.outputs] if several else [spec.name]
    size = _batch_size(dataset, spec, batch)
    measured, done = _measure([runner], dataset, chosen, spec.name, names, label, size, progress)
    alone = {"reference": None, "difference": None, "interval": None, "samples": None}
    results = tuple(replace(result, **alone) for result in map(_result, chosen, measured))
    return Report(
        reference="labels",
        candidate=runner.name,
        data=dataset.source,
        output=spec.name,
        labels=label,
        count=done,
        batch=size,
        metrics=results,
        gate=judge(results, None, limit),
        versions=_versions(),
    )


def _check_labels(chosen: Sequence[Metric], dataset: Dataset, label: str | None) -> None:
    for metric in chosen:
        if metric.needs_labels and label is None:
            there = ", ".join(dataset.labels)
            hint = f"choose one of its labels: {there}" if there else "it has none (an array named 'label.NAME')"
            raise UsageError(f"metric {metric.name} needs labels; {dataset.source}: {hint}")


def _batch_size(dataset: Dataset, spec: TensorSpec, batch: int | None) -> int:
    return dataset.batch_size(_default_batch(dataset, spec) if batch is None and not dataset.fixed_batch else batch)


def _measure(
    runners: Sequence[Runner],
    dataset: Dataset,
    chosen: Sequence[Metric],
    output: str,
    names: Sequence[str],
    label: str | None,
    size: int,
    progress: Callable[[int, int | None], None] | None,
) -> tuple[list[Measured], int]:
    """Return what each metric finds, and the number of samples; one runner alone is compared with itself."""
    meters = [metric.start(output, label) for metric in chosen]
    done = 0
    for part in dataset.batches(size):
        results = [_run(runner, part.inputs, names, part.samples) for runner in runners]
        labels_here = dict(part.labels)
        if label is not None and label not in labels_here:
            labels_here[label] = part.inputs[label]
        for meter in meters:
            meter.update(results[0], results[-1], labels_here)
        done += part.samples
        if progress is not None:
            progress(done, dataset.samples)
    return [meter.result() for meter in meters], done


# Loading


def _name(model: str | os.PathLike[str] | onnx.ModelProto | ir.Model) -> str:
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    return f"<{model.graph.name or type(model).__name__}>"


def _source(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model, name: str, options: _Options, folder: Path
) -> str | bytes:
    """What onnxruntime is given: a path, or bytes; `folder` holds what fits neither way, and goes when it is loaded."""
    import onnx

    if isinstance(model, (str, os.PathLike)):
        if not os.path.isfile(model):
            raise InputError(f"{name}: no such file")
        return os.fspath(model)
    if isinstance(model, onnx.ModelProto):
        if any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer):
            raise InputError(
                f"{name}: its weights lie in other files, and a ModelProto does not say where; give the path"
            )
        # ByteSize itself fails above the limit.
        if sum(len(tensor.raw_data) for tensor in model.graph.initializer) < _SERIAL_BYTES:
            return model.SerializeToString()
        return _saved(model, folder)
    return _source_of_ir(model, options, folder)


def _source_of_ir(model: ir.Model, options: _Options, folder: Path) -> str | bytes:
    import onnx_ir as ir

    tensors = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    outside = [tensor for tensor in tensors if isinstance(tensor, ir.ExternalTensor)]
    inside = sum(
        tensor.nbytes for tensor in tensors if tensor is not None and not isinstance(tensor, ir.ExternalTensor)
    )
    folders = {os.path.realpath(tensor.base_dir) for tensor in outside}
    if inside >= _SERIAL_BYTES or len(folders) > 1:
        return _saved(model, folder)
    if folders:
        # The bytes refer to the weights by name; this tells where, and gigabytes need no copy.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folders.pop())
    return ir.to_proto(model).SerializeToString()


def _saved(model: onnx.ModelProto | ir.Model, folder: Path) -> str:
    from softq.modelfile import as_model, save

    path = str(folder / "model.onnx")
    save(as_model(model), path)
    return path


def _spec(name: str, node: _Node) -> TensorSpec:
    kind = node.type
    if not kind.startswith("tensor("):
        raise InputError(f"{name}: input {node.name!r} is a {kind}; only tensors can be fed from data")
    dtype = kind.removeprefix("tensor(").removesuffix(")")
    shape = tuple(d if isinstance(d, (int, str)) else None for d in node.shape)
    return TensorSpec(node.name, _DTYPES.get(dtype, dtype), shape)


# Agreement


def _common_inputs(ours: Runner, theirs: Runner) -> list[TensorSpec]:
    left, right = ({spec.name: spec for spec in runner.inputs} for runner in (ours, theirs))
    for name in [*left, *right]:
        if name not in left or name not in right:
            has, lacks = (ours, theirs) if name in left else (theirs, ours)
            raise InputError(f"{lacks.name}: has no input {name!r}, which {has.name} has")
    return [_common(f"input {name!r}", ours, theirs, left[name], right[name]) for name in left]


def _common_output(ours: Runner, theirs: Runner, output: str | None) -> TensorSpec:
    left, right = ({spec.name: spec for spec in runner.outputs} for runner in (ours, theirs))
    if output is not None and output not in left:
        raise UsageError(f"{ours.name}: has no output {output!r}; there are: {', '.join(left)}")
    if not left:
        raise InputError(f"{ours.name}: has no outputs")
    name = output or next((s.name for s in left.values() if "float" in s.dtype), next(iter(left)))
    if name not in right:
        raise InputError(f"{theirs.name}: has no output {name!r}, which {ours.name} has; there are: {', '.join(right)}")
    if left[name].dtype == "str":
        raise InputError(f"{ours.name}: output {name!r} holds texts; only numbers can be compared")
    return _common(f"output {name!r}", ours, theirs, left[name], right[name])


def _common(what: str, ours: Runner, theirs: Runner, left: TensorSpec, right: TensorSpec) -> TensorSpec:
    """The specification that fits both: a number beats a symbol, the reference's symbol beats the candidate's."""
    shape = left.shape if right.shape is None else right.shape
    if left.shape is not None and right.shape is not None:
        pairs = list(zip(left.shape, right.shape, strict=False))
        if len(left.shape) != len(right.shape) or any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
        ):
            raise InputError(f"{what} is {left} in {ours.name}, but {right} in {theirs.name}")
        shape = tuple(b if isinstance(b, int) or a is None else a for a, b in pairs)
    if left.dtype != right.dtype:
        raise InputError(f"{what} is {left} in {ours.name}, but {right} in {theirs.name}")
    return TensorSpec(left.name, left.dtype, shape)


def _label(dataset: Dataset, wanted: str | None) -> str | None:
    if wanted is None:
        return next(iter(dataset.labels)) if len(dataset.labels) == 1 else None
    if wanted in dataset.labels or wanted in {spec.name for spec in dataset.inputs}:
        return wanted
    there = ", ".join([*dataset.labels, *(spec.name for spec in dataset.inputs)])
    raise UsageError(f"labels {wanted!r} are not in {dataset.source}; there are: {there}")


def _label_spec(dataset: Dataset, label: str) -> TensorSpec:
    return dataset.labels.get(label) or next(spec for spec in dataset.inputs if spec.name == label)


def _defaults(output: TensorSpec, label: TensorSpec | None) -> list[str]:
    rank = None if output.shape is None else len(output.shape)
    if "float" not in output.dtype:
        return ["relative-error", "max-error"]
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


# Running


def _default_batch(dataset: Dataset, output: TensorSpec) -> int:
    """As many samples as keep the output below `_OUTPUT_BYTES`."""
    if output.shape is None:
        return DEFAULT_BATCH
    # Exporters leave derived dimensions nameless; the longest axis of the inputs stands for those.
    longest = max(dataset.sizes.values(), default=1)
    sizes = [d if isinstance(d, int) else dataset.sizes.get(d or "", longest) for d in output.shape[1:]]
    width = 2 if output.dtype == "float16" else 8 if output.dtype in ("float64", "int64") else 4
    return max(1, min(DEFAULT_BATCH, _OUTPUT_BYTES // max(1, width * math.prod(sizes))))


def _run(runner: Runner, inputs: Mapping[str, Array], names: Sequence[str], samples: int) -> Mapping[str, Array]:
    outputs = runner(inputs, names)
    for name in names:
        if outputs[name].ndim == 0 or len(outputs[name]) != samples:
            shape = list(outputs[name].shape)
            raise InputError(
                f"{runner.name}: output {name!r} has shape {shape}; its first axis must be {samples} samples"
            )
    return outputs


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


def _interval(metric: Metric, measured: Measured) -> PairedInterval | None:
    samples, subject = measured.samples, metric.interval_of
    if samples is None or subject is None or measured.nan.candidate_only:
        return None
    totals = [samples.candidate] if samples.reference is None else [samples.reference, samples.candidate]
    if np.count_nonzero(samples.weight) < 2 or not all(np.isfinite(total).all() for total in totals):
        return None
    if samples.reference is None:
        return PairedInterval.about(subject, mean_interval(samples.candidate, samples.weight))
    if subject == "ratio":
        return PairedInterval.about(
            subject, paired_ratio_interval(samples.reference, samples.candidate, samples.weight)
        )
    return PairedInterval.about(subject, mean_interval(samples.candidate - samples.reference, samples.weight))


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str] = {}
    for package in ("softq", "numpy", "onnx", "onnxruntime"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            # A checkout that was never installed still runs.
            versions[package] = "unknown"
    return versions


def _line(error: BaseException) -> str:
    """Onnxruntime's message without its line breaks."""
    return " ".join(str(error).split())
