"""Whole models in C on emulated microcontrollers; writes benchmarks/mcu_models.json.

    python -m benchmarks.mcu.models [--models NAME ...] [--boards m4 ...]

With arguments only these rows are written anew. Results are compared first: with those of the same C on this computer,
to the bit; those of vectors within 1e-6, since they add up in another order. It needs what `python -m benchmarks.mcu`
does.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import softq
from benchmarks.mcu.boards import OF_MODELS, Board, missing, version
from benchmarks.mcu.results import ModelRow, store_models
from benchmarks.mcu.running import Feeds, Run, run_model
from benchmarks.third_party.models import MODELS as THIRD_PARTY
from benchmarks.third_party.packages import extract

VIT = Path(__file__).resolve().parents[2] / "models" / "mnist_vit"


@dataclass(frozen=True)
class Model:
    """A model.

    Attributes:
        name: What tables call it.
        write: Writes it into a folder and returns its path.
        shapes: Lengths of the inputs.
        feeds: Returns so many inputs.
        tolerance: Greatest difference from onnxruntime; None where integers between layers make a rounding to the
            other side a whole step.
    """

    name: str
    write: Callable[[Path], Path]
    shapes: Mapping[str, Sequence[int]]
    feeds: Callable[[int], Sequence[Feeds]]
    tolerance: float | None = 1e-6


def int8_vit(folder: Path) -> Path:
    """Write the vision transformer as onnxruntime's static quantization makes it, and return its path.

    Activations and weights are int8 with zero point 0, weights with a scale for each column.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            with np.load(VIT / "calibration.npz") as data:
                images = data["images"]
            self._feeds: Iterator[Feeds] = iter([{"images": images[i : i + 16]} for i in range(0, len(images), 16)])

        def get_next(self) -> Feeds | None:  # pyright: ignore[reportIncompatibleMethodOverride]
            return next(self._feeds, None)

    logging.disable(logging.WARNING)
    quant_pre_process(str(VIT / "mnist_vit.onnx"), str(folder / "prepared.onnx"), skip_symbolic_shape=True)
    quantize_static(folder / "prepared.onnx", folder / "int8.onnx", Reader(), quant_format=QuantFormat.QDQ,
                    activation_type=QuantType.QInt8, weight_type=QuantType.QInt8, per_channel=True,
                    extra_options={"ActivationSymmetric": True})  # fmt: skip
    logging.disable(logging.NOTSET)
    return folder / "int8.onnx"


def digits(count: int) -> Sequence[Feeds]:
    """Return images of the test data, each alone."""
    with np.load(VIT / "data.npz") as data:
        images = data["images"][:count]
    return [{"images": image[None]} for image in images]


def frames(count: int) -> Sequence[Feeds]:
    """Return frames of noise for Silero's voice activity, with states of a run that has begun."""
    rng = np.random.default_rng(0)
    sizes = dict(zip(FRAME, (0.1, 0.5, 2.0), strict=True))
    return [
        {name: rng.uniform(-size, size, FRAME[name]).astype(np.float32) for name, size in sizes.items()}
        for _ in range(count)
    ]


SHAPES = {"images": (1, 1, 28, 28)}
FRAME = {"input": (1, 576), "h": (1, 1, 128), "c": (1, 1, 128)}
# Its LSTM adds the products of 256 numbers to states of size 2: the tolerance is ten of its roundings.
VOICE = next(model for model in THIRD_PARTY if model.name == "silero-vad-sequence")

WORKS = (
    Model("ViT, float", lambda _: VIT / "mnist_vit.onnx", SHAPES, digits),
    Model("ViT, int8", int8_vit, SHAPES, digits, tolerance=None),
    Model("silero-vad, float", lambda _: extract(VOICE), FRAME, frames, tolerance=4e-6),
)


def measure(model: Model, board: Board, folder: Path, count: int = 2) -> Run:
    """Return what a model does on a board, after its results were compared.

    Args:
        model: The model.
        board: The board.
        folder: For what is made.
        count: How many inputs it is given.

    Raises:
        AssertionError: its results differ from those of this computer, or, of floats, from onnxruntime's.
    """
    path, feeds = model.write(folder), model.feeds(count)
    shapes = {name: list(shape) for name, shape in model.shapes.items()}
    softq.build(path, folder / "model", target=board.target, input_shapes=shapes)
    found = run_model(board, folder / "model", folder, feeds)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with softq.load(folder / "model") as artifact:
        for feed, outputs in zip(feeds, found.outputs, strict=True):
            here = artifact(feed)
            wanted = dict(
                zip((spec.name for spec in session.get_outputs()), session.run(None, dict(feed)), strict=True)
            )
            for name, output in outputs.items():
                same, what = 0 if board.cpu.in_c else 1e-6, f"{model.name} on {board.machine}: {name}"
                ours: Any = here[name]
                np.testing.assert_allclose(output, ours, rtol=0, atol=same, err_msg=what)
                if model.tolerance is not None:
                    exact, close = np.asarray(wanted[name]), model.tolerance
                    np.testing.assert_allclose(output, exact, rtol=close, atol=close)
    return found


def main() -> int:
    """Return the exit status of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mcu.models", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--models", nargs="+", choices=[work.name for work in WORKS], help="only these")
    parser.add_argument("--boards", nargs="+", choices=list(OF_MODELS), help="only these")
    chosen = parser.parse_args()
    rows: list[ModelRow] = []
    for work in WORKS:
        for name in chosen.boards or OF_MODELS:
            if chosen.models and work.name not in chosen.models:
                continue
            absent = missing(OF_MODELS[name])
            if absent:
                print(f"{name}: needs {absent}", file=sys.stderr)
                return 2
            with tempfile.TemporaryDirectory() as folder:
                run = measure(work, OF_MODELS[name], Path(folder))
            million = round(run.instructions[0] / 1e6, 2)
            rows.append(ModelRow(work.name, name, million, run.code, run.tables, run.weights, run.arena, run.stack))
            print(json.dumps(asdict(rows[-1])), flush=True)
    places = [(work.name, name) for work in WORKS for name in OF_MODELS]
    compilers = sorted({version(board) for board in OF_MODELS.values() if missing(board) is None})
    store_models(rows, compilers, places)
    return 0


if __name__ == "__main__":
    sys.exit(main())
