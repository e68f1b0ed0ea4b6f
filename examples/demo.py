"""What softq does, on a trained vision transformer: inspect, convert and check at several bit widths, then build one.

    python examples/demo.py OUT_DIR [--part measure|build]

Each line that starts with `$` is a command that anyone can type in the repository's root; below it are its output and
its time. OUT_DIR gets the converted models, their plans, reports as Markdown, and what was built, for which softq[tvm]
is needed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL, DATA, CALIBRATION = (f"models/mnist_vit/{name}" for name in ("mnist_vit.onnx", "data.npz", "calibration.npz"))
SETTINGS = [("deferred-log", 4), ("deferred-log", 3), ("deferred-log", 2), ("uniform", 4), ("log2", 4)]
METRIC = "top1-accuracy"
GATE_FAILED = 1
BESIDE = 10
"""Seconds between two lines on a command that takes long, where no terminal shows one that changes."""


def softq(*arguments: str, allowed: tuple[int, ...] = (0,)) -> str:
    """Run one command of softq as a user would, show it with its output and its time, and return what it prints."""
    print(f"$ softq {shlex.join(arguments)}", flush=True)
    start = time.perf_counter()
    running = subprocess.Popen(
        [sys.executable, "-m", "softq", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while True:
        try:
            told, errors = running.communicate(timeout=1)
            break
        except subprocess.TimeoutExpired:
            tell_progress(arguments[0], int(time.perf_counter() - start))
    print(f"{told}{errors}[{time.perf_counter() - start:.1f} s]\n", flush=True)
    if running.returncode not in allowed:
        raise SystemExit(running.returncode)
    return told


def tell_progress(command: str, seconds: int) -> None:
    """Say that a command is still at work."""
    if sys.stdout.isatty():
        print(f"... softq {command}: {seconds} s\r", end="", flush=True)
    elif seconds % BESIDE == 0:
        print(f"... softq {command}: {seconds} s", flush=True)


def measure(out: str) -> None:
    """Convert the model by several methods at several widths, check each, and tell the result in three lines."""
    softq("inspect", MODEL)
    accuracy: dict[str, str] = {}
    for method, bits in SETTINGS:
        name = f"{out}/{method}-{bits}"
        softq("convert", MODEL, f"{name}.onnx", "--method", method, "--bits", str(bits), "--calibration", CALIBRATION,
              "--save-plan", f"{name}.plan.json")  # fmt: skip
        told = softq("check", MODEL, f"{name}.onnx", "--data", DATA, "--metric", METRIC, "--max-drop", "1%",
                     "--markdown", f"{name}.md", allowed=(0, GATE_FAILED))  # fmt: skip
        (row,) = (line.split() for line in told.splitlines() if line.startswith(f"{METRIC} "))
        accuracy["float32"], accuracy[f"{method} {bits}"] = row[1], row[2]
    best, *others = (method for method in dict.fromkeys(method for method, _ in SETTINGS))
    print(f"{METRIC} with the model's own softmax: {accuracy['float32']}")
    print(f"with {best}: {tell(accuracy, best)}")
    print(f"with others: {'; '.join(f'{method} {tell(accuracy, method)}' for method in others)}", flush=True)


def tell(accuracy: dict[str, str], method: str) -> str:
    """Return what was measured of one method."""
    return ", ".join(f"{accuracy[f'{method} {bits}']} at {bits} bits" for name, bits in SETTINGS if name == method)


def build(out: str) -> None:
    """Build one of the converted models for this computer's processor, and check that too."""
    method, bits = SETTINGS[0]
    converted, built = f"{out}/{method}-{bits}.onnx", f"{out}/built"
    softq("build", converted, built, "--target", "cpu")
    softq("run", built, "--data", DATA, "--reference", converted, "--metric", METRIC)
    print(f"models, plans, reports and what was built are in {out}")


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description="What softq does, on a trained vision transformer.")
    parser.add_argument("out", metavar="OUT_DIR")
    parser.add_argument("--part", choices=["measure", "build"], help="one part alone; both by default")
    given = parser.parse_args()
    Path(given.out).mkdir(parents=True, exist_ok=True)
    # The commands run in the root, and show names as one types them there.
    out = os.path.relpath(given.out, ROOT)
    out = out if not out.startswith("..") else os.path.abspath(given.out)
    if given.part != "build":
        measure(out)
    if given.part != "measure":
        print()
        build(out)


if __name__ == "__main__":
    main()
