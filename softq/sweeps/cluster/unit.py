"""A unit of work, as a worker's process does it: one shard of the data through the float model or a converted one.

The process keeps, as long as the sweep lasts, the model, and of each shard that it has had the samples and what
candidates are compared with, on its disk. Several threads may work in it at once.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from softq.data import LABEL, Batch
from softq.errors import SoftqError
from softq.plans import Plan
from softq.runner import Runner
from softq.sweeps.bench import run_batch
from softq.sweeps.cluster.shards import LEAST, Digest, Shard, joined
from softq.sweeps.comparisons import Part, comparison
from softq.sweeps.planner import Planner
from softq.sweeps.task import Task

_IDLE = 3600.0
"""Seconds after which what a sweep left in a process, whose client has died, goes when another begins."""


_INPUT = "input."
"""Prefix of an input's name in the files of batches, beside `LABEL`."""


class UnfitError(Exception):
    """This worker cannot take part; its text says why, and what to do."""


@dataclass(frozen=True)
class Spec:
    """What a worker must know of a sweep; it carries paths, no arrays.

    Attributes:
        token: Names the sweep.
        task: What is measured, with absolute paths.
        part: First sample, and the one behind the last.
        graph: Hash of the model's graph, which the worker's must have.
        weights: Fingerprint of its weights.
    """

    token: str
    task: Task
    part: tuple[int, int | None]
    graph: str
    weights: str


@dataclass(frozen=True)
class Answer:
    """What a unit gives.

    Attributes:
        parts: One for each batch, in order.
        digest: SHA-256 of the float model's outputs on the shard; it must not depend on the worker.
        samples: Number of samples.
        preparing: Seconds that the shard took to be read and run through the float model; 0 if it was at hand.
        opening: Seconds to convert and load the model; 0 if it was at hand.
        seconds: Seconds of the run.
    """

    parts: tuple[Part, ...]
    digest: str
    samples: int
    preparing: float
    opening: float
    seconds: float


def admit(spec: Spec) -> None:
    """Load the model and look at the data.

    Raises:
        UnfitError: this worker does not see them, or other ones.
    """
    with _of(spec):
        pass


def measure(spec: Spec, shard: Shard, plan: Plan | None) -> Answer:
    """Return what a shard gives with the model that a plan makes, or with the float model.

    Raises:
        UnfitError: this worker sees other data.
        SoftqError: as on a bench.
    """
    with _of(spec) as kept:
        if plan is None:
            return kept.prepare(shard)
        preparing = kept.at_hand(shard)
        begun = time.perf_counter()
        runner = kept.candidate(plan)
        opened = time.perf_counter()
        parts = tuple(
            kept.comparison.compare(number, *run_batch(runner, kept.subject, batch))
            for number, batch in kept.batches(shard)
        )
        seconds = time.perf_counter() - opened
        return Answer(parts, kept.digests[shard.number], shard.stop - shard.start, preparing, opened - begun, seconds)


def forget(token: str) -> None:
    """Remove what this process keeps of a sweep."""
    with _guard:
        kept = _sweeps.pop(token, None)
    if kept is not None:
        kept.close()


class _Kept:
    """What a process keeps of a sweep; it is opened by the first thread that needs it, while others wait."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._locks: dict[int, threading.Lock] = {}
        self._open = False
        self.digests: dict[int, str] = {}
        self.busy, self.used = 0, time.monotonic()

    def open(self) -> None:
        with self._lock:
            if self._open:
                return
            spec = self._spec
            try:
                self._planner = Planner(spec.task.model, spec.task.selection)
                if (self._planner.graph, self._planner.weights) != (spec.graph, spec.weights):
                    raise UnfitError(f"it has another model at {spec.task.name}; put the same file there")
                self._runner = spec.task.runner()
                self.subject = spec.task.subject(self._runner, spec.part)
            except SoftqError as error:
                raise UnfitError(
                    f"{error}; model and data must lie on every worker's machine under the same path"
                ) from error
            place, most = _worker()
            self._sessions = self._planner.sessions(spec.task.threads, most)
            self._folder = tempfile.TemporaryDirectory(prefix="softq-", dir=place)
            self.folder = Path(self._folder.name)
            self.comparison = comparison(self.subject.metric, self.subject.output, self.subject.label, self.folder)
            self._open = True

    def close(self) -> None:
        if self._open:
            self._folder.cleanup()

    def at_hand(self, shard: Shard) -> float:
        """Prepare a shard if it is not, and return the seconds that it took."""
        with self._lock:
            lock = self._locks.setdefault(shard.number, threading.Lock())
        with lock:
            return 0.0 if shard.number in self.digests else self.prepare(shard).preparing

    def prepare(self, shard: Shard) -> Answer:
        """Read a shard and run the float model over it."""
        begun = time.perf_counter()
        batches = self.subject.data.between(shard.start, shard.stop).batches(self.subject.batch)
        read: list[str] = []
        digest, outputs_digest = Digest(), Digest()
        parts: list[Part] = []
        for number, batch in enumerate(batches, shard.first):
            digest.add_batch(batch)
            if (number + 1) % LEAST == 0:
                read.append(digest.text())
                digest = Digest()
            arrays = {_INPUT + name: array for name, array in batch.inputs.items()}
            arrays |= {LABEL + name: array for name, array in batch.labels.items()}
            np.savez(self.folder / f"{number}.npz", **arrays)  # pyright: ignore[reportArgumentType]
            outputs, known = run_batch(self._runner, self.subject, batch)
            outputs_digest.add(outputs)
            parts.append(self.comparison.look(number, outputs, known))
        if len(parts) % LEAST:
            read.append(digest.text())
        if joined(read) != shard.digest:
            source = self.subject.data.source
            raise UnfitError(f"it has other data at {source} (samples {shard.start + 1} to {shard.stop})")
        self.digests[shard.number] = outputs_digest.text()
        seconds = time.perf_counter() - begun
        return Answer(
            tuple(parts), self.digests[shard.number], shard.stop - shard.start, seconds, 0.0, seconds
        )  # fmt: skip

    def batches(self, shard: Shard) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of a prepared shard with their numbers."""
        number, at = shard.first, shard.start
        while at < shard.stop:
            with np.load(self.folder / f"{number}.npz", allow_pickle=False) as arrays:
                inputs = {n.removeprefix(_INPUT): arrays[n] for n in arrays.files if n.startswith(_INPUT)}
                labels = {n.removeprefix(LABEL): arrays[n] for n in arrays.files if n.startswith(LABEL)}
            batch = Batch(inputs, labels)
            yield number, batch
            number, at = number + 1, at + batch.samples

    def candidate(self, plan: Plan) -> Runner:
        """Return what runs the model that a plan makes; as many sessions are kept as threads may want at once."""
        with self._lock:
            return self._sessions.runner(plan)


_guard = threading.Lock()
_sweeps: dict[str, _Kept] = {}


@contextmanager
def _of(spec: Spec) -> Generator[_Kept]:
    now = time.monotonic()
    with _guard:
        for token, other in list(_sweeps.items()):
            if token != spec.token and not other.busy and now - other.used > _IDLE:
                _sweeps.pop(token).close()
        kept = _sweeps.setdefault(spec.token, _Kept(spec))
        kept.busy += 1
    try:
        kept.open()
        yield kept
    finally:
        with _guard:
            kept.busy -= 1
            kept.used = time.monotonic()


def _worker() -> tuple[str, int]:
    """Return this worker's folder for scratch files, and the number of its threads."""
    import distributed

    worker = distributed.get_worker()
    place = worker.local_directory
    os.makedirs(place, exist_ok=True)
    return place, max(1, worker.state.nthreads)
