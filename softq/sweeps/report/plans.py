"""A plan and what was measured of it, in the report of the sweep of the same model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softq.errors import InputError, UsageError
from softq.methods import OptionValue
from softq.plans import Plan
from softq.sweeps.plan.record import read_record, record_of
from softq.sweeps.records import Study, estimate_of
from softq.sweeps.report.interval import Interval, interval_of


@dataclass(frozen=True)
class PlannedSite:
    """What a plan gives one site.

    Attributes:
        site: The site.
        node: Name of the node, empty if it has none.
        method: Name of the method; empty where the site stays float.
        options: Its options.
        bits: Bits of a code, 32 where the site stays float.
    """

    site: str
    node: str
    method: str
    options: Mapping[str, OptionValue]
    bits: int


@dataclass(frozen=True)
class PlanMeasured:
    """What a plan measured on some samples.

    Attributes:
        metric: The metric's value.
        loss: How much worse than float, paired over the samples.
        samples: How many samples.
    """

    metric: Interval
    loss: Interval
    samples: int


@dataclass(frozen=True)
class PlanResult:
    """A plan that `softq plan` found.

    Attributes:
        file: Name of the plan's file.
        held: Whether the budget was kept, in the search and on the samples of the verification.
        sentence: What that rests on.
        budget: The budget as it was given.
        mean_bits: Mean over the sites of their bits.
        sites: What each site gets.
        split: Which data served the search and which the verification.
        searched: What was measured on the samples of the search; of the plans tried this one was chosen by them.
        verified: What was measured on samples that the search did not see.
        plans: How many plans were measured.
        notes: What was left out.
        command: What reproduces it.
    """

    file: str
    held: bool
    sentence: str
    budget: str
    mean_bits: float
    sites: tuple[PlannedSite, ...]
    split: str
    searched: PlanMeasured
    verified: PlanMeasured
    plans: int
    notes: tuple[str, ...]
    command: str


def plan_result(studies: Sequence[Study], path: str | os.PathLike[str]) -> PlanResult:
    """Return a plan as the report of studies has it, for the first of them that is of its model and metric.

    Raises:
        InputError: the plan or its record cannot be used.
        UsageError: all are of another model or metric.
    """
    plan, found = read_record(path)
    of = (plan.graph, plan.weights, found.get("metric"))
    study = next((one for one in studies if (one.graph, one.weights, one.metric) == of), studies[0])
    try:
        result = _result(study, Path(path).name, plan, found)
        metric = str(found["metric"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{record_of(path)} is damaged: {type(error).__name__}: {error}") from error
    same = {"graph": (plan.graph, study.graph), "weights": (plan.weights, study.weights),
            "metric": (metric, study.metric)}  # fmt: skip
    for name, (ours, theirs) in same.items():
        if ours != theirs:
            raise UsageError(f"{result.file} cannot be in this report: its {name} is {ours!r}, the sweep's {theirs!r}")
    return result


def _result(study: Study, file: str, plan: Plan, found: Mapping[str, Any]) -> PlanResult:
    given = {site.id: site for site in plan.sites}
    nodes = {str(site["id"]): str(site.get("node") or "") for site in study.sites}
    return PlanResult(
        file=file,
        held=found["gate"]["passed"] is True,
        sentence=str(found["gate"]["sentence"]),
        budget=str(found["budget"]),
        mean_bits=float(found["mean_bits"]),
        sites=tuple(
            PlannedSite(
                site=site,
                node=nodes.get(site, ""),
                method=given[site].method if site in given else "",
                options=dict(sorted(given[site].options.items())) if site in given else {},
                bits=int(bits),
            )
            for site, bits in found["bits"].items()
        ),
        split=str(found["split"]),
        searched=_measured(found["search"]),
        verified=_measured(found["verification"]),
        plans=len(found["tried"]),
        notes=tuple(map(str, found["notes"])),
        command=str(found["command"]),
    )


def _measured(found: Mapping[str, Any]) -> PlanMeasured:
    metric, loss = (interval_of(estimate_of(found[name])) for name in ("metric", "loss"))
    return PlanMeasured(metric, loss, int(found["samples"]))
