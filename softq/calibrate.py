"""Calibration: a bounded sample of attention rows of each site, and the fit of a method's options on it.

The attention maps never leave the runtime: rows are chosen inside the graph, and of those a fixed number is kept.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from softq.data import Dataset, TensorSpec
from softq.errors import InputError, RefusalError, UsageError
from softq.methods import Fitted, Method, Options, Sample
from softq.passes._canonical import Canonical
from softq.passes.defer_normalizer import products_with_v
from softq.passes.replace import canonical_nodes
from softq.rowprog import prepare
from softq.runner import OnnxRunner
from softq.site import Site

ROWS = 8
"""Rows taken from each attention map: with several maps a head they show more of a head than many rows of one map."""

MAPS = 4
"""Attention maps kept for each head of each site."""

_SEARCHED_WHOLE = 48
"""So many candidates of a number are all tried; of more, a part."""

Progress = Callable[[int, int | None], None]


@dataclass
class Reservoir:
    """A uniform sample of the maps seen, `MAPS` a head, by Vitter's algorithm R; the same data give the same sample."""

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


_PICK = "softq.calibrate.pick"


def collect(
    model: ir.Model,
    wanted: Sequence[str],
    data: Dataset,
    *,
    batch: int | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    unseen: dict[str, str] | None = None,
) -> dict[str, list[Sample]]:
    """Return a bounded sample of rows for each wanted site, by id.

    Args:
        model: A normalized model; it is changed (rows become outputs), so give a copy.
        wanted: Ids of the sites.
        data: Calibration data.
        batch: Samples a run; None for the data's own.
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


def fit(method: Method, options: Options, samples: Sequence[Sample]) -> Fitted:
    """Return the numbers for the options that are to be fitted: those with the least squared error of P V.

    Where a site has no product with V, the error of P itself counts. A method may have a criterion of its own (`fit`).

    Raises:
        InputError: no sample has a row that is not fully masked, or scores or V are not finite.
        UsageError: several options are to be fitted that the method does not fit together.
    """
    if not any(bool(np.any(sample.scores > -math.inf)) for sample in samples):
        raise InputError(
            "the calibration data have no row to fit on at a site: all are fully masked, or there are none"
        )
    if not all(_usable(sample) for sample in samples):
        raise InputError("the calibration data give +inf scores or values that are not finite at a site")
    if not options.fitted:
        return {}
    if method.fit is None and method.candidates is None:
        raise UsageError(f"{method.name}: {', '.join(options.fitted)} is learned in training and not fitted to data")
    if len(options.fitted) > 1 and method.fit is None:
        raise UsageError(f"{method.name}: only one option can be fitted, not {', '.join(options.fitted)}")
    scopes = set(options.fitted.values())
    if len(scopes) > 1:
        each = ", ".join(f"{name}={scope}" for name, scope in options.fitted.items())
        raise UsageError(f"{method.name}: options are fitted together for a site or for a head, not {each}")
    # Samples carry the head; what is fitted for one of them is a site's number over the samples of that head.
    searched = replace(options, **dict.fromkeys(options.fitted, "site"))
    groups = [list(samples)]
    if "head" in scopes:
        groups = [[s for s in samples if s.head == head] for head in range(1 + max(s.head for s in samples))]
    found = [_fit(method, searched, group) for group in groups]
    return {name: tuple(f[name] for f in found) if "head" in scopes else found[0][name] for name in options.fitted}


def _fit(method: Method, options: Options, samples: Sequence[Sample]) -> Mapping[str, float]:
    program = method.program(options)
    references = [reference for sample in samples if (reference := _reference(sample)) is not None]
    # Rows of one length go through the program together: a step of a scan costs the same for one row and for hundreds.
    alike: dict[int, list[_Reference]] = {}
    for reference in references:
        alike.setdefault(reference.sample.scores.shape[-1], []).append(reference)
    runs = [(prepare(program, np.concatenate([one.sample.scores for one in of])), of) for of in alike.values()]

    def error(numbers: Mapping[str, float]) -> float:
        parameters = method.parameters(options, numbers)
        return sum(_error(run(parameters), of) for run, of in runs)

    if method.fit is not None:
        return method.fit(options, [reference.sample for reference in references], error)
    assert method.candidates is not None
    (name,) = options.fitted
    return {name: _least(method.candidates(options, name), lambda candidate: error({name: candidate}))}


def _least(candidates: Sequence[float], error: Callable[[float], float]) -> float:
    """Return the candidate with the least error; of many, the best of those around the best two of every so many.

    The progressive search of AdaLog (arXiv 2407.12951, section 3.3), whose error is smooth in its 128 candidates but
    for what rounding does: on MiniLM and the small language model the result was that of the whole search.
    """
    known: dict[int, float] = {}

    def best(among: Iterable[int]) -> list[int]:
        for at in among:
            if at not in known:
                known[at] = error(candidates[at])
        return sorted(known, key=lambda at: (known[at], at))

    every = max(1, math.isqrt(len(candidates)) * 2 // 3) if len(candidates) > _SEARCHED_WHOLE else 1
    for at in best(range(0, len(candidates), every))[:2] if every > 1 else []:
        best(range(max(0, at - every + 1), min(len(candidates), at + every)))
    return candidates[best(range(0, len(candidates), every))[0]]


def _usable(sample: Sample) -> bool:
    return bool(np.all(sample.scores < math.inf)) and (
        sample.values is None or bool(np.all(np.isfinite(sample.values)))
    )


@dataclass(frozen=True)
class _Reference:
    """A sample without its fully masked rows, its exact weights, and their product with V (or themselves)."""

    sample: Sample
    weights: NDArray[np.float64]
    output: NDArray[np.float64]


def _reference(sample: Sample) -> _Reference | None:
    alive = np.max(sample.scores, axis=-1, initial=-math.inf) > -math.inf
    if not bool(alive.any()):
        return None
    scores = sample.scores[alive].astype(np.float64)
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    values = None if sample.values is None else sample.values.astype(np.float64)
    output = weights if values is None else weights @ values
    return _Reference(replace(sample, scores=sample.scores[alive], values=values), weights, output)


def _error(out: Mapping[str, NDArray[np.generic]], references: Sequence[_Reference]) -> float:
    """Return the sum of the squared errors of P V (or of P where there is no V), each relative to its own size."""
    if "normalizer" in out:
        p = out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)
    else:
        p = out["probabilities"].astype(np.float64)
    total, row = 0.0, 0
    for reference in references:
        rows = slice(row, row := row + len(reference.weights))
        difference, v = p[rows] - reference.weights, reference.sample.values
        if v is not None:
            difference = difference @ v
        size = float(np.sum(reference.output**2))
        total += float(np.sum(difference**2)) / size if size > 0 else 0.0
    return total
