"""Operators whose parameters are tensors that only the run knows, against onnxruntime: one build for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import softq
from tests.built import check

pytest.importorskip("tvm")

Array = np.ndarray[Any, Any]
F32 = np.float32
X = np.random.default_rng(0).standard_normal((4, 5)).astype(F32)
CUBE = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(F32)
LEAST = -(2**63)


def i(*values: int) -> Array:
    return np.array(values, np.int64)


def s(value: float, dtype: Any = F32) -> Array:
    return np.array(value, dtype)


SLICE = """g (float[N, 5] x, int64[2] s, int64[2] e, int64[2] a, int64[2] t) => (float[A, B] y) {
    y = Slice(x, s, e, a, t)
}"""
PADS = [i(0, 1, 0, 2), i(1, 0, 2, 0), i(0, -1, 0, -1), i(-1, 2, 1, -2)]

CASES: Mapping[str, tuple[str, Sequence[Mapping[str, Array]]]] = {
    "slice": (
        SLICE,
        [
            {"x": X, "s": i(1, 0), "e": i(3, 4), "a": i(0, 1), "t": i(1, 2)},
            {"x": X, "s": i(-1, 20), "e": i(-100, -100), "a": i(-1, 0), "t": i(-1, -2)},
            {"x": X, "s": i(3, 0), "e": i(1, 2**62), "a": i(0, 1), "t": i(1, 2**62)},
            {"x": X, "s": i(3, 4), "e": i(1, LEAST), "a": i(0, 1), "t": i(1, LEAST)},
            {"x": X[:0], "s": i(-1, 0), "e": i(-5, 2), "a": i(0, 1), "t": i(-1, 1)},
        ],
    ),
    "slice-without-axes": (
        "g (float[N, 5] x, int64[1] s, int64[1] e) => (float[A, 5] y) { y = Slice(x, s, e) }",
        [{"x": X, "s": i(a), "e": i(b)} for a in (-3, 0, 9) for b in (-1, 2)],
    ),
    "slice-backwards": (
        f"""g (float[N, 5] x) => (float[A, 5] y)
            <int64[1] s = {{-1}}, int64[1] e = {{{LEAST + 1}}}, int64[1] a = {{0}}> {{ y = Slice(x, s, e, a, s) }}""",
        [{"x": X[:n]} for n in (4, 0, 1)],
    ),
    **{
        f"pad-{mode}": (
            f'g (float[N, 5] x, int64[4] p) => (float[A, B] y) {{ y = Pad<mode = "{mode}">(x, p) }}',
            [{"x": X, "p": p} for p in PADS],
        )
        for mode in ("constant", "edge", "reflect", "wrap")
    },
    "pad-axes": (
        "g (float[N, 5] x, int64[2] p, float v, int64[1] a) => (float[A, B] y) { y = Pad(x, p, v, a) }",
        [{"x": X, "p": i(1, 2), "v": s(3), "a": i(a)} for a in (0, 1, -1, -2)],
    ),
    "pad-wrap-less": (
        'g (float[N, 5] x) => (float[A, B] y) <int64[4] p = {0, 2, 0, -1}> { y = Pad<mode = "wrap">(x, p) }',
        [{"x": X}],
    ),
    "split": (
        "g (float[N, 5] x, int64[2] p) => (float[A, B] y, float[C, D] z) { y, z = Split<axis = 1>(x, p) }",
        [{"x": X, "p": i(1, 4)}, {"x": X, "p": i(0, 5)}],
    ),
    "split-of-any-length": (
        "g (float[N, 5] x) => (float[A, 5] y, float[B, 5] z) { y, z = Split<axis = 0, num_outputs = 2>(x) }",
        [{"x": X}, {"x": X[:3]}],
    ),
    "split-nothing": (
        "g (float[N, 5] x) => (float[N, 0] y, float[N, 5] z) <int64[2] p = {0, 5}> { y, z = Split<axis = 1>(x, p) }",
        [{"x": X}],
    ),
    "squeeze": (
        "g (float[1, N, 1] x, int64[1] a) => (float[A, B] y) { y = Squeeze(x, a) }",
        [{"x": X[:1, :, None], "a": i(a)} for a in (0, 2, -1)],
    ),
    "unsqueeze": (
        "g (float[3, N] x, int64[2] a) => (float[A, B, C, D] y) { y = Unsqueeze(x, a) }",
        [{"x": X[:3], "a": i(*a)} for a in ((0, 1), (-1, 0), (2, 1), (3, 2))],
    ),
    "reshape": (
        "g (float[4, N] x, int64[3] p) => (float[A, B, C] y) { y = Reshape(x, p) }",
        [{"x": X, "p": i(*p)} for p in ((4, 1, -1), (0, -1, 1), (2, 2, 5))] + [{"x": X[:, :4], "p": i(-1, 0, 2)}],
    ),
    "reshape-allowzero": (
        "g (float[4, N] x, int64[3] p) => (float[A, B, C] y) { y = Reshape<allowzero = 1>(x, p) }",
        [{"x": X[:, :0], "p": i(3, 0, 4)}],
    ),
    "expand": (
        "g (float[3, N] x, int64[2] p) => (float[A, B] y) { y = Expand(x, p) }",
        [{"x": X[:3, :1], "p": i(*p)} for p in ((3, 4), (1, 0), (1, 1))] + [{"x": X[:3], "p": i(3, 1)}],
    ),
    "tile": (
        "g (float[M, N] x, int64[2] p) => (float[A, B] y) { y = Tile(x, p) }",
        [{"x": X[:3], "p": i(*p)} for p in ((3, 4), (1, 0), (1, 2))] + [{"x": X[:0], "p": i(2, 2)}],
    ),
    "range-of-floats": (
        "g (float a, float b, float d) => (float[A] y) { y = Range(a, b, d) }",
        [{"a": s(a), "b": s(b), "d": s(d)} for a, b, d in ((0, 5, 1), (1, -3, -0.5), (0, -1, 1), (0.5, 2.6, 0.7))],
    ),
    "range-of-integers": (
        "g (int32 a, int32 b, int32 d) => (int32[A] y) { y = Range(a, b, d) }",
        [
            {n: s(v, np.int32) for n, v in zip("abd", numbers, strict=True)}
            for numbers in ((0, 5, 1), (1, -3, -2), (0, -1, 1), (-7, 9, 3))
        ],
    ),
    "cumsum": (
        "g (float[2, N, 4] x, int64 a) => (float[2, N, 4] y) { y = CumSum<reverse = 1>(x, a) }",
        [{"x": CUBE, "a": s(a, np.int64)} for a in (0, 1, 2, -1, -3)],
    ),
    "onehot": (
        "g (int64[N] x, int64 d) => (float[A, B] y) <float[2] v = {2, 5}> { y = OneHot(x, d, v) }",
        [{"x": i(1, -1, 3), "d": s(d, np.int64)} for d in (1, 2, 4)],
    ),
    "onehot-of-floats": (
        "g (float[N] x, float d) => (float[A, B] y) <float[2] v = {2, 5}> { y = OneHot<axis = 0>(x, d, v) }",
        [{"x": i(1, -1, 3).astype(F32), "d": s(d)} for d in (1, 2, 4)],
    ),
    "trilu": (
        """g (float[N, 0] x, float[2, N] w, int64 k) => (float[N, 0] y, float[2, N] z) {
            y = Trilu(x, k) z = Trilu<upper = 0>(w, k) }""",
        [{"x": X[:, :0], "w": X[:2, :4], "k": s(k, np.int64)} for k in (0, 1, -3)],
    ),
    "eyelike": ("g (float[N, 4] x) => (int32[N, 4] y) { y = EyeLike<k = 1, dtype = 6>(x) }", [{"x": X[:, :4]}]),
    "broadcast": (
        """g (float[N, 4] x, float[M, 4] w, int64[1] r, bool[N, 4] q) => (float[A, 4] y, float[A, B] z, float[C, D] u) {
            y = Add(x, w)
            o = ConstantOfShape<value = float[1]{2.0}>(r)
            z = Mul(y, o)
            u = Where(q, w, o)
        }""",
        [
            {"x": X[:a, :4], "w": X[:b, :4], "r": i(k), "q": X[:a, :4] > 0}
            for a, b, k in ((3, 3, 4), (1, 2, 1), (4, 1, 1), (0, 1, 4), (1, 1, 4))
        ],
    ),
    "concat": (
        """g (float[N, M] x, float[K, L] w, int64[1] r) => (float[A, B] y) <int64[1] zero = {0}> {
            o = ConstantOfShape(r)
            p = Unsqueeze(o, zero)
            y = Concat<axis = 0>(x, w, p)
        }""",
        [{"x": X[:a], "w": X[:b], "r": i(5)} for a, b in ((1, 3), (2, 0))],
    ),
    "reduce": (
        """g (float[2, N, 4] x, int64[2] a, int64[1] b) =>
            (float[A, B, C] mean, float[D] lse, float[E, F] most, float[G, H] all) {
            mean = ReduceMean(x, a)
            lse = ReduceLogSumExp<keepdims = 0>(x, a)
            most = ReduceMax<keepdims = 0>(x, b)
            all = ReduceProd<keepdims = 0>(x, b)
        }""",
        [{"x": CUBE, "a": i(*a), "b": i(b)} for a, b in (((0, -1), 2), ((1, 0), -2), ((2, 1), 0))],
    ),
    "reduce-none": (
        """g (float[2, N, 4] x, int64[K] a) => (float[A, B, C] y, float[D, E, F] z) {
            y = ReduceSum(x, a)
            z = ReduceSum<noop_with_empty_axes = 1>(x, a)
        }""",
        [{"x": CUBE, "a": i(*a)} for a in ((), (0,), (-1, 1), (0, 1, 2))] + [{"x": CUBE[:, :0], "a": i(1)}],
    ),
}


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("name", CASES)
def test_parameters_of_the_run_equal_onnxruntimes(name: str, tmp_path: Path) -> None:
    graph, feeds = CASES[name]
    check(graph, feeds, tmp_path, relative=1e-5)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("graph", "feed", "message"),
    [
        ("y = ReduceSum(x, a)", i(0, 0), "the data give an axis -1"),
        ("y = ReduceSum(x, a)", i(0, 2), "the data give an axis -1"),
        ("y = Slice(x, b, c, b, a)", i(0, 1), "the data give an axis -1"),
        ("y = Expand(x, a)", i(2, 5), "dimensions .* do not fit"),
        ("y = Reshape(x, a)", i(3, 6), "has elements that its shape has no place for"),
        ("k = ConstantOfShape(a) y = Concat<axis = 0>(x, k)", i(4, 4), "which must be equal"),
        ("y, z = Split(x, a)", i(1, 1), "the parts of Split y are not as long as its input"),
        ("w = CumSum(x, d) y = Add(w, w)", i(2, 0), "the data give an axis -1"),
    ],
)
def test_parameters_that_do_not_fit_end_the_run(graph: str, feed: Array, message: str, tmp_path: Path) -> None:
    weights = "<int64[2] b = {0, 1}, int64[2] c = {2, 2}, int64[1] e = {0}>"
    graph = f"g (float[4, 5] x, int64[2] a) => (float[A, B] y) {weights} {{ d = Gather(a, e) {graph} }}"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {graph}')
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built, pytest.raises(softq.SoftqError, match=message):
        built({"x": X, "a": feed})


def test_a_length_is_measured_before_what_has_it() -> None:
    # Relax puts the quotient, which is fused with a cast from before, in front of the lengths of its axes.
    from tests.native import build_program

    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> g (float[2, N, 4] x, int64[1] a) => (float[A, B] y) {
            y = ReduceMean<keepdims = 0>(x, a)
        }"""
    )
    program = build_program(model)
    known: set[str] = set()
    for step in program.steps:
        wanted = {d for t in step.tensors for d in program.tensors[t].shape if str(d).startswith("measured")}
        assert {str(d) for d in wanted} <= known
        known |= set(getattr(step.then, "dims", ()))
