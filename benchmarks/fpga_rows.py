"""Simulates cores over rows and compares all that they give with the interpreter.

    python -m benchmarks.fpga_rows [--jobs 2]

Each core is simulated by Verilator at full speed and with stalls on both sides, for all configurations of
tests/rtl_rows.py. Totals go to benchmarks/fpga_rows.json, from which docs/fpga.md has a table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.rtl_rows import STALLS, Configuration, configurations, simulate_rows

RESULTS = Path(__file__).with_suffix(".json")
COMMAND = "python -m benchmarks.fpga_rows"
Core = dict[str, Any]


def measure(configuration: Configuration) -> Core:
    """Return what a core is and what its simulation was."""
    with tempfile.TemporaryDirectory(prefix="softq-core-") as folder:
        done = simulate_rows(configuration, Path(folder))
    print(f"{configuration}: {done.elements} elements, {done.wrong} wrong", flush=True)
    return {"core": str(configuration), "method": configuration.method, "lanes": configuration.lanes, **vars(done)}


def document(cores: Sequence[Core]) -> str:
    """Return a table of the methods, and of all together."""
    methods: dict[str, list[Core]] = {}
    for core in cores:
        methods.setdefault(core["method"], []).append(core)
    lines = ["| method | lanes | cores | rows | elements | wrong |", "|---|---|---|---|---|---|"]
    lines += [_line(f"`{name}`", found) for name, found in sorted(methods.items())]
    stalls = ", ".join(f"{valid} / {ready}" for valid, ready in STALLS)
    note = (
        f"From `{COMMAND}`. Of one lane there is a core for int8, and one with a mask for uint8, for weights and for "
        "each published output; of 4 lanes one with a mask, too. Scores are offered and results taken in so many "
        f"percent of the clocks: {stalls}."
    )
    return "\n".join([*lines, _line("all", cores), "", note])


def _line(name: str, cores: Sequence[Core]) -> str:
    lanes = ", ".join(str(lane) for lane in sorted({core["lanes"] for core in cores}))
    totals = (sum(core[field] for core in cores) for field in ("rows", "elements", "wrong"))
    return f"| {name} | {lanes} | {len(cores)} | {' | '.join(f'{total:,}' for total in totals)} |"


def load() -> list[Core]:
    """Return the committed totals."""
    found: Mapping[str, list[Core]] = json.loads(RESULTS.read_text())
    return found["cores"]


def main() -> int:
    """Measure all cores; the exit code is 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="cores at a time")
    parser.add_argument("--missing", action="store_true", help="only cores that the results lack")
    given = parser.parse_args()
    known = {core["core"]: core for core in load()} if given.missing else {}
    wanted = configurations()
    with ThreadPoolExecutor(given.jobs) as pool:
        new = list(pool.map(measure, [each for each in wanted if str(each) not in known]))
    known |= {core["core"]: core for core in new}
    cores = [known[str(each)] for each in wanted]
    RESULTS.write_text(json.dumps({"command": COMMAND, "cores": cores}, indent=1) + "\n")
    return int(any(core["wrong"] for core in cores))


if __name__ == "__main__":
    sys.exit(main())
