"""How long short commands take: whole processes, medians of several, by turns.

    python -m benchmarks.starting [--runs 9] [--against CHECKOUT]

Prints a table of seconds of processor time, and of wall time in parentheses; --against adds those of another checkout.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VIT = str(ROOT / "models" / "mnist_vit" / "mnist_vit.onnx")
COMMANDS: tuple[tuple[str, dict[str, str]], ...] = (
    ("softq --help", {}),
    ("softq methods", {}),
    ("softq targets", {}),
    (f"softq inspect {VIT}", {}),
    ("softq convert m.onnx o.onnx --method d", {"_SOFTQ_COMPLETE": "bash_complete"}),
    ("softq build m.onnx o --target c", {"_SOFTQ_COMPLETE": "bash_complete"}),
    (f"softq explain {VIT} s", {"_SOFTQ_COMPLETE": "bash_complete"}),
)
"""Command lines; with the variable of a shell that completes, the last word is completed."""


def run(line: str, variables: dict[str, str], checkout: Path) -> tuple[float, float]:
    """Return seconds of processor time and of wall time of one process."""
    words = line.split()
    given = dict(os.environ) | {"PYTHONPATH": str(checkout), "OMP_WAIT_POLICY": "PASSIVE"} | variables
    if variables:
        given |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        words = words[:1]
    before, start = os.times(), time.perf_counter()
    command = [sys.executable, "-m", *words]
    subprocess.run(command, cwd="/", env=given, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, os.times()
    return (after.children_user + after.children_system) - (before.children_user + before.children_system), wall


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="How long short commands take.")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    given = parser.parse_args()
    checkouts = [ROOT, *([given.against.resolve()] if given.against else [])]
    names = ["this checkout", *([str(given.against)] if given.against else [])]
    print(f"| command | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for line, variables in COMMANDS:
        times: list[list[tuple[float, float]]] = [[] for _ in checkouts]
        for turn in range(given.runs + 1):
            for checkout, measured in zip(checkouts, times, strict=True):
                if (seconds := run(line, variables, checkout)) and turn:  # The first run warms caches.
                    measured.append(seconds)
        cells = [
            f"{statistics.median(cpu for cpu, _ in one):.2f} ({statistics.median(wall for _, wall in one):.2f})"
            for one in times
        ]
        shown = line.replace(f"{ROOT}/", "") + (" + Tab" if variables else "")
        print(f"| `{shown}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
