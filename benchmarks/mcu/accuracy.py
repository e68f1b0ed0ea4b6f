"""The int8 ViT in C on all 2,000 digits of the test data, on this computer, beside onnxruntime.

    python -m benchmarks.mcu.accuracy

The C is that of target `c`, whose integers are those of boards to the bit (`python -m benchmarks.mcu.models`).
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

import softq
from benchmarks.mcu.models import SHAPES, VIT, int8_vit

_BATCH = 100


@dataclass(frozen=True)
class Accuracy:
    """Shares of the digits.

    Attributes:
        in_c: Those that the model in C knows.
        in_onnxruntime: Those that onnxruntime knows with the same model.
        alike: Those of which both say the same.
    """

    in_c: float
    in_onnxruntime: float
    alike: float


def measure(folder: Path) -> Accuracy:
    """Return how many digits are known; the folder is for what is made."""
    model = int8_vit(folder)
    softq.build(model, folder / "digits", target="c", input_shapes={name: list(s) for name, s in SHAPES.items()})
    with np.load(VIT / "data.npz") as data:
        images, labels = data["images"], data["label.digit"]
    with softq.load(folder / "digits") as artifact:
        found = np.concatenate([artifact({"images": image[None]})["logits"] for image in images]).argmax(-1)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    starts = range(0, len(images), _BATCH)
    logits = [np.asarray(session.run(None, {"images": images[i : i + _BATCH]})[0]) for i in starts]
    wanted = np.concatenate(logits).argmax(-1)
    return Accuracy(*(float(np.mean(a == b)) for a, b in ((found, labels), (wanted, labels), (found, wanted))))


def main() -> int:
    """Return the exit status of the command line."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    print(f"in C {found.in_c:.2%}, in onnxruntime {onnxruntime.__version__} {found.in_onnxruntime:.2%}, "
          f"the same digit {found.alike:.2%}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
