"""A report as JSON, CSV, Markdown, and as node data for Google's Model Explorer."""

from __future__ import annotations

import csv
import io
import json

from softq.sweeps.report.content import Content
from softq.sweeps.report.plans import PlannedSite, PlanResult
from softq.sweeps.report.verdicts import SAYS, interval_text, loss_interval_text, loss_text, number_text


def to_json(content: Content) -> str:
    """Return `report.json`."""
    return json.dumps(content.to_json(), indent=1, allow_nan=False) + "\n"


_SETTING = ("setting", "name", "method", "options", "bits", "at_site", "head", "metric", "metric_low", "metric_high",
            "loss", "loss_low", "loss_high", "verdict", "within_budget", "samples")  # fmt: skip
_ERRORS = ("site", "output_error", "row_sum_min", "row_sum_5", "row_sum_50", "row_sum_95", "row_sum_max",
           "mean_row_sum", "argmax_flips", "top5_flips", "masked", "rows")  # fmt: skip


def to_csv(content: Content) -> str:
    """Return `report.csv`: a row for each setting and site, or one with empty ends for a setting without errors."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*_SETTING, *_ERRORS))
    for row in content.settings:
        names = (_inert(row.name), _inert(row.method), json.dumps(row.options))
        where = (row.setting, *names, row.bits, _inert(row.site), row.head)
        ends = (row.metric.value, row.metric.low, row.metric.high, row.loss.value, row.loss.low, row.loss.high)
        head = (*where, *ends, row.verdict, row.within, row.samples)
        found = [errors for errors in content.errors if errors.setting == row.setting]
        for e in found:
            numbers = (e.output_error, *e.row_sums, e.mean_row_sum, e.argmax_flips, e.top5_flips, e.masked, e.rows)
            writer.writerow((*head, _inert(e.site), *numbers))
        if not found:
            writer.writerow((*head, *("" for _ in _ERRORS)))
    return out.getvalue()


def _inert(text: str | None) -> str | None:
    """Keep spreadsheets from taking a name for a formula."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text


def to_markdown(content: Content) -> str:
    """Return `report.md`."""
    subject = content.subject
    lines = [
        f"# Softmax accuracy of {_escape(subject.model)}",
        "",
        f"**{_escape(content.answer.sentence)}** {_escape(content.answer.peers_sentence)}".rstrip(),
        "",
        f"Metric {_escape(subject.metric)} ({_escape(subject.unit)}, {subject.direction} is better); float: "
        f"{number_text(subject.reference.value)}, 95 % interval {interval_text(subject.reference)}. "
        f"Data: {_escape(subject.data)}, {subject.samples:,} samples.",
        "",
        *_table(
            ("setting", "bits", subject.metric, "loss", "95 % interval of the loss", "verdict"),
            [
                (row.name, "" if row.bits is None else str(row.bits), number_text(row.metric.value, row.samples),
                 loss_text(row.loss.value, subject, row.samples), loss_interval_text(row.loss, subject),
                 SAYS[row.verdict])
                for row in content.settings
            ],
        ),
        "",
        *_plan(content),
        *_table(("site", "node", "operator"), [(site.id, site.node, site.operator) for site in content.sites]),
        "",
        *(f"* {_escape(note)}" for note in content.notes),
        *([""] if content.notes else []),
        *_table(("fact", "value"), facts(content)),
        "",
        "To reproduce:",
        "",
        *(f"    {line}" for line in commands(content)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _plan(content: Content) -> list[str]:
    plan, subject = content.plan, content.subject
    if plan is None:
        return []
    numbers = [
        (what, number_text(found.metric.value), loss_text(found.loss.value, subject),
         loss_interval_text(found.loss, subject), f"{found.samples:,}")
        for what, found in (("search", plan.searched), ("verification", plan.verified))
    ]  # fmt: skip
    sites = [(site.site, site.method or "float", str(site.bits), options_text(site)) for site in plan.sites]
    return [
        f"## Plan {_escape(plan.file)}: {plan.mean_bits:.4g} bits on the mean",
        "",
        f"**{plan_verdict(plan)}** {_escape(plan.sentence)}.",
        "",
        *_table(("data", subject.metric, "loss", "95 % interval of the loss", "samples"), numbers),
        "",
        *_table(("site", "method", "bits", "options"), sites),
        "",
        *(f"* {_escape(note)}" for note in plan.notes),
        *([""] if plan.notes else []),
    ]


def plan_verdict(plan: PlanResult) -> str:
    """Return whether a plan kept its budget, for the sentence on what that rests on to follow."""
    return f"The budget of {plan.budget} was {'kept' if plan.held else 'not kept'}:"


def options_text(site: PlannedSite) -> str:
    """Return the options of a site in a plan, without the bits."""
    return " ".join(f"{name}={value}" for name, value in site.options.items() if name != "bits")


def commands(content: Content) -> list[str]:
    """Return the commands that give the numbers of a report."""
    plan = content.plan
    return [*content.subject.command.splitlines(), *(plan.command.splitlines() if plan is not None else ())]


def facts(content: Content) -> list[tuple[str, str]]:
    """Return hashes, versions and conditions by name."""
    subject = content.subject
    return [
        ("model", subject.model),
        ("graph without weights", subject.graph),
        ("weights", subject.weights),
        ("data", subject.data),
        ("hash of the data", subject.data_hash),
        ("softq", subject.softq),
        *subject.versions.items(),
        *subject.conditions.items(),
    ]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    lines = [head, tuple("---" for _ in head)]
    return ["| " + " | ".join(map(_escape, line)) + " |" for line in (*lines, *rows)]


def _escape(text: str) -> str:
    for mark in "\\`*_[]|":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())


def to_node_data(content: Content) -> str:
    """Return the output error of the recommended setting at each node, as Model Explorer reads it.

    The form is its `GraphNodeData`: values by name of the node, or by the name of its output where it has none. Without
    a recommendation, or without its errors, it is the first method and width for which there are any.
    """
    found = content.errors_by_width()
    chosen = content.answer.setting
    key = None if chosen is None else (content.settings[chosen].series, content.settings[chosen].bits)
    shown = found.get(key) if key is not None else None
    shown = shown or next(iter(found.values()), [])
    names = {site.id: site.node or site.id.rsplit("/", 1)[-1] for site in content.sites}
    results = {names.get(e.site, e.site): {"value": e.output_error} for e in shown if e.output_error is not None}
    gradient = [{"stop": 0, "bgColor": "#fff7ec"}, {"stop": 1, "bgColor": "#d7301f"}]
    return json.dumps({"results": results, "gradient": gradient}, indent=1) + "\n"
