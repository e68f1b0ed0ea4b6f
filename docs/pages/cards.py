"""A card per model: bits against accuracy, a plan within a budget, and times, from benchmarks/cards.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures.studies import STUDIES
from docs.pages.charts import Axis, Line, chart, ticks

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "cards.json"

_ABOUT = (
    "Loss: how much worse than float32, paired over the samples, with its 95 % interval; of perplexity the ratio to "
    "float32, less 1. A point at the upper edge of the chart loses more. Time: of the converted ONNX model in "
    "onnxruntime, whose functions run operator by operator, divided by that of the float model, with quartiles; where "
    "these lie far apart the machine was busy, and the median is not to be trusted. "
    "[Compiled operators](../onnxruntime.md) and [built models](../speed.md) are faster."
)


def _records() -> list[Mapping[str, Any]]:
    return json.loads(RESULTS.read_text(encoding="utf-8"))["studies"] if RESULTS.exists() else []


def _place(record: Mapping[str, Any]) -> str:
    return f"cards/{re.sub(r'[^a-z0-9]+', '-', record['name'].lower())}.md"


def overview() -> str:
    """Return a table of the cards."""
    lines = ["| model | metric | float32 | plan: mean bits | within |", "| --- | --- | --- | --- | --- |"]
    for record in _records():
        plan = record["plan"]
        told = f"{plan['mean_bits']:.2f} | {plan['max_drop']}: {'kept' if plan['passed'] else 'not kept'} |"
        lines.append(f"| [{record['name']}]({_place(record)}) | {record['metric']} | {record['float']:.4g} | {told}")
    made = {record["name"] for record in _records()}
    missing = [study.name for study in STUDIES if study.name not in made]
    note = f"\n\nNot made yet: {', '.join(missing)}." if missing else ""
    return "\n".join(lines) + note


def pages() -> dict[str, str]:
    """Return the pages, by their place in the site."""
    return {_place(record): page(record) for record in _records()}


def page(record: Mapping[str, Any]) -> str:
    """Return the card of a model as Markdown."""
    machine = record["machine"]
    parts = [
        f"# {record['name']}",
        f"**Metric:** {record['metric']}. **float32:** {record['float']:.4g}. **Samples:** {record['samples']:,} of "
        f"the evaluation data. From `python -m benchmarks.cards --only \"{record['name']}\"`, on "
        f"{machine['processor']}, {machine['cores']} cores. [What the default method costs](../figures.md) has figures "
        "on all evaluation data.",
        "## Bits against accuracy",
        _chart(record),
        _table(record),
        _ABOUT,
        *_plan(record["plan"]),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _chart(record: Mapping[str, Any]) -> str:
    methods = list(dict.fromkeys(row["method"] for row in record["rows"]))
    losses = [row[key] for row in record["rows"] for key in ("low", "high", "loss") if row[key] is not None]
    least, most = min(0.0, *losses), max(losses)
    # The interesting part is near 0; what loses more than this leaves the chart upwards.
    good = [row["high"] if row["high"] is not None else row["loss"] for row in record["rows"]
            if row["method"] == "deferred-log"]  # fmt: skip
    top = min(most, 3 * max(good))
    floor = max(least, -top)
    widths = sorted({row["bits"] for row in record["rows"]})
    left, right = widths[0] - 0.3, widths[-1] + 0.3
    lines = [Line("float32", [(left, 0.0), (right, 0.0)])]
    for number, method in enumerate(methods):
        rows = [row for row in record["rows"] if row["method"] == method]
        shift = 0.08 * (number - 1)
        lines.append(
            Line(
                method,
                [(row["bits"] + shift, row["loss"]) for row in rows],
                bars=[(row["loss"] if row["low"] is None else row["low"],
                       row["loss"] if row["high"] is None else row["high"]) for row in rows],
            )
        )  # fmt: skip
    x = Axis("bits", left, right, [(bits, str(bits)) for bits in widths])
    y = Axis("loss", floor, top, ticks(floor, top, "+.2g"))
    return chart(f"Loss of {record['name']} against bits", x, y, lines)


def _table(record: Mapping[str, Any]) -> str:
    lines = ["| method | bits | value | loss | time |", "| --- | --- | --- | --- | --- |"]
    for row in record["rows"]:
        interval = "" if row["low"] is None else f" ({row['low']:+.3g} to {row['high']:+.3g})"
        time = "" if row["time"] is None else "{:.2f} ({:.2f} to {:.2f})".format(*row["time"])
        lines.append(
            f"| {row['method']} | {row['bits']} | {row['value']:.4g} | {row['loss']:+.3g}{interval} | {time} |"
        )
    return "\n".join(lines)


def _plan(plan: Mapping[str, Any]) -> list[str]:
    split = plan["split"].replace("--data", "development data").replace("--verify", "evaluation data")
    return [
        "## A plan",
        f"The search gives each softmax the fewest bits of `deferred-log` that keep the budget ({plan['max_drop']}).",
        f"> {plan['sentence']}",
        f"{split[:1].upper()}{split[1:]}.",
        "\n".join(
            ["| softmax | bits |", "| --- | --- |", *(f"| `{at}` | {bits} |" for at, bits in plan["bits"].items())]
        ),
    ]
