"""The estimate of a core's resources beside what synthesis made of it; writes benchmarks/fpga_estimate.json.

    python -m benchmarks.fpga.estimate [--cores NAME ...] [--again]

The cores of benchmarks/fpga.json are those that the estimate's two numbers are fitted on; those below are others, which
no number was chosen by: other widths, lengths, masks and lanes, the register port, and cores with V. They are
synthesized for an ECP5 and placed with one seed; it needs yosys and nextpnr-ecp5. A core whose Verilog is the one that
is stored is not measured again, unless `--again`; with `--cores` these alone are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fpga.cores import LANES, OPTIONS, OTHERS, VALUES, WORKS, ValueWork, Work
from benchmarks.fpga.results import Row as MeasuredRow
from benchmarks.fpga.results import digest_of
from benchmarks.fpga.results import load as load_measured
from benchmarks.fpga.synthesis import place, synthesize
from benchmarks.fpga.tools import missing, versions
from softq.codegen.verilog.estimate import Resources, count_tables
from softq.rtl import write_rtl

RESULTS = Path(__file__).parents[1] / "fpga_estimate.json"
COMMAND = "python -m benchmarks.fpga.estimate"
FIELDS = {"lut4": "LUT4", "lut4_in_all": "in all", "ff": "FF", "bram": "BRAM", "mult18": "MULT18"}

_BY_NAME: Mapping[str, Work] = {work.name: work for work in (*WORKS, *OPTIONS, *OTHERS)}


def _of(name: str, told: str, **changes: object) -> Work:
    return replace(_BY_NAME[name], name=f"{name}, {told}", **changes)  # type: ignore[arg-type]


UNSEEN: Sequence[Work | ValueWork] = (
    _of("deferred-log", "2 bits, N up to 64", settings={"bits": 2}, length=64),
    _of("deferred-log", "5 bits, N up to 2048", settings={"bits": 5}, length=2048),
    _of("deferred-log", "6 bits, mask, P = 4", settings={"bits": 6}, masked=True, lanes=4),
    _of("deferred-log", "uint8, reset, N up to 197, P = 2", scores="u8", reset=True, length=197, lanes=2),
    _of("deferred-log of 8 bits", "N up to 512, P = 2", length=512, lanes=2),
    _of("deferred-log, registers", "1 head"),
    _of("deferred-log, registers, 4 heads", "P = 2", lanes=2),
    _of("deferred-log, packed codes", "P = 2", lanes=2),
    _of("deferred-log, cut", "N up to 100", length=100),
    _of("e2softmax", "mask, N up to 4096", masked=True, length=4096),
    _of("ita", "mask, N up to 256", masked=True, length=256),
    _of("ita", "mask, N up to 512, P = 4", masked=True, length=512, lanes=4),
    _of("index-softmax", "N up to 256", length=256),
    _of("index-softmax", "mask, uint8, P = 2", masked=True, scores="u8", lanes=2),
    _of("shiftmax", "N up to 512, P = 2", length=512, lanes=2),
    _of("shiftmax", "mask, N up to 4096", masked=True, length=4096),
    _of("hls4ml", "P = 4", lanes=4),
    _of("hls4ml", "mask, N up to 256", masked=True, length=256),
    _of("tflite-int8", "N up to 256", length=256),
    _of("tflite-int8", "P = 2", lanes=2),
    _of("exaq", "2 bits, P = 4", settings={"bits": 2}, lanes=4),
    _of("i-exp", "mask, P = 2", masked=True, lanes=2),
    _of("limit-exp", "P = 8", lanes=8),
    _of("log-int", "N up to 256", length=256),
    _of("softermax", "P = 4", lanes=4),
    _of("xnn-qu8", "mask, uint8, N up to 197", masked=True, scores="u8", length=197),
    _of("deferred-log-octaves", "N up to 512", length=512),
    _of("edge-moe", "N up to 512", length=512),
    _of("edge-moe, maximum first", "N up to 512", length=512),
    *(replace(work, name=work.name.replace("L = 8", "L = 4"), values=replace(work.values, lanes=4)) for work in VALUES),
    *(
        replace(work, name="V, D = 256, L = 2, shifts", values=replace(work.values, width=256, lanes=2))
        for work in VALUES[:1]
    ),  # Sums in blocks of memory.
)

_PRICES = ("deferred-log, registers, 1 head", *(work.name for work in UNSEEN if "L = 4" in work.name))
"""Cores whose cells say what the register port costs, and the product with V by each of its ways."""


@dataclass(frozen=True)
class Row:
    """A core that was synthesized.

    Attributes:
        name: What the table calls it.
        digest: Of its Verilog without comments.
        found: What it takes, by the names of `Resources`.
    """

    name: str
    digest: str
    found: Mapping[str, int]


@dataclass(frozen=True)
class Compared:
    """A core with what it takes and what was estimated.

    Attributes:
        name: Its name.
        measured: What it takes.
        estimated: The estimate.
        tables: Tables that the estimate packs its logic into.
    """

    name: str
    measured: Resources
    estimated: Resources
    tables: int

    def error(self, field: str) -> float:
        """Return by what share an estimate is too high."""
        found = getattr(self.measured, field)
        return float(getattr(self.estimated, field) / found - 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--again", action="store_true", help="measure all, whatever is stored")
    names = [work.name for work in UNSEEN]
    parser.add_argument("--cores", nargs="+", choices=names, metavar="NAME", default=names, help="only these")
    chosen = parser.parse_args()
    if absent := missing():
        print(f"needs {absent}", file=sys.stderr)
        return 2
    tools = [tool for tool in versions() if tool.split()[0] in ("yosys", "nextpnr-ecp5")]
    rows = {row.name: row for row in load()}
    for work in UNSEEN:
        if work.name in chosen.cores:
            rows[work.name] = _measure(work, None if chosen.again else rows.get(work.name))
            # Those that were stored stay until their turn: a run that is stopped loses nothing.
            _store(tools, [rows[name] for name in names if name in rows])
            print(work.name, dict(rows[work.name].found), flush=True)
    fitted, others = measured(), unseen()
    _store(tools, [rows[name] for name in names if name in rows], measured=fitted, others=others)
    factor, beside = fit(fitted)
    print(f"fitted on {len(fitted)} cores: {factor:.3f} of the tables, and {beside:.1f}")
    return 0


def _store(tools: Sequence[str], rows: Sequence[Row], **compared: Sequence[Compared]) -> None:
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    told = {part: before[part] for part in ("measured", "others") if part in before}
    told |= {part: [asdict(core) for core in cores] for part, cores in compared.items()}
    found = {"command": COMMAND, "tools": tools, "rows": [asdict(row) for row in rows], **told}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _measure(work: Work | ValueWork, stored: Row | None) -> Row:
    made = work.make()
    digest = digest_of(made)
    if stored is not None and stored.digest == digest:
        return stored
    with tempfile.TemporaryDirectory() as name:
        folder, top = Path(name), made.core.name
        write_rtl(made, folder)
        cells = synthesize(folder, [f"{top}.v"], top, "ecp5")
        placed = place(folder, seeds=(1,))
    found = Resources(cells["lut"], placed.total, placed.ff, cells["bram"], cells["dsp"])
    return Row(work.name, digest, asdict(found))


def load() -> list[Row]:
    """Return the stored rows."""
    if not RESULTS.exists():
        return []
    return [Row(**row) for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]]


def compare(work: Work | ValueWork, found: Resources) -> Compared:
    """Return a core's estimate beside what it takes."""
    core = work.make().core
    return Compared(work.name, found, core.resources, sum(map(count_tables, core.cells)))


def measured() -> list[Compared]:
    """Return the cores that the estimate is fitted on."""
    rows, found = load_measured(), list[Compared]()
    for work in (*WORKS, *OPTIONS, *OTHERS, *LANES, *VALUES):
        if (row := rows.get(work.name)) is not None:
            cells = row.cells["ecp5"]
            found.append(compare(work, Resources(cells["lut"], row.total, row.ff, cells["bram"], cells["dsp"])))
    return found


def unseen() -> list[Compared]:
    """Return the others that are stored."""
    rows = {row.name: row for row in load()}
    return [compare(work, Resources(**rows[work.name].found)) for work in UNSEEN if work.name in rows]


def fit(cores: Sequence[Compared]) -> tuple[float, float]:
    """Return the factor of tables and what is beside them, with the least squares of relative errors of LUT4."""
    tables, found = (np.array([value(core) for core in cores], np.float64)
                     for value in (lambda core: core.tables, lambda core: core.measured.lut4))  # fmt: skip
    sides = np.stack([tables, np.ones(len(cores))], axis=1) / found[:, None]
    (factor, beside), *_ = np.linalg.lstsq(sides, np.ones(len(cores)), rcond=None)
    return float(factor), float(beside)


def left_out(cores: Sequence[Compared]) -> list[float]:
    """Return the relative error of LUT4 of each core, by numbers that are fitted on the others."""
    found: list[float] = []
    for at, core in enumerate(cores):
        factor, beside = fit([*cores[:at], *cores[at + 1 :]])
        found.append((factor * core.tables + beside) / core.measured.lut4 - 1)
    return found


def _resources(row: MeasuredRow) -> Mapping[str, int]:
    cells = row.cells["ecp5"]
    return asdict(Resources(cells["lut"], row.total, row.ff, cells["bram"], cells["dsp"]))


def document_prices() -> str:
    """Return the table of docs/fpga.md of what registers, V and serial products cost: measured, beside the cores
    without them."""
    known = load_measured()
    serial = [name for name in known if name.endswith("serial products")]
    pairs = [each for name in serial for each in (name.partition(",")[0], name)]
    found = {"deferred-log": _resources(known["deferred-log"])}
    found |= {row.name: dict(row.found) for row in load() if row.name in _PRICES}
    found |= {name: _resources(known[name]) for name in pairs}
    lines = [f"| core | {' | '.join(FIELDS.values())} |", "|---" * (1 + len(FIELDS)) + "|"]
    lines += [f"| {name} | {' | '.join(f'{row[field]:,}' for field in FIELDS)} |" for name, row in found.items()]
    note = (
        f"From `{COMMAND}`; the first, and those of products, are those of `python -m benchmarks.fpga`. Rows of up to "
        "1,024 elements, D = 64."
    )
    return "\n".join([*lines, "", note])


def document() -> str:
    """Return the tables of docs/fpga.md."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    fitted, others = ([_compared(core) for core in stored[part]] for part in ("measured", "others"))
    lines = [
        f"From `{COMMAND}` ({', '.join(stored['tools'])}): errors of the estimate, by size the middle one, and the "
        "greatest. LUT4 of each measured core are by numbers fitted on the others; on the other cores none is fitted.",
        "",
        "| cores | how many | LUT4 | in all | FF | BRAM, MULT18 |",
        "|---|---|---|---|---|---|",
        _spread("measured below", fitted, left_out(fitted)),
        _spread("others", others, [core.error("lut4") for core in others]),
        "",
        "The others, estimate / measured:",
        "",
        f"| core | {' | '.join(FIELDS.values())} |",
        "|---" * (1 + len(FIELDS)) + "|",
        *(
            f"| {core.name} | "
            + " | ".join(f"{getattr(core.estimated, f):,} / {getattr(core.measured, f):,}" for f in FIELDS)
            + " |"
            for core in others
        ),
    ]
    return "\n".join(lines)


def _compared(core: Mapping[str, Any]) -> Compared:
    return Compared(core["name"], Resources(**core["measured"]), Resources(**core["estimated"]), core["tables"])


def _spread(name: str, cores: Sequence[Compared], tables: Sequence[float]) -> str:
    def told(errors: Sequence[float]) -> str:
        return f"{statistics.median(map(abs, errors)):.1%}, {max(errors, key=abs):+.1%}"

    exact = sum(
        (core.estimated.bram, core.estimated.mult18) == (core.measured.bram, core.measured.mult18) for core in cores
    )
    cells = (told(tables), *(told([core.error(f) for core in cores]) for f in ("lut4_in_all", "ff")))
    return f"| {name} | {len(cores)} | {' | '.join(cells)} | exact in {exact} |"


if __name__ == "__main__":
    sys.exit(main())
