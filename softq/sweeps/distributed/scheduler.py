"""Who measures which unit: a thread here for each thread of a worker hands out one unit after the other, and waits.

So the client knows where each unit is and since when. A unit whose worker dies goes to another, `DEATHS` times at most.
One that takes too long is reported and goes to another as well, once; the first answer counts, and a worker that
answers after all takes part again.
"""

from __future__ import annotations

import copy
import logging
import queue
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from softq.errors import InputError, ProofError, RefusalError, SoftqError
from softq.sweeps.distributed.compatibility import ASKED, asked_names, unfitness
from softq.sweeps.distributed.worker import Answer, UnfitError, Workspace
from softq.sweeps.distributed.worker_state import Costs, Unit, Worker
from softq.sweeps.evaluate.evaluator import Refused

if TYPE_CHECKING:
    from distributed import Client, Future

DEATHS = 3
"""Workers that may die at one unit: a model that needs too much memory kills every one."""

HANGS = 2
"""Workers that may give no answer to one unit."""

_FACTOR, _LEAST, _FIRST = 10.0, 60.0, 600.0
"""A unit hangs after ten times the longest so far, a minute at least, and ten minutes while there was none."""

_TICK, _LOOK = 0.1, 0.5
"""Seconds between two looks at the answers, and between two at who is there."""

_ANSWER = 30.0
"""Seconds after which a scheduler that says nothing is gone."""

_GONE = "the scheduler is gone; when it is back, the same command goes on"

# Without any configuration, Python writes a warning's bare text to stderr.
_say = partial(logging.getLogger("softq.sweep").warning, "softq: %s")


class Scheduler:
    """Hands out units to the workers of a client's cluster, for one sweep.

    Args:
        client: The client.
        workspace: What each worker keeps a copy of.
        timeout: Seconds after which a unit hangs; see `_FACTOR` if None.
    """

    def __init__(self, client: Client, workspace: Workspace, timeout: float | None) -> None:
        self._client, self._workspace, self._timeout = client, workspace, timeout
        self._changed = Condition()  # guards what the threads share, and wakes those that wait for a unit
        self._workers: dict[str, Worker] = {}
        self._waiting: list[Unit] = []
        self._found = queue.SimpleQueue[tuple[Unit, Answer | Refused] | SoftqError]()
        self._digests: dict[int, tuple[str, str]] = {}
        self._costs, self._longest = Costs(), 0.0
        self._reasons: list[tuple[str, str]] = []
        self._looked, self._alone_since = -_LOOK, None

    def close(self) -> None:
        """Let go of the workers: what they keep of the sweep goes."""
        for address in list(self._workers):
            self._drop(address)

    @property
    def slots(self) -> int:
        """Units that are measured at a time."""
        return max(1, sum(worker.threads for worker in self._workers.values() if worker.ready))

    def answers(self, units: Iterable[Unit], ahead: int = 0) -> Iterator[tuple[Unit, Answer | Refused]]:
        """Yield what each unit gave, as the answers come; a unit that its taker has set `done` meanwhile is left out.

        Args:
            units: The units.
            ahead: How many of the next units there are to choose from; so settings are finished in about their order.

        Raises:
            InputError: no worker can be used, or a unit kills its workers or gets no answer, or the scheduler is gone.
            SoftqError: what a unit raised.
        """
        source, begun = iter(units), list[Unit]()
        try:
            while True:
                begun = [unit for unit in begun if not unit.done]
                while len(begun) < ahead + 2 * self.slots and (unit := next(source, None)) is not None:
                    begun.append(unit)
                    self._put(unit, last=True)
                if not begun:
                    return
                self._look_around()
                try:
                    found = self._found.get(timeout=_TICK)
                except queue.Empty:
                    continue
                if isinstance(found, SoftqError):
                    raise found
                unit, answer = found
                if not unit.done:
                    unit.done = True
                    yield unit, answer
        finally:
            # What is still under way nobody waits for any more; a task that has begun goes to its end on its worker.
            for unit in begun:
                unit.done = True

    # In the main thread: who is there

    def _look_around(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        try:
            there: dict[str, int] = self._client.nthreads(callback_timeout=_ANSWER)  # pyright: ignore
        except Exception as error:
            raise InputError(_GONE) from error
        if self._client.status != "running":
            raise InputError(_GONE)
        for address in self._workers.keys() - there.keys():
            for unit in self._drop(address):
                self._count_death(address, unit)
        for address in there.keys() - self._workers.keys():
            worker = Worker(address, there[address])
            with self._changed:
                self._workers[address] = worker
            Thread(target=self._admit, args=(worker,), daemon=True).start()
        self._check_somebody(now)

    def _drop(self, address: str) -> list[Unit]:
        """Let go of a worker and what it keeps, and return the units that it was at."""
        with self._changed:
            worker = self._workers.pop(address)
            worker.gone, worker.workspace = True, None
            self._changed.notify_all()
            return [unit for unit in worker.units if not unit.done and address not in unit.away]

    def _count_death(self, address: str, unit: Unit) -> None:
        unit.deaths += 1
        if unit.deaths >= DEATHS:
            raise InputError(f"{unit.deaths} workers died while they measured {unit}: memory may be short")
        _say(f"worker {address} died while it measured {unit}; it is measured again")
        self._put(unit)

    def _check_somebody(self, now: float) -> None:
        workers = self._workers.values()
        if any(not worker.unfit and not worker.late for worker in workers):
            self._alone_since = None
            return
        if workers and all(worker.unfit for worker in workers):
            address, reason = self._reasons[-1]
            raise InputError(f"no worker of {len(workers)} can measure: worker {address}: {reason}")
        patience = self._timeout or _LEAST
        what = "no worker answers" if workers else "the cluster has no worker; `dask worker` starts one"
        if self._alone_since is None:
            self._alone_since = now
            _say(f"{what}; waiting {patience:.0f} s for one")
        if now - self._alone_since > patience:
            raise InputError(f"{what} (waited {patience:.0f} s); the same command goes on")

    # In threads of each worker: what it gets, and what it gives

    def _admit(self, worker: Worker) -> None:
        """Let a worker take part if it has what the client has."""
        workspace = None
        try:
            answer = self._wait(worker, None, self._submit(worker, eval, ASKED, {"names": asked_names()}))
            reason = unfitness(answer, None)
            if reason is None:
                workspace = self._submit(worker, copy.copy, self._workspace)
                self._wait(worker, None, self._submit(worker, Workspace.open, workspace))
        except CancelledError:  # the worker is gone, or the sweep at its end
            return
        except UnfitError as error:
            reason = str(error)
        except Exception as error:
            reason = unfitness(None, error)
        if reason is not None:
            self._leave_out(worker, reason)
            return
        worker.workspace = workspace
        for _ in range(worker.threads):
            Thread(target=self._serve, args=(worker,), daemon=True).start()

    def _serve(self, worker: Worker) -> None:
        """Give a worker one unit after the other, until it is gone or left out."""
        while (unit := self._take(worker)) is not None:
            begun = time.monotonic()
            task = self._submit(worker, Workspace.measure, worker.workspace, unit.shard, unit.plan)
            try:
                answer = self._wait(worker, unit, task)
                self._check_bits(worker, unit, answer)
            except CancelledError:
                return
            except UnfitError as error:
                self._leave_out(worker, str(error))
                self._put(unit)
            except (RefusalError, ProofError) as error:
                self._found.put((unit, error))
            except SoftqError as error:
                self._found.put(error)
            except Exception as error:
                line = (str(error).strip() or type(error).__name__).splitlines()[0]
                self._found.put(InputError(f"worker {worker.address} failed at {unit}: {type(error).__name__}: {line}"))
            else:
                if worker.address not in unit.away:
                    self._longest = max(self._longest, time.monotonic() - begun)
                self._costs.learn(unit, answer)
                self._found.put((unit, answer))
            worker.units.remove(unit)

    def _put(self, unit: Unit, *, last: bool = False) -> None:
        with self._changed:
            self._waiting.insert(len(self._waiting) if last else 0, unit)
            self._changed.notify_all()

    def _take(self, worker: Worker) -> Unit | None:
        """Return the next unit for a worker, as soon as there is one; None if it gets no more."""
        with self._changed:
            while not worker.gone and not worker.unfit:
                self._waiting = [unit for unit in self._waiting if not unit.done]
                some = [unit for unit in self._waiting if worker.address not in unit.away]
                if some and not worker.late:
                    unit = self._costs.cheapest(some, worker, self._workers.values())
                    self._waiting.remove(unit)
                    worker.begin(unit)
                    return unit
                self._changed.wait()
        return None

    def _submit(self, worker: Worker, *call: Any) -> Future[Any]:
        return self._client.submit(*call, workers=[worker.address], pure=False, retries=0)

    def _wait(self, worker: Worker, unit: Unit | None, task: Future[Any]) -> Any:
        """Return what a task gives; one that takes too long is reported, and its unit goes to another worker."""
        begun = time.monotonic()
        while (left := begun + self._limit(unit) - time.monotonic()) >= 0:
            try:
                # Not in short steps: each begins anew to fetch what the task gave.
                return task.result(timeout=min(left, _LEAST))
            except TimeoutError:
                if task.status == "error":
                    raise
        with self._changed:
            worker.late += 1
        self._report_late(worker, unit, begun)
        try:
            return task.result()
        finally:
            with self._changed:
                worker.late -= 1
                self._changed.notify_all()
            if task.status != "cancelled":
                _say(f"worker {worker.address} answers again")

    def _limit(self, unit: Unit | None) -> float:
        if self._timeout is not None:
            return self._timeout if unit is not None else max(_LEAST, self._timeout)  # loading is no measuring
        return max(_LEAST, _FACTOR * self._longest) if self._longest else _FIRST

    def _report_late(self, worker: Worker, unit: Unit | None, begun: float) -> None:
        spent = f"for {time.monotonic() - begun:.0f} s (the longest so far took {self._longest:.1f} s)"
        if unit is None:
            _say(f"worker {worker.address} gives no answer {spent}; it gets no work until it does")
        elif not unit.done:
            unit.away.add(worker.address)
            if len(unit.away) < HANGS:
                _say(f"worker {worker.address} gives no answer at {unit} {spent}; another one measures it")
                self._put(unit)
                return
            last = f"{unit}: {len(unit.away)} workers gave no answer, the last one, {worker.address}, {spent}"
            self._found.put(InputError(f"{last}; a greater --timeout gives them longer"))

    def _check_bits(self, worker: Worker, unit: Unit, answer: Answer) -> None:
        """Refuse a worker whose float model gives other bits than on the worker that was first to run the shard."""
        digest, first = self._digests.setdefault(unit.shard.number, (answer.digest, worker.address))
        if digest != answer.digest:
            raise UnfitError(
                f"on samples {unit.shard.start + 1} to {unit.shard.stop} its float model does not give the bits of that"
                f" on worker {first}; values would depend on who measures: use workers with one kind of processor"
            )

    def _leave_out(self, worker: Worker, reason: str) -> None:
        with self._changed:
            worker.unfit = True
            self._changed.notify_all()
            if reason not in {said for _, said in self._reasons}:
                _say(f"left out: worker {worker.address}: {reason}")
            self._reasons.append((worker.address, reason))
