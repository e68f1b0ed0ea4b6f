"""A bounded sample of the attention rows of each site, from calibration data or from those that are measured on.

The attention maps never leave the runtime: rows are chosen inside the graph, and of those a fixed number is kept.
"""

from __future__ import annotations

import glob
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from softq.calibration.sampling import Reservoir, Sampling, names_of
from softq.calibration.taps import Tap, tap
from softq.data import Batch, Dataset, TensorSpec
from softq.errors import InputError
from softq.graph.facts import Assumed
from softq.methods import Sample
from softq.modelfile import as_model
from softq.passes.locate import locate
from softq.passes.normalize import normalize
from softq.runner import OnnxRunner

_MAPS = 16
"""Maps of a sample at a site that numbers are made for at first; where there are more, the batch runs once more."""

DEFAULT = Sampling()


def collect_rows(
    model: ir.Model,
    wanted: Sequence[str],
    data: Dataset,
    logarithms: bool,
    assumed: Assumed,
    *,
    sampling: Sampling = DEFAULT,
    batch: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    threads: int | None = None,
    unseen: dict[str, str] | None = None,
) -> dict[str, list[Sample]]:
    """Return a bounded sample of rows for each wanted site, by id; the model is not changed.

    Args:
        model: The model as it was loaded.
        wanted: Ids of sites that take a method.
        data: Data for `input_specs(model)`.
        logarithms: Whether the method to come gives logarithms of weights, as in `locate`.
        assumed: As in `locate`.
        sampling, batch, progress, threads, unseen: As in `collect`.

    Raises:
        RefusalError: as in `collect`.
        InputError: as in `collect`.
    """
    copy = as_model(model)
    locate(
        copy, select=[glob.escape(name) for name in wanted], rewrites=(), logarithms=logarithms, assumed=assumed
    )  # fmt: skip
    normalize(copy)
    return collect(
        copy, wanted, data, sampling=sampling, batch=batch, progress=progress, threads=threads, unseen=unseen
    )


def collect(
    model: ir.Model,
    wanted: Sequence[str],
    data: Dataset,
    *,
    sampling: Sampling = DEFAULT,
    batch: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    threads: int | None = None,
    unseen: dict[str, str] | None = None,
) -> dict[str, list[Sample]]:
    """Return a bounded sample of rows for each wanted site of a normalized model, by id.

    Which rows are taken, and their order, follows from the samples' content alone.

    Args:
        model: The model; it is changed (rows become outputs), so give a copy.
        wanted: Ids of the sites.
        data: Data for `input_specs(model)`.
        sampling: How many rows, and how they are drawn.
        batch: Samples per run; None for the data's own.
        progress: Called with the samples done and the samples there are, if known.
        threads: Threads of onnxruntime; all cores if None.
        unseen: Takes the sites of which no rows can be had, with the reason, if given; else that is an error.

    Raises:
        RefusalError: a wanted site lies in a subgraph or function, whose values cannot be seen from outside.
        InputError: the data give NaN scores at a site.
    """
    taps = tap(model, wanted, unseen)
    if not taps:
        return {}
    runner = OnnxRunner.open(model, threads=threads)
    kept = {one.site.id: [Reservoir(sampling.maps) for _ in range(sampling.draws)] for one in taps}
    most = dict.fromkeys(kept, _MAPS)
    done = 0
    for part in data.batches(batch):
        samples = names_of(part)
        words, found = _look(runner, taps, part, samples, sampling, most)
        for one in taps:
            site = one.site.id
            if site not in kept:
                continue
            try:
                found[site].offer(kept[site], words[site], samples)
            except InputError as error:
                if unseen is None:
                    raise
                unseen[site] = str(error)
                del kept[site]
        done += part.samples
        if progress is not None:
            progress(done, data.samples)
    return {site: [sample for draw in draws for sample in draw.samples()] for site, draws in kept.items()}


def _look(
    runner: OnnxRunner,
    taps: Sequence[Tap],
    part: Batch,
    samples: list[bytes],
    sampling: Sampling,
    most: dict[str, int],
) -> tuple[dict[str, NDArray[np.int64]], dict[str, _Maps]]:
    """Return the random numbers and the maps of each site for a batch; `most` grows where a sample has more maps."""
    names = [name for one in taps for name in (one.scores, one.values) if name is not None]
    while True:
        words = {one.site.id: sampling.words(one.site.id, samples, most[one.site.id]) for one in taps}
        chosen = {one.words: (w := words[one.site.id])[..., 1:].reshape(*w.shape[:2], -1) for one in taps}
        outputs = runner({**part.inputs, **chosen}, names)
        found = {one.site.id: _Maps(one, outputs, len(samples)) for one in taps}
        more = {site: maps.each for site, maps in found.items() if maps.each > most[site]}
        if not more:
            return words, found
        most.update(more)


def input_specs(model: ir.Model) -> tuple[TensorSpec, ...]:
    """Return what data for the model must hold: its inputs without those that have a default."""
    return tuple(spec_of(value) for value in model.graph.inputs if value.name not in model.graph.initializers)


def io_specs(model: ir.Model) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return names, types and shapes of the inputs that data hold, and of the outputs."""
    return input_specs(model), tuple(map(spec_of, model.graph.outputs))


def spec_of(value: ir.Value) -> TensorSpec:
    """Return name, type and shape of an input or output."""
    return TensorSpec(
        str(value.name),
        "unknown" if value.dtype is None else str(value.dtype.numpy()),
        None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape),
    )


def without_masked_rows(sample: Sample) -> Sample:
    """Return a sample without the rows that are fully masked."""
    alive = np.max(sample.scores, axis=-1, initial=-math.inf) > -math.inf
    return replace(sample, scores=sample.scores[alive])


def exact_weights(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the softmax of each row `[rows, length]` in float64."""
    wide = scores.astype(np.float64)
    weights = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class _Maps:
    """What one run showed of the maps of a site: `each` of one sample, one after the other."""

    def __init__(self, shown: Tap, outputs: Mapping[str, NDArray[np.generic]], samples: int) -> None:
        self._site = shown.site
        scores = np.asarray(outputs[shown.scores], dtype=np.float32)
        lead, self._samples = scores.shape[:-2], samples
        values = None if shown.values is None else outputs[shown.values]
        if values is not None:
            # V may have leading axes that P lacks, and the other way round.
            lead = np.broadcast_shapes(lead, values.shape[:-2])
            wide = np.asarray(values, dtype=np.float32)
            values = np.broadcast_to(wide, (*lead, *values.shape[-2:])).reshape(-1, *values.shape[-2:])
            scores = np.broadcast_to(scores, (*lead, *scores.shape[-2:]))
        self._values, self._scores = values, scores.reshape(-1, *scores.shape[-2:])
        self.each = max(len(self._scores) // samples, 1)
        axis = shown.site.head_axis
        # Head axis -3 is the innermost of the leading axes, so maps run through the heads first.
        self._heads = 1 if axis is None or len(lead) + 2 < -axis else (*lead, 0, 0)[axis]

    def offer(self, draws: Sequence[Reservoir], words: NDArray[np.int64], samples: Sequence[bytes]) -> None:
        """Offer each map to the reservoir of each draw, with the rows that the draw chose.

        Raises:
            InputError: the scores are NaN.
        """
        if bool(np.isnan(self._scores).any()):
            raise InputError(f"calibration: the scores of site {self._site.id} are NaN for some sample")
        rows = self._scores.shape[1] // len(draws)
        for m in range(len(self._scores)):
            number, head = min(m // self.each, self._samples - 1), m % self._heads
            place = m - number * self.each
            for draw, reservoir in enumerate(draws):
                key = int(words[number, place % words.shape[1], draw, 0]), samples[number], place
                make = partial(self._sample, m, slice(draw * rows, (draw + 1) * rows), head, draw)
                reservoir.offer(head, key, make)

    def _sample(self, m: int, rows: slice, head: int, draw: int) -> Sample:
        v = None if self._values is None else self._values[m].copy()
        return Sample(self._scores[m, rows].copy(), v, head, draw)
