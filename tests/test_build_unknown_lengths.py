"""Lengths that only the run tells: pads that depend on them, and the ways in which exporters write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import softq
from tests.built import check

pytest.importorskip("tvm")


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_pads_that_depend_on_lengths(auto_pad: str, tmp_path: Path) -> None:
    """Of convolutions with one group and with a group a channel, and of windows' greatest elements."""
    ones = f'auto_pad="{auto_pad}", strides'
    weights = ", ".join(str(i % 7 - 3) for i in range(72))
    graph = f"""agraph (float[1,3,H,W] x) => (float[n,c,e,f] a, float[n,c,g,h] b, float[n,c,i,j] d, float[n,c,k,l] p)
    <float[4,3,3,2] w = {{{weights}}}, float[3,1,2,3] k = {{{", ".join(str(i % 5 - 2) for i in range(18))}}}>
    {{
        a = Conv<{ones}=[2, 2]>(x, w)
        b = Conv<{ones}=[1, 1]>(x, w)
        d = Conv<{ones}=[2, 3], group=3>(x, k)
        p = MaxPool<{ones}=[2, 1], kernel_shape=[3, 2]>(x)
    }}"""
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((1, 3, *size), np.float32)} for size in ((7, 8), (8, 9), (1, 5), (16, 3))]
    check(graph, feeds, tmp_path, absolute=1e-5)


@pytest.mark.parametrize("mark", [-1, "?"])
def test_dimensions_marked_as_unknown(mark: int | str, tmp_path: Path) -> None:
    """Two of them are not equal for being marked alike, and arithmetic on shapes takes neither for a number."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    agraph (float[A,B] x) => (float[A,B] y, int64[2] s)
    { s = Shape(x) y = Reshape(x, s) }""")
    for value in (model.graph.input[0], model.graph.output[0]):
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
            setattr(dim, "dim_value" if isinstance(mark, int) else "dim_param", mark)
    assert isinstance(model, onnx.ModelProto)
    check(model, [{"x": np.ones(shape, np.float32)} for shape in ((2, 3), (4, 1))], tmp_path)


def test_a_slice_to_a_number_beyond_any_length(tmp_path: Path) -> None:
    """Exporters write 10^9 for the end."""
    graph = """agraph (float[N,3] x) => (float[M,3] y)
    <int64[1] start = {1}, int64[1] end = {1000000000}, int64[1] axis = {0}> { y = Slice(x, start, end, axis) }"""
    check(graph, [{"x": np.ones((n, 3), np.float32)} for n in (4, 2)], tmp_path)


def test_concat_of_tensors_that_the_run_proves_to_fit(tmp_path: Path) -> None:
    """Their other axes have other names, or a name and a number; where they differ the run ends."""
    graph = """agraph (float[A,N] x, float[B,M] y, float[2,K] z) => (float[D,E] r) { r = Concat<axis=1>(x, y, z) }"""
    feeds = [{n: np.full((2, k + i), i, np.float32) for i, n in enumerate("xyz")} for k in (1, 3)]
    check(graph, feeds, tmp_path)
    with softq.load(tmp_path / "built") as built, pytest.raises(softq.SoftqError, match="must be equal"):
        built({name: np.ones((2 + (name == "y"), 3), np.float32) for name in "xyz"})


def test_indices_from_one_length_to_another_which_may_be_less(tmp_path: Path) -> None:
    """Of a Range as of a Slice nothing is left then; a bound of a Slice that is negative ends the run."""
    graph = """g (float[A] x, float[B] y) => (int64[C] z, int64[D] u, float[E] w)
    <int64 one = {1}, int64 five = {5}, int64 minus = {-2}, int64[1] first = {0}> {
        a = Size(x) b = Size(y) z = Range(a, b, one) u = Range(a, five, minus)
        from = Shape(x) to = Shape(y) both = Concat <axis = 0> (x, y, x, y) w = Slice(both, from, to, first)
    }"""
    shapes = (2, 5), (5, 2), (3, 3), (1, 4), (9, 1)
    check(graph, [{"x": np.arange(a, dtype=np.float32), "y": np.ones(b, np.float32)} for a, b in shapes], tmp_path)
    graph = """g (float[A] x, float[B] y) => (float[E] w) <int64[1] first = {0}> {
        a = Shape(x) b = Shape(y) from = Sub(a, b) to = Add(from, b) w = Slice(x, from, to, first) }"""
    check(graph, [{"x": np.arange(a, dtype=np.float32), "y": np.ones(2, np.float32)} for a in (2, 5)], tmp_path)
    with softq.load(tmp_path / "built") as built, pytest.raises(softq.InputError, match="counts from the end"):
        built({"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)})


TRIANGLES = {
    "added above the diagonal": "low = ConstantOfShape <value = float[1] {-3e38}> (square)"
    " mask = Trilu <upper = 1> (low, one) m = Add(s, mask)",
    "added above a computed diagonal": """low = ConstantOfShape <value = float[1] {-3e38}> (square)
        rows = Squeeze(length) all = Shape <start = 2, end = 3> (k) columns = Squeeze(all) past = Sub(columns, rows)
        from = Add(past, one) mask = Trilu <upper = 1> (low, from) m = Add(s, mask)""",
    "chosen below the diagonal": """ones = ConstantOfShape <value = bool[1] {1}> (square)
        seen = Trilu <upper = 0> (ones) m = Where(seen, s, least)""",
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", TRIANGLES)
def test_causal_masks_by_triangles(name: str, tmp_path: Path) -> None:
    """The diagonal's number has no axes: between the products of an attention it is in no row."""
    graph = f"""g (float[B,2,S,4] q, float[B,2,S,4] k, float[B,2,S,3] v) => (float[B,2,S,3] y)
    <int64 one = {{1}}, float least = {{-1e9}}> {{
        turned = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul(q, turned)
        length = Shape <start = 2, end = 3> (q) square = Concat <axis = 0> (length, length)
        {TRIANGLES[name]} p = Softmax(m) y = MatMul(p, v) }}"""
    rng = np.random.default_rng(0)
    feeds = [{n: rng.standard_normal((batch, 2, rows, 3 if n == "v" else 4), np.float32) for n in "qkv"}
             for batch, rows in ((1, 1), (2, 5), (1, 70))]  # fmt: skip
    check(graph, feeds, tmp_path, relative=1e-4, absolute=1e-5)
