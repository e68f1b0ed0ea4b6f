"""Built models subtract floats as onnxruntime does: what rounds is not left out, and NaN stays NaN."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

pytest.importorskip("tvm")

import softq

LARGE = 12582912.0  # 1.5 * 2^23: adding it and subtracting it again rounds to whole numbers


def run_built(text: str, x: np.ndarray, target: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    model = parser.parse_model(text)
    softq.build(model, folder / "built", target=target)
    with softq.load(folder / "built") as built:
        found = np.asarray(built({"x": x})["y"])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return found, np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_a_sum_less_one_of_its_terms_is_rounded(target: str, tmp_path: Path) -> None:
    text = f"""<ir_version: 10, opset_import: ["": 21]> f (float[4, 16] x) => (float[4, 16] y)
    {{ c = Constant <value = float {{{LARGE}}}> () t = Add(x, c) y = Sub(t, c) }}"""
    x = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32) * 3
    found, expected = run_built(text, x, target, tmp_path)
    np.testing.assert_array_equal(found, np.rint(x))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_a_number_less_itself_is_nan_where_it_is_infinite(target: str, tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 21]> f (float[2, 4] x) => (float[2, 4] y) { y = Sub(x, x) }'
    x = np.array([[1, np.inf, np.nan, -2], [0, -np.inf, 3, 4]], np.float32)
    found, expected = run_built(text, x, target, tmp_path)
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(found[0, 1])


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_rows_of_one_element_weigh_one(target: str, tmp_path: Path) -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 21]> f (float[5, 1] x) => (float[5, 1] y) { y = Softmax <axis = -1> (x) }'
    )
    x = np.array([[0], [-80], [np.nan], [3e38], [-np.inf]], np.float32)
    found, expected = run_built(text, x, target, tmp_path)
    np.testing.assert_array_equal(found, expected)
