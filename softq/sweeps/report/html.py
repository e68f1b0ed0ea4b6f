"""A report as one HTML page. Every value goes through the template's escaping; scripts run only by their hash."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from softq.errors import UsageError
from softq.sweeps.report.content import Content, Errors, Measured
from softq.sweeps.report.texts import commands, facts, options_text, plan_verdict
from softq.sweeps.report.verdicts import SAYS, interval_text, loss_interval_text, loss_text, number_text

MAX_ERRORS = 25_000
"""Errors of sites in the page's charts: what keeps a page under 5 MB. `report.json` and `report.csv` have all."""

_HOME = Path(__file__).parent
_LIBRARIES = ("d3.min.js", "plot.min.js")


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
    templates = Environment(autoescape=True, undefined=StrictUndefined, loader=loader, trim_blocks=True,
                            lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
    libraries = [(_HOME / "vendor" / name).read_text(encoding="utf-8") for name in _LIBRARIES]
    scripts = [*libraries, (_HOME / "assets" / "page.js").read_text(encoding="utf-8")]
    licences = [path.read_text(encoding="utf-8") for path in sorted((_HOME / "vendor").glob("*.LICENSE"))]
    shown, note = _shown(content)
    whole = [row for row in content.settings if row.site is None and row.head is None]
    subject = content.subject
    return templates.get_template("page.html").render(
        content=content,
        answer=content.answer,
        subject=subject,
        whole=whole,
        parts=[row for row in content.settings if row.site is not None and row.verdict != "unmeasured"],
        heads=any(row.head is not None for row in content.settings),
        plan_verdict=plan_verdict,
        options_text=options_text,
        commands=commands(content),
        says=SAYS,
        spread=_spread(content),
        costs=_costs(content, whole),
        notes=[*content.notes, *note, *_unnumbered(whole)],
        facts=facts(content),
        plain=number_text,
        ranged=interval_text,
        amount=lambda value: loss_text(value, subject),
        loss_range=lambda loss: loss_interval_text(loss, subject),
        style=(_HOME / "assets" / "page.css").read_text(encoding="utf-8"),
        scripts=scripts,
        hashes=" ".join(f"'sha256-{_digest(script)}'" for script in scripts),
        licences=licences,
        data=htmlsafe_json_dumps(_data(content, shown), separators=(",", ":")),
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _shown(content: Content) -> tuple[list[Errors], list[str]]:
    """Return the errors that the page draws: all, or those of the sites that a setting changes most."""
    if len(content.errors) <= MAX_ERRORS:
        return list(content.errors), []
    worst: dict[str, float] = {}
    count: dict[str, int] = {}
    for e in content.errors:
        worst[e.site] = max(worst.get(e.site, 0.0), e.output_error or 0.0)
        count[e.site] = count.get(e.site, 0) + 1
    kept: set[str] = set()
    room = MAX_ERRORS
    for site in sorted(worst, key=lambda site: (-worst[site], site)):
        if (room := room - count[site]) < 0:
            break
        kept.add(site)
    note = f"The charts of single sites show the {len(kept)} of {len(worst)} sites with the greatest output errors."
    return [e for e in content.errors if e.site in kept], [note]


def _unnumbered(whole: Sequence[Measured]) -> list[str]:
    broken = [row.name for row in whole if row.loss.value is None]
    unsized = [row.name for row in whole if row.bits is None]
    return [f"Not in the charts, since the loss is not a number: {', '.join(broken)}."] * bool(broken) + [
        f"Not in the charts, since there are no bits: {', '.join(unsized)}."
    ] * bool(unsized)


def _spread(content: Content) -> list[dict[str, object]]:
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
        for (series, bits), found in content.errors_by_width().items()
    ]


def _least_middle_greatest(values: Sequence[float | None], *, percent: bool = False) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "none"
    ends = (min(numbers), median(numbers), max(numbers))
    return " / ".join(f"{100 * n:.3g} %" if percent else f"{n:.4g}" for n in ends)


def _costs(content: Content, whole: Sequence[Measured]) -> list[dict[str, object]]:
    """Return the costs of each setting, one line for all sites of one shape."""
    shapes = {site.id: site.shape for site in content.sites}
    sites = Counter((shapes[cost.site], replace(cost, site="")) for cost in content.costs)
    names = {row.setting: row.name for row in whole}
    return [
        {
            "name": names[cost.setting],
            "shape": "unknown" if shape is None else " x ".join("?" if d is None else str(d) for d in shape),
            "sites": count,
            "cost": cost,
        }
        for (shape, cost), count in sites.items()
    ]


def _data(content: Content, shown: Sequence[Errors]) -> dict[str, object]:
    """Return what the charts draw, as short as it gets."""
    series = list(dict.fromkeys(row.series for row in content.settings))
    sites = list(dict.fromkeys([*(site.id for site in content.sites), *(e.site for e in shown)]))
    index = {site: number for number, site in enumerate(sites)}
    places = {site.id: site for site in content.sites}
    subject = content.subject
    return {
        "metric": subject.metric,
        "unit": subject.unit,
        "relative": subject.relative,
        "reference": [subject.reference.value, subject.reference.low, subject.reference.high],
        "budget": content.answer.budget,
        "recommended": content.answer.setting,
        "series": series,
        "settings": [
            [series.index(row.series), row.bits, None if row.site is None else index.get(row.site, -1), row.head,
             row.metric.value, row.metric.low, row.metric.high, row.loss.value, row.loss.low, row.loss.high,
             row.verdict]
            for row in content.settings
        ],
        "sites": [[site, places[site].node if site in places else ""] for site in sites],
        "errors": [
            [e.setting, index[e.site], *map(_rounded, (e.output_error, *e.row_sums, e.mean_row_sum, e.argmax_flips,
             e.top5_flips)), e.rows]
            for e in shown
        ],
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
