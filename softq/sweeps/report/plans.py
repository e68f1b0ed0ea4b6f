"""A plan and what was measured of it, in the report of the sweep of the same model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softq.errors import InputError, UsageError
from softq.plans import Plan
from softq.sweeps.plan.record import read_record, record_of
from softq.sweeps.records import Study, estimate_of
from softq.sweeps.report.content import PlanMeasured, PlannedSite, PlanResult
from softq.sweeps.report.gather import interval_of


def plan_result(study: Study, path: str | os.PathLike[str]) -> PlanResult:
    """Return a plan as the report of a study has it.

    Raises:
        InputError: the plan or its record cannot be used.
        UsageError: it is of another model or metric.
    """
    plan, found = read_record(path)
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
        plans=int(found["plans_measured"]),
        notes=tuple(map(str, found["notes"])),
        command=str(found["command"]),
    )


def _measured(found: Mapping[str, Any]) -> PlanMeasured:
    metric, loss = (interval_of(estimate_of(found[name])) for name in ("metric", "loss"))
    return PlanMeasured(metric, loss, int(found["samples"]))
