"""Models: what each setting makes of a model's metric on its evaluation data, or on some of their samples."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import softq
from benchmarks.figures.measuring import Measured
from benchmarks.figures.studies import Study, kind_of, text_hash
from benchmarks.formats.settings import SHARES, Setting
from softq.metrics import EXP_MEAN, PerSample, change_interval

SEED = 0
"""Of the choice of samples."""


def some_samples(source: Path, count: int, target: Path) -> int:
    """Write so many of a file's samples, chosen by a seed and in their order; return how many there were."""
    with np.load(source) as held:
        arrays = {name: held[name] for name in held.files}
    total = len(next(iter(arrays.values())))
    chosen = np.sort(np.random.default_rng(SEED).choice(total, min(count, total), replace=False))
    np.savez(target, **{name: array[chosen] for name, array in arrays.items()})
    return total


def convert(setting: Setting, study: Study, models: Path) -> softq.Conversion[Any]:
    """Return the model converted so; what is fitted is fitted on its calibration data."""
    calibration = str(study.data(models, "calibration")) if setting.fitted else None
    return softq.convert(study.place(models) / study.model, method=setting.method, settings=setting.settings,
                         calibration=calibration)  # fmt: skip


def measure_model(study: Study, models: Path, keep: Callable[[Mapping[str, Any]], None]) -> None:
    """Hand what is found to `keep` after each setting; what was measured before is read from the models' folder."""
    share = SHARES[study.name]
    with tempfile.TemporaryDirectory() as scratch:
        data, total = study.data(models, "evaluation"), None
        if share.samples is not None:
            total = some_samples(data, share.samples, Path(scratch) / "some.npz")
            data = Path(scratch) / "some.npz"
        measured = Measured(study, models, data, Path(scratch))
        reference = measured.reference()
        kind, weights = kind_of(study.metric), np.array(reference["weights"], np.float64)
        ours = PerSample(np.array(reference["samples"], np.float64), weights)
        found: dict[str, Any] = {
            "name": study.name, "metric": study.metric.name, "distance": study.distance.name,
            "float": reference["value"], "samples": len(weights), "of": total or len(weights), **measured.identity,
            "rows": [],
        }  # fmt: skip
        for setting in share.settings:
            converted = convert(setting, study, models)
            one = measured.candidate(converted, text_hash(converted.plan.to_text().encode()))
            samples = PerSample(np.array(one["samples"], np.float64), weights)
            change = change_interval(kind, study.metric.bounds, ours, samples)
            assert change is not None, study.metric.name
            found["rows"].append({
                "label": setting.label, "bits": setting.bits, "value": one["value"],
                "distance": float(np.mean(one["distances"])), "change": change.estimate, "low": change.low,
                "high": change.high, "of": "ratio" if kind is EXP_MEAN else "change", **exact_sums(converted),
            })  # fmt: skip
            keep(found)
            print(study.name, setting.label, setting.bits, f"{change.estimate:+.5f}", flush=True)


def exact_sums(converted: softq.Conversion[Any]) -> dict[str, list[int]]:
    """Return of how many heads the exact sum was taken, and of how many it was fitted."""
    sums = [np.atleast_1d(site.fitted["sum"]) for site in converted.plan.sites if "sum" in site.fitted]
    if not sums:
        return {}
    each = np.concatenate(sums)
    return {"exact_sums": [int(each.sum()), len(each)]}
