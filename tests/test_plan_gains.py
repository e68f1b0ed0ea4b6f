"""Gains: what the error of one site alone does to the output, against converted models and a divergence by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from softq.conversion import convert
from softq.errors import RefusalError
from softq.plans import Plan
from softq.runner import OnnxRunner
from softq.sweeps import Selection, Task
from softq.sweeps.evaluate.sessions import OnnxSessions
from softq.sweeps.plan.frontier import Rung, State, choose
from softq.sweeps.plan.gains import with_gains
from softq.sweeps.planner import Planner
from tests.test_sweep import IMAGES, VIT, cut

WIDTHS = (8, 6, 4, 3)


def log_probabilities(plan: Plan | None, images: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> np.ndarray:
    model = VIT if plan is None else convert(VIT, plan=plan).model
    logits = OnnxRunner.open(model, threads=1)({"images": images})["logits"].astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("widths", [WIDTHS, (4,)])
def test_gains_are_the_divergence_over_the_squared_error(tmp_path: Path, widths: tuple[int, ...]) -> None:
    data = cut(IMAGES, tmp_path / "data.npz", 96)
    task = Task(VIT, data, "top1-accuracy", Selection(batch=32), threads=1)
    planner, runner = Planner(VIT, task.selection), task.open().runner()
    sites = planner.sites("deferred-log")
    # Errors of one's own choice: gains must make up for them, whatever they are.
    errors = [{bits: scale / bits**2 for bits in widths} for scale in (1.0, 2.0, 0.5, 7.0)]
    ladders = {
        site: (Rung(32, None, 0.0), *(Rung(b, ("deferred-log", {"bits": b}), some[b]) for b in widths))
        for site, some in zip(sites, errors, strict=True)
    }

    def plan_of(state: State) -> Plan:
        return planner.plan(choose(ladders, state))

    scaled = with_gains(
        list(ladders.values()), plan_of, task.subject(runner), runner, OnnxSessions(planner.model, 1), tmp_path
    )  # fmt: skip
    with np.load(data) as arrays:
        images = arrays["images"]
    middle = 3 if len(widths) > 1 else 1  # 4 bits in both: of float, 8, 6, 4 and 3, and of float and 4
    base = log_probabilities(None, images)
    for site, (rungs, some) in enumerate(zip(scaled, errors, strict=True)):
        coarse = log_probabilities(plan_of(tuple(middle * (other == site) for other in range(4))), images)
        moved = float(np.mean(np.sum(np.exp(base) * (base - coarse), axis=-1)))
        assert moved > 1e-7
        for rung, bits in zip(rungs[1:], widths, strict=True):
            assert rung.error == pytest.approx(some[bits] * np.sqrt(moved / some[4] ** 2), rel=1e-6)
            assert (rung.bits, rung.choice) == (bits, ("deferred-log", {"bits": bits}))


def test_a_site_without_a_gain_gets_the_median(tmp_path: Path) -> None:
    data = cut(IMAGES, tmp_path / "data.npz", 8)
    task = Task(VIT, data, "top1-accuracy", Selection(batch=8), threads=1)
    planner, runner = Planner(VIT, task.selection), task.open().runner()
    ladders = {
        site: (Rung(32, None, 0.0), Rung(4, ("deferred-log", {"bits": 4}), 0.1))
        for site in planner.sites("deferred-log")
    }

    def plan_of(state: State) -> Plan:
        if state[3]:
            raise RefusalError("not this one")
        if state[2]:
            return planner.plan({})  # the output does not change: what this site does is for free
        return planner.plan(choose(ladders, state))

    scaled = with_gains(
        list(ladders.values()), plan_of, task.subject(runner), runner, OnnxSessions(planner.model, 1), tmp_path
    )  # fmt: skip
    *others, last = (rungs[1].error for rungs in scaled)
    assert others[2] == 0
    assert 0 < min(others[:2]) < max(others[:2])
    assert last == pytest.approx(min(others[:2]))
