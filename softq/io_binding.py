"""What models and data must agree on before they are run: inputs, the output, the label, samples per run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from softq.data import DEFAULT_BATCH, Array, Batch, Dataset, TensorSpec
from softq.errors import InputError, UsageError
from softq.metrics import Metric
from softq.runner import Runner

# Logits of a language model: 32 samples of 512 tokens and 49,152 words are 3.2 GB, twice. The default batch keeps the
# compared output below this; metrics then need about as much again in float64.
_OUTPUT_BYTES = 64 << 20


def common_inputs(ours: Runner, theirs: Runner) -> list[TensorSpec]:
    """Return the inputs that both models have.

    Raises:
        InputError: they differ.
    """
    left, right = ({spec.name: spec for spec in runner.inputs} for runner in (ours, theirs))
    for name in [*left, *right]:
        if name not in left or name not in right:
            has, lacks = (ours, theirs) if name in left else (theirs, ours)
            raise InputError(f"{lacks.name}: has no input {name!r}, which {has.name} has")
    return [_common(f"input {name!r}", ours, theirs, left[name], right[name]) for name in left]


def common_output(ours: Runner, theirs: Runner, output: str | None) -> TensorSpec:
    """Return the output to look at: the named one, else the first of floats.

    Raises:
        InputError: the models differ in it, or it holds no numbers.
        UsageError: there is no such output.
    """
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


def label_of(dataset: Dataset, wanted: str | None) -> str | None:
    """Return the name of the label to use: the given one, else the only one, else None.

    Raises:
        UsageError: there is no such label.
    """
    if wanted is None:
        return next(iter(dataset.labels)) if len(dataset.labels) == 1 else None
    there = [*dataset.labels, *(spec.name for spec in dataset.inputs if spec.name not in dataset.shared)]
    if wanted in there:
        return wanted
    raise UsageError(f"labels {wanted!r} are not in {dataset.source}; there are: {', '.join(there)}")


def spec_of_label(dataset: Dataset, label: str) -> TensorSpec:
    """Return what a label is: an array of the data, or a model input."""
    return dataset.labels.get(label) or next(spec for spec in dataset.inputs if spec.name == label)


def check_labels(chosen: Sequence[Metric], dataset: Dataset, label: str | None) -> None:
    """Refuse a metric that needs a label where there is none.

    Raises:
        UsageError: naming the labels there are.
    """
    for metric in chosen:
        if metric.needs_labels and label is None:
            there = ", ".join(dataset.labels)
            hint = f"choose one of its labels: {there}" if there else "it has none (an array named 'label.NAME')"
            raise UsageError(f"metric {metric.name} needs labels; {dataset.source}: {hint}")


def batch_size(dataset: Dataset, spec: TensorSpec, batch: int | None) -> int:
    """Return the samples per run: as given, else as many as keep the output small."""
    return dataset.batch_size(_default_batch(dataset, spec) if batch is None and not dataset.fixed_batch else batch)


def _default_batch(dataset: Dataset, output: TensorSpec) -> int:
    """As many samples as keep the output below `_OUTPUT_BYTES`."""
    if output.shape is None:
        return DEFAULT_BATCH
    # Exporters leave derived dimensions nameless; the longest axis of the inputs stands for those.
    longest = max(dataset.sizes.values(), default=1)
    sizes = [d if isinstance(d, int) else dataset.sizes.get(d or "", longest) for d in output.shape[1:]]
    width = 2 if output.dtype == "float16" else 8 if output.dtype in ("float64", "int64") else 4
    return max(1, min(DEFAULT_BATCH, _OUTPUT_BYTES // max(1, width * math.prod(sizes))))


def labels_of(part: Batch, label: str | None) -> dict[str, Array]:
    """Return the labels of a batch; the one that is used may be a model input."""
    if label is None or label in part.labels:
        return part.labels
    return part.labels | {label: part.inputs[label]}


def with_sample_axis(output: TensorSpec, batch: int) -> TensorSpec:
    """Return an output as `run_batch` gives it, as far as its declared shape tells."""
    if batch != 1 or output.shape is None or not (output.shape == () or isinstance(output.shape[0], int)):
        return output
    return output if output.shape[:1] == (1,) else replace(output, shape=(1, *output.shape))


def run_batch(runner: Runner, part: Batch, names: Sequence[str], batch: int) -> Mapping[str, Array]:
    """Return the named outputs of a model for some samples, along the first axis.

    Where `batch`, the samples of a run, is 1, an output without an axis for samples gets one.

    Raises:
        InputError: it fails, or an output has another number of samples.
    """
    outputs = dict(runner(part.inputs, names))
    for name in names:
        shape = list(outputs[name].shape)
        if batch == 1 and shape[:1] != [1]:
            outputs[name] = outputs[name][np.newaxis]
        elif shape[:1] != [part.samples]:
            raise InputError(
                f"{runner.name}: output {name!r} has shape {shape}; its first axis must be {part.samples} samples,"
                " unless each run is one sample (batch 1)"
            )
    return outputs
