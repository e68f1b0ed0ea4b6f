"""The models of models/ as other tools write them: converted, built and run against onnxruntime.

    pip install onnxslim==0.1.98 onnxsim==0.8.1 onnxconverter-common==1.16.0
    python -m benchmarks.tool_variants [VARIANT ...] [--model NAME ...] [--json FILE]

Variants are onnxruntime's own optimization levels, onnxslim, onnxsim, quantization (static as QDQ and as QOperator,
dynamic) and float16. Each is built as it is and after conversion with the exact method. What counts as the same is what
onnxruntime itself makes of a variant: the greatest difference of its results at any optimization level from those at
none, or where floats of inputs and weights are off by one rounding or none (in codes a sum that is added in another
order is now and then one more or less; `benchmarks.roundings` says how many such models), and 1e-5 of the greatest
output more. All variants together are written to
benchmarks/tool_variants.json, from which docs/third-party.md has its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "tool_variants.json"
WAYS = ("as it is", "converted")

Row = Mapping[str, Any]


def good(row: Row, way: str) -> bool:
    """Say whether a variant is refused, or no further from onnxruntime than its tolerance."""
    return f"{way}: refused" in row or row[f"{way}: difference"] <= row["tolerance"]


def line(row: Row) -> str:
    """Return a row as a line of the table in Markdown."""
    distances = (f"{row[key]:.1e}" for key in ("levels", "roundings", "tolerance"))
    cells = [row["model"], row["variant"], *distances, str(row["draws"])]
    for way in WAYS:
        verdict = "right" if good(row, way) else "wrong"
        cells.append("refused" if f"{way}: refused" in row else f"{verdict}, {row[f'{way}: difference']:.1e}")
    return f"| {' | '.join(cells)} |"


def document(facts: Mapping[str, Any]) -> str:
    """Return the results as Markdown: what they add up to, the table, and the refusals."""
    rows: list[Row] = facts["rows"]
    tried = [(row, way) for row in rows for way in WAYS]
    refused = [f"{way}: refused" in row for row, way in tried]
    wrong = sum(not good(row, way) for row, way in tried)
    head = ("model", "variant", "levels", "roundings", "tolerance", "draws", *WAYS)
    reasons = {
        f"{row['model']}, {row['variant']}": row[f"{way}: refused"] for row, way in tried if f"{way}: refused" in row
    }
    return "\n".join(
        [
            f"Of {len(tried)} builds of {len(rows)} variants {len(tried) - sum(refused) - wrong} are right, "
            f"{sum(refused)} are refused, {wrong} are wrong.",
            "",
            f"| {' | '.join(head)} |",
            "| --- " * len(head) + "|",
            *map(line, rows),
            *(["", "Refused:", ""] if reasons else []),
            *(f"* {name}: {reason}" for name, reason in reasons.items()),
        ]
    )
