"""Runs models on data: what each sample contributes to the metric, and its distance from the float model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import softq
from benchmarks.figures.studies import Study, file_hash, identity_of, kind_of, text_hash
from softq.calibration import input_specs
from softq.data import Array, open_data
from softq.metrics import CountedMeter, Floats, Kind, Metric, PerSample
from softq.modelfile import load, save
from softq.runner import OnnxRunner


class Measured:
    """Runs models on a file of a study's data; the float model once, whose outputs lie in a folder meanwhile.

    Attributes:
        identity: The hashes of the model, of these data and of the calibration data.
    """

    def __init__(self, study: Study, models: Path, data: Path, scratch: Path) -> None:
        self._study, self._path, self._cache = study, study.place(models) / study.model, models / "measured"
        self.identity = {"model": identity_of(self._path), "data": file_hash(data),
                         "calibration": file_hash(study.data(models, "calibration"))}  # fmt: skip
        self._key = "|".join((study.metric.name, study.distance.name, self.identity["model"], self.identity["data"]))
        self._data = open_data(str(data), input_specs(load(self._path)))
        self._output = onnx.load(self._path, load_external_data=False).graph.output[0].name
        label = next(iter(self._data.labels), None)
        places = [scratch / "metric", scratch / "distance"]
        for place in places:
            place.mkdir()
        self._metric = _start(study.metric, self._output, label, places[0])
        self._distance = _start(study.distance, self._output, None, places[1])
        self._looked = False

    def reference(self) -> dict[str, Any]:
        """Return value, samples and weights of the float model."""

        def run() -> dict[str, Any]:
            self._look()
            # What it differs from itself by is its own value, for a metric that compares.
            ours, _ = self._metric.samples
            return {"value": kind_of(self._study.metric).reduce(ours), "samples": _plain(ours.total),
                    "weights": _plain(ours.weight)}  # fmt: skip

        return self._cached("float", run)

    def candidate(self, result: softq.Conversion[Any], plan: str) -> dict[str, Any]:
        """Return value and samples of a converted model, and its distance from the float model in each."""

        def run() -> dict[str, Any]:
            self._look()
            # Beside its weights, so that it refers to them instead of copying them; of this process alone.
            converted = self._path.with_name(f"{self._path.stem}.{os.getpid()}.figures.onnx")
            save(result.model, converted)
            try:
                for meter in (self._metric, self._distance):
                    meter.begin()
                for number, (outputs, labels) in enumerate(self._run(converted)):
                    for meter in (self._metric, self._distance):
                        meter.add(meter.compare(number, outputs, labels))
            finally:
                converted.unlink()
            (_, samples), (_, far) = self._metric.samples, self._distance.samples
            return {"value": self._metric.result().candidate, "samples": _plain(samples.total),
                    "distances": _plain(_each(kind_of(self._study.distance), far), 5)}  # fmt: skip

        return self._cached(plan, run)

    def _look(self) -> None:
        if not self._looked:
            for number, (outputs, labels) in enumerate(self._run(self._path)):
                for meter in (self._metric, self._distance):
                    meter.add_reference(meter.look(number, outputs, labels))
            self._looked = True

    def _run(self, model: Path) -> Iterator[tuple[Mapping[str, Array], Mapping[str, Array]]]:
        runner = OnnxRunner.open(model, threads=int(os.environ.get("SOFTQ_THREADS", "0")) or None)
        for batch in self._data.batches(self._study.batch):
            yield runner(batch.inputs, [self._output]), batch.labels

    def _cached(self, what: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        stored = self._cache / f"{text_hash(f'{self._key}|{what}'.encode())}.json"
        if not stored.exists():
            self._cache.mkdir(parents=True, exist_ok=True)
            stored.with_suffix(".part").write_text(json.dumps(run()), encoding="utf-8")
            stored.with_suffix(".part").rename(stored)
        return json.loads(stored.read_text(encoding="utf-8"))


def _start(metric: Metric, output: str, label: str | None, folder: Path) -> CountedMeter:
    meter = metric.start(output, label, folder)
    assert isinstance(meter, CountedMeter), f"{metric.name} says nothing of single samples"
    return meter


def _each(kind: Kind, samples: PerSample) -> Floats:
    """Return the value of each sample alone."""
    pairs = zip(samples.total, samples.weight, strict=True)
    return np.array([kind.reduce(PerSample(np.array([total]), np.array([weight]))) for total, weight in pairs])


def _plain(values: Floats, digits: int = 8) -> list[float | int]:
    return [int(value) if value == int(value) else float(f"{value:.{digits}g}") for value in values.tolist()]
