"""What a worker does: one shard of the data through the float model or a converted one, in a workspace of its own."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from softq.data import Batch
from softq.errors import SoftqError
from softq.limits import Limits, current, limited
from softq.metrics import Part
from softq.plans import Plan
from softq.sweeps.distributed.shards import Shard, digest_arrays, join_digests
from softq.sweeps.evaluate.evaluator import run_batch
from softq.sweeps.planner import Planner
from softq.sweeps.task import Task


class UnfitError(Exception):
    """This worker cannot take part; its text says why, and what to do."""


@dataclass(frozen=True)
class Answer:
    """What a unit of work gives.

    Attributes:
        parts: One for each batch, in order.
        digest: SHA-256 of the float model's outputs on the shard; it must not depend on the worker.
        preparing: Seconds that the shard took to be read and run through the float model; 0 if it was at hand.
        opening: Seconds to convert and load the model; 0 if it was at hand.
        seconds: Seconds of the run.
    """

    parts: tuple[Part, ...]
    digest: str
    preparing: float
    opening: float
    seconds: float


class Workspace:
    """What a worker keeps of a sweep: the model, and on its disk what it has prepared of the shards that it has had.

    It is empty until it is used; several threads may measure in it at once. Its folder goes when it does.

    Args:
        task: What is measured, with absolute paths: it carries no arrays.
        part: First sample, and the one behind the last.
        graph: Hash of the model's graph, which the worker's must have.
        weights: Fingerprint of its weights.
        limits: What may be read at most; by default what holds here.
    """

    def __init__(
        self, task: Task, part: tuple[int, int | None], graph: str, weights: str, limits: Limits | None = None
    ) -> None:
        self._limits = current() if limits is None else limits
        self._given = task, part, graph, weights, self._limits
        self._lock, self._locks = threading.Lock(), defaultdict[int, threading.Lock](threading.Lock)
        self._opened = False
        self._digests: dict[int, str] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Make an empty one of the copy, since dask moves what a worker holds that is retired."""
        return Workspace, self._given

    def measure(self, shard: Shard, plan: Plan | None) -> Answer:
        """Return what a shard gives with the model that a plan makes, or with the float model.

        Raises:
            UnfitError: this worker does not see model and data, or other ones.
            SoftqError: as of an evaluator.
        """
        with limited(**asdict(self._limits)):
            return self._measure(shard, plan)

    def _measure(self, shard: Shard, plan: Plan | None) -> Answer:
        self._open()
        if plan is None:
            return self._prepare(shard)
        with self._locks[shard.number]:
            preparing = 0.0 if shard.number in self._digests else self._prepare(shard).preparing
        begun = time.perf_counter()
        with self._lock:
            runner = self._sessions.runner(plan)
        opened = time.perf_counter()
        parts = tuple(
            self._meter.compare(number, *run_batch(runner, self._subject, batch)) for number, batch in self._read(shard)
        )
        return Answer(parts, self._digests[shard.number], preparing, opened - begun, time.perf_counter() - opened)

    def open(self) -> None:
        """Load the model and look at the data, if that is not done.

        Raises:
            UnfitError: this worker does not see them, or other ones.
        """
        with limited(**asdict(self._limits)):
            self._open()

    def _open(self) -> None:
        with self._lock:
            if not self._opened:
                self._load()
                self._opened = True

    def _load(self) -> None:
        task, part, graph, weights, _ = self._given
        try:
            opened = task.open()
            planner = Planner(opened.model, task.selection)
            if (planner.graph, planner.weights) != (graph, weights):
                raise UnfitError(f"it has another model at {task.name}; put the same file there")
            self._runner = opened.runner()
            self._subject = task.subject(self._runner, part)
        except SoftqError as error:
            raise UnfitError(
                f"{error}; model and data must lie on every worker's machine under the same path"
            ) from error
        place, threads = _worker()
        # A session per thread: each may measure another setting.
        self._sessions = opened.sessions(planner.model, threads)
        self._folder = Path(tempfile.mkdtemp(prefix="softq-", dir=place))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._meter = self._subject.start(self._folder)

    def _prepare(self, shard: Shard) -> Answer:
        """Read a shard, keep its batches, and run the float model over it."""
        begun = time.perf_counter()
        read: list[str] = []
        ran: list[str] = []
        parts: list[Part] = []
        batches = self._subject.data.between(shard.start, shard.stop).batches(self._subject.batch)
        with open(self._file(shard), "wb") as file:
            for number, batch in enumerate(batches, shard.first):
                read.append(digest_arrays(batch.inputs, batch.labels))
                pickle.dump((number, batch), file)
                outputs, labels = run_batch(self._runner, self._subject, batch)
                ran.append(digest_arrays(outputs))
                parts.append(self._meter.look(number, outputs, labels))
        if join_digests(read) != shard.digest:
            source = self._subject.data.source
            raise UnfitError(f"it has other data at {source} (samples {shard.start + 1} to {shard.stop})")
        self._digests[shard.number] = digest = join_digests(ran)
        seconds = time.perf_counter() - begun
        return Answer(tuple(parts), digest, seconds, 0.0, seconds)

    def _read(self, shard: Shard) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of a prepared shard with their numbers."""
        with open(self._file(shard), "rb") as file:
            done = shard.start
            while done < shard.stop:
                number, batch = pickle.load(file)
                yield number, batch
                done += batch.samples

    def _file(self, shard: Shard) -> Path:
        return self._folder / f"shard-{shard.number}"


def _worker() -> tuple[str, int]:
    """Return this worker's folder for scratch files, and the number of its threads."""
    import distributed

    worker = distributed.get_worker()
    os.makedirs(worker.local_directory, exist_ok=True)
    return worker.local_directory, max(1, worker.state.nthreads)
