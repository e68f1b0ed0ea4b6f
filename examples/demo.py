"""What softq does, on a trained vision transformer: inspect, convert and check at several bit widths, and build one.

    python examples/demo.py OUT_DIR

Each line that starts with `$` is a command that anyone can type. OUT_DIR gets the converted models, their plans, and
the reports as JSON and Markdown. Building needs softq[tvm].
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MODEL = Path(__file__).resolve().parent.parent / "models" / "mnist_vit"
SETTINGS = [
    ("deferred-log", 4), ("deferred-log", 3), ("deferred-log", 2),
    ("uniform", 8), ("uniform", 4), ("log2", 4), ("log2", 3),
]  # fmt: skip
METRICS = ("top1-accuracy", "top1-agreement", "relative-error")


def softq(*arguments: str, show: bool = True) -> str:
    """Run one softq command as a user would and return what it prints."""
    if show:
        print(f"$ softq {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "softq", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        raise SystemExit(done.returncode)
    return done.stdout


def main(out: Path) -> None:
    """Convert, check, and print the table."""
    out.mkdir(parents=True, exist_ok=True)
    model, data, calibration = (str(MODEL / name) for name in ("mnist_vit.onnx", "data.npz", "calibration.npz"))
    print(softq("inspect", model))
    rows: list[tuple[str, ...]] = []
    for method, bits in SETTINGS:
        name = out / f"mnist_vit.{method}.{bits}"
        files = {kind: f"{name}.{kind}" for kind in ("onnx", "plan.json", "json", "md")}
        softq("convert", model, files["onnx"], "--method", method, "--bits", str(bits), "--calibration", calibration,
              "--save-plan", files["plan.json"])  # fmt: skip
        wanted = [part for name in METRICS for part in ("--metric", name)]
        text = softq("check", model, files["onnx"], "--data", data, *wanted, "--json", "--markdown", files["md"])
        Path(files["json"]).write_text(text, encoding="utf-8")
        metrics = {metric["name"]: metric for metric in json.loads(text)["metrics"]}
        accuracy, agreement, error = (metrics[n] for n in METRICS)
        rows.append((method, str(bits), f"{accuracy['candidate']:.4f}", f"{accuracy['difference']:+.4f}",
                     f"{agreement['candidate']:.4f}", f"{error['candidate']:.4f}"))  # fmt: skip
        reference = f"{accuracy['reference']:.4f}"
    rows.insert(0, ("float32", "32", reference, "", "", ""))
    head = ("softmax", "bits", "accuracy", "change", "agreement", "error of the logits")
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    print()
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()
    converted, artifact = str(out / f"mnist_vit.{SETTINGS[0][0]}.{SETTINGS[0][1]}.onnx"), str(out / "mnist_vit.cpu")
    print(softq("build", converted, artifact, "--target", "cpu"))
    print(softq("run", artifact, "--data", data, "--reference", converted, "--metric", METRICS[0]))
    print(f"models, plans, reports and the artifact are in {out}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/demo.py OUT_DIR")
    main(Path(sys.argv[1]))
