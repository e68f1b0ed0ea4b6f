"""The order in which sites give up bits: greedily, where a bit costs the least error.

The error of a site is that of P x V in shares of its size, or scaled by what it does to the output (`effects`); errors
of sites add up as squares, as independent ones do.
A site that stays float has 32 bits and no error. Where a cost on a target is saved, it takes the place of the bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from softq.sweeps.planner import Choice

FLOAT_BITS = 32


@dataclass(frozen=True)
class Rung:
    """One way to do a site: its bits, what it gets (None stays float), its error, and its cost if that is saved."""

    bits: int
    choice: Choice | None
    error: float
    cost: float | None = None

    @property
    def saved(self) -> float:
        """What less of is better: the cost, or else the bits."""
        return self.bits if self.cost is None else self.cost


State = tuple[int, ...]
"""For each site the number of its rung, 0 the widest."""


def build_ladder(
    rungs: Iterable[Rung], keep: Sequence[Choice] = (), float_cost: float | None = None
) -> tuple[Rung, ...]:
    """Return the rungs that have the least error for their bits, from float down; errors rise as bits fall.

    The rungs of the choices in `keep` stay whatever their error is; no step goes to them.
    """
    best: list[Rung] = []
    others: list[Rung] = []
    for rung in sorted(rungs, key=lambda one: (one.saved, one.error)):
        if not best or (rung.error < best[-1].error and rung.saved > best[-1].saved):
            best.append(rung)
        elif rung.choice in keep:
            others.append(rung)
    unchanged = Rung(FLOAT_BITS, None, 0.0, float_cost)
    return (unchanged, *sorted((*best, *others), key=lambda one: (-one.saved, one.error)))


def uniform_choices(rungs: Mapping[str, Sequence[Rung]]) -> list[Choice]:
    """Return a choice per width, narrow ones first: of those that serve most sites the one with the least error.

    A width whose least error is no less than a narrower one's is left out.
    """
    by_width: dict[float, list[Rung]] = {}
    for some in rungs.values():
        for rung in some:
            by_width.setdefault(rung.saved, []).append(rung)
    chosen: list[Choice] = []
    least = (0, math.inf)
    for _, some in sorted(by_width.items()):
        scores: list[tuple[int, float, Choice]] = []
        for choice in [rung.choice for rung in some if rung.choice is not None]:
            errors = [rung.error**2 for rung in some if rung.choice == choice]
            scores.append((-len(errors), sum(errors), choice))
        best = min(scores, key=lambda one: one[:2])
        if best[:2] < least:
            least = best[:2]
            chosen.append(best[2])
    return chosen


def uniform_state(ladders: Iterable[Sequence[Rung]], choice: Choice) -> State:
    """Return the state in which each site that can has the choice, and the others are float."""
    return tuple(next((at for at, rung in enumerate(rungs) if rung.choice == choice), 0) for rungs in ladders)


def descend(ladders: Sequence[Sequence[Rung]], start: State | None = None) -> list[State]:
    """Return the states from `start`, all float by default, to all narrowest; each step has the least error per bit."""
    state: State = (0,) * len(ladders) if start is None else start
    path: list[State] = [state]
    while moves := steps(ladders, state):
        state = moves[0]
        path.append(state)
    return path


def steps(ladders: Sequence[Sequence[Rung]], state: State) -> list[State]:
    """Return the states with one site narrower, the one with the least error per bit saved first."""
    moves: list[tuple[float, State]] = []
    for site, rungs in enumerate(ladders):
        here = rungs[state[site]]
        for at in range(state[site] + 1, len(rungs)):
            if rungs[at].saved == here.saved:
                continue
            cost = (rungs[at].error ** 2 - here.error**2) / (here.saved - rungs[at].saved)
            moves.append((cost, (*state[:site], at, *state[site + 1 :])))
    return [move for _, move in sorted(moves)]


def mean_bits(ladders: Sequence[Sequence[Rung]], state: State) -> float:
    """Return the mean over the sites of their bits."""
    return sum(rungs[at].bits for rungs, at in zip(ladders, state, strict=True)) / len(ladders)


def mean_saved(ladders: Sequence[Sequence[Rung]], state: State) -> float:
    """Return the mean over the sites of what is saved: their costs, or else their bits."""
    return sum(rungs[at].saved for rungs, at in zip(ladders, state, strict=True)) / len(ladders)


def choose(ladders: Mapping[str, Sequence[Rung]], state: State) -> dict[str, Choice]:
    """Return what each site gets that does not stay float."""
    chosen = {site: rungs[at].choice for (site, rungs), at in zip(ladders.items(), state, strict=True)}
    return {site: choice for site, choice in chosen.items() if choice is not None}
