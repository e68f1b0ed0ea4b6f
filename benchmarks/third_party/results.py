"""What a run of the trials found, as text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.third_party.models import MODELS, Model

RESULTS = Path(__file__).resolve().parent.parent / "third_party.json"

Row = Mapping[str, Any]

_HEAD = (
    "model", "family", "package", "licence", "MB", "nodes", "softmaxes, converted", "build", "s", "run, ms", "ratio",
    "converted, build", "s", "ratio",
)  # fmt: skip


def state(row: Row, which: str) -> str:
    """Return how a build of a row went, in a word: "right", "wrong", "refused", "crash", or "" where there is none."""
    if which in row:
        return row[which]["status"]
    if "crash" in row:
        return "crash"
    return "refused" if "refused" in row else ""


def summary(row: Row) -> str:
    """Return a row in a line."""
    parts = [f"{row['name']}:"]
    for which in ("shipped", "converted"):
        if not (word := state(row, which)):
            continue
        build = row.get(which, {})
        parts.append(f"{which} {word}{' (shapes given)' * build.get('fixed', False)}")
        if build.get("seconds"):
            parts.append(f"in {build['seconds']:.1f} s")
        if build.get("time"):
            parts.append(f"at {build['time'] / build['rival']:.2f} of {1e3 * build['rival']:.2f} ms")
        parts.append(build.get("reason") or row.get("crash") or row.get("refused") or "")
    if "not_converted" in row:
        parts.append(f"not converted: {row['not_converted']}")
    return " ".join(part for part in parts if part)


def document() -> str:
    """Return the results as Markdown: what they add up to, the table, and what is not right with its reason."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows: list[Row] = found["rows"]
    entries = {model.name: model for model in MODELS}
    machine = "; ".join(f"{key}: {value}" for key, value in found["machine"].items())
    lines = [_HEAD, ("---",) * len(_HEAD), *(_line(entries[row["name"]], row) for row in rows)]
    parts = [
        f'```sh title="Needs hours, and the network"\n{found["command"]}\n```',
        f"Measured on: {machine}.",
        _total(rows, entries),
        "\n".join(f"| {' | '.join(line)} |" for line in lines),
    ]
    reasons = [f"* {row['name']}: {why}" for row in rows if (why := _reason(row))]
    if reasons:
        parts.append("Not right, or not without shapes of inputs, and why:\n\n" + "\n".join(reasons))
    return "\n\n".join(parts)


def _total(rows: Sequence[Row], entries: Mapping[str, Model]) -> str:
    words = [state(row, "shipped") for row in rows]
    ratios = [row["shipped"]["time"] / row["shipped"]["rival"] for row in rows if row.get("shipped", {}).get("time")]
    fixed = sum(row.get("shipped", {}).get("fixed", False) and state(row, "shipped") == "right" for row in rows)
    families = len({entries[row["name"]].family for row in rows})
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("right", "wrong", "refused", "crash"))
    changed = [row for row in rows if row.get("converted_sites")]
    right = sum(state(row, "converted") == "right" for row in changed)
    text = (
        f"{len(rows)} models of {families} families: {counts}; {fixed} of the right ones with shapes of inputs given."
    )
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        text += (
            f" A run takes {mean:.2f} of onnxruntime's time (geometric mean; {min(ratios):.2f} to {max(ratios):.2f})."
        )
    return text + f" Softmaxes are converted in {len(changed)}; {right} of these are right as built."


def _line(model: Model, row: Row) -> tuple[str, ...]:
    shipped, converted = row.get("shipped", {}), row.get("converted", {})
    sites = f"{len(row['softmaxes'])}, {row.get('converted_sites', 0)}" if "softmaxes" in row else ""
    return (
        model.name,
        model.family,
        f"{model.package.name} {model.package.version}",
        model.package.licence,
        f"{row['bytes'] / 1e6:.1f}" if "bytes" in row else "",
        str(row.get("nodes", "")),
        sites,
        state(row, "shipped") + ", shapes given" * (shipped.get("fixed", False) and shipped["status"] != "refused"),
        _number(shipped.get("seconds"), 1),
        _number(shipped.get("time"), 2, 1e3),
        _ratio(shipped),
        state(row, "converted") if row.get("converted_sites") else "",
        _number(converted.get("seconds"), 1),
        _ratio(converted),
    )


def _number(value: float | None, digits: int, factor: float = 1) -> str:
    return "" if value is None else f"{value * factor:.{digits}f}"


def _ratio(build: Row) -> str:
    return f"{build['time'] / build['rival']:.2f}" if build.get("time") else ""


def _reason(row: Row) -> str:
    found = [row.get("refused", ""), row.get("crash", ""), row.get("not_converted", "")]
    for which in ("shipped", "converted"):
        build = row.get(which, {})
        # The option that the end of a refusal gives is what was done.
        found.append(build.get("reason", "").replace("|", "\\|"))
    return " ".join(dict.fromkeys(text for text in found if text))
