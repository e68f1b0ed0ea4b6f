"""A sweep as text for people and as plain values."""

from __future__ import annotations

from collections.abc import Sequence

from softq.formatting import table
from softq.json_values import to_plain
from softq.reports import Gate
from softq.sweeps.engine import Sweep, describe
from softq.sweeps.evaluate.evaluator import Measurement
from softq.sweeps.plan.search import Found
from softq.sweeps.records import SCHEMA, Estimate, Outcome, SiteErrors, Study, Timed
from softq.visible import lines
from softq.wording import counted

_HEAD = ("setting", "value", "its 95 % interval", "loss", "its 95 % interval", "seconds")
_TIMES = ("time / float", "quartiles", "bytes")
_TIMES_ON = ("time on {target} / float", "quartiles", "bytes")
_ERRORS = ("error of the output", "largest weight moved", "top 5 changed", "sum of weights")


def sweep_to_json(sweep: Sweep, gate: Gate | None = None) -> dict[str, object]:
    """Return the study, the outcomes, what was left out, and the gate, as values that `json` can write."""
    return {
        "schema": sweep.study.schema,
        "study": to_plain(sweep.study),
        "outcomes": [to_plain(outcome) for outcome in sweep.outcomes],
        "notes": list(sweep.notes),
        "gate": to_plain(gate),
    }


def sweep_to_text(sweep: Sweep) -> str:
    """Return a table with a row per setting."""
    study = sweep.study
    better = "higher" if study.direction == "higher" else "lower"
    loss = "as a share of float32" if study.relative else "in the same unit"
    head = [
        f"model    {study.model}",
        f"data     {study.data}, {counted(study.samples, 'sample')}",
        f"metric   {study.metric} ({study.unit}, {better} is better), loss {loss}",
        f"float32  {study.reference.value:.6g} {_interval(study.reference)}",
        "",
    ]
    costs = list(dict.fromkeys(name for one in sweep.outcomes if one.cost for name in one.cost.amounts))
    timed = any(outcome.time_ratio is not None for outcome in sweep.outcomes)
    targets = list(dict.fromkeys(target for one in sweep.outcomes for target in one.built))
    columns = (
        _HEAD
        + (_TIMES if timed else ())
        + tuple(title.format(target=target) for target in targets for title in _TIMES_ON)
        + tuple(costs)
        + (_ERRORS if any(map(_is_of_one_site, sweep.outcomes)) else ())
    )
    return (
        lines(head)
        + table(columns, [_row(outcome, timed, targets, costs) for outcome in sweep.outcomes])
        + _refused(sweep.outcomes)
    )


def _is_of_one_site(outcome: Outcome) -> bool:
    return outcome.setting.site is not None


def _refused(outcomes: Sequence[Outcome]) -> str:
    """Return lines that say why settings have no costs or times on targets, one for each method and reason."""
    told = [("cost", one.setting.method, one.cost.refused) for one in outcomes if one.cost]
    for one in outcomes:
        told += [(f"time on {name}", one.setting.method, timed.refused) for name, timed in one.built.items()]
    found = dict.fromkeys(f"no {what} of {method}: {why}" for what, method, why in told if why)
    return lines(["", *found]) if found else ""


def _row(outcome: Outcome, timed: bool, targets: Sequence[str], costs: Sequence[str]) -> tuple[str, ...]:
    metric, loss = outcome.metric, outcome.loss
    measured = (f"{metric.value:.6g}", _interval(metric), f"{loss.value:+.4g}", _interval(loss))
    return (
        describe(outcome.setting),
        *(measured if outcome.samples else ("",) * len(measured)),
        f"{outcome.seconds:.2f}" if outcome.samples else "",
        *(_times(Timed(outcome.time_ratio, outcome.size_bytes)) if timed else ()),
        *(cell for target in targets for cell in _times(outcome.built.get(target, Timed()))),
        *(_cost(outcome, name) for name in costs),
        *(_cells(*outcome.sites.values()) if _is_of_one_site(outcome) else ()),
    )


def _times(timed: Timed) -> tuple[str, ...]:
    times, size = timed.time_ratio, timed.size_bytes
    ratio = ("", "") if times is None else (f"{times.median:.3g}", f"[{times.low:.3g}, {times.high:.3g}]")
    return (*ratio, "" if size is None else f"{size:,}")


def _cost(outcome: Outcome, name: str) -> str:
    amount = None if outcome.cost is None else outcome.cost.amounts.get(name)
    return "" if amount is None else f"{amount.value:,.6g}"


def _cells(errors: SiteErrors | None = None) -> tuple[str, ...]:
    if errors is None:
        return ("",) * len(_ERRORS)
    error = "" if errors.output_error is None else f"{errors.output_error:.3g}"
    return error, f"{errors.argmax_flips:.2%}", f"{errors.top5_flips:.2%}", f"{errors.mean_row_sum:.4f}"


def _interval(estimate: Estimate) -> str:
    return "" if estimate.low is None or estimate.high is None else f"[{estimate.low:.4g}, {estimate.high:.4g}]"


def study_name(study: Study) -> str:
    """Return one line on what was measured."""
    return f"{study.model}: {study.metric} on {study.data}"


def plan_to_json(found: Found, out: str) -> dict[str, object]:
    """Return what a search for a plan found as values that `json` can write; `out` is the plan's file."""
    return {
        "schema": SCHEMA,
        "plan": out,
        "mean_bits": found.mean_bits,
        "bits": found.bits,
        "cost": None if found.cost is None else {**to_plain(found.cost), "total": found.cost.total},
        "split": found.split,
        "search": to_plain(found.searched),
        "verification": to_plain(found.verified),
        "tried": [to_plain(one) for one in found.tried],
        "notes": list(found.notes),
        "gate": to_plain(found.gate),
    }


def plan_to_text(found: Found, out: str) -> str:
    """Return a table with a row per site, what was measured, and the verdict."""
    methods = {site.id: site.method for site in found.plan.sites}
    cost = found.cost
    rows = [
        (site, methods.get(site, "float"), str(bits), *([] if cost is None else [_amount(cost.sites.get(site))]))
        for site, bits in found.bits.items()
    ]
    told = [
        "",
        *([] if cost is None else [f"{cost.total:,.6g} {cost.name} ({cost.unit}) if each site has a unit of its own"]),
        f"{found.mean_bits:.4g} bits on the mean; {found.split}; plans measured:",
        *(
            f"  {one.mean_bits:<6.4g} {_measured(one.searched)}{_elsewhere(one.verified)}: {one.name}"
            for one in found.tried
        ),
        f"search        {_measured(found.searched)}",
        f"verification  {_measured(found.verified)}",
        f"{'passed' if found.gate.passed else 'FAILED'}: {found.gate.sentence}",
        f"wrote {out}",
    ]
    return table(("site", "method", "bits", *([] if cost is None else [cost.name])), rows) + lines(told)


def _amount(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _measured(one: Measurement) -> str:
    return f"loss {one.loss.value:+.4g} {_interval(one.loss)}, {counted(one.samples, 'sample')}"


def _elsewhere(one: Measurement | None) -> str:
    return "" if one is None else f"; verified, {_measured(one)}"
