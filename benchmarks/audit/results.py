"""What `python -m benchmarks.audit` found, and the table of docs/audit.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from softq.wording import in_units

RESULTS = Path(__file__).parent.with_name("audit.json")


def load() -> list[dict[str, Any]]:
    """Return the rows that are stored."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []


def store(rows: list[dict[str, Any]]) -> None:
    """Write the rows."""
    text = {"schema": 1, "command": "python -m benchmarks.audit", "rows": rows}
    RESULTS.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = ["| runtime | scores | greatest error, units | method | faults |", "|---|---|---|---|---|"]
    for row in rows:
        options = "".join(f", {key}={value}" for key, value in row["options"].items() if key != "file")
        version = next((v for k, v in row["versions"].items() if k != "python"), "")
        name = row["name"].partition("-")[0] + f" {version}{options}" if version else row["name"]
        faults = "<br>".join(f"{fault['kind']}: {fault['text']}" for fault in row["faults"]) or "none"
        lines.append(
            f"| {name} | {row['dtype']} | {row['greatest_error']:.4g} | {_method(row['methods'])} | {faults} |"
        )
    return "From `python -m benchmarks.audit`.\n\n" + "\n".join(lines)


def _method(candidates: list[dict[str, Any]]) -> str:
    if not candidates:
        return "none takes such scores"
    equal = [one["method"] for one in candidates if one["is_equal"]]
    if equal:
        return f"`{equal[0]}`, to the bit" + (f" (so is `{'`, `'.join(equal[1:])}`)" if equal[1:] else "")
    first = candidates[0]
    return f"nearest `{first['method']}`: {first['equal']:.4%} equal, up to {in_units(first['greatest'])} apart"
