"""Records what CMSIS-NN's `arm_softmax_s8` gives, into benchmarks/audit/cmsis_nn.npz, for `softq audit --recorded`.

    python -m benchmarks.audit.cmsis_nn FOLDER

FOLDER is a checkout of github.com/ARM-software/CMSIS-NN; rows and scale are those of benchmarks/mcu/cmsis_nn.py.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.audit.__main__ import RECORDED
from benchmarks.mcu.cmsis_nn import rows, theirs


def main(folder: Path) -> None:
    """Compile, run, and store."""
    arrays: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for part in rows():
            arrays[f"scores.{part.shape[1]}"] = part
            arrays[f"result.{part.shape[1]}"] = theirs(folder, Path(scratch), part)
    np.savez_compressed(RECORDED, allow_pickle=False, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
