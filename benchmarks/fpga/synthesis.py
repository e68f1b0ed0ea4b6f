"""Cells and clock of a core: yosys for three families of devices, nextpnr for one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fpga.tools import call
from softq.rtl.ecp5 import commands

SEEDS = (1, 2, 3, 4, 5)
DEVICE = ("--25k", "--speed", "6")
_FREQUENCY = 220
"""Megahertz that placement aims at; it may miss or exceed them."""

_SYNTHESIS = {
    "ecp5": "synth_ecp5",
    "xc7": "synth_xilinx -family xc7 -flatten -noiopad -noclkbuf",
    "ice40": "synth_ice40",
}

CELLS: Mapping[str, Mapping[str, str]] = {
    "ecp5": {"lut": "LUT4", "ff": "TRELLIS_FF", "carry": "CCU2C", "bram": "P?DPW?16KD", "dsp": "MULT18X18D",
             "lutram": "TRELLIS_DPR16X4"},
    "xc7": {"lut": "LUT[1-6]", "ff": "FD[RSCP]E", "carry": "CARRY4", "bram": "RAMB18E1", "bram36": "RAMB36E1",
            "dsp": "DSP48E1", "lutram": "RAM(32|64|128|256).*", "shift": "SRL.*"},
    "ice40": {"lut": "SB_LUT4", "ff": "SB_DFF.*", "carry": "SB_CARRY", "bram": "SB_RAM40_4K.*"},
}  # fmt: skip
"""By family: the resources and the cells that they are."""

_OTHERS = {"ecp5": r"PFUMX|L6MUX21|\$scopeinfo", "xc7": r"MUXF[78]|INV|\$scopeinfo", "ice40": r"\$scopeinfo"}
"""Cells that belong to the tables beside them."""


@dataclass(frozen=True)
class Placed:
    """A core in an ECP5-25F of the slowest grade.

    Attributes:
        mhz: Of each seed, rounded down to tenths.
        total: Tables of four inputs in all, those of carries and of distributed memory too.
        ff: Flip-flops, without those that blocks of memory have.
        path: The cells at both ends of the longest path of the seed in the middle.
    """

    mhz: tuple[float, ...]
    total: int
    ff: int
    path: tuple[str, ...]


def count_memory(folder: Path, sources: Sequence[str], top: str) -> int:
    """Return the bits of all memories and tables of a module."""
    script = f"{_read(sources)}; hierarchy -top {top}; proc; flatten; opt_clean; tee -o memory.json stat -json"
    call("yosys", ["-q", "-p", script], folder)
    return json.loads((folder / "memory.json").read_text())["design"]["num_memory_bits"]


def synthesize(folder: Path, sources: Sequence[str], top: str, family: str) -> dict[str, int]:
    """Return the cells of a module by resource; the netlist is FAMILY.json.

    Args:
        folder: Where the sources lie.
        sources: Files of Verilog.
        top: The module.
        family: The devices, a key of `CELLS`.
    """
    return run_synthesis(folder, _read(sources), top, family)


def run_synthesis(folder: Path, read: str, top: str, family: str, foreign: str = "") -> dict[str, int]:
    """Return the cells of a module by resource; the netlist is FAMILY.json.

    Args:
        folder: Where the sources lie.
        read: Commands that read them.
        top: The module.
        family: The devices, a key of `CELLS`.
        foreign: A cell that these devices lack: it is counted, and its pins are those of the netlist.
    """
    leave = f"; expose -evert t:{foreign}" if foreign else ""
    script = f"{read}; {_SYNTHESIS[family]} -top {top}; tee -o cells.json stat -json{leave}; write_json {family}.json"
    call("yosys", ["-q", "-p", script], folder)
    counts = json.loads((folder / "cells.json").read_text())["design"]["num_cells_by_type"]
    known = {**CELLS[family], **({foreign: foreign} if foreign else {})}
    found = dict.fromkeys(known, 0)
    for cell, count in counts.items():
        resource = next((name for name, form in known.items() if re.fullmatch(form, cell)), None)
        if resource:
            found[resource] += count
        elif not re.fullmatch(_OTHERS[family], cell):
            raise RuntimeError(f"{top} for {family}: {count} cells {cell}, which no resource names")
    return found


def _read(sources: Sequence[str]) -> str:
    return "; ".join(f"read_verilog {'-sv ' if name.endswith('.sv') else ''}{name}" for name in sources)


def place(folder: Path, seeds: Sequence[int] = SEEDS) -> Placed:
    """Return what becomes of ecp5.json, with registers moved into blocks of memory, for each seed."""
    (folder / "packed.ys").write_text(commands(["read_json ecp5.json"], "packed.json"))
    call("yosys", ["-q", "packed.ys"], folder)
    found: list[tuple[float, dict[str, Any]]] = []
    for seed in seeds:
        arguments = ["--json", "packed.json", "--seed", str(seed), "--freq", str(_FREQUENCY), "--report", "report.json"]
        call("nextpnr-ecp5", [*DEVICE, *arguments, "--out-of-context", "--timing-allow-fail", "-q"], folder)
        report = json.loads((folder / "report.json").read_text())
        ((_, clock),) = report["fmax"].items()
        found.append((clock["achieved"], report))
    ordered = sorted(found, key=lambda pair: pair[0])
    report = ordered[len(ordered) // 2][1]
    used = report["utilization"]
    path = report["critical_paths"][0]["path"]
    return Placed(
        tuple(int(mhz * 10) / 10 for mhz, _ in found),
        used["TRELLIS_COMB"]["used"],
        used["TRELLIS_FF"]["used"],
        (path[0]["from"]["cell"], path[-1]["to"]["cell"]),
    )
