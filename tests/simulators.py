"""Cores in a simulator: Icarus Verilog, or Verilator for long runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from softq.rtl import MadeCore, write_rtl

SIMULATORS = ("iverilog", "verilator")


def check(folder: Path, made: MadeCore, simulator: str, stalls: Sequence[tuple[int, int]]) -> None:
    """Require that a core passes its testbench with these shares of clocks, offered and taken."""
    write_rtl(made, folder)
    command = compile_core(folder, made.core.name, simulator)
    for seed, (valid, ready) in enumerate(stalls):
        said = simulate(folder, command, valid=valid, ready=ready, seed=seed + 1)
        assert re.search(
            rf"^PASS: {len(made.beats.results)} beats, {len(made.beats.numbers)} numbers, 0 wrong", said
        ), said


def compile_core(folder: Path, name: str, simulator: str) -> list[str]:
    """Return the command that runs a core's testbench; skip where the simulator is not installed."""
    if shutil.which(simulator) is None:
        pytest.skip(f"{simulator} is not installed")
    sources = [f"{name}.v", f"{name}_tb.v"]
    if simulator == "iverilog":
        command = ["iverilog", "-g2001", "-Wall", "-Wno-timescale", "-o", "simulation", *sources]
    else:
        command = ["verilator", "--binary", "-Wno-fatal", "-O3", "--top", f"{name}_tb", *sources, "-o", "../simulation"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if simulator == "iverilog":
        assert not done.stderr, done.stderr
        return ["vvp", "simulation"]
    return ["./simulation"]


def simulate(folder: Path, command: list[str], *, valid: int = 100, ready: int = 100, seed: int = 1) -> str:
    """Return the last line of a testbench."""
    arguments = [f"+valid={valid}", f"+ready={ready}", f"+seed={seed}"]
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.strip() and "$finish" not in line]
    return "\n".join(lines[-12:])
