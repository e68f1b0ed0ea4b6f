"""Products with what is done to their elements in one kernel: against float64, in odd sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser

from softq.artifact.program import Program
from tests.native import Executor, build_program

pytest.importorskip("tvm")

Array = NDArray[np.float64]
Formula = Callable[..., Array]

COLUMNS = (1, 17, 97)
ROWS = (1, 7, 65)
INNER = 33


def program(body: str, columns: int) -> Program:
    """Return a program of x [b, n, INNER], r [b, n, columns] and s [1] with the weights w and v and the bias c."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[b, n, {INNER}] x, float[b, n, {columns}] r, float[1] s) => (float[b, n, {columns}] z) {{ {body} }}"""
    model, rng = parser.parse_model(text), np.random.default_rng(columns)
    for name, shape in (("w", (INNER, columns)), ("v", (INNER, columns)), ("c", (columns,))):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    return build_program(model)


def finished(built: Program) -> list[str]:
    """Return the products' kernels that have an epilogue."""
    return [step.kernel for step in built.steps if step.kernel.startswith("softq_matmul_")]


def gelu(x: Array) -> Array:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


FUSED: list[tuple[str, Formula]] = [
    ("y = MatMul(x, w) z = Add(y, c)", lambda x, r, s, w, v, c: x @ w + c),
    ("y = MatMul(x, w) a = Add(c, y) z = Add(r, a)", lambda x, r, s, w, v, c: r + (c + x @ w)),
    ("y = MatMul(x, w) a = Add(y, c) z = Gelu(a)", lambda x, r, s, w, v, c: gelu(x @ w + c)),
    ("y = MatMul(x, w) a = Mul(y, s) z = Sub(a, r)", lambda x, r, s, w, v, c: (x @ w) * s - r),
    ("y = MatMul(x, w) z = Relu(y)", lambda x, r, s, w, v, c: np.maximum(x @ w, 0)),
    (
        "y = MatMul(x, w) a = Sigmoid(y) b = Mul(y, a) u = MatMul(x, v) z = Mul(b, u)",
        lambda x, r, s, w, v, c: silu(x @ w) * (x @ v),
    ),
]


@pytest.mark.parametrize(("body", "formula"), FUSED, ids=[body for body, _ in FUSED])
def test_epilogues(body: str, formula: Formula) -> None:
    for columns in COLUMNS:
        built = program(body, columns)
        assert len(finished(built)) == 1 or columns == 1  # TVM drops the loop over a single column
        weights = np.random.default_rng(columns)
        w, v, c = (weights.normal(size=shape).astype(np.float32) for shape in ((INNER, columns),) * 2 + ((columns,),))
        run, rng = Executor(built), np.random.default_rng(1)
        for rows in ROWS:
            x, r = (rng.normal(size=(2, rows, k)).astype(np.float32) for k in (INNER, columns))
            s = np.array([1.5], np.float32)
            exact = formula(*(array.astype(np.float64) for array in (x, r, s, w, v, c)))
            # A sum of 33 products of about 1, each rounded; then some operations of about that size, or their product.
            bound = 2e-6 * (1 + np.abs(exact)) * (1 + np.abs(x).astype(np.float64) @ np.abs(w))
            assert (np.abs(run({"x": x, "r": r, "s": s})["z"].astype(np.float64) - exact) <= bound).all()


@pytest.mark.parametrize(
    "body",
    [
        "y = MatMul(x, w) a = Add(y, c) d = Softmax(y) z = Add(a, d)",  # the product is needed twice
        "y = MatMul(x, w) z = Add(y, t)",  # a number for each row
        "y = MatMul(x, w) z = Transpose<perm=[1, 0, 2]>(y)",
        "y = MatMul(x, w) z = LayerNormalization(y, c)",
    ],
)
def test_what_is_no_epilogue_has_a_kernel_of_its_own(body: str) -> None:
    import onnxruntime as ort

    columns = 17
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[b, n, {INNER}] x, float[b, n, 1] t) => (float[p, q, {columns}] z) {{ {body} }}"""
    model, rng = parser.parse_model(text), np.random.default_rng(0)
    for name, shape in (("w", (INNER, columns)), ("c", (columns,))):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    built = build_program(model)
    assert not finished(built)
    given = {"x": rng.normal(size=(3, 7, INNER)).astype(np.float32), "t": rng.normal(size=(3, 7, 1)).astype(np.float32)}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    used = {value.name for value in session.get_inputs()}
    expected = np.asarray(session.run(None, {k: v for k, v in given.items() if k in used})[0])
    np.testing.assert_allclose(Executor(built)(given)["z"].astype(np.float64), expected, rtol=1e-5, atol=1e-5)


def test_an_epilogue_of_a_product_of_two_values() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
        g (float[b, m, k] x, float[b, k, n] y, float[b, m, n] r) => (float[b, m, n] z) <float s = {0.25}> {
            p = MatMul(x, y) q = Mul(p, s) z = Add(q, r)
        }"""
    built = build_program(parser.parse_model(text))
    assert len(finished(built)) == 1
    rng, run = np.random.default_rng(0), Executor(built)
    for m, k, n in ((1, 1, 1), (5, 7, 50), (70, 64, 197)):
        x, y, r = (rng.normal(size=shape).astype(np.float32) for shape in ((2, m, k), (2, k, n), (2, m, n)))
        exact = 0.25 * (x.astype(np.float64) @ y.astype(np.float64)) + r
        bound = (k + 4) * 2.0**-24 * (np.abs(x).astype(np.float64) @ np.abs(y) + np.abs(r))
        assert (np.abs(run({"x": x, "y": y, "r": r})["z"].astype(np.float64) - exact) <= bound).all()


def test_products_of_other_shapes_share_the_kernel_of_an_epilogue() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
        g (float[b, 5] x, float[5, 7] u, float[7, 9] v, float[7] c, float[9] d) => (float[b, 9] z) {
            p = MatMul(x, u) q = Add(p, c) y = Relu(q) r = MatMul(y, v) t = Add(r, d) z = Relu(t)
        }"""
    built = build_program(parser.parse_model(text))
    assert len(finished(built)) == 2
    assert len(set(finished(built))) == 1
