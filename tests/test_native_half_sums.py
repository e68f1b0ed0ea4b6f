"""Sums of float16 in built models are of float32: they hold what float16 does not, and add what it would lose."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

pytest.importorskip("tvm")

from tests.native import Executor, build_program

OPERATORS = {
    "ReduceMean": lambda x: x.mean(-1), "ReduceSum": lambda x: x.sum(-1), "ReduceL1": lambda x: np.abs(x).sum(-1),
    "ReduceL2": lambda x: np.sqrt((x * x).sum(-1)), "ReduceSumSquare": lambda x: (x * x).sum(-1),
    "ReduceLogSum": lambda x: np.log(x.sum(-1)), "ReduceLogSumExp": lambda x: np.log(np.exp(x).sum(-1)),
    "ReduceProd": lambda x: x.prod(-1),
}  # fmt: skip


def model(operator: str) -> onnx.ModelProto:
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g (float16[b, n] x) => (float16[b] y) <int64[1] axes = {{1}}> {{ y = {operator} <keepdims = 0> (x, axes) }}""")


@pytest.mark.parametrize("operator", OPERATORS)
def test_against_float64(operator: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 2, (3, 6000)).astype(np.float16)
    if operator == "ReduceMean":
        x[0] = 20.0  # whose sum float16 has not
    if operator == "ReduceSumSquare":
        x = (x * np.float16(0.25)).astype(np.float16)
    if operator == "ReduceProd":
        x = x[:, :12]
    found = Executor(build_program(model(operator)))({"x": x})["y"]
    assert found.dtype == np.float16
    # Float32's error of 6,000 terms is far below the one rounding to float16.
    np.testing.assert_allclose(
        found.astype(np.float64), OPERATORS[operator](x.astype(np.float64)), rtol=1.01 * 2.0**-11
    )
