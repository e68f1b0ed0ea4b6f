"""Built models whose operators work element by element, against onnxruntime or NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.built import check

pytest.importorskip("tvm")

F32 = np.float32


def test_nan_differs_from_every_number(tmp_path: Path) -> None:
    values = np.array([np.nan, 0, -0.0, np.inf, 1], F32)
    check(
        """g (float[N] x, float[N] y) => (bool[N] unequal, bool[N] some) <float zero = {0}> {
            equal = Equal(x, y)
            unequal = Not(equal)
            some = Cast<to = 9>(x)
        }""",
        [{"x": values, "y": values}, {"x": values, "y": values[::-1].copy()}],
        tmp_path,
    )
