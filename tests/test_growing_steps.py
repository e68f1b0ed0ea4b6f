"""The search for growing steps without calibration data: its error is the method's, and what it writes is read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import growing_steps
from softq.calibration import exact_weights
from softq.methods import METHODS, Sample, _steps_numbers
from softq.rowprog import run


def test_growing_steps_are_searched_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = METHODS.get("deferred-log")
    sites = growing_steps.normal_sites(rows=4, width=8)[:1]
    options = growing_steps.options_of(3)
    numbers = _steps_numbers.OF_BYTES[3]
    # The error that the script computes from thresholds is that of the method's own program.
    x = (np.random.default_rng(0).normal(size=(4, 197)) * 2).astype(np.float32)
    v = np.random.default_rng(1).normal(size=(197, 8)).astype(np.float32)
    out = run(method.program(options), x, params=method.parameters(options, numbers))
    exact = exact_weights(x) @ v
    found = out["weights"].astype(np.float64) @ v / out["normalizer"].astype(np.float64) - exact
    error = growing_steps.Rows.of(Sample(x, v, 0)).error(options.code(numbers), True)
    assert error == pytest.approx(np.sum(found**2) / np.sum(exact**2), rel=1e-6)
    # What is searched is no worse than what the search begins with, and stands in the file afterwards.
    searched = growing_steps.search(3, [sites])
    least = growing_steps.mean_error(sites, options.code(searched), True)
    assert least <= growing_steps.mean_error(sites, options.code(numbers), True) * 1.01
    copy = tmp_path / "numbers.py"
    copy.write_text(Path(_steps_numbers.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(_steps_numbers, "__file__", str(copy))
    growing_steps.write({3: searched})
    written = dict[str, Any]()
    exec(copy.read_text(encoding="utf-8"), written)
    assert written["OF_BYTES"] == {**_steps_numbers.OF_BYTES, 3: searched}
    assert written["OF_FLOATS"] == _steps_numbers.OF_FLOATS
