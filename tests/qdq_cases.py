"""Runs models on integers in another release of onnxruntime. Runs where softq is not installed.

    python qdq_cases.py FOLDER

FOLDER holds NAME.onnx and NAME.npz, its inputs; NAME.out.npy and NAME.json, how often each operator ran, are written.
"""

from __future__ import annotations

import collections
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime


def run(folder: Path) -> None:
    """Run every model of a folder once, with a profile."""
    for model in sorted(folder.glob("*.onnx")):
        with tempfile.TemporaryDirectory() as place:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            options.enable_profiling, options.profile_file_prefix = True, str(Path(place) / "profile")
            session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
            with np.load(model.with_suffix(".npz")) as feeds:
                found = session.run(None, dict(feeds))[0]
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        kernels = [event for event in events if event.get("name", "").endswith("_kernel_time")]
        ran = collections.Counter(event["args"]["op_name"] for event in kernels)
        np.save(model.with_suffix(".out.npy"), np.asarray(found))
        model.with_suffix(".json").write_text(json.dumps(ran), encoding="utf-8")
    print(f"onnxruntime {onnxruntime.__version__}")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
