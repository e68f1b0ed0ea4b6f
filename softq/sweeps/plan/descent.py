"""The search along states: from uniform settings and from all float down to the narrowest plan in a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from softq.errors import ProofError, RefusalError
from softq.progress import Progress
from softq.sweeps.budget import Budget
from softq.sweeps.evaluate.evaluator import Measurement
from softq.sweeps.plan.frontier import Rung, State, descend, mean_saved


@dataclass
class Search:
    """A search on one set of samples.

    Attributes:
        ladders: For each site its rungs, with errors that compare between sites.
        uniform: States in which the sites have the same, the narrow ones first.
        budget: What may be lost.
        measure: Measures the plan of a state.
        progress: Called with the plans measured.
        measured: What was measured.
        refused: States whose plan is refused.
        notes: Why, one sentence each.
    """

    ladders: Sequence[Sequence[Rung]]
    uniform: Sequence[State]
    budget: Budget
    measure: Callable[[State], Measurement]
    progress: Progress | None
    measured: dict[State, Measurement] = field(default_factory=dict[State, Measurement])
    refused: set[State] = field(default_factory=set[State])
    notes: list[str] = field(default_factory=list[str])

    def run(self) -> tuple[State, bool]:
        """Return the narrowest state that keeps the budget, or the best that was measured, and which of these it is.

        The search asks for what the verification asks for, on its own samples. A plan at the edge of that is shown to
        keep the budget on as many others one time in two, one with a single standard error to spare one time in four;
        and each that is not leaves the next one to be verified on the same samples, with less confidence.
        """
        for keeps in (self.is_shown, self.by_value):
            start = next((state for state in self.uniform if keeps(state)), None)
            best = None if start is None else self._last(descend(self.ladders, start), keeps)
            # The first state converts nothing and is no plan; whatever is returned was measured itself.
            wide, *path = descend(self.ladders)
            if best is not None:
                path = [state for state in path if self.saved(state) < self.saved(best)]
            found = self._last([wide, *path], keeps)
            best = best if found == wide else found
            if best is not None:
                return self._not_dominated(best), True
        if not self.measured:
            raise RefusalError(f"no plan can be measured: {self.notes[-1]}")
        return min(self.measured, key=lambda state: self.budget.excess(self.measured[state].metric)), False

    def back(self, state: State) -> Iterator[State]:
        """Return wider states that keep the budget here: uniform ones, those 1, 2, 4, ... steps wider, the widest."""
        path = [one for one in reversed(descend(self.ladders)[1:]) if self.saved(one) > self.saved(state)]
        wider = {path[2**step - 1] for step in range(len(path).bit_length()) if 2**step <= len(path)}
        wider |= {*path[-1:], *(one for one in self.uniform if self.saved(one) > self.saved(state))}
        return (one for one in sorted(wider, key=self.saved) if self.by_value(one))

    def saved(self, state: State) -> float:
        """Return the mean of what is saved, bits or costs, of a state."""
        return mean_saved(self.ladders, state)

    def is_shown(self, state: State) -> bool:
        """Say whether these samples show that a state keeps the budget, by the rule of the verification."""
        found = self._found(state)
        return found is not None and self.budget.judge_measured(found).passed

    def by_value(self, state: State) -> bool:
        """Say whether the loss of a state keeps the budget on these samples."""
        found = self._found(state)
        return found is not None and self.budget.judge(found.metric).passed

    def _last(self, path: Sequence[State], keeps: Callable[[State], bool]) -> State:
        """Return the last state of a path that keeps the budget, by bisection; the first is known to keep it."""
        low, high = 0, len(path)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if keeps(path[middle]) else (low, middle)
        return path[low]

    def _not_dominated(self, state: State) -> State:
        """Return a measured state with no more bits and no more loss than this one, less of one of them if there is."""
        chosen, (bits, loss) = state, self._costs(state)
        for other in self.measured:
            costs = self._costs(other)
            if costs[0] <= bits and costs[1] <= loss and costs != (bits, loss):
                chosen, (bits, loss) = other, costs
        return chosen

    def _costs(self, state: State) -> tuple[float, float]:
        return self.saved(state), self.budget.excess(self.measured[state].metric)

    def _found(self, state: State) -> Measurement | None:
        if state not in self.measured and state not in self.refused:
            try:
                self.measured[state] = self.measure(state)
            except (RefusalError, ProofError) as error:
                self.refused.add(state)
                self.notes.append(f"left out: {error}")
            if self.progress is not None:
                self.progress("plan", len(self.measured), None)
        return self.measured.get(state)
