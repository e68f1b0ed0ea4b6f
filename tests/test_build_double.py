"""Built models of float64 against onnxruntime, to within a few units in the last place of float64.

Where onnxruntime has no kernel of float64, ONNX's reference is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

import softq

Array = NDArray[Any]

GRAPHS = {
    "products": """g (double[b,3,n] x, double[n,5] w, double[5] c) => (
        double[b,3,5] y, double[s,5] z, double[b,3,3] u) {
        y = MatMul (x, w)
        t = Reshape (y, flat)
        v = Transpose <perm = [1, 0]> (w)
        z = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (t, square, c)
        r = Transpose <perm = [0, 2, 1]> (x)
        u = MatMul (x, r)
    }""",
    "convolutions": """g (double[b,4,9,7] x, double[6,2,3,3] w, double[6] c, double[4,2,3,3] v) => (
        double[b,6,h,q] y, double[b,2,i,j] z, double[b,4,k,l] m, double[b,4,k,l] a) {
        y = Conv <group = 2, pads = [1, 1, 1, 1], strides = [2, 1]> (x, w, c)
        z = ConvTranspose <strides = [2, 2]> (x, v)
        m = MaxPool <kernel_shape = [2, 2]> (x)
        a = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
    }""",
    "softmaxes": """g (double[b,5,n] x) => (double[b,5,n] y, double[b,5,n] z, double[b,5,n] l) {
        y = Softmax <axis = -1> (x)
        z = Softmax <axis = 1> (x)
        l = LogSoftmax <axis = -1> (x)
    }""",
    "functions": """g (double[b,5,n] x) => (
        double[b,5,n] a, double[b,5,n] c, double[b,5,n] d, double[b,5,n] e, double[b,5,n] f,
        double[b,5,n] h, double[b,5,n] i, double[b,5,n] j, double[b,5,n] k, double[b,5,n] l) {
        a = Exp (x)
        c = Tanh (x)
        d = Sigmoid (x)
        e = Erf (x)
        p = Abs (x)
        f = Log (p)
        h = Sqrt (p)
        i = Sin (x)
        j = Cos (x)
        k = Pow (p, x)
        l = Softplus (x)
    }""",
    "norms": """g (double[b,6,n] x, double[6] s, double[6] c) => (
        double[b,1,n] m, double[b,6,1] v, double[b,6,n] e, double[b,6,n] o, double[b,6,n] q, double[b,6,n] r) {
        m = ReduceMean <keepdims = 1> (x, one)
        v = ReduceLogSumExp <keepdims = 1> (x, two)
        e = Elu (x)
        o = BatchNormalization <epsilon = 0.5> (x, s, c, s, absolute)
        q = CumSum (x, axis)
        r = Clip (x, low, high)
    }""",
}  # fmt: skip
ARRAYS: dict[str, Array] = {
    "square": np.random.default_rng(1).normal(size=(5, 5)), "one": np.array([1]), "two": np.array([2]),
    "flat": np.array([-1, 5]),
    "absolute": np.linspace(0.5, 3, 6), "axis": np.array(1), "low": np.array(-0.7), "high": np.array(1.1),
}  # fmt: skip
SIZES = {"b": 2, "n": 7}


def wanted(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    """Return the outputs from onnxruntime, or from the reference; that has convolutions of one image alone."""
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return [np.asarray(array) for array in session.run(None, feeds)]
    except NoKernel:
        reference = ReferenceEvaluator(model)
    batches = {value.name for value in model.graph.input if value.type.tensor_type.shape.dim[0].dim_param == "b"}
    parts = [
        reference.run(None, {name: array[i : i + 1] if name in batches else array for name, array in feeds.items()})
        for i in range(SIZES["b"])
    ]
    return [np.concatenate(each) for each in zip(*parts, strict=True)]  # type: ignore[arg-type]


def zip_outputs(model: onnx.ModelProto, arrays: list[Any]) -> Iterator[tuple[str, onnx.ValueInfoProto, Any]]:
    """Yield each output with the operator that gives it and its array."""
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    for value, array in zip(model.graph.output, arrays, strict=True):
        yield makers[value.name], value, array


@pytest.mark.parametrize("name", GRAPHS)
def test_double_is_computed_in_double(name: str, tmp_path: Path) -> None:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {GRAPHS[name]}')
    used = {operand for node in model.graph.node for operand in node.input}
    for key in sorted(used & ARRAYS.keys()):
        model.graph.initializer.append(onnx.numpy_helper.from_array(ARRAYS[key], key))
    rng = np.random.default_rng(0)
    feeds = dict[str, Array]()
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        feeds[value.name] = rng.normal(size=[SIZES.get(d.dim_param, d.dim_value) for d in dims])
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as artifact:
        results = artifact(feeds)
    for node, value, array in zip_outputs(model, wanted(model, feeds)):
        # The reference has it in float32.
        expected: Any = np.vectorize(math.erf)(feeds["x"]) if node == "Erf" else array
        assert results[value.name].dtype == np.float64
        result = np.asarray(results[value.name], np.float64)
        np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-14, err_msg=value.name)


def test_softmax_of_double_keeps_nan_and_infinities(tmp_path: Path) -> None:
    graph = "g (double[3,4] x) => (double[3,4] y) { y = Softmax (x) }"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {graph}')
    x = np.array([[0, -np.inf, 710, 720], [np.nan, 0, 1, 2], [-800, -801, -802, -np.inf]])
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as artifact:
        result = np.asarray(artifact({"x": x})["y"], np.float64)
        np.testing.assert_allclose(result, wanted(model, {"x": x})[0], rtol=1e-13)
