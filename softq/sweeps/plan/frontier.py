"""The order in which sites give up bits: greedily, where a bit costs the least error.

The error of a site is that of P x V in shares of its size, or scaled by what it does to the output (`effects`); errors
of sites add up as squares, as independent ones do.
A site that stays float has 32 bits and no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from softq.sweeps.planner import Choice

FLOAT_BITS = 32


@dataclass(frozen=True)
class Rung:
    """One way to do a site: its bits, what it gets (None stays float), and its error."""

    bits: int
    choice: Choice | None
    error: float


State = tuple[int, ...]
"""For each site the number of its rung, 0 the widest."""


def build_ladder(rungs: Iterable[Rung]) -> tuple[Rung, ...]:
    """Return the rungs that have the least error for their bits, from float down; errors rise as bits fall."""
    kept: list[Rung] = []
    for rung in sorted(rungs, key=lambda one: (one.bits, one.error)):
        if not kept or (rung.error < kept[-1].error and rung.bits > kept[-1].bits):
            kept.append(rung)
    return (Rung(FLOAT_BITS, None, 0.0), *reversed(kept))


def descend(ladders: Sequence[Sequence[Rung]]) -> list[State]:
    """Return the states from all float to all narrowest; each step is the one with the least error per bit saved."""
    state: State = (0,) * len(ladders)
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
            cost = (rungs[at].error ** 2 - here.error**2) / (here.bits - rungs[at].bits)
            moves.append((cost, (*state[:site], at, *state[site + 1 :])))
    return [move for _, move in sorted(moves)]


def mean_bits(ladders: Sequence[Sequence[Rung]], state: State) -> float:
    """Return the mean over the sites of their bits."""
    return sum(rungs[at].bits for rungs, at in zip(ladders, state, strict=True)) / len(ladders)


def choose(ladders: Mapping[str, Sequence[Rung]], state: State) -> dict[str, Choice]:
    """Return what each site gets that does not stay float."""
    chosen = {site: rungs[at].choice for (site, rungs), at in zip(ladders.items(), state, strict=True)}
    return {site: choice for site, choice in chosen.items() if choice is not None}
