"""Greatest and least elements of rows and of tensors, wherever they and NaN stand, and dynamic quantization by them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import softq
from tests.built import check

pytest.importorskip("tvm")


def test_extremes_and_nan_at_every_place(tmp_path: Path) -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, k] x) => (float[n] high, float[n] low, float top, float bottom, uint8[n, k] y, float s, uint8 z)
        <int64[1] axis = {1}> {
            high = ReduceMax <keepdims = 0> (x, axis)
            low = ReduceMin <keepdims = 0> (x, axis)
            top = ReduceMax <keepdims = 0> (x)
            bottom = ReduceMin <keepdims = 0> (x)
            y, s, z = DynamicQuantizeLinear (x)
        }""")
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        # Shorter than a vector, whole vectors, a tail behind them, and four vectors at once with both.
        for length in (1, 7, 16, 21, 64, 75, 150):
            noise = np.random.default_rng(length).uniform(-1, 1, (length, length)).astype(np.float32)
            for special in (9.0, -9.0, -np.inf, np.nan):
                x = np.where(np.eye(length, dtype=bool), np.float32(special), noise)
                found = built({"x": x})
                wanted = {"high": x.max(1), "low": x.min(1), "top": x.max(), "bottom": x.min()}
                if np.isfinite(special):
                    low, high = np.minimum(x.min(), 0), np.maximum(x.max(), 0)
                    wanted["s"] = scale = (high - low) / np.float32(255)
                    wanted["z"] = zero = np.rint(-low / scale)
                    wanted["y"] = np.clip(np.rint(x / scale) + zero, 0, 255)
                for name, want in wanted.items():
                    np.testing.assert_array_equal(found[name], want, err_msg=f"{name} of {length} with {special}")


def test_values_of_functions_with_names_in_them(tmp_path: Path) -> None:
    """Tanh names parts of its formula, and the greatest value is sought in several parts of a row."""
    check(
        """g (float[n, 508] x) => (float[n] y) <int64[1] last = {1}> {
            t = Tanh (x)
            y = ReduceMax <keepdims = 0> (t, last)
        }""",
        [{"x": np.random.default_rng(n).normal(size=(n, 508)).astype(np.float32) - 1} for n in (1, 3)],
        tmp_path,
    )
