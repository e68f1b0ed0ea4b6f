"""Runs of rivals side by side: they take turns, so that what else the machine does meets all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.cpu.section import Result

Call = Callable[[], object]
Times = Mapping[str, Sequence[float]]

_SHORTEST = 200e-6
"""Calls that take less are repeated within a round, so that the clock and the caches' refill weigh little."""

_REST = 0.01
"""Seconds before a turn without a call that warms up: a rival's threads, onnxruntime's by default, spin on for a while
after its call, and who comes next would have the rest of the processor only."""


def take_turns(calls: Mapping[str, Call], rounds: int, *, warm: bool = False) -> dict[str, list[float]]:
    """Return the seconds of one call of each in every round, after one round that is not counted.

    Every second round goes backwards, so that nobody always comes next after the same one.

    Args:
        calls: The rivals by name.
        rounds: How often each has its turn.
        warm: Whether a call of the same that is not timed stands before each timed one: it finds the caches as it
            leaves them itself, and not as the call before it does.
    """
    repeats = {name: max(1, round(_SHORTEST / max(_seconds(call, 1), 1e-7))) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for counted in range(-1, rounds):
        for name, call in list(calls.items())[:: -1 if counted % 2 else 1]:
            if warm:
                call()
            else:
                time.sleep(_REST)
            seconds = _seconds(call, repeats[name])
            if counted >= 0:
                times[name].append(seconds)
    return times


def ratio(
    times: Times, name: str, rival: str, *, work: str, place: str, threads: int = 1, limit: float | None = None
) -> Result:
    """Return how a call compares to its rival.

    Args:
        times: What `take_turns` gave.
        name: The call.
        rival: The call it is compared to.
        work: What it does, as the table names it.
        place: Shape or model, a column of the table.
        threads: Threads that both used.
        limit: The ratio that is aimed at, if there is one.
    """
    mine, others = times[name], times[rival]
    low, _, high = statistics.quantiles([a / b for a, b in zip(mine, others, strict=True)], n=4)
    seconds, rival_seconds = statistics.median(mine), statistics.median(others)
    return Result(
        work=work, rival=rival, place=place, threads=threads, limit=limit, value=seconds, rival_value=rival_seconds,
        ratio=seconds / rival_seconds, low=low, high=high, least=min(mine) / min(others),
    )  # fmt: skip


def _seconds(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
