"""Sums of float16 in built models are of float32: they hold what float16 does not, and add what it would lose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import softq

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


PRODUCTS = {
    "MatMul": ("float16[m, k] x, float16[k, n] w", "y = MatMul (x, w)"),
    "MatMul of weights": ("float16[m, 4096] x", "y = MatMul (x, ones)"),
    "Gemm": ("float16[m, k] x, float16[k, n] w", "y = Gemm (x, w)"),
    "Einsum": ("float16[m, k] x, float16[k, n] w", 'y = Einsum <equation = "ik,kj->ij"> (x, w)'),
    "Conv": (
        "float16[m, k] x, float16[k, n] w",
        """s = Reshape (x, image)
           u = Transpose <perm = [1, 0]> (w)
           v = Reshape (u, kernel)
           z = Conv (s, v)
           y = Reshape (z, flat)""",
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_float16_have_sums_of_float32(name: str, tmp_path: Path) -> None:
    given, nodes = PRODUCTS[name]
    proto = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g ({given}) => (float16[m, n] y)
        <int64[4] image = {{0, 4096, 1, 1}}, int64[4] kernel = {{2, 4096, 1, 1}}, int64[2] flat = {{0, 2}}> {{
            {nodes}
        }}""")
    ones = np.ones((4096, 2), np.float16)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(ones, "ones"))
    softq.build(proto, tmp_path / "built", target="cpu")
    feeds = {"x": np.ones((3, 4096), np.float16), "w": ones}
    with softq.load(tmp_path / "built") as artifact:
        result = artifact({value.name: feeds[value.name] for value in proto.graph.input})["y"]
    np.testing.assert_array_equal(result, np.full((3, 2), 4096, np.float16))
