"""Softmax cores of others, compared with the nearest in kind of softq: int8 scores, probabilities as results.

    pip download --no-deps finn-plus==1.6.1 && python -m zipfile -e finn_plus-1.6.1-py3-none-any.whl FOLDER
    python -m benchmarks.fpga.rivals FOLDER

FINN-plus has `HWSoftmax_rtl` (BSD-3-Clause, AMD): integers to float32, the exponential as polynomials, a reciprocal by
Newton's method. It is SystemVerilog, which yosys reads by its front end slang, and computes in DSPFP32, a block for
float32 that Versal alone has: these blocks are counted, and their pins are ports. Nothing of it is kept; figures go to
benchmarks/fpga_rivals.json. What AMD's softmax takes is published.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fpga.cores import LONGEST, STEP, WORKS, Work
from benchmarks.fpga.results import load
from benchmarks.fpga.simulation import LENGTH, SPREAD
from benchmarks.fpga.synthesis import run_synthesis
from benchmarks.fpga.tools import missing, versions
from softq.rowprog import run

RESULTS = Path(__file__).parents[1] / "fpga_rivals.json"
COMMAND = "python -m benchmarks.fpga.rivals FOLDER"

_LIBRARY = "finn/finn-rtllib"
_SOURCES = (
    "softmax_rtl/softmaxf_pkg.sv", "softmax_rtl/pwpolyf_k3_pkg.sv", "softmax_rtl/softmax_pwpolyf.sv",
    "softmax_rtl/binopf.sv", "softmax_rtl/int_to_fp32.sv", "softmax_rtl/softmaxf.sv", "fifo/hdl/fifo.sv",
)  # fmt: skip
_WRAPPER = "softmax_rtl/softmax_wrapper_template.v"
_FILLED = {
    "N": LONGEST, "SIMD": 1, "WIDTH": 8, "SIGNED": 1, "FP32_PASSTHROUGH": 0, "TOP_MODULE_NAME": "softmax",
}  # fmt: skip
"""int8 scores, one in each clock, as FINN-plus fills its wrapper in."""

_BLOCK = "DSPFP32"
_PARAMETERS = """
A_FPTYPE A_INPUT BCASCSEL B_D_FPTYPE B_INPUT PCOUTSEL USE_MULT IS_CLK_INVERTED IS_FPINMODE_INVERTED
IS_FPOPMODE_INVERTED IS_RSTA_INVERTED IS_RSTB_INVERTED IS_RSTC_INVERTED IS_RSTD_INVERTED IS_RSTFPA_INVERTED
IS_RSTFPINMODE_INVERTED IS_RSTFPMPIPE_INVERTED IS_RSTFPM_INVERTED IS_RSTFPOPMODE_INVERTED ACASCREG AREG FPA_PREG
FPBREG FPCREG FPDREG FPMPIPEREG FPM_PREG FPOPMREG INMODEREG RESET_MODE"""
_OUTPUTS = """
ACOUT_EXP ACOUT_MAN ACOUT_SIGN BCOUT_EXP BCOUT_MAN BCOUT_SIGN PCOUT FPM_INVALID FPM_OVERFLOW FPM_UNDERFLOW FPM_OUT
FPA_INVALID FPA_OVERFLOW FPA_UNDERFLOW FPA_OUT"""
_INPUTS = """
ACIN_EXP ACIN_MAN ACIN_SIGN BCIN_EXP BCIN_MAN BCIN_SIGN PCIN CLK FPINMODE FPOPMODE A_SIGN A_EXP A_MAN B_SIGN B_EXP B_MAN
C D_SIGN D_EXP D_MAN ASYNC_RST CEA1 CEA2 CEB CEC CED CEFPA CEFPINMODE CEFPM CEFPMPIPE CEFPOPMODE RSTA RSTB RSTC RSTD
RSTFPA RSTFPINMODE RSTFPMPIPE RSTFPM RSTFPOPMODE"""
_WIDTHS = {r"\w+_EXP": 8, r"\w+_MAN": 23, r"\w+_OUT|C|PCIN|PCOUT": 32, "FPOPMODE": 7}
"""Bits of pins, by the forms of their names; all others have one."""

_BESIDE = {"tflite-int8": "int8, scale 1/256", "index-softmax": "uint8, scale 1/255"}
"""Cores of softq that give probabilities, and what these are."""

_FINN_CLOCK = "about 400 in a Versal, an estimate of its author ([finn 1624](https://github.com/Xilinx/finn/pull/1624))"
_FINN_ERROR = "not measured; exponentials have 23 bits after the point (`softmaxf.sv`)"
_AMD = (
    "| AMD, [PG338](https://docs.amd.com/r/4.0-English/pg338-dpu/Softmax) | float | 9,580 | 8,019 | 4 | 14 "
    "| not stated | that of the DPU; its maintainers reckon with 300 "
    "([Vitis-AI 299](https://github.com/Xilinx/Vitis-AI/issues/299)) |"
)

_ROWS = 1000


def measure(folder: Path) -> dict[str, Any]:
    """Return the figures of FINN-plus' core, from the folder of its wheel."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        texts = [(folder / _LIBRARY / source).read_text("utf-8") for source in _SOURCES]
        # A directive within a module is an error to slang; without it undeclared nets are wires, and there are none.
        texts = [re.sub(r"^`default_nettype.*$", "", text, flags=re.MULTILINE) for text in texts]
        wrapper = (folder / _LIBRARY / _WRAPPER).read_text("utf-8")
        for key, value in _FILLED.items():
            wrapper = wrapper.replace(f"${key}$", str(value))
        texts.append(wrapper)
        files = [f"source_{at}.sv" for at in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            (work / file).write_text(text, encoding="utf-8")
        # To slang the block is a module, to yosys then one of a library, which takes parameters.
        (work / "block.v").write_text(_declare_block())
        (work / "block.sv").write_text(f"(* blackbox *)\n{_declare_block()}")
        read = (
            f"read_slang -j 1 --top {_FILLED['TOP_MODULE_NAME']} {' '.join(files)} block.sv; "
            f"delete ={_BLOCK}; read_verilog -lib block.v; chformal -remove"
        )
        cells = run_synthesis(work, read, str(_FILLED["TOP_MODULE_NAME"]), "xc7", _BLOCK)
    return {"cells": {"xc7": cells}}


def errors() -> dict[str, float]:
    """Return the maximum difference from softmax in float64 of softq's cores, on rows of normal scores."""
    return {work.name: _error(work) for work in WORKS if work.name in _BESIDE}


def _error(work: Work) -> float:
    plan = work.make().core.plan
    normal = np.random.default_rng(0).normal(0, SPREAD, (_ROWS, LENGTH))
    scores = np.clip(np.rint(normal), -128, 127).astype(np.int8)
    exact = np.exp(STEP * (scores - scores.max(-1, keepdims=True).astype(np.float64)))
    exact /= exact.sum(-1, keepdims=True)
    unit = {"int8": 256, "uint8": 255}[str(work.settings["output"])]
    return float(np.abs(run(plan.source, scores)[plan.row_name].astype(np.float64) / unit - exact).max())


def _declare_block() -> str:
    """Return the block's parameters and pins, as far as the sources use them."""
    parameters = ", ".join(f"parameter {name} = 0" for name in _PARAMETERS.split())
    outputs, inputs = (
        ", ".join(f"{way} [{_bits(pin) - 1}:0] {pin}" for pin in pins.split())
        for way, pins in (("output", _OUTPUTS), ("input", _INPUTS))
    )
    return f"module {_BLOCK} #({parameters}) ({outputs}, {inputs});\nendmodule\n"


def _bits(pin: str) -> int:
    return next((bits for form, bits in _WIDTHS.items() if re.fullmatch(form, pin)), 1)


def main() -> int:
    """Measure, and keep the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fpga.rivals", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("folder", type=Path, help="an unpacked wheel of finn-plus")
    chosen = parser.parse_args()
    if absent := missing("yosys"):
        print(f"needs {absent}", file=sys.stderr)
        return 2
    if not (chosen.folder / _LIBRARY / _WRAPPER).exists():
        print(f"{chosen.folder} has no {_LIBRARY}/{_WRAPPER}: it is no unpacked wheel of finn-plus", file=sys.stderr)
        return 2
    found = {"command": COMMAND, "tools": versions("yosys"), **measure(chosen.folder), "errors": errors()}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(document())
    return 0


def document() -> str:
    """Return the table of docs/fpga.md."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    own = load()
    lines = ["| core | results | LUT | FF | RAMB18 | DSP | maximum error | MHz |", "|---" * 8 + "|"]
    for name, kind in _BESIDE.items():
        clock = f"{statistics.median(own[name].mhz):.0f} in an ECP5 of the slowest grade, measured"
        lines.append(_line(name, kind, own[name].cells["xc7"], f"{found['errors'][name]:.5f}", clock))
    name = "FINN-plus 1.6.1, `HWSoftmax_rtl`"
    lines.append(_line(name, "float32", found["cells"]["xc7"], _FINN_ERROR, _FINN_CLOCK))
    note = (
        f"From `{found['command']}` ({', '.join(found['tools'])}): int8 scores, rows of up to 1,024 elements (AMD: "
        "1,023); cells of xc7, AMD's in UltraScale+ as published. DSP of FINN-plus are blocks "
        f"{_BLOCK}, which Versal alone has. The error is the maximum difference from softmax in float64 on {_ROWS:,} "
        f"rows of {LENGTH} normal scores with a standard deviation of {SPREAD:g} units of {STEP}."
    )
    return "\n".join([*lines, _AMD, "", note])


def _line(name: str, results: str, cells: Mapping[str, int], error: str, clock: str) -> str:
    counts = (cells["lut"], cells["ff"], cells["bram"] + 2 * cells["bram36"], cells.get(_BLOCK, cells["dsp"]))
    return f"| {name} | {results} | {' | '.join(f'{count:,}' for count in counts)} | {error} | {clock} |"


if __name__ == "__main__":
    sys.exit(main())
