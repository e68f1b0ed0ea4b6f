"""Custom operators are equal to the functions in releases of onnxruntime, each in an environment of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import venv
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, quantize_static

import softq
from softq.artifact import manifest
from softq.modelfile import save
from softq.onnxruntime import quantize_overrides
from tests import ort_cases, qdq_cases
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


QDQ_CASES = ("plain", "added-mask", "chosen-mask", "grouped", "past", "half")
TOLERANCE = 0.02
"""Relative difference of a model on integers between releases: of one rounding of V, where a score rounds otherwise."""


class Images(CalibrationDataReader):
    """A few images of the ViT's calibration data."""

    def __init__(self, images: NDArray[np.float32]) -> None:
        self._left = [{"images": images}]

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._left.pop() if self._left else None


@pytest.fixture(scope="module")
def integers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with models on integers, their inputs, and what the installed release makes of them."""
    folder = tmp_path_factory.mktemp("releases")
    for name in QDQ_CASES:
        onnx.save(softq.convert(ATTENTIONS[name].model(), qdq=True).model, folder / f"{name}.onnx")
        np.savez(folder / f"{name}.npz", **ATTENTIONS[name].feeds(DIMS))  # pyright: ignore[reportArgumentType]
    vit = Path(__file__).parent.parent / "models" / "mnist_vit"
    images = np.load(vit / "calibration.npz")["images"][:8]
    save(softq.convert(vit / "mnist_vit.onnx", qdq=True).model, folder / "vit.onnx")
    save(
        softq.convert(vit / "mnist_vit.onnx", settings={"weight_bits": 8, "peak": "full"}).model, folder / "plain.onnx_"
    )
    chosen = quantize_overrides(folder / "plain.onnx_")
    quantize_static(folder / "plain.onnx_", folder / "vit-static.onnx", Images(images), **chosen)
    for name in ("vit", "vit-static"):
        np.savez(folder / f"{name}.npz", images=images)
    for path in folder.glob("*.onnx"):
        model = onnx.load(path)
        model.ir_version = 8
        onnx.save(model, path)
    qdq_cases.run(folder)
    return folder


@pytest.mark.parametrize("release", ["1.32.0", "1.24.4", "1.20.1", "1.17.3"])
def test_attentions_on_integers_in_a_release(release: str, integers: Path, tmp_path: Path) -> None:
    python = python_with(release, tmp_path / "python")
    copy = shutil.copytree(integers, tmp_path / "there")
    done = subprocess.run([python, qdq_cases.__file__, str(copy)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"onnxruntime {release}"
    for model in sorted(integers.glob("*.onnx")):
        here, there = (np.load(folder / f"{model.stem}.out.npy").astype(np.float64) for folder in (integers, copy))
        assert np.linalg.norm(there - here) <= TOLERANCE * np.linalg.norm(here), model.stem
        ran = [json.loads((folder / f"{model.stem}.json").read_text()) for folder in (integers, copy)]
        products = [[one.get(name, 0) for name in ("MatMulIntegerToFloat", "QLinearMatMul", "MatMul")] for one in ran]
        assert products[1] == products[0], model.stem
        assert products[0][0] > 0, model.stem


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
