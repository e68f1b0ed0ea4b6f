"""Custom operators are equal to the functions in releases of onnxruntime, each in an environment of its own."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import onnx
import pytest

from softq.artifact import manifest
from tests import ort_cases
from tests.fused import ATTENTIONS, DIMS
from tests.ort_library import cases, fused_model, write_attentions, write_library

ATTENTION_CASES = ("plain", "side-by-side", "added-mask", "grouped", "given-scores")

pytestmark = [pytest.mark.slow, pytest.mark.runtimes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the library and the cases."""
    folder = write_library(tmp_path_factory.mktemp("releases") / "built")
    for case in cases():
        (folder / f"{case.name}.onnx").write_bytes(case.model)
        ort_cases.save_runs(folder / f"{case.name}.npz", case.runs)
    return folder


@pytest.fixture(scope="module")
def attentions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the library of attentions, and models of such whose sums are not rounded."""
    folder = write_attentions(tmp_path_factory.mktemp("releases") / "built")
    for name in ATTENTION_CASES:
        model = fused_model(ATTENTIONS[name])
        model.ir_version = 8
        onnx.save(model, folder / f"{name}.onnx")
        ort_cases.save_runs(folder / f"{name}.npz", [ATTENTIONS[name].feeds(DIMS, whole=True)])
    return folder


def python_with(release: str, folder: Path) -> str:
    """Return the Python of a new environment that holds a release of onnxruntime."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    numpy = "numpy" if release >= "1.20" else "numpy<2"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"onnxruntime=={release}", numpy], check=True)
    return python


@pytest.mark.parametrize("release", ["1.31.1", "1.24.4", "1.20.1", "1.17.3"])
def test_operators_in_a_release(release: str, folder: Path, attentions: Path, tmp_path: Path) -> None:
    python = python_with(release, tmp_path)
    for built, count in ((folder, len(list(cases()))), (attentions, len(ATTENTION_CASES))):
        done = subprocess.run([python, ort_cases.__file__, str(built)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == f"onnxruntime {release}: {count} models equal"


def test_the_release_before_the_first_is_refused(folder: Path, tmp_path: Path) -> None:
    program = "import sys, onnxruntime; onnxruntime.SessionOptions().register_custom_ops_library(sys.argv[1])"
    command = [python_with("1.16.3", tmp_path), "-c", program, str(folder / manifest.OPERATOR_LIBRARY)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "softq's operators need onnxruntime 1.17 or newer; this is 1.16.3" in done.stderr
