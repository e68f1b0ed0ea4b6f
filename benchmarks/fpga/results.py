"""What `python -m benchmarks.fpga` measured, and the tables of it."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softq.rtl import MadeCore, MadeWeightedCore

RESULTS = Path(__file__).parent.with_suffix(".json")
COMMAND = "python -m benchmarks.fpga"


@dataclass(frozen=True)
class Row:
    """A core.

    Attributes:
        name: What tables call it.
        part: Which table it stands in: cores, options or others.
        core: What it was made from: method, options, scores, masked, reset, outputs, lanes and length.
        digest: Of its Verilog without comments.
        memory: Bits of its memories and tables.
        latency: Clocks of one row by its length.
        clocks: Clocks from one row of 512 elements to the next.
        changes: Nets that change for each element; None where that is not counted.
        cells: Cells by family of devices and resource.
        total: Tables of four inputs in an ECP5, those of carries and distributed memory too.
        ff: Flip-flops in an ECP5, without those in blocks of memory.
        mhz: In an ECP5-25F of grade 6, of each seed; none if it is to be measured again.
        path: The cells at both ends of its longest path with the seed in the middle.
    """

    name: str
    part: str
    core: Mapping[str, Any]
    digest: str
    memory: int
    latency: Mapping[str, int]
    clocks: float
    changes: float | None
    cells: Mapping[str, Mapping[str, int]]
    total: int
    ff: int
    mhz: Sequence[float]
    path: Sequence[str]


def store(rows: Sequence[Row], tools: Sequence[str]) -> None:
    """Write the rows, and which tools there were."""
    found = {"command": COMMAND, "tools": list(tools), "rows": [asdict(row) for row in rows]}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def load(tools: Sequence[str] | None = None) -> dict[str, Row]:
    """Return the stored rows by name; none if other tools than these made them."""
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    if tools is not None and found["tools"] != list(tools):
        return {}
    return {row["name"]: Row(**row) for row in found["rows"]}


def digest_of(made: MadeCore | MadeWeightedCore) -> str:
    """Return a digest of a core's Verilog without comments."""
    lines = (line for line in made.core.text.splitlines() if not line.lstrip().startswith("//"))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def document() -> str:
    """Return the tables of docs/fpga.md."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = [Row(**row) for row in found["rows"]]
    made = f"From `{found['command']}` ({', '.join(found['tools'])})"
    titles = {
        "cores": f"{made}: cores for rows of up to 1,024 elements, without mask and reset; P is the number of lanes.",
        "options": "The same for one option each beside the first:",
        "others": "Other methods with their default options:",
        "lanes": "Other cores with several lanes:",
        "values": "With V, averages of D = 64 elements, L = 8 in a beat (row after row as described, not counted):",
    }
    parts = {part: [row for row in rows if row.part == part] for part in titles}
    told = [text for part, title in titles.items() if parts[part] for text in (title, _cores(parts[part]))]
    return "\n\n".join([*told, "Cells of the first table in other families:", _families(parts["cores"])])


def _cores(rows: Sequence[Row]) -> str:
    head = ("core", "LUT4", "in all", "FF", "BRAM", "MULT18", "MHz", "one row of 197 / 512", "row after row of 512",
            "changes")  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        cells = row.cells["ecp5"]
        speed = f"{statistics.median(row.mhz):.0f} ({min(row.mhz):.0f}-{max(row.mhz):.0f})" if row.mhz else ""
        known = " / ".join(f"{row.latency[length]:,}" for length in ("197", "512") if length in row.latency)
        told = (row.name, cells["lut"], row.total, row.ff, cells["bram"], cells["dsp"],
                speed, known, f"{row.clocks:g}",
                "" if row.changes is None else f"{row.changes:.0f}")  # fmt: skip
        lines.append(f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else cell for cell in told)} |")
    return "\n".join(lines)


def _families(rows: Sequence[Row]) -> str:
    head = ("core", "xc7: LUT", "FF", "RAMB18", "DSP48", "iCE40: LUT4", "FF", "RAM 4K")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        xc7, ice40 = row.cells["xc7"], row.cells["ice40"]
        told = (xc7["lut"], xc7["ff"], xc7["bram"] + 2 * xc7["bram36"], xc7["dsp"], ice40["lut"], ice40["ff"],
                ice40["bram"])  # fmt: skip
        lines.append(f"| {row.name} | {' | '.join(f'{cell:,}' for cell in told)} |")
    return "\n".join(lines)
