"""Work that several cores do at once, in threads: for compilers, which let other threads run meanwhile.

How many threads: `$SOFTQ_JOBS`, or as many as there are cores that this process may use.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeAlias, TypeVar, overload

from softq.errors import UsageError

T = TypeVar("T")
_Task: TypeAlias = tuple[Future[T], Callable[[], T]]

_STACK_BYTES = 64 << 20
"""Compilers recurse as deep as their input is nested, and a thread's usual stack may be a quarter of the main one's."""

_starting = threading.Lock()
"""For who changes the size of stacks, which is one for all threads to come."""


def jobs() -> int:
    """Return how many threads work at once, the one that asks among them.

    Raises:
        UsageError: `$SOFTQ_JOBS` is no number of threads.
    """
    text = os.environ.get("SOFTQ_JOBS")
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isdecimal() or not int(text):
        raise UsageError(f"SOFTQ_JOBS is {text!r}; expected a number of threads, 1 or more")
    return int(text)


class Results(Sequence[T]):
    """What functions return, in their order.

    Other threads begin at once; whoever reads a result works with them until all are there, and gets the error that the
    function ended with.
    """

    def __init__(self, works: Sequence[Callable[[], T]], costs: Sequence[int]) -> None:
        """Start the other threads.

        Args:
            works: The functions; all are called by the reader where there is one job alone.
            costs: How long each takes, in any unit: the longest begin first.
        """
        self._futures: list[Future[T]] = [Future() for _ in works]
        order = sorted(range(len(works)), key=lambda i: -costs[i])
        self._waiting = deque((self._futures[i], works[i]) for i in order)
        count = min(jobs() - 1, len(works))
        with _starting:
            usual = threading.stack_size(_STACK_BYTES)
            try:
                for _ in range(count):
                    threading.Thread(target=_work, args=(self._waiting,), name="softq").start()
            except RuntimeError:
                pass  # The system gives no more of them; the reader works in any case.
            finally:
                threading.stack_size(usual)

    def __del__(self) -> None:
        """Leave undone what nobody can ask for any more."""
        self._waiting.clear()

    def __len__(self) -> int:
        return len(self._futures)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        _work(self._waiting)
        if isinstance(index, slice):
            return tuple(future.result() for future in self._futures[index])
        return self._futures[index].result()


class Later(Sequence[T]):
    """What a function returns that another thread calls at once; where there is one job alone, its reader calls it."""

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._made = Results([make], [1])

    def __len__(self) -> int:
        return len(self._made[0])

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._made[0][index]


def _work(waiting: deque[_Task[T]]) -> None:
    """Call functions until none waits."""
    for future, work in _taken(waiting):
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        except BaseException as error:
            future.set_exception(error)
            for other, _ in _taken(waiting):
                other.cancel()
            raise


def _taken(waiting: deque[_Task[T]]) -> Iterator[_Task[T]]:
    """Yield what waits, each to one thread."""
    with contextlib.suppress(IndexError):
        while True:
            yield waiting.popleft()
