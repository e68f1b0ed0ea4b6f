"""A report as JSON, CSV, Markdown, and as node data for Google's Model Explorer."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence

from softq.sweeps.report.columns import Column
from softq.sweeps.report.content import Content, Measured, StudyContent
from softq.sweeps.report.interval import Interval
from softq.sweeps.report.plans import PlannedSite, PlanResult
from softq.sweeps.report.verdicts import SAYS, interval_text, loss_interval_text, loss_text, number_text
from softq.visible import visible
from softq.wording import counted


def to_json(content: Content) -> str:
    """Return `report.json`."""
    return json.dumps(content.to_json(), indent=1, allow_nan=False) + "\n"


_ERRORS = ("site", "output_error", "row_sum_min", "row_sum_5", "row_sum_50", "row_sum_95", "row_sum_max",
           "mean_row_sum", "argmax_flips", "top5_flips", "masked", "rows")  # fmt: skip


def flat_record(study: StudyContent, row: Measured, columns: Sequence[Column]) -> dict[str, object]:
    """Return a setting as a flat record: what `report.csv` has of it, and what the page's downloads have."""
    found: dict[str, object] = {
        "study": study.label, "setting": row.setting, "name": row.name, "method": row.method, "options": row.options,
        "bits": row.bits, "at_site": row.site, "head": row.head, "metric": row.metric.value,
        "metric_low": row.metric.low, "metric_high": row.metric.high, "loss": row.loss.value,
        "loss_low": row.loss.low, "loss_high": row.loss.high, "verdict": row.verdict, "within_budget": row.within,
        "samples": row.samples, "integer_only": row.integer_only,
    }  # fmt: skip
    for column in columns:
        number = row.numbers.get(column.name)
        found[column.name] = None if number is None else number.value
        if any(column.name in one.numbers and one.numbers[column.name].ends for one in study.settings):
            low, high = (number and number.ends) or (None, None)
            found |= {f"{column.name}_low": low, f"{column.name}_high": high}
    return found


def to_csv(content: Content) -> str:
    """Return `report.csv`: a row for each setting and site, or one with empty ends for a setting without errors."""
    out = io.StringIO()
    records = [
        (study, row, flat_record(study, row, content.columns)) for study in content.studies for row in study.settings
    ]
    names = list(dict.fromkeys(name for _, _, record in records for name in record))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*map(_inert, names), *_ERRORS))
    for study, row, record in records:
        head = [_cell(record.get(name)) for name in names]
        found = [errors for errors in study.errors if errors.setting == row.setting]
        for e in found:
            numbers = (e.output_error, *e.row_sums, e.mean_row_sum, e.argmax_flips, e.top5_flips, e.masked, e.rows)
            writer.writerow((*head, _inert(e.site), *numbers))
        if not found:
            writer.writerow((*head, *("" for _ in _ERRORS)))
    return out.getvalue()


def _cell(value: object) -> object:
    text = json.dumps(value) if isinstance(value, Mapping) else value
    return _inert(text) if isinstance(text, str) else text


def _inert(text: str) -> str:
    """Keep spreadsheets from taking a name for a formula, and terminals from obeying it."""
    return f"'{visible(text)}" if text and text[0] in "=+-@\t\r" else visible(text)


def to_markdown(content: Content) -> str:
    """Return `report.md`."""
    models = " and ".join(dict.fromkeys(study.subject.model for study in content.studies))
    several = len(content.studies) > 1
    lines = [f"# Softmax accuracy of {_escape(models)}", ""]
    if several:
        lines += [f"**{_escape(content.together)}**", "", *_shared(content)]
    for study in content.studies:
        lines += [f"## {_escape(study.label)}", ""] if several else []
        lines += _study(study, content.columns)
    lines += [*_plan(content)]
    for study in content.studies:
        lines += [f"## Origin of {_escape(study.label)}", ""] if several else []
        lines += [*_table(("fact", "value"), facts(study)), ""]
    lines += ["To reproduce:", "", *(f"    {line}" for line in commands(content))]
    return "\n".join(map(visible, lines)) + "\n"


def _study(study: StudyContent, columns: Sequence[Column]) -> list[str]:
    subject, rows = study.subject, {row.setting: row for row in study.settings}
    known = [column for column in columns if any(column.name in row.numbers for row in study.settings)]
    front = set(study.answer.front)
    return [
        f"**{_escape(study.answer.sentence)}** {_escape(study.answer.peers_sentence)}".rstrip(),
        "",
        f"Metric {_escape(subject.metric)} ({_escape(subject.unit)}, {subject.direction} is better); float: "
        f"{number_text(subject.reference.value)}, 95 % interval {interval_text(subject.reference)}. "
        f"Data: {_escape(subject.data)}, {counted(subject.samples, 'sample')}.",
        "",
        *_table(
            ("if at most this may be lost", "use", study.answer.axis, "loss", "95 % interval of the loss"),
            [
                (loss_text(step.budget, subject), row.name, f"{row.amount(study.answer.axis):,.6g}",
                 loss_text(row.loss.value, subject), loss_interval_text(row.loss, subject))
                for step in study.answer.by_budget for row in [rows[step.setting]]
            ],
        ),
        "",
        *_table(
            ("setting", "bits", subject.metric, "loss", "95 % interval of the loss", "verdict", "on the front",
             *(heading(column) for column in known)),
            [
                (row.name, "" if row.bits is None else str(row.bits), number_text(row.metric.value, row.samples),
                 loss_text(row.loss.value, subject, row.samples), loss_interval_text(row.loss, subject),
                 SAYS[row.verdict], "yes" if row.setting in front else "",
                 *(quantity_text(row.numbers.get(column.name)) for column in known))
                for row in study.settings
            ],
        ),
        "",
        *_table(("site", "node", "operator"), [(site.id, site.node, site.operator) for site in study.sites]),
        "",
        *(f"* {_escape(note)}" for note in study.notes),
        *([""] if study.notes else []),
    ]  # fmt: skip


def _shared(content: Content) -> list[str]:
    studies = content.studies
    losses = [
        (
            one.name,
            *(
                loss_text(study.settings[number].loss.value, study.subject)
                for study, number in zip(studies, one.settings, strict=True)
            ),
        )
        for one in content.shared
    ]
    return [*_table(("setting", *(f"loss: {study.label}" for study in studies)), losses), ""]


def heading(column: Column) -> str:
    """Return the heading of a column, with its unit."""
    return f"{column.title}, {column.unit}" if column.unit else column.title


def quantity_text(number: Interval | None) -> str:
    """Return a number of a setting with its interval; empty if it is not known."""
    if number is None or number.value is None:
        return ""
    value = f"{number.value:,.0f}" if float(number.value).is_integer() else f"{number.value:.4g}"
    return value if number.ends is None else f"{value} ({number.ends[0]:.4g} to {number.ends[1]:.4g})"


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
    measured = [line for study in content.studies for line in study.subject.command.splitlines()]
    return [*measured, *(content.plan.command.splitlines() if content.plan is not None else ())]


def facts(study: StudyContent) -> list[tuple[str, str]]:
    """Return hashes, versions and conditions by name."""
    subject = study.subject
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
    """Return the output error of the first study's recommended setting at each node, as Model Explorer reads it.

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
