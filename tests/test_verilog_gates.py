"""Cores after synthesis, in cells of an FPGA, give what the interpreter gives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from softq.rtl import rtl, write_rtl
from tests.ecp5_memory import models
from tests.proofs import models_of_cells, yosys
from tests.rtl_rows import STALLS, settings_of
from tests.simulators import simulate

# Of an iCE40 all cells have models. It has no distributed memory,
# and a core with a register port has a table there.
_SYNTHESIS = """\
read_verilog core.v
synth_ice40 -top core
write_verilog -noattr gates.v
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings", "built"),
    [
        ("deferred-log", {}, {}),
        ("deferred-log", {}, {"registers": True}),
        ("ita", {"output": "uint8"}, {}),
        ("index-softmax", {"output": "uint8"}, {}),
        ("hls4ml", {"output": "fixed"}, {"products": "serial"}),
    ],
)
def test_gates_give_what_the_interpreter_gives(
    tmp_path: Path, method: str, settings: dict[str, object], built: dict[str, Any]
) -> None:
    """One with numbers that leave beside the results, with and without a register port, one with three passes, and two
    with products, all at once and bit by bit."""
    if shutil.which("iverilog") is None:
        pytest.skip("iverilog is not installed")
    made = rtl(method, {**settings_of(method), **settings}, length=61, rows=2, name="core", **built)
    write_rtl(made, tmp_path)
    done = yosys(tmp_path, _SYNTHESIS)
    assert done.returncode == 0, done.stdout + done.stderr
    sources = ["gates.v", "core_tb.v", str(models_of_cells("ice40"))]
    # Defaults of ports are SystemVerilog that Icarus does not take.
    command = ["iverilog", "-g2012", "-DNO_ICE40_DEFAULT_ASSIGNMENTS", "-o", "simulation", *sources]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    for seed, (valid, ready) in enumerate(STALLS):
        said = simulate(tmp_path, ["vvp", "simulation"], valid=valid, ready=ready, seed=seed + 1)
        assert said.startswith(f"PASS: {len(made.beats.results)} beats, {len(made.beats.numbers)} numbers"), said


@pytest.mark.parametrize(
    ("method", "settings", "built"),
    [
        ("deferred-log", {}, {}),
        pytest.param("deferred-log", {}, {"lanes": 4, "masked": True, "length": 1024}, marks=pytest.mark.slow),
        pytest.param("deferred-log", {}, {"registers": True, "heads": 2}, marks=pytest.mark.slow),
        pytest.param("ita", {"output": "uint8"}, {"constants": False}, marks=pytest.mark.slow),
        pytest.param("hls4ml", {"output": "fixed"}, {"products": "serial"}, marks=pytest.mark.slow),
    ],
)
def test_the_netlist_whose_clock_is_told_gives_what_the_interpreter_gives(
    tmp_path: Path, method: str, settings: dict[str, object], built: dict[str, Any]
) -> None:
    """That of NAME_ecp5.ys, in cells of an ECP5: registers are in the blocks of memory."""
    if shutil.which("iverilog") is None:
        pytest.skip("iverilog is not installed")
    given: dict[str, Any] = {"length": 61, "rows": 1, "name": "core", **built}
    made = rtl(method, {**settings_of(method), **settings}, **given)
    write_rtl(made, tmp_path)
    done = yosys(tmp_path, (tmp_path / "core_ecp5.ys").read_text() + "write_verilog -noattr gates.v\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OUTREG" in (tmp_path / "gates.v").read_text()
    (tmp_path / "cells.v").write_text(models(models_of_cells("ecp5")))
    command = ["iverilog", "-g2012", "-o", "simulation", "gates.v", "core_tb.v", "cells.v"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    for seed, (valid, ready) in enumerate(STALLS[:2]):
        said = simulate(tmp_path, ["vvp", "simulation"], valid=valid, ready=ready, seed=seed + 1)
        assert said.startswith(f"PASS: {len(made.beats.results)} beats, {len(made.beats.numbers)} numbers"), said
