"""Options fitted on calibration data: those with the least squared error of P V, or what a method itself asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from softq.calibration.choices import choose
from softq.calibration.errors import Errors, by_head
from softq.calibration.rows import collect_rows, io_specs
from softq.calibration.sampling import Sampling
from softq.data import DataSource, open_data
from softq.errors import InputError, UsageError
from softq.graph.facts import Assumed
from softq.methods import Fit, Fitted, Method, Options, OptionValue, Sample, Spread
from softq.progress import Progress
from softq.site import Site

_SEARCHED_WHOLE = 48
"""So many candidates of a number are all tried; of more, a part."""


def make_fit(
    model: ir.Model,
    found: Sequence[Site],
    calibration: DataSource,
    method: Method,
    settings: Mapping[str, OptionValue],
    sampling: Sampling,
    batch: int | None,
    assumed: Assumed,
    progress: Progress | None,
) -> tuple[Callable[[Site, Method, Options], Fit], list[str]]:
    """Return what fits a site's options on the calibration data, and what the user should know about them.

    Args:
        model: The model as it was loaded; it is not changed.
        found: Its softmaxes with their verdicts.
        calibration: See `softq.data.open_data`.
        method: The method that the sites get.
        settings: Options of the method by name.
        sampling: Which rows of the data are fitted on.
        batch: Samples a run; None for the data's own.
        assumed: As in `locate`.
        progress: As in `softq.conversion.convert`.

    Raises:
        RefusalError: a site to convert lies in a subgraph or function, whose values cannot be seen from outside.
        InputError: the data cannot be used.
    """
    data = open_data(calibration, *io_specs(model), reject_nan=True)
    options = method.resolve(method.configure(settings), True)
    if not options.fitted:
        for _ in data.batches(batch):  # so that damaged data are an error whether they are needed or not
            pass
        return lambda *_: Fit({}), [
            f"the calibration data are not used: with these settings {method.name} has nothing to fit"
        ]
    wanted = [site.id for site in found if site.takes_method]
    report = None if progress is None else (lambda done, total: progress("calibrate", done, total))
    samples = collect_rows(model, wanted, data, method.logarithms, assumed, sampling=sampling, batch=batch,
                           progress=report)  # fmt: skip

    def fit_site(site: Site, method: Method, options: Options) -> Fit:
        if progress is not None:
            progress("fit", wanted.index(site.id), len(wanted))
        return fit_draws(method, options, samples[site.id])

    return fit_site, []


def fit_draws(method: Method, options: Options, samples: Sequence[Sample]) -> Fit:
    """Return the numbers that `fit` gives on all draws together, and what it gives on each alone if there are several.

    Raises:
        InputError: as in `fit`.
        UsageError: as in `fit`.
    """
    fitted = fit(method, options, samples)
    draws = sorted({sample.draw for sample in samples})
    if len(draws) < 2 or not fitted:
        return Fit(fitted)
    each = [fit(method, options, [sample for sample in samples if sample.draw == draw]) for draw in draws]
    return Fit(fitted, {name: _spread([one[name] for one in each]) for name in fitted})


def _spread(values: Sequence[float | tuple[float, ...]]) -> Spread:
    table = np.array(values)
    ends = (table.min(axis=0), table.max(axis=0), table.std(axis=0, ddof=1))
    low, high, deviation = (tuple(map(float, end)) if end.ndim else float(end) for end in ends)
    return Spread(low, high, deviation)


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
    if method.fit is None and method.candidates is None and not options.fitted.keys() <= dict(method.choices).keys():
        raise UsageError(f"{method.name}: {', '.join(options.fitted)} is learned in training and not fitted to data")
    choices = dict(method.choices)
    searched = {name: scope for name, scope in options.fitted.items() if name not in choices}
    if len(searched) > 1 and method.fit is None:
        raise UsageError(f"{method.name}: only one option can be fitted, not {', '.join(searched)}")
    if len(set(searched.values())) > 1:
        each = ", ".join(f"{name}={scope}" for name, scope in searched.items())
        raise UsageError(f"{method.name}: options are fitted together for a site or for a head, not {each}")
    usual = {name: choices[name][0] for name in options.fitted if name in choices}
    found: dict[str, float | tuple[float, ...]] = {}
    if searched:
        per_head = "head" in searched.values()
        groups = by_head(samples) if per_head else [samples]
        alone = replace(options, **usual, **dict.fromkeys(searched, "site"))
        each = [_fit(method, alone, group) for group in groups]
        found |= {name: tuple(one[name] for one in each) if per_head else each[0][name] for name in searched}
    if usual:
        found |= choose(method, options, samples, found)
    return {name: found[name] for name in options.fitted}


def _fit(method: Method, options: Options, samples: Sequence[Sample]) -> Mapping[str, float]:
    errors = Errors(method, options, samples)

    def error(numbers: Mapping[str, float]) -> float:
        return sum(errors(numbers).tolist())

    if method.fit is not None:
        return method.fit(options, errors.samples, error)
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
