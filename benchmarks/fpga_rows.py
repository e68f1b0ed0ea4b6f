"""Simulates cores over rows and compares all that they give with the interpreter.

    python -m benchmarks.fpga_rows [--cores NAME ...] [--jobs 2] [--again]

Each core is simulated by Verilator at full speed and with stalls on both sides, for all configurations of
tests/rtl_rows.py. Totals go to benchmarks/fpga_rows.json, from which docs/fpga.md has a table. A core whose Verilog is
the one that is stored is not simulated again, unless `--again`; with `--cores` these alone are.
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

from benchmarks.fpga.results import digest_of
from tests.rtl_rows import STALLS, Configuration, configurations, simulate_rows

RESULTS = Path(__file__).with_suffix(".json")
COMMAND = "python -m benchmarks.fpga_rows"
Core = dict[str, Any]


def measure(configuration: Configuration, stored: Core | None = None) -> Core:
    """Return what a core is and what its simulation was; the stored one if it is of the same Verilog."""
    digest = digest_of(configuration.make())
    if stored is not None and stored.get("digest") == digest:
        return stored
    with tempfile.TemporaryDirectory(prefix="softq-core-") as folder:
        done = simulate_rows(configuration, Path(folder))
    print(f"{configuration}: {done.elements} elements, {done.wrong} wrong", flush=True)
    told = {"core": str(configuration), "method": configuration.method, "lanes": configuration.lanes, "digest": digest}
    return {**told, **vars(done)}


def document(cores: Sequence[Core]) -> str:
    """Return a table of the methods, and of all together."""
    methods: dict[str, list[Core]] = {}
    for core in cores:
        methods.setdefault(core["method"], []).append(core)
    lines = ["| method | lanes | cores | rows | elements | wrong |", "|---|---|---|---|---|---|"]
    lines += [_line(f"`{name}`", found) for name, found in sorted(methods.items())]
    stalls = ", ".join(f"{valid} / {ready}" for valid, ready in STALLS)
    known = len(configurations())
    few = (
        ""
        if len(cores) == known
        else f", {len(cores)} of its {known} cores: those simulated since the generator changed"
    )
    note = (
        f"From `{COMMAND}`{few}. Of one lane it has a core for int8, and one with a mask for uint8, for weights and "
        "for each published output; of 4 lanes one with a mask, too; four have serial products. Scores are offered and "
        f"results taken in so many percent of the clocks: {stalls}."
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
    names = [str(each) for each in configurations()]
    parser.add_argument("--cores", nargs="+", choices=names, metavar="NAME", default=names, help="only these")
    parser.add_argument("--again", action="store_true", help="simulate all, whatever is stored")
    given = parser.parse_args()
    known = {core["core"]: core for core in load()}
    wanted = [each for each in configurations() if str(each) in given.cores]
    cores: list[Core] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for core in pool.map(lambda each: measure(each, None if given.again else known.get(str(each))), wanted):
            cores.append(core)
            # Those that were stored stay until their turn: a run that is stopped loses nothing.
            known[core["core"]] = core
            kept = [known[name] for name in names if name in known]
            RESULTS.write_text(json.dumps({"command": COMMAND, "cores": kept}, indent=1) + "\n")
    return int(any(core["wrong"] for core in cores))


if __name__ == "__main__":
    sys.exit(main())
