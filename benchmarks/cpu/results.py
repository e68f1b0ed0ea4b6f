"""The file of results, one entry a section, and what docs/speed.md shows of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.cpu.section import Result
from benchmarks.cpu.sections import SECTIONS

RESULTS = Path(__file__).resolve().parent.parent / "cpu.json"


def load() -> dict[str, Any]:
    """Return the results of all sections by name."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"schema": 1, "sections": {}}


def store(name: str, command: str, machine: Mapping[str, str], found: Iterable[Result]) -> None:
    """Put a section's results in the place of its old ones."""
    everything = load()
    rows = [{k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in asdict(r).items()} for r in found]
    everything["sections"][name] = {"command": command, "machine": dict(machine), "rows": rows}
    ordered = {name: everything["sections"][name] for name in SECTIONS if name in everything["sections"]}
    RESULTS.write_text(json.dumps(everything | {"sections": ordered}, indent=1) + "\n", encoding="utf-8")


def document(everything: Mapping[str, Any]) -> str:
    """Return all sections as Markdown."""
    parts: list[str] = []
    for name, found in everything["sections"].items():
        section = SECTIONS[name]
        machine = "; ".join(f"{key}: {value}" for key, value in found["machine"].items())
        rows = [Result(**row) for row in found["rows"]]
        parts += [
            f"## {section.title}",
            f'```sh title="Needs a quiet machine, and minutes to hours"\n{found["command"]}\n```',
            section.text,
            f"Measured on: {machine}.",
            table(rows),
        ]
    return "\n\n".join(parts)


def table(rows: Sequence[Result]) -> str:
    """Return results as Markdown: a line for each work, rival and number of threads, a column for each place."""
    places = list(dict.fromkeys(row.place for row in rows))
    lines = [["work", "against", "threads", *places, "aim"], ["---"] * (4 + len(places))]
    for work, rival, threads, unit in dict.fromkeys((r.work, r.rival, r.threads, r.unit) for r in rows):
        mine = {r.place: r for r in rows if (r.work, r.rival, r.threads, r.unit) == (work, rival, threads, unit)}
        limits = list(dict.fromkeys(f"{r.limit:g}" for r in mine.values() if r.limit is not None))
        name = work if unit == "s" else f"{work}: peak memory"
        cells = [_cell(mine[place]) if place in mine else "" for place in places]
        lines.append([name, rival, str(threads), *cells, ", ".join(limits)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(row: Result) -> str:
    """Return the ratio of the medians, and the quartiles of the ratios where they are apart."""
    ratio, low, high = (_number(x) for x in (row.ratio, row.low, row.high))
    return ratio if low == high else f"{ratio} ({low}-{high})"


def _number(x: float) -> str:
    return f"{x:.2f}" if x >= 0.095 else f"{x:.2g}"
