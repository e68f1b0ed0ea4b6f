"""`softq audit` over runtimes that install from packages; writes benchmarks/audit.json and the table in docs/audit.md.

    python -m benchmarks.audit [--environments build/audit] [--only onnxruntime-1.31.1 ...]

Each runtime is installed in an environment of its own; TVM is softq's own. CMSIS-NN's results are those of
benchmarks/audit/cmsis_nn.npz (`python -m benchmarks.audit.cmsis_nn FOLDER`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from softq.audit import Audit, Encoding, audit, audit_recorded

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "audit.json"
PAGE = ROOT / "docs" / "audit.md"
RECORDED = Path(__file__).with_name("cmsis_nn.npz")
BEGIN, END = "<!-- begin audit -->", "<!-- end audit -->"

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
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []
    rows = {(row["name"], row["dtype"]): row for row in stored}
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
    text = {"schema": 1, "command": "python -m benchmarks.audit", "rows": list(rows.values())}
    RESULTS.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(list(rows.values()))}\n{END}{after}", encoding="utf-8")
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


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = ["| runtime | scores | greatest error, units | method | faults |", "|---|---|---|---|---|"]
    for row in rows:
        options = "".join(f", {key}={value}" for key, value in row["options"].items() if key != "file")
        version = next((v for k, v in row["versions"].items() if k != "python"), "")
        name = row["name"].partition("-")[0] + f" {version}{options}" if version else row["name"]
        faults = "<br>".join(f"{fault['kind']}: {fault['text']}" for fault in row["faults"]) or "none"
        lines.append(
            f"| {name} | {row['dtype']} | {row['greatest_error']:.4g} | {_method(row['methods'])} | {faults} |"
        )
    return "From `python -m benchmarks.audit`.\n\n" + "\n".join(lines)


def _method(candidates: list[dict[str, Any]]) -> str:
    if not candidates:
        return "none takes such scores"
    equal = [one["method"] for one in candidates if one["is_equal"]]
    if equal:
        return f"`{equal[0]}`, to the bit" + (f" (so is `{'`, `'.join(equal[1:])}`)" if equal[1:] else "")
    first = candidates[0]
    return f"nearest `{first['method']}`: {first['equal']:.4%} equal, up to {first['greatest']:g} units apart"


if __name__ == "__main__":
    sys.exit(main())
