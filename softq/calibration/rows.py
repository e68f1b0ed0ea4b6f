"""A bounded sample of the attention rows of each site, from calibration data or from those that are measured on.

The attention maps never leave the runtime: rows are chosen inside the graph, and of those a fixed number is kept.
"""

from __future__ import annotations

import glob
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from softq.data import Dataset, TensorSpec
from softq.errors import InputError, RefusalError
from softq.graph.facts import Assumed
from softq.methods import Sample
from softq.modelfile import as_model
from softq.passes.defer_normalizer import products_with_v
from softq.passes.locate import locate
from softq.passes.normalize import normalize
from softq.passes.replace import canonical_nodes
from softq.passes.rewriting.canonical import Canonical
from softq.runner import OnnxRunner
from softq.site import Site

ROWS = 8
"""Rows taken from each attention map: with several maps per head they show more of it than many rows of one map."""

MAPS = 4
"""Attention maps kept per head and site."""

_PICK = "softq.calibrate.pick"


@dataclass
class Reservoir:
    """A uniform sample of the maps seen, `MAPS` per head (Vitter's algorithm R); the same data give the same sample."""

    seed: int
    heads: dict[int, list[Sample]] = field(default_factory=dict[int, list[Sample]])
    seen: dict[int, int] = field(default_factory=dict[int, int])

    def offer(self, head: int, make: Callable[[], Sample]) -> None:
        """Take the next map of a head with the probability that keeps the sample uniform."""
        seen = self.seen[head] = self.seen.get(head, 0) + 1
        kept = self.heads.setdefault(head, [])
        if len(kept) < MAPS:
            kept.append(make())
            return
        at = int(np.random.default_rng((self.seed, head, seen)).integers(seen))
        if at < MAPS:
            kept[at] = make()

    def samples(self) -> list[Sample]:
        """Return what was kept, head by head."""
        return [sample for head in sorted(self.heads) for sample in self.heads[head]]


@dataclass(frozen=True)
class _Tap:
    """Names of the graph outputs that show one site."""

    site: Site
    scores: str
    values: str | None


def collect_rows(
    model: ir.Model,
    wanted: Sequence[str],
    data: Dataset,
    logarithms: bool,
    assumed: Assumed,
    *,
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
        batch, progress, threads, unseen: As in `collect`.

    Raises:
        RefusalError: as in `collect`.
        InputError: as in `collect`.
    """
    copy = as_model(model)
    locate(
        copy, select=[glob.escape(name) for name in wanted], rewrites=(), logarithms=logarithms, assumed=assumed
    )  # fmt: skip
    normalize(copy)
    return collect(copy, wanted, data, batch=batch, progress=progress, threads=threads, unseen=unseen)


def collect(
    model: ir.Model,
    wanted: Sequence[str],
    data: Dataset,
    *,
    batch: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    threads: int | None = None,
    unseen: dict[str, str] | None = None,
) -> dict[str, list[Sample]]:
    """Return a bounded sample of rows for each wanted site of a normalized model, by id.

    Args:
        model: The model; it is changed (rows become outputs), so give a copy.
        wanted: Ids of the sites.
        data: Data for `input_specs(model)`.
        batch: Samples per run; None for the data's own.
        progress: Called with the samples done and the samples there are, if known.
        threads: Threads of onnxruntime; all cores if None.
        unseen: Takes the sites of which no rows can be had, with the reason, if given; else that is an error.

    Raises:
        RefusalError: a wanted site lies in a subgraph or function, whose values cannot be seen from outside.
        InputError: the data give NaN scores at a site.
    """
    taps = _tap(model, wanted, unseen)
    if not taps:
        return {}
    runner = OnnxRunner.open(model, threads=threads)
    names = [name for tap in taps for name in (tap.scores, tap.values) if name is not None]
    reservoirs = {tap.site.id: Reservoir(zlib.crc32(tap.site.id.encode())) for tap in taps}
    done = 0
    for number, part in enumerate(data.batches(batch)):
        pick = np.random.default_rng((1, number)).random(ROWS, dtype=np.float32)
        outputs = runner({**part.inputs, _PICK: pick}, names)
        for tap in taps:
            if tap.site.id not in reservoirs:
                continue
            values = None if tap.values is None else outputs[tap.values]
            try:
                _keep(reservoirs[tap.site.id], tap, outputs[tap.scores], values)
            except InputError as error:
                if unseen is None:
                    raise
                unseen[tap.site.id] = str(error)
                del reservoirs[tap.site.id]
        done += part.samples
        if progress is not None:
            progress(done, data.samples)
    return {key: reservoir.samples() for key, reservoir in reservoirs.items()}


def input_specs(model: ir.Model) -> tuple[TensorSpec, ...]:
    """Return what data for the model must hold: its inputs without those that have a default."""
    return tuple(
        TensorSpec(
            str(value.name),
            "unknown" if value.dtype is None else str(value.dtype.numpy()),
            None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape),
        )
        for value in model.graph.inputs
        if value.name not in model.graph.initializers
    )


def _tap(model: ir.Model, wanted: Sequence[str], unseen: dict[str, str] | None) -> list[_Tap]:
    graph = model.graph
    pick = ir.Value(name=_PICK, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([ROWS]))
    graph.inputs.append(pick)
    taps: list[_Tap] = []
    canonical = {c.site.id: (node, c) for node, c in canonical_nodes(model)}
    for number, key in enumerate(wanted):
        node, form = canonical[key]
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        if node.graph is not graph:
            hidden = "lies in a subgraph or function"
        elif shape is not None and len(shape) < 2:
            hidden = "has scores of one axis"
        else:
            hidden = ""
        if hidden and unseen is not None:
            unseen[key] = f"it {hidden}"
            continue
        if hidden:
            raise RefusalError(f"site {key} {hidden} and cannot be calibrated; set a number instead")
        taps.append(_tap_site(graph, node, form, pick, number))
    return taps


def _tap_site(graph: ir.Graph, node: ir.Node, form: Canonical, pick: ir.Value, number: int) -> _Tap:
    scores = node.inputs[0]
    assert scores is not None
    prefix = f"softq.calibrate.{number}"
    nodes: list[ir.Node] = []

    def add(op: str, inputs: Sequence[ir.Value], **attributes: int | Sequence[int]) -> ir.Value:
        made = ir.node(op, inputs, attributes, name=f"{prefix}.{len(nodes)}")
        made.outputs[0].name = f"{prefix}.{len(nodes)}.out"
        nodes.append(made)
        return made.outputs[0]

    # Row floor(u * Q) of each map, u in [0, 1): the number of rows Q is known only when the graph runs.
    rows = add("Cast", [add("Shape", [scores], start=-2, end=-1)], to=int(ir.DataType.FLOAT))
    at = add("Cast", [add("Floor", [add("Mul", [pick, rows])])], to=int(ir.DataType.INT64))
    picked = add("Cast", [add("Gather", [scores, at], axis=-2)], to=int(ir.DataType.FLOAT))
    picked.type, picked.shape = ir.TensorType(ir.DataType.FLOAT), _dynamic(scores)
    graph.outputs.append(picked)
    values = None
    product = next(products_with_v(form.probabilities, form.zero_rows), None)
    if product is not None and product.inputs[1] is not None:
        values = add("Cast", [product.inputs[1]], to=int(ir.DataType.FLOAT))
        values.type, values.shape = ir.TensorType(ir.DataType.FLOAT), _dynamic(product.inputs[1])
        graph.outputs.append(values)
    graph.extend(nodes)
    return _Tap(form.site, str(picked.name), None if values is None else str(values.name))


def without_masked_rows(sample: Sample) -> Sample:
    """Return a sample without the rows that are fully masked."""
    alive = np.max(sample.scores, axis=-1, initial=-math.inf) > -math.inf
    return replace(sample, scores=sample.scores[alive])


def exact_weights(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the softmax of each row `[rows, length]` in float64."""
    wide = scores.astype(np.float64)
    weights = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _dynamic(value: ir.Value) -> ir.Shape | None:
    return None if value.shape is None else ir.Shape([None] * len(value.shape))


def _keep(reservoir: Reservoir, tap: _Tap, scores: NDArray[np.generic], values: NDArray[np.generic] | None) -> None:
    picked = np.asarray(scores, dtype=np.float32)
    if bool(np.isnan(picked).any()):
        raise InputError(f"calibration: the scores of site {tap.site.id} are NaN for some sample")
    lead, (rows, length) = picked.shape[:-2], picked.shape[-2:]
    v = None
    if values is not None:
        # V may have leading axes that P lacks, and the other way round.
        lead = np.broadcast_shapes(lead, values.shape[:-2])
        wide = np.asarray(values, dtype=np.float32)
        v = np.broadcast_to(wide, (*lead, *values.shape[-2:])).reshape(-1, *values.shape[-2:])
        picked = np.broadcast_to(picked, (*lead, rows, length))
    maps = picked.reshape(-1, rows, length)
    heads = 1
    if tap.site.head_axis is not None and picked.ndim >= -tap.site.head_axis:
        heads = picked.shape[tap.site.head_axis]

    def sample(m: int) -> Sample:
        return Sample(maps[m].copy(), None if v is None else v[m].copy(), m % heads)

    # Head axis -3 is the innermost of the leading axes, so maps run through the heads first.
    for m in range(len(maps)):
        reservoir.offer(m % heads, lambda m=m: sample(m))
