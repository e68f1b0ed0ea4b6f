"""Installs the wheel into a clean environment and uses it from another folder, as a user would.

    python tests/wheel_smoke.py DIST_DIR [--operators]

The checkout must not be importable from there, the two links at the top level neither, and every method file must be
in the wheel. With --operators that is the wheel for this computer's platform, whose library of operators runs a
converted model; else the one for any.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
import importlib.util, pathlib, softq.passes
from softq.methods import METHODS
for name in ("passes", "targets", "tests", "models", "benchmarks"):
    assert importlib.util.find_spec(name) is None, f"{name} can be imported"
home = pathlib.Path(softq.passes.__file__).parent.parent
files = [p for p in home.joinpath("methods").glob("*.py") if p.name[0] != "_"]
assert len(METHODS.entries()) == len(files) == EXPECTED, (len(METHODS.entries()), len(files))
assert home.joinpath("py.typed").exists()
assert softq.SoftqError.__module__ == "softq.errors" and softq.__version__
"""

OPERATORS = """
import onnxruntime, softq.onnxruntime
options = onnxruntime.SessionOptions()
softq.onnxruntime.register(options)
onnxruntime.InferenceSession("out.onnx", options, providers=["CPUExecutionProvider"])
told = softq.onnxruntime.coverage("out.onnx")
assert told.covered and not told.missing, told
"""


def main(dist: Path, operators: bool) -> None:
    """Check the newest wheel of a folder."""
    tag = f"manylinux_*_{platform.machine()}" if operators else "any"
    wheels = sorted(dist.glob(f"softq-*-py3-none-{tag}.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise SystemExit(f"no wheel in {dist}")
    expected = len([p for p in (ROOT / "softq" / "methods").glob("*.py") if p.name[0] != "_"])
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "venv"
        venv.create(home, with_pip=True)
        python = str(home / "bin" / "python")
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint"]
        subprocess.run([python, *install, str(ROOT / "constraints.txt"), str(wheels[-1])], check=True)
        program = PROGRAM.replace("EXPECTED", str(expected))
        subprocess.run([python, "-c", program], check=True, cwd=folder)
        model = ROOT / "models" / "mnist_vit" / "mnist_vit.onnx"
        softq = str(home / "bin" / "softq")
        subprocess.run([softq, "convert", str(model), "out.onnx"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        if operators:
            subprocess.run([python, "-c", OPERATORS], check=True, cwd=folder)
        subprocess.run([softq, "inspect", "out.onnx"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    print(f"{wheels[-1].name}: installs, finds its {expected} methods, converts a model")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] == ["--operators"])
