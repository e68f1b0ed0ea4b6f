"""Compares custom operators with the functions of the same models. Runs where softq is not installed.

    python ort_cases.py FOLDER

FOLDER holds the library, and for each case NAME a model NAME.onnx and the inputs of its runs, NAME.npz.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnxruntime

Feeds: TypeAlias = dict[str, Any]
LIBRARY = "libsoftq_operators.so"
PROVIDERS = ["CPUExecutionProvider"]


def session(model: Path | bytes, library: Path | None, **settings: Any) -> onnxruntime.InferenceSession:
    """Return a session of two threads, with a library of operators or without."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    for name, value in settings.items():
        setattr(options, name, value)
    if library is not None:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model), options, providers=PROVIDERS)


def operators_run(model: Path, library: Path | None, feeds: Feeds) -> set[str]:
    """Return which operators a session runs, as its profile tells."""
    with tempfile.TemporaryDirectory() as folder:
        profiled = session(model, library, enable_profiling=True, profile_file_prefix=os.path.join(folder, "profile"))
        profiled.run(None, feeds)
        events = json.loads(Path(profiled.end_profiling()).read_text(encoding="utf-8"))
    return {event["args"]["op_name"] for event in events if event.get("args", {}).get("op_name")}


def compare(model: Path, library: Path, runs: list[Feeds]) -> None:
    """Assert that the operator gives the function's outputs to the bit, NaN and shapes included."""
    operator, function = (session(model, used) for used in (library, None))
    for feeds in runs:
        both = ([np.asarray(array) for array in made.run(None, feeds)] for made in (operator, function))
        for got, want in zip(*both, strict=True):
            assert got.dtype == want.dtype == np.float32, model.name
            if not want.size:
                # onnxruntime's reductions keep the axes of an empty tensor.
                assert got.shape in (want.shape, (*want.shape[:-1], 1)), model.name
                continue
            assert_close(got, want, model.name)


def assert_close(got: Any, want: Any, name: str) -> None:
    """Assert that an operator's output is the function's to the bit, or up to roundings where it adds up floats."""
    # In these functions stand onnxruntime's own exponentials, or its order of additions of floats.
    close = 1e-6 if name.startswith(("Exact", "Pade", "PolyExp2", "Qlinear")) else 0
    assert got.shape == want.shape, name
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want), err_msg=name)
    if close:
        np.testing.assert_allclose(got, want, rtol=close, atol=3e-38, err_msg=name)
    else:
        np.testing.assert_array_equal(got, want, err_msg=name)


def save_runs(path: Path, runs: list[Feeds]) -> None:
    """Write the inputs of several runs."""
    np.savez(path, **{f"{i}.{name}": array for i, feeds in enumerate(runs) for name, array in feeds.items()})


def load_runs(path: Path) -> list[Feeds]:
    """Read what `save_runs` wrote."""
    found: dict[str, Feeds] = {}
    with np.load(path) as data:
        for key in data:
            number, _, name = key.partition(".")
            found.setdefault(number, {})[name] = data[key]
    return list(found.values())


def main() -> None:
    folder = Path(sys.argv[1])
    library = folder / LIBRARY
    models = sorted(folder.glob("*.onnx"))
    for model in models:
        runs = load_runs(model.with_suffix(".npz"))
        compare(model, library, runs)
        own = operators_run(model, library, runs[0]) - operators_run(model, None, runs[0])
        assert len(own) == 1, (model.name, own)
    print(f"onnxruntime {onnxruntime.__version__}: {len(models)} models equal")


if __name__ == "__main__":
    main()
