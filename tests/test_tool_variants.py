"""Models as other tools write them: those for which no other package is needed, and what counts as the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser

from benchmarks.roundings import DRAWS, FEW, greatest_of_draws, nudged
from benchmarks.tool_variants import WAYS, document, good

pytest.importorskip("tvm")

from benchmarks.tool_variants.__main__ import attempt


@pytest.mark.parametrize(
    "variant",
    [
        "onnxruntime extended",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("QDQ", "QOperator", "dynamic")),
    ],
)
def test_a_model_of_another_tool_is_right(variant: str, tmp_path: Path) -> None:
    row = attempt("mnist_vit", variant, tmp_path)
    assert all(f"{way}: difference" in row and good(row, way) for way in WAYS), row


def test_refusals_are_listed() -> None:
    row = {"model": "m", "variant": "v", "levels": 0.0, "roundings": 0.0, "tolerance": 0.5, "draws": 6}
    refused = row | {f"{way}: refused": "for a reason" for way in WAYS}
    assert "0 are right, 2 are refused, 0 are wrong" in document({"rows": [refused]})
    assert "* m, v: for a reason" in document({"rows": [refused]})
    other = row | {"as it is: difference": 0.25, "converted: difference": 1.0}
    assert good(other, "as it is")
    assert not good(other, "converted")
    text = document({"rows": [other]})
    assert "1 are right, 0 are refused, 1 are wrong" in text
    assert "Refused" not in text


def test_nudged_floats_are_next_to_what_they_were() -> None:
    """Zeros, infinities, few numbers and integers stay."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[16] x, int64[2] n) => (float[16] y)
        <float[16] w = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, float[2] s = {1, 2}> {
            y = Add (x, w)
        }""")
    x = np.array([*range(1, 15), 0, np.inf], np.float32)
    other, feeds = nudged(model, {"x": x, "n": np.array([1, 2])}, 0)
    w = numpy_helper.to_array(other.graph.initializer[0])
    np.testing.assert_allclose(feeds["x"], x, rtol=2e-7)
    np.testing.assert_allclose(w, np.arange(16), rtol=2e-7)
    assert (feeds["x"] != x).any()
    assert (w != np.arange(16)).any()
    assert list(feeds["x"][14:]) == [0, np.inf]
    assert w[0] == 0
    assert other.graph.initializer[1] == model.graph.initializer[1]
    assert list(feeds["n"]) == [1, 2]


def test_draws_go_on_while_a_result_is_further_off() -> None:
    """At least a few, no more than are needed, and never more than all; NaN is never enough."""
    found = greatest_of_draws(float, lambda greatest: greatest >= 20)
    assert found == (20.0, 21)
    assert greatest_of_draws(float, lambda greatest: True) == (FEW - 1.0, FEW)
    assert greatest_of_draws(float, lambda greatest: False) == (DRAWS - 1.0, DRAWS)
    greatest, draws = greatest_of_draws(lambda seed: float("nan"), lambda greatest: greatest >= 0)
    assert np.isnan(greatest)
    assert draws == DRAWS
