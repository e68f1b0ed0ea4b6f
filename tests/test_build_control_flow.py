"""Built models with If, Loop and Scan, and with shapes that data decide, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import softq
from tests.built import check
from tests.test_artifact_c import STRICT, compile_c, needs, run_c

pytest.importorskip("tvm")

F32 = np.float32


def test_a_condition_of_the_run_takes_one_of_two_bodies(tmp_path: Path) -> None:
    check(
        """g (bool[1] c, float[N] x) => (float[N] y) {
            y = If (c) <
                then_branch = g1 () => (float[N] a) { a = Exp(x) },
                else_branch = g2 () => (float[N] b) { t = Neg(x) b = Mul(t, x) }>
        }""",
        [{"c": np.array([c]), "x": np.arange(n, dtype=F32)} for n in (3, 5) for c in (True, False)],
        tmp_path,
    )


def test_a_condition_that_is_known_leaves_the_other_body_out(tmp_path: Path) -> None:
    # The body that is not taken has an operator that a built model refuses.
    check(
        """g (float[N, 2] x) => (float[N, 2] y) <int64[1] two = {2}, int64[1] one = {1}> {
            s = Shape(x)
            n = Gather(s, one)
            c = Equal(n, two)
            y = If (c) <
                then_branch = g1 () => (float[N, 2] a) { a = Exp(x) },
                else_branch = g2 () => (float[N, 2] b) { b = RandomNormalLike(x) }>
        }""",
        [{"x": np.ones((3, 2), F32)}],
        tmp_path,
    )


def test_a_constant_that_a_known_body_gives_is_known(tmp_path: Path) -> None:
    # The second If has results of two ranks: it is built because what the first one gives decides it.
    check(
        """g (float[4, 2] x, int64[1] n) => (float[A, B] y) <int64[1] eight = {8}, int64[1] one = {1}> {
            s = Size(x)
            c = Equal(s, eight)
            d = If (c) <
                then_branch = g1 () => (int64[1] a) { a = Identity(one) },
                else_branch = g2 () => (int64[1] b) { b = Identity(n) }>
            e = Equal(d, one)
            z = If (e) <
                then_branch = g3 () => (float v) { v = ReduceMax <keepdims = 0> (x) },
                else_branch = g4 () => (float[4, 2] w) { w = Exp(x) }>
            y = Add (x, z)
        }""",
        [{"x": np.arange(8, dtype=F32).reshape(4, 2), "n": np.array([3])}],
        tmp_path,
    )


def test_functions_of_bodies_may_have_the_names_of_others(tmp_path: Path) -> None:
    """A product with a factor behind it, which is one function of its own name everywhere."""
    rng = np.random.default_rng(0)
    check(
        """g (bool c, float[3, 4] x, float[4, 5] w) => (float[3, 5] y, float[3, 5] z)
        <float half = {0.5}, float third = {0.3}, float fifth = {0.2}> {
            p = MatMul(x, w)
            y = Mul(p, half)
            z = If (c) <
                then_branch = g1 () => (float[3, 5] a) { q = MatMul(x, w) a = Mul(q, third) },
                else_branch = g2 () => (float[3, 5] b) { r = MatMul(x, w) b = Mul(r, fifth) }>
        }""",
        [{"c": np.array(c), "x": rng.normal(size=(3, 4)).astype(F32), "w": rng.normal(size=(4, 5)).astype(F32)}
         for c in (True, False)],
        tmp_path,
    )  # fmt: skip


def test_bodies_may_give_different_shapes(tmp_path: Path) -> None:
    check(
        """g (bool c, float[N] x) => (float[M] y, float s) <int64[1] zero = {0}> {
            y = If (c) <
                then_branch = g1 () => (float[A] a) { a = Concat<axis = 0>(x, x) },
                else_branch = g2 () => (float[B] b) { b = Neg(x) }>
            s = ReduceSum<keepdims = 0>(y, zero)
        }""",
        [{"c": np.array(c), "x": np.arange(n, dtype=F32)} for n in (3, 5, 0) for c in (True, False, True)],
        tmp_path,
    )


def test_a_body_that_is_not_computed_asks_nothing_of_the_dimensions(tmp_path: Path) -> None:
    graph = """g (bool c, float[N] x) => (float[M] y) <int64[1] two = {2}, int64[1] five = {5}> {
        y = If (c) <
            then_branch = g1 () => (float[A] a) { a = Slice(x, two, five) },
            else_branch = g2 () => (float[B] b) { b = Neg(x) }>
    }"""
    feeds = [
        {"c": np.array(c), "x": np.arange(n, dtype=F32)} for c, n in ((True, 7), (False, 7), (False, 3), (True, 5))
    ]
    check(graph, feeds, tmp_path)
    with softq.load(tmp_path / "built") as built, pytest.raises(softq.InputError, match="slice"):
        built({"c": np.array(True), "x": np.zeros(3, F32)})


def test_a_loop_ends_by_its_count_or_by_its_condition(tmp_path: Path) -> None:
    check(
        """g (int64 m, bool c, float most, float[2] x) => (float[2] y, float[K, 2] s) {
            y, s = Loop (m, c, x) <body = b (int64 i, bool ci, float[2] v) => (bool co, float[2] w, float[2] so) {
                f = Cast<to = 1>(i)
                w = Add(v, f)
                so = Mul(w, w)
                top = ReduceMax<keepdims = 0>(w)
                co = Less(top, most)
            }>
        }""",
        [
            {"m": np.array(m), "c": np.array(c), "most": np.array(most, F32), "x": np.array([1, 2], F32)}
            for m in (3, 0, 40)
            for c in (True, False)
            for most in (1e9, 6, 0)
        ],
        tmp_path,
    )


def test_what_a_round_hands_on_may_grow(tmp_path: Path) -> None:
    check(
        """g (int64 m, float[N] x) => (float[K] y) <bool t = {1}> {
            y = Loop (m, t, x) <body = b (int64 i, bool ci, float[P] v) => (bool co, float[Q] w) {
                co = Identity(ci)
                w = Concat<axis = 0>(v, x)
            }>
        }""",
        [{"m": np.array(m), "x": np.arange(n, dtype=F32)} for m in (3, 0, 9, 1) for n in (1, 4)],
        tmp_path,
    )


def test_a_body_may_measure_and_grow(tmp_path: Path) -> None:
    check(
        """g (int64 m, int64[1] n, float[1] x) => (float[K] y) <bool t = {1}> {
            y = Loop (m, t, x) <body = b (int64 i, bool ci, float[P] v) => (bool co, float[Q] w) {
                co = Identity(ci)
                more = Expand(x, n)
                w = Concat<axis = 0>(v, more)
            }>
        }""",
        [{"m": np.array(m), "n": np.array([n]), "x": np.array([2], F32)} for m in (3, 0, 1) for n in (1, 4)],
        tmp_path,
    )


def test_values_that_change_places_are_handed_on_as_they_were(tmp_path: Path) -> None:
    check(
        """g (int64 m, float[2] x, float[2] y) => (float[2] a, float[2] b, float[2] c) <bool t = {1}> {
            a, b, c = Loop (m, t, x, y, x) <
                body = l (int64 i, bool ci, float[2] v, float[2] w, float[2] u)
                    => (bool co, float[2] v2, float[2] w2, float[2] u2) {
                    co = Identity(ci)
                    v2 = Identity(w)
                    w2 = Identity(v)
                    u2 = Add(v, w)
                }>
        }""",
        [{"m": np.array(m), "x": np.array([1, 2], F32), "y": np.array([5, 7], F32)} for m in (0, 1, 2, 5)],
        tmp_path,
    )


def test_the_number_of_a_round_may_give_shapes(tmp_path: Path) -> None:
    check(
        """g (float[5] x) => (float[K, 1] s) <int64 five = {5}, bool t = {1}, int64[1] zero = {0}, int64 one = {1}> {
            s = Loop (five, t) <body = b (int64 i, bool ci) => (bool co, float[1] so) {
                co = Identity(ci)
                first = Unsqueeze(i, zero)
                j = Add(i, one)
                last = Unsqueeze(j, zero)
                so = Slice(x, first, last)
            }>
        }""",
        [{"x": np.arange(5, dtype=F32)}],
        tmp_path,
    )


def test_loops_nest(tmp_path: Path) -> None:
    check(
        """g (int64 m, int64 n, float[2] x) => (float[2] y) <bool t = {1}> {
            y = Loop (m, t, x) <body = outer (int64 i, bool ci, float[2] v) => (bool co, float[2] w) {
                co = Identity(ci)
                w = Loop (n, t, v) <body = inner (int64 j, bool cj, float[2] p) => (bool ck, float[2] q) {
                    ck = Identity(cj)
                    k = Add(i, j)
                    f = Cast<to = 1>(k)
                    r = Add(p, f)
                    q = Add(r, x)
                }>
            }>
        }""",
        [{"m": np.array(m), "n": np.array(n), "x": np.array([1, 2], F32)} for m in (0, 1, 3) for n in (0, 1, 4)],
        tmp_path,
    )


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan_takes_its_inputs_apart(backwards: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    check(
        f"""g (float[2] a, float[2, T] x) => (float[2] y, float[2, T] s) {{
            y, s = Scan (a, x) <
                num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [{backwards}],
                scan_output_axes = [1], scan_output_directions = [{1 - backwards}],
                body = b (float[2] v, float[2] e) => (float[2] w, float[2] o) {{ w = Add(v, e) o = Sin(w) }}>
        }}""",
        [{"a": np.zeros(2, F32), "x": rng.standard_normal((2, t)).astype(F32)} for t in (3, 5, 1)],
        tmp_path,
    )


def test_a_shape_may_be_data(tmp_path: Path) -> None:
    check(
        """g (float[3, 4] x, int64[2] shape) => (float[A, B] y, float[B] sums) <int64[1] first = {0}> {
            y = Reshape(x, shape)
            sums = ReduceSum<keepdims = 0>(y, first)
        }""",
        [
            {"x": np.arange(12, dtype=F32).reshape(3, 4), "shape": np.array(shape)}
            for shape in ([2, 6], [12, 1], [1, 12])
        ],
        tmp_path,
    )


def test_memory_grows_with_what_data_ask_for(tmp_path: Path) -> None:
    check(
        """g (float[1] x, int64[1] count) => (float[N] y, float[N] z) {
            y = Expand(x, count)
            z = Mul(y, y)
        }""",
        [{"x": np.array([3], F32), "count": np.array([n])} for n in (5, 0, 100_000, 3)],
        tmp_path,
    )


def test_a_negative_size_ends_the_run(tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1] x, int64[1] n) => (float[N] y) { y = Expand(x, n) }'
    )
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        with pytest.raises(softq.InputError, match="-2 elements"):
            built({"x": np.ones(1, F32), "n": np.array([-2])})
        assert built({"x": np.ones(1, F32), "n": np.array([2])})["y"].tolist() == [1, 1]


def test_a_gpu_refuses_bodies_by_name(tmp_path: Path) -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = g1 () => (float[2] a) { a = Exp(x) },
                else_branch = g2 () => (float[2] b) { b = Neg(x) }>
        }"""
    )
    with pytest.raises(softq.RefusalError, match="If 'y' has no form for this target"):
        softq.build(model, tmp_path / "built", target="cuda,arch=sm_90")


def test_a_squeeze_that_depends_on_a_length(tmp_path: Path) -> None:
    """Branches of other ranks: the artifact is for the one of equal dimensions, and says so of other inputs."""
    graph = """agraph (float[N,T] x) => (float[N] y) <int64 one = {1}, int64[1] axes = {1}>
    {
        s = Shape<start=1>(x)
        n = Squeeze(s)
        c = Equal(n, one)
        z = If (c) <then_branch = a () => (float[P] r) { r = Squeeze(x, axes) },
                    else_branch = b () => (float[P,Q] q) { q = Identity(x) }>
        t = Shape(z)
        rank = Size(t)
        e = Equal(rank, one)
        other = Not(e)
        y = If (other) <then_branch = c () => (float[D] u) { u = ReduceSum<keepdims=0>(z, axes) },
                        else_branch = d () => (float[E] v) { v = Neg(z) }>
    }"""
    check(graph, [{"x": np.ones((n, 1), np.float32)} for n in (3, 5)], tmp_path, opset=18)
    with softq.load(tmp_path / "built") as built, pytest.raises(softq.SoftqError, match="allowed is 0 to 0"):
        built({"x": np.ones((3, 2), np.float32)})


def test_memory_that_grows_is_sound(tmp_path: Path) -> None:
    needs("gcc")
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> g (int64[1] n) => (float[K] y)
            <int64 five = {5}, bool t = {1}, float[1] one = {1}> {
            first = Expand(one, n)
            y = Loop (five, t, first) <body = b (int64 i, bool ci, float[P] v) => (bool co, float[Q] w) {
                co = Identity(ci)
                w = Concat<axis = 0>(v, first)
            }>
        }"""
    )
    folder = softq.build(model, tmp_path / "built", target="cpu").folder
    flags = ["gcc", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *STRICT]
    program = compile_c(flags, folder, Path(__file__).parent / "run_raw.c", tmp_path / "program")
    for count in (0, 3, 100_000):
        np.array([count], np.int64).tofile(tmp_path / "in")
        run_c(program, folder, tmp_path / "in", tmp_path / "out")
        assert np.fromfile(tmp_path / "out", F32)[: 6 * count].sum() == 6 * count
