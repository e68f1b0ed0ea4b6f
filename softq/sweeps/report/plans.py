"""A plan and what was measured of it, as a report shows it."""

from __future__ import annotations

from softq.errors import UsageError
from softq.sweeps.evaluate.evaluator import Measurement
from softq.sweeps.plan.record import Planned
from softq.sweeps.records import Study
from softq.sweeps.report.content import PlanMeasured, PlannedSite, PlanResult
from softq.sweeps.report.gather import interval_of


def plan_result(study: Study, planned: Planned) -> PlanResult:
    """Return a plan as the report of a study has it.

    Raises:
        UsageError: it is of another model or metric.
    """
    plan = planned.plan
    same = ((plan.graph, study.graph), (plan.weights, study.weights), (planned.metric, study.metric))
    for name, (ours, theirs) in zip(("graph", "weights", "metric"), same, strict=True):
        if ours != theirs:
            raise UsageError(f"{planned.file} cannot be in this report: its {name} is {ours!r}, the sweep's {theirs!r}")
    given = {site.id: site for site in plan.sites}
    nodes = {str(site["id"]): str(site.get("node") or "") for site in study.sites}
    return PlanResult(
        file=planned.file,
        held=planned.held,
        sentence=planned.sentence,
        budget=planned.budget,
        mean_bits=planned.mean_bits,
        sites=tuple(
            PlannedSite(
                site=site,
                node=nodes.get(site, ""),
                method=given[site].method if site in given else "",
                options=dict(sorted(given[site].options.items())) if site in given else {},
                bits=bits,
            )
            for site, bits in planned.bits.items()
        ),
        split=planned.split,
        searched=_measured(planned.searched),
        verified=_measured(planned.verified),
        plans=planned.measured,
        notes=planned.notes,
        command=planned.command,
    )


def _measured(found: Measurement) -> PlanMeasured:
    return PlanMeasured(interval_of(found.metric), interval_of(found.loss), found.samples)
