"""How long a sweep will still take: from what each method's settings have cost so far, not from their number."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence

from softq.progress import Progress


class Eta:
    """Reports milliseconds: those that have passed, and those with the ones that are still to come by estimate.

    A method that was not measured yet is taken to cost as much as the others do on average, or as the float model.

    Args:
        step: What is done, for the callback.
        kinds: The kind of each piece of work to come; pieces of one kind cost about the same.
        first: Seconds of the float model.
        progress: The callback, or None.

    Attributes:
        abreast: How many pieces are done at a time; set by who knows.
    """

    def __init__(
        self, step: str = "", kinds: Sequence[str] = (), first: float = 0.0, progress: Progress | None = None
    ) -> None:
        self.abreast = 1
        self._step, self._first, self._progress = step, first, progress
        self._left = Counter(kinds)
        self._costs: defaultdict[str, list[float]] = defaultdict(list)
        self._start = self._piece = time.perf_counter()

    def begin(self) -> None:
        """A piece of work begins."""
        self._piece = time.perf_counter()

    def part(self, share: float) -> None:
        """So much of the piece at hand is done, 0 to 1."""
        self._show(time.perf_counter() - self._piece, share)

    def done(self, kind: str) -> None:
        """The piece at hand is done."""
        self.took(kind, time.perf_counter() - self._piece)

    def took(self, kind: str, seconds: float | None) -> None:
        """One of the pieces is done and took so long, or will not be done (None)."""
        if seconds is not None:
            self._costs[kind].append(seconds)
        self._left[kind] -= 1
        self._show(0.0, 0.0)

    def remaining(self) -> float:
        """Return the seconds until all pieces are done, the one at hand counted in full."""
        known = [cost for costs in self._costs.values() for cost in costs]
        usual = sum(known) / len(known) if known else self._first
        whole = sum(
            count * (sum(self._costs[kind]) / len(self._costs[kind]) if self._costs[kind] else usual)
            for kind, count in self._left.items()
        )
        return whole / self.abreast

    def _show(self, spent: float, share: float) -> None:
        if self._progress is None:
            return
        passed = time.perf_counter() - self._start
        # What has been spent on the piece at hand says what it will cost in all, once there is something to go by.
        left = self.remaining() - spent if share == 0 else max(self.remaining() - spent, spent / share - spent)
        self._progress(self._step, int(1000 * passed), int(1000 * (passed + max(left, 0.0))))
