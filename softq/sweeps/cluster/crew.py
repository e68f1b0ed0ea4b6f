"""The workers of a cluster: who is there, who is fit, who gets which unit, who died, who hangs.

The client hands out every unit itself, as many to a worker as it has threads, so that it knows where each one is and
since when.
A unit whose worker dies goes to another, `DEATHS` times at most. One that takes too long is reported and goes to
another as well, once; the first answer counts, and a worker that answers after all takes part again.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any

from softq.errors import InputError, ProofError, RefusalError, SoftqError
from softq.sweeps.cluster import unit as work
from softq.sweeps.cluster.costs import Costs
from softq.sweeps.cluster.fitness import ASKED, asked_names, unfitness
from softq.sweeps.cluster.roster import Run, Step, Unit, Worker

if TYPE_CHECKING:
    from distributed import Client, Future

DEATHS = 3
"""Workers that may die at one unit: a model that needs too much memory kills every one."""

HANGS = 2
"""Workers that may give no answer to one unit."""

_FACTOR, _LEAST, _FIRST = 10.0, 60.0, 600.0
"""A unit hangs after ten times the longest so far, a minute at least, and ten minutes while there was none."""

_TICK, _LOOK = 0.1, 0.5
"""Seconds between two looks at the clock, and between two at who is there."""

_ANSWER = 30.0
"""Seconds after which a scheduler that says nothing is gone."""

_GONE = "the scheduler is gone; when it is back, the same command goes on"

_LOG = logging.getLogger("softq.sweep")


@dataclass
class _Answered:
    future: Future[Any]
    answer: Any = None
    error: BaseException | None = None
    lost: bool = False


class Crew:
    """The workers of a client's cluster, for one sweep.

    Args:
        client: The client.
        spec: What the workers must know.
        shards: How many shards there are.
        timeout: Seconds after which a unit hangs; see `_FACTOR` if None.
    """

    def __init__(self, client: Client, spec: work.Spec, shards: int, timeout: float | None) -> None:
        self._client, self._spec, self._shards, self._timeout = client, spec, shards, timeout
        self._workers: dict[str, Worker] = {}
        self._running: dict[Future[Any], Run] = {}
        self._answers: queue.SimpleQueue[_Answered] = queue.SimpleQueue()
        self._looked = -_LOOK
        self._digests: dict[int, tuple[str, str]] = {}
        self._costs = Costs()
        self._longest = 0.0
        self._reasons: dict[str, str] = {}
        self._lonely: float | None = None

    @property
    def slots(self) -> int:
        """Units that are measured at a time."""
        return max(1, sum(worker.threads for worker in self._workers.values() if worker.ready and not worker.late))

    def answers(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, work.Answer | RefusalError | ProofError]]:
        """Yield what each unit gave, as the answers come; a unit that its taker has set `done` meanwhile is left out.

        Raises:
            InputError: no worker can be used, or a unit kills its workers or gets no answer, or the scheduler is gone.
            SoftqError: what a unit raised.
        """
        source, waiting = iter(units), list[Unit]()
        more = True
        try:
            while True:
                waiting = [one for one in waiting if not one.done]
                while more and len(waiting) < self._window():
                    one = next(source, None)
                    more = one is not None
                    waiting += [] if one is None else [one]
                if not waiting and not any(run.unit and not run.unit.done for run in self._running.values()):
                    return
                self._muster(waiting)
                self._hand_out(waiting)
                for answered in self._answered():
                    yield from self._take(answered, waiting)
                self._watch(waiting)
        finally:
            # What is still under way nobody waits for any more; a run that has begun goes to its end on its worker.
            for future, run in list(self._running.items()):
                if run.step == "unit" and not run.late:
                    self._end(future)

    def dismiss(self) -> None:
        """Let the workers forget the sweep, as far as they answer."""
        futures: list[Future[Any]] = []
        for address, worker in self._workers.items():
            if worker.ready and not worker.late:
                futures.append(self._submit(address, work.forget, self._spec.token))
        end = time.monotonic() + 5.0
        while time.monotonic() < end and not all(future.done() for future in futures):
            time.sleep(0.02)

    # Who is there

    def _muster(self, waiting: list[Unit]) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        try:
            there: dict[str, int] = self._client.nthreads(callback_timeout=_ANSWER)  # pyright: ignore
        except Exception as error:
            raise InputError(_GONE) from error
        self._check_scheduler()
        for address in [address for address in self._workers if address not in there]:
            self._lose(address, waiting)
        for address, threads in there.items():
            if address not in self._workers:
                self._workers[address] = Worker(threads, deque(maxlen=threads))
                self._begin(address, "ask", None, self._submit(address, eval, ASKED, {"names": asked_names()}))
        self._check_somebody(now)

    def _check_scheduler(self) -> None:
        # A client that has lost its scheduler calls all that it waits for cancelled.
        if self._client.status != "running":
            raise InputError(_GONE)

    def _lose(self, address: str, waiting: list[Unit]) -> None:
        for future in [future for future, run in self._running.items() if run.address == address]:
            run = self._end(future)
            if run.unit is not None and not run.late and not run.unit.done:
                self._died(run.unit, address, waiting)
        del self._workers[address]

    def _died(self, unit: Unit, address: str, waiting: list[Unit]) -> None:
        unit.deaths += 1
        if unit.deaths >= DEATHS:
            raise InputError(f"{unit.deaths} workers died while they measured {unit}: memory may be short")
        _say(f"worker {address} died while it measured {unit}; it is measured again")
        waiting.insert(0, unit)

    def _check_somebody(self, now: float) -> None:
        workers = self._workers.values()
        if any(not worker.unfit and not worker.late for worker in workers):
            self._lonely = None
            return
        if self._workers and all(worker.unfit for worker in workers):
            raise InputError(f"no worker of {len(self._workers)} can measure: {next(reversed(self._reasons))}")
        patience = self._timeout or _LEAST
        what = "no worker answers" if self._workers else "the cluster has no worker; `dask worker` starts one"
        if self._lonely is None:
            self._lonely = now
            _say(f"{what}; waiting {patience:.0f} s for one")
        if now - self._lonely > patience:
            raise InputError(f"{what} (waited {patience:.0f} s); the same command goes on")

    # Who gets what

    def _window(self) -> int:
        """How many of the next units are looked at: so the settings are finished in about their order."""
        return 2 * self._shards + self.slots

    def _hand_out(self, waiting: list[Unit]) -> None:
        for address, worker in self._workers.items():
            while worker.free:
                some = [one for one in waiting[: self._window()] if address not in one.away]
                if not some:
                    break
                unit = self._costs.cheapest(some, worker, self._workers.values())
                waiting.remove(unit)
                worker.kept.add(unit.shard.number)
                if unit.plan is not None and unit.number not in worker.opened:
                    worker.opened.append(unit.number)
                future = self._submit(address, work.measure, self._spec, unit.shard, unit.plan)
                self._begin(address, "unit", unit, future)

    def _submit(self, address: str, call: Any, *given: Any) -> Future[Any]:
        return self._client.submit(
            call, *given, workers=[address], allow_other_workers=False, pure=False, retries=0
        )  # fmt: skip

    def _begin(self, address: str, step: Step, unit: Unit | None, future: Future[Any]) -> None:
        self._running[future] = Run(address, step, unit, time.monotonic())
        self._workers[address].busy += 1
        future.add_done_callback(lambda done: Thread(target=self._fetch, args=(done,), daemon=True).start())

    def _end(self, future: Future[Any]) -> Run:
        run = self._running.pop(future)
        worker = self._workers[run.address]
        worker.busy -= 1
        worker.late -= run.late
        future.release()
        return run

    # What comes back

    def _fetch(self, future: Future[Any]) -> None:
        """Get what a future holds, in a thread of its own: a worker can hang with its answer, and the others go on."""
        import distributed

        try:
            self._answers.put(_Answered(future, future.result()))
        except (distributed.KilledWorker, CancelledError, asyncio.CancelledError, TimeoutError):
            # What it found went with the worker, or with the client.
            self._answers.put(_Answered(future, lost=True))
        except Exception as error:
            self._answers.put(_Answered(future, error=error))

    def _answered(self) -> list[_Answered]:
        found: list[_Answered] = []
        try:
            found.append(self._answers.get(timeout=_TICK))
            while True:
                found.append(self._answers.get_nowait())
        except queue.Empty:
            return found

    def _take(
        self, answered: _Answered, waiting: list[Unit]
    ) -> Iterator[tuple[Unit, work.Answer | RefusalError | ProofError]]:
        future, answer, error, lost = answered.future, answered.answer, answered.error, answered.lost
        if future not in self._running:  # nobody waits for it any more
            return
        if lost:
            self._check_scheduler()
        run = self._end(future)
        if run.late and not lost:
            _say(f"worker {run.address} answers again")
        if lost:
            # A late unit has already been given to somebody else. If the worker is still there, it is asked anew.
            if run.unit is not None and not run.late and not run.unit.done:
                self._died(run.unit, run.address, waiting)
            self._lose(run.address, waiting)
            return
        if run.unit is None:
            self._admit(run, answer, error)
            return
        unit = run.unit
        if unit.done:
            return
        if isinstance(error, work.UnfitError):
            self._leave_out(run.address, str(error))
            waiting.insert(0, unit)
        elif isinstance(error, (RefusalError, ProofError)):
            unit.done = True
            yield unit, error
        elif isinstance(error, SoftqError):
            raise error
        elif error is not None:
            raise InputError(
                f"worker {run.address} failed at {unit}: {type(error).__name__}: {_line(error)}"
            ) from error
        elif self._agrees(run.address, unit, answer):
            unit.done = True
            self._longest = self._longest if run.late else max(self._longest, time.monotonic() - run.since)
            self._costs.learn(unit, answer)
            yield unit, answer
        else:
            waiting.insert(0, unit)

    def _agrees(self, address: str, unit: Unit, answer: work.Answer) -> bool:
        """Return whether the float model gave the bits that it gave on the worker that was first to run the shard."""
        digest, first = self._digests.setdefault(unit.shard.number, (answer.digest, address))
        if digest != answer.digest:
            self._leave_out(
                address,
                f"on samples {unit.shard.start + 1} to {unit.shard.stop} its float model does not give the bits of that"
                f" on worker {first}; values would depend on who measures: use workers with one kind of processor",
            )
        return digest == answer.digest

    def _admit(self, run: Run, answer: Any, error: BaseException | None) -> None:
        worker = self._workers[run.address]
        if isinstance(error, work.UnfitError):
            self._leave_out(run.address, str(error))
        elif error is not None or run.step == "ask":
            reason = unfitness(answer, error)
            if reason is not None:
                self._leave_out(run.address, reason)
            else:
                self._begin(run.address, "admit", None, self._submit(run.address, work.admit, self._spec))
        else:
            worker.ready = True

    def _leave_out(self, address: str, reason: str) -> None:
        worker = self._workers[address]
        worker.ready, worker.unfit = False, True
        text = f"worker {address}: {reason}"
        if reason not in self._reasons.values():
            _say(f"left out: {text}")
        self._reasons[text] = reason

    # Who hangs

    def _limit(self) -> float:
        if self._timeout is not None:
            return self._timeout
        return max(_LEAST, _FACTOR * self._longest) if self._longest else _FIRST

    def _watch(self, waiting: list[Unit]) -> None:
        now, limit = time.monotonic(), self._limit()
        for run in list(self._running.values()):
            if run.late or now - run.since <= limit:
                continue
            run.late = True
            self._workers[run.address].late += 1
            unit, spent = run.unit, f"for {now - run.since:.0f} s (the longest so far took {self._longest:.1f} s)"
            if unit is None:
                _say(f"worker {run.address} gives no answer {spent}; it gets no work until it does")
            elif not unit.done:
                unit.away.add(run.address)
                if len(unit.away) >= HANGS:
                    raise InputError(
                        f"{unit}: {len(unit.away)} workers gave no answer, the last one, {run.address}, {spent};"
                        " a greater --timeout gives them longer"
                    )
                _say(f"worker {run.address} gives no answer at {unit} {spent}; another one measures it")
                waiting.insert(0, unit)


def _say(text: str) -> None:
    # Without any configuration, Python writes a warning's bare text to stderr.
    _LOG.warning("softq: %s", text)


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
