"""Runs converted models in several releases of onnxruntime, each in an environment of its own.

    python -m benchmarks.runtimes

Converts the ViT of models/ with each method and compares the logits of 100 images with those of the installed release.
Writes benchmarks/runtimes.json, from which docs/functions.md is generated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np

import softq
from softq.methods import METHODS
from softq.modelfile import save

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "runtimes.json"
RELEASES = ("1.31.1", "1.30.0", "1.29.0", "1.27.0", "1.24.4", "1.20.1")

# Run there, where softq is not installed.
PROGRAM = """
import sys, numpy, onnxruntime
images = numpy.load(sys.argv[1])["images"][:100]
for name in sys.argv[2:]:
    session = onnxruntime.InferenceSession(name, providers=["CPUExecutionProvider"])
    numpy.save(name + ".npy", session.run(None, {"images": images})[0])
"""


def main() -> None:
    """Convert, run everywhere, compare."""
    home = ROOT / "models" / "mnist_vit"
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        names: list[str] = []
        for method in METHODS.entries():
            for inline in (False, True):
                names.append(str(Path(folder) / f"{method}{'.inline' if inline else ''}.onnx"))
                save(
                    softq.convert(home / "mnist_vit.onnx", method=method, inline=inline, allow_substitute=True).model,
                    names[-1],
                )
        expected: list[np.ndarray] = []
        for release in RELEASES:
            environment = Path(folder) / release
            venv.create(environment, with_pip=True)
            python = str(environment / "bin" / "python")
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            numpy_for = "numpy" if release >= "1.20" else "numpy<2"
            subprocess.run([*pip, f"onnxruntime=={release}", numpy_for], check=True)
            subprocess.run([python, "-c", PROGRAM, str(home / "data.npz"), *names], check=True)
            logits = [np.load(f"{name}.npy") for name in names]
            expected = expected or logits
            worst = max(float(np.max(np.abs(a - b))) for a, b in zip(logits, expected, strict=True))
            rows.append({"onnxruntime": release, "models": len(names), "greatest_difference": worst})
            print(
                f"onnxruntime {release}: {len(names)} models run; greatest difference of a logit {worst:.2g}",
                flush=True,
            )
    RESULTS.write_text(json.dumps({"schema": 1, "command": "make runtimes", "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
