"""A report as one HTML page. Every value goes through the template's escaping; scripts run only by their hash."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

from softq.errors import UsageError
from softq.sweeps.report.columns import Column
from softq.sweeps.report.content import Content, Errors, Measured, StudyContent
from softq.sweeps.report.texts import (
    commands,
    facts,
    flat_record,
    heading,
    options_text,
    plan_verdict,
    quantity_text,
)
from softq.sweeps.report.verdicts import SAYS, interval_text, loss_interval_text, loss_text, number_text
from softq.visible import visible_value

MAX_ERRORS = 25_000
"""Errors of sites in the page's charts: what keeps a page under 5 MB. `report.json` and `report.csv` have all."""

_HOME = Path(__file__).parent
_LIBRARIES = ("d3.min.js", "plot.min.js")
_SCRIPTS = ("data.js", "front.js", "methods.js", "charts.js", "accuracy.js", "settings.js", "sites.js", "start.js")
"""The page's own script, in parts that one function holds."""


def to_html(content: Content) -> str:
    """Return `report.html`.

    Raises:
        UsageError: the extra `report` is not installed.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from jinja2.utils import htmlsafe_json_dumps
    except ImportError as error:
        raise UsageError("the report's page needs jinja2: pip install 'softq[report]'") from error
    loader = FileSystemLoader(_HOME / "assets")
    templates = Environment(autoescape=True, finalize=visible_value, undefined=StrictUndefined, loader=loader,
                            trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
    libraries = [(_HOME / "vendor" / name).read_text(encoding="utf-8") for name in _LIBRARIES]
    own = [(_HOME / "assets" / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    scripts = [*libraries, '"use strict";\n(() => {\n' + "\n".join(own) + "})();\n"]
    licences = [path.read_text(encoding="utf-8") for path in sorted((_HOME / "vendor").glob("*.LICENSE"))]
    shown = _shown(content.studies)
    return templates.get_template("page.html").render(
        content=content,
        several=len(content.studies) > 1,
        views=[_view(study, content.columns, *one) for study, one in zip(content.studies, shown, strict=True)],
        plan_verdict=plan_verdict,
        options_text=options_text,
        commands=commands(content),
        says=SAYS,
        heading=heading,
        axis=next((column for column in content.columns if column.name == content.answer.axis), None),
        quantity=quantity_text,
        plain=number_text,
        ranged=interval_text,
        style=(_HOME / "assets" / "page.css").read_text(encoding="utf-8"),
        scripts=scripts,
        hashes=" ".join(f"'sha256-{_digest(script)}'" for script in scripts),
        licences=licences,
        data=htmlsafe_json_dumps(
            {
                "axis": content.answer.axis,
                "columns": [asdict(column) for column in content.columns],
                "studies": [
                    _data(study, content.columns, one) for study, (one, _) in zip(content.studies, shown, strict=True)
                ],
            },
            separators=(",", ":"),
        ),
    )


def _view(
    study: StudyContent, columns: Sequence[Column], shown: Sequence[Errors], note: Sequence[str]
) -> dict[str, object]:
    """Return what the template needs of a study."""
    subject = study.subject
    return {
        "study": study,
        "answer": study.answer,
        "subject": subject,
        "whole": study.whole,
        "parts": [row for row in study.settings if row.site is not None and row.verdict != "unmeasured"],
        "heads": any(row.head is not None for row in study.settings),
        "front": set(study.answer.front),
        "peers": set(study.answer.peers),
        "columns": [column for column in columns if any(column.name in row.numbers for row in study.settings)],
        "errors": bool(shown),
        "spread": _spread(study),
        "costs": _costs(study),
        "notes": [*study.notes, *note, *_unnumbered(study.whole)],
        "facts": facts(study),
        "amount": lambda value: loss_text(value, subject),
        "loss_range": lambda loss: loss_interval_text(loss, subject),
    }


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _shown(studies: Sequence[StudyContent]) -> list[tuple[list[Errors], list[str]]]:
    """Return for each study the errors that the page draws: all, or those of the sites that a setting changes most."""
    if sum(len(study.errors) for study in studies) <= MAX_ERRORS:
        return [(list(study.errors), []) for study in studies]
    return [_worst(study.errors, MAX_ERRORS // len(studies)) for study in studies]


def _worst(errors: Sequence[Errors], room: int) -> tuple[list[Errors], list[str]]:
    worst: dict[str, float] = {}
    count: dict[str, int] = {}
    for e in errors:
        worst[e.site] = max(worst.get(e.site, 0.0), e.output_error or 0.0)
        count[e.site] = count.get(e.site, 0) + 1
    kept: set[str] = set()
    for site in sorted(worst, key=lambda site: (-worst[site], site)):
        if (room := room - count[site]) < 0:
            break
        kept.add(site)
    if len(kept) == len(worst):
        return list(errors), []
    note = f"The charts of single sites show the {len(kept)} of {len(worst)} sites with the greatest output errors."
    return [e for e in errors if e.site in kept], [note]


def _unnumbered(whole: Sequence[Measured]) -> list[str]:
    broken = [row.name for row in whole if row.loss.value is None]
    return [f"Not in the charts, since the loss is not a number: {', '.join(broken)}."] * bool(broken)


def _spread(study: StudyContent) -> list[dict[str, object]]:
    """Return how the errors of each method and width are spread over the sites."""
    return [
        {
            "name": series + ("" if bits is None else f" with {bits} bits"),
            "sites": len(found),
            "output": _least_middle_greatest([e.output_error for e in found]),
            "sums": _least_middle_greatest([s for e in found for s in (e.row_sums[0], e.row_sums[2], e.row_sums[-1])]),
            "argmax": _least_middle_greatest([e.argmax_flips for e in found], percent=True),
            "top5": _least_middle_greatest([e.top5_flips for e in found], percent=True),
        }
        for (series, bits), found in study.errors_by_width().items()
    ]


def _least_middle_greatest(values: Sequence[float | None], *, percent: bool = False) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "none"
    ends = (min(numbers), median(numbers), max(numbers))
    return " / ".join(f"{100 * n:.3g} %" if percent else f"{n:.4g}" for n in ends)


def _costs(study: StudyContent) -> list[dict[str, object]]:
    """Return the costs of each setting, one line for all sites of one shape."""
    shapes = {site.id: site.shape for site in study.sites}
    sites = Counter((shapes[cost.site], replace(cost, site="")) for cost in study.costs)
    return [
        {
            "name": study.settings[cost.setting].name,
            "shape": "unknown" if shape is None else " x ".join("?" if d is None else str(d) for d in shape),
            "sites": count,
            "cost": cost,
        }
        for (shape, cost), count in sites.items()
    ]


def _data(study: StudyContent, columns: Sequence[Column], shown: Sequence[Errors]) -> dict[str, object]:
    """Return what the page draws and hands out of a study, as short as it gets."""
    series = list(dict.fromkeys(row.series for row in study.settings))
    sites = list(dict.fromkeys([*(site.id for site in study.sites), *(e.site for e in shown)]))
    index = {site: number for number, site in enumerate(sites)}
    nodes = {site.id: site.node for site in study.sites}
    subject, answer = study.subject, study.answer
    records = [flat_record(study, row, columns) for row in study.whole]
    return {
        "label": study.label,
        "metric": subject.metric,
        "direction": subject.direction,
        "relative": subject.relative,
        "reference": [subject.reference.value, subject.reference.low, subject.reference.high],
        "budget": answer.budget,
        "recommended": answer.setting,
        "series": series,
        "fields": list(records[0]) if records else [],
        "records": [list(record.values()) for record in records],
        "settings": [
            [series.index(row.series), row.bits, None if row.site is None else index.get(row.site, -1), row.head,
             row.loss.value, row.loss.low, row.loss.high, row.verdict]
            for row in study.settings
        ],
        "sites": [[site, nodes.get(site, "")] for site in sites],
        "errors": [
            [e.setting, index[e.site], *map(_rounded, (e.output_error, *e.row_sums, e.mean_row_sum, e.argmax_flips,
             e.top5_flips)), e.rows]
            for e in shown
        ],
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
