"""`softq audit` over runtimes that install from packages; writes benchmarks/audit.json, the table of docs/audit.md.

    python -m benchmarks.audit [--environments build/audit] [--only onnxruntime-1.31.1 ...]

Each runtime is installed in an environment of its own; TVM is softq's own. CMSIS-NN's results are those of
benchmarks/audit/cmsis_nn.npz (`python -m benchmarks.audit.cmsis_nn FOLDER`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from benchmarks.audit.results import load, store
from softq.audit import Audit, Encoding, audit, audit_recorded

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).with_name("cmsis_nn.npz")

INTEGERS, FLOATS = ("int8", "uint8"), ("float32", "float16")
RELEASES = ("1.15.1", "1.18.1", "1.22.1", "1.24.4", "1.27.0", "1.31.1")
KERNELS = ("reference", "optimized", "xnnpack")
RUNS: list[tuple[str, list[str], str, dict[str, str], tuple[str, ...]]] = [
    *(
        (
            f"onnxruntime-{v}",
            [f"onnxruntime=={v}", "numpy<2" if v < "1.20" else "numpy"],
            "onnxruntime",
            {},
            (*INTEGERS, *FLOATS),
        )
        for v in RELEASES
    ),
    *(
        (f"litert-{k}", ["ai-edge-litert==2.3.0", "numpy"], "litert", {"kernels": k}, ("int8", "int16", "float32"))
        for k in KERNELS
    ),
    ("torch", ["torch==2.13.0", "numpy"], "torch", {}, FLOATS),
    ("openvino", ["openvino==2026.4.1", "numpy"], "openvino", {}, FLOATS),
    ("tvm", [], "tvm", {}, FLOATS),
]
"""Name, packages, runtime, its options, and types of scores."""


def main() -> int:
    """Audit, store, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "audit")
    parser.add_argument("--only", nargs="*")
    chosen = parser.parse_args()
    rows = {(row["name"], row["dtype"]): row for row in load()}
    for name, packages, runtime, options, dtypes in RUNS:
        if chosen.only and name not in chosen.only:
            continue
        python = _environment(
            chosen.environments / name.replace("litert-" + options.get("kernels", ""), "litert"), packages
        )
        for dtype in dtypes:
            with tempfile.TemporaryDirectory() as folder:
                made = audit(runtime, folder, options=options, dtype=dtype, python=python)
            rows[name, dtype] = _row(name, made)
            print(name, dtype, [fault["text"] for fault in rows[name, dtype]["faults"]], flush=True)
    if not chosen.only:
        with tempfile.TemporaryDirectory() as folder:
            made = audit_recorded(RECORDED, folder, scores=Encoding("int8", 0.0625, 0))
        rows["CMSIS-NN 99f736a", "int8"] = _row("CMSIS-NN 99f736a", made)
    store(list(rows.values()))
    return 0


def _environment(folder: Path, packages: list[str]) -> str | None:
    """Return the Python of an environment with these packages, or None where softq's own has them."""
    if not packages:
        return None
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True
        )
    return str(python)


def _row(name: str, made: Audit) -> dict[str, Any]:
    values, found = made.step("values"), made.step("identification")
    assert values is not None
    assert found is not None
    parts = [part for part in values.facts.values() if isinstance(part, dict)]
    return {
        "name": name,
        "versions": made.conditions["versions"],
        "options": made.conditions["options"],
        "dtype": made.conditions["dtype"],
        "elements": sum(part["elements"] for part in parts),
        "greatest_error": max(part["greatest_error"] for part in parts),
        "order_lost": sum(part["order_lost"] for part in parts),
        "methods": found.facts.get("candidates", [])[:3],
        "faults": [{"kind": fault.kind, "text": fault.text, "shape": list(fault.shape)} for fault in made.faults],
    }


if __name__ == "__main__":
    sys.exit(main())
