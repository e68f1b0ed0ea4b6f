"""The tables of README, docs/figures.md and docs/calibration.md, from the samples in benchmarks/figures.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.figures.studies import BITS, FORMS, METHOD, RIVALS, STUDIES, Settings, Study, kind_of
from softq.metrics import EXP_MEAN, MEAN, Floats, Interval, PerSample, change_interval, value_interval

SHARE, METRIC_PART = 0.3, 0.001
"""Calibration does no harm if, at the upper end of the interval, it adds less than this share of what the default loses
without it, or less than this of the metric."""


@dataclass(frozen=True)
class Found:
    """What was measured of one study.

    Attributes:
        study: The study.
        record: Its part of the file.
    """

    study: Study
    record: Mapping[str, Any]

    def rows(self, method: str, settings: Settings, *, fitted: bool = False) -> list[Mapping[str, Any]]:
        """Return the row of these settings, or of a fitted one those of all draws."""
        return [row for row in self.record["rows"]
                if row["method"] == method and row["settings"] == settings
                and (row["draw"] is not None) == fitted]  # fmt: skip

    def change(self, rows: Sequence[Mapping[str, Any]]) -> Interval:
        """Return the change from the float model; of several draws the mean, and ends that hold all their intervals."""
        metric, weights = self.study.metric, np.array(self.record["weights"], np.float64)
        kind, ours = kind_of(metric), PerSample(np.array(self.record["samples"], np.float64), weights)

        def of(row: Mapping[str, Any]) -> Interval | None:
            samples = PerSample(np.array(row["samples"], np.float64), weights)
            if metric.paired:
                return value_interval(kind, metric.bounds, samples)
            return change_interval(kind, metric.bounds, ours, samples)

        return _hull([found for row in rows if (found := of(row)) is not None])

    def harm(self, settings: Settings) -> tuple[float, Interval]:
        """Return the mean distance without calibration data, and by how much a fit changes it."""
        (plain,) = self.rows(METHOD, settings)
        base = _distances(plain)
        each = [change_interval(MEAN, (-np.inf, np.inf), _single(base), _single(_distances(row)))
                for row in self.rows(METHOD, settings, fitted=True)]  # fmt: skip
        return float(base.mean()), _hull([one for one in each if one is not None])


def _distances(row: Mapping[str, Any]) -> Floats:
    return np.array(row["distances"], np.float64)


def _single(values: Floats) -> PerSample:
    return PerSample(values, np.ones(len(values)))


def _hull(each: Sequence[Interval]) -> Interval:
    return Interval(float(np.mean([one.estimate for one in each])), min(one.low for one in each),
                    max(one.high for one in each))  # fmt: skip


def found_in(results: Mapping[str, Any]) -> Iterator[Found]:
    """Yield the studies that were measured, in the order of the table."""
    records = {record["name"]: record for record in results["studies"]}
    yield from (Found(study, records[study.name]) for study in STUDIES if study.name in records)


def figures_table(results: Mapping[str, Any]) -> str:
    """Return what the default method costs at each width, and what the rivals do, as Markdown."""
    rivals = [f"{method}, {settings['bits']} bits" for method, settings in RIVALS]
    lines = [
        "| model | metric | float32 | options | " + " | ".join([*(f"{bits} bits" for bits in BITS), *rivals]) + " |",
        "|---" * (4 + len(BITS) + len(rivals)) + "|",
    ]
    for found in found_in(results):
        metric, samples = found.record["metric"], len(found.record["samples"])
        start = f"{found.study.name} | {metric}, {samples:,} samples | {found.record['float']:.4g}"
        for form, _ in FORMS:
            name = _form(form)
            for fitted in (False, True):
                cells = [_cell(found, found.rows(METHOD, {"bits": bits, **form}, fitted=fitted)) for bits in BITS]
                if not any(cells):
                    continue
                cells += ["" if fitted or form else _cell(found, found.rows(*rival)) for rival in RIVALS]
                head = " | | " if fitted or form else start
                lines.append(
                    f"| {head} | {'fitted' if fitted else 'built in'}{name and ', ' + name} | "
                    + " | ".join(cells)
                    + " |"
                )
    return "\n".join(lines)


HEADLINE_BITS = (4, 3, 2)


def headline_table(results: Mapping[str, Any]) -> str:
    """Return what the default method costs without calibration data, beside uniform steps, as Markdown."""
    method, settings = RIVALS[0]
    head = ("model", "metric", "float32", *(f"{bits} bits" for bits in HEADLINE_BITS),
            f"{method}, {settings['bits']} bits")  # fmt: skip
    lines = [head, ("---",) * len(head)]
    for found in found_in(results):
        rows = [found.rows(METHOD, {"bits": bits}) for bits in HEADLINE_BITS] + [found.rows(method, settings)]
        start = (found.study.name, found.record["metric"], f"{found.record['float']:.4g}")
        lines.append((*start, *(_cell(found, one) for one in rows)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _form(form: Settings) -> str:
    return " ".join(f"`{name}={value}`" for name, value in form.items())


def _cell(found: Found, rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    change = found.change(rows)
    numbers = (change.estimate, change.low, change.high)
    sign = "" if found.study.metric.kind is EXP_MEAN or found.study.metric.paired else "+"
    one, low, high = (f"{number:{sign}.4f}" for number in numbers)
    return f"{one} ({low} to {high})"


def calibration_table(results: Mapping[str, Any]) -> str:
    """Return what calibration changes, by model and width, and whether that is within the limit."""
    lines = [
        "| model | distance | options | built in | fitted less built in | limit | within |",
        "|---|---|---|---|---|---|---|",
    ]
    for found in found_in(results):
        for form, bits in ((form, bits) for form, widths in FORMS for bits in widths):
            if not found.rows(METHOD, settings := {"bits": bits, **form}):
                continue
            base, change = found.harm(settings)
            limit = max(SHARE * base, METRIC_PART)
            interval = f"{change.estimate:+.5f} ({change.low:+.5f} to {change.high:+.5f})"
            within = "yes" if change.high < limit else "no"
            cells = (
                found.study.name,
                found.record["distance"],
                _form(settings),
                f"{base:.5f}",
                interval,
                f"{limit:.5f}",
            )
            lines.append(" | ".join(("", *cells, within, "")).strip())
    return "\n".join(lines)
