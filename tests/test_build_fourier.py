"""Fourier transforms beside NumPy's in float64: onnxruntime's are off by 3e-5 where lengths are no powers of two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser

import softq

pytest.importorskip("tvm")

Array = NDArray[Any]


def run(graph: str, x: Array, folder: Path, *arrays: tuple[str, Array], opset: int = 18) -> Array:
    """Return the result of a built graph of x."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> agraph {graph}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays)
    onnx.checker.check_model(model)
    softq.build(model, folder / "built", target="cpu")
    with softq.load(folder / "built") as built:
        return built({"x": x})["y"]


def parts(values: Array) -> Array:
    """Return real and imaginary parts as the last axis."""
    return np.stack([np.real(values), np.imag(values)], -1)


def close(found: Array, wanted: Array) -> None:
    """Compare: sums of N products of float32 are off by some roundings of their greatest."""
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * float(np.max(np.abs(wanted))))


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("onesided", [None, 0, 1])
@pytest.mark.parametrize("length", ["N", "1000"])
def test_frames(onesided: int | None, length: str, tmp_path: Path) -> None:
    """With a window, over signals of a length that only the run tells, too; ONNX infers a wrong number of results."""
    x = np.random.default_rng(0).uniform(-1, 1, (2, 1000)).astype(np.float32)
    window = np.hanning(101)[:-1].astype(np.float32)
    given = "" if onesided is None else f"<onesided={onesided}>"
    graph = f"(float[2,{length}] x) => (float[B,F,K,C] y) <int64 step = {{30}}> {{ y = STFT{given}(x, step, window) }}"
    frames = np.stack([x[:, i : i + 100] for i in range(0, 901, 30)], 1).astype(np.float64) * window
    transform = np.fft.fft if onesided == 0 else np.fft.rfft
    close(run(graph, x, tmp_path, ("window", window)), parts(transform(frames)))


def test_frames_without_a_window(tmp_path: Path) -> None:
    """The signal has an axis of its parts, one."""
    x = np.random.default_rng(0).uniform(-1, 1, (1, 300, 1)).astype(np.float32)
    graph = """(float[1,300,1] x) => (float[B,F,K,C] y) <int64 step = {64}, int64 length = {64}>
    { y = STFT<onesided=1>(x, step, , length) }"""
    frames = np.stack([x[:, i : i + 64, 0] for i in range(0, 237, 64)], 1).astype(np.float64)
    close(run(graph, x, tmp_path), parts(np.fft.rfft(frames)))


CASES: list[tuple[str, tuple[int, ...], str, int, int]] = [
    # Attributes, shape of the input, length if given, axis, opset.
    ("axis=1", (2, 12, 1), "", 1, 18),
    ("axis=1", (3, 7, 4, 2), "", 1, 18),
    ("axis=2, onesided=1", (3, 5, 9, 1), "", 2, 18),
    ("axis=1, inverse=1", (2, 10, 2), "", 1, 18),
    ("axis=1, onesided=1", (2, 12, 1), "16", 1, 18),
    ("axis=1", (2, 12, 1), "9", 1, 18),
    ("", (2, 3, 8, 1), "", -2, 20),
    ("onesided=1, inverse=1", (2, 6, 2), "", -2, 20),
    ("onesided=1, inverse=1", (2, 6, 2), "11", -2, 20),
]


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize(("attributes", "shape", "length", "axis", "opset"), CASES)
def test_transforms(
    attributes: str, shape: tuple[int, ...], length: str, axis: int, opset: int, tmp_path: Path
) -> None:
    """Of real and of complex elements, forwards and back, cut off and filled up with zeros."""
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    given = f"<{attributes}>" if attributes else ""
    constant = f"<int64 n = {{{length}}}>" if length else ""
    inputs = "x, n" if length else "x"
    dims = ",".join(map(str, shape))
    names = ",".join("abcd"[: len(shape)])
    graph = f"(float[{dims}] x) => (float[{names}] y) {constant} {{ y = DFT{given}({inputs}) }}"
    values = x[..., 0].astype(np.float64) + (1j * x[..., 1] if shape[-1] == 2 else 0)
    count, at = int(length) if length else None, axis if axis >= 0 else axis + 1
    if "onesided" in attributes and "inverse" in attributes:
        wanted = np.fft.irfft(values, count, at)[..., None]
    elif "onesided" in attributes:
        wanted = parts(np.fft.rfft(np.real(values), count, at))
    else:
        wanted = parts((np.fft.ifft if "inverse" in attributes else np.fft.fft)(values, count, at))
    close(run(graph, x, tmp_path, opset=opset), wanted)


def test_a_transform_of_a_length_that_only_the_run_tells(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(1, 8, 1)).astype(np.float32)
    found = run("(float[1,N,1] x) => (float[a,b,c] y) { y = DFT<axis=1>(x) }", x, tmp_path)
    close(found, parts(np.fft.fft(x[..., 0].astype(np.float64), axis=1)))


@pytest.mark.parametrize("attributes", ["", "<onesided=1>"])
def test_an_axis_that_only_the_run_tells(attributes: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (2, 6, 5, 1)).astype(np.float32)
    softq.build(
        parser.parse_model(
            f"""<ir_version: 10, opset_import: ["": 20]> g (float[2,N,5,1] x, int64 axis) => (float[a,b,c,d] y)
            {{ y = DFT{attributes}(x, , axis) }}"""
        ),
        tmp_path / "built",
        target="cpu",
    )
    with softq.load(tmp_path / "built") as built:
        for axis in (0, 1, 2, -2, -3):
            at = axis if axis >= 0 else axis + 4
            wanted = (np.fft.rfft if attributes else np.fft.fft)(x[..., 0].astype(np.float64), axis=at)
            close(np.asarray(built({"x": x, "axis": np.array(axis)})["y"]), parts(wanted))
        with pytest.raises(softq.InputError):
            built({"x": x, "axis": np.array(3)})
