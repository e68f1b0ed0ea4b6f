"""Built models that sort, or pick elements by data, against onnxruntime or NumPy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import softq
from tests.built import Array, check

pytest.importorskip("tvm")

F32 = np.float32
NUMPY = {"float": "float32", "double": "float64"}


def draw(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Return few different numbers, so that many are equal."""
    return np.random.default_rng(seed).integers(0, 6, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "int32", "float16", "double"])
def test_the_greatest_and_the_least_of_an_axis(dtype: str, tmp_path: Path) -> None:
    # Of equal elements the first comes first; onnxruntime has no kernels for some of the types.
    name, dtype = dtype, NUMPY.get(dtype, dtype)
    graph = f"""g ({name}[N, M] x, int64[1] k) => ({name}[A, M] y, int64[A, M] i, {name}[N, B] z, int64[N, B] j) {{
        y, i = TopK<axis = 0, largest = 0>(x, k)
        z, j = TopK(x, k)
    }}"""
    softq.build(
        parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {graph}'), tmp_path / "built", target="cpu"
    )
    with softq.load(tmp_path / "built") as built:
        for shape, k in (((5, 37), 5), ((33, 4), 1), ((4, 4), 0), ((5, 37), 3)):
            x = draw(shape, dtype)
            found = built({"x": x, "k": np.array([k])})
            least = np.argsort(x, axis=0, kind="stable")[:k]
            greatest = np.argsort(x.max(initial=0) - x, axis=1, kind="stable")[:, :k]
            np.testing.assert_array_equal(found["i"], least)
            np.testing.assert_array_equal(found["j"], greatest)
            np.testing.assert_array_equal(found["y"], np.take_along_axis(x, least, 0))
            np.testing.assert_array_equal(found["z"], np.take_along_axis(x, greatest, 1))


def test_nan_is_the_greatest(tmp_path: Path) -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> g (float[6] x) => (int64[6] i, int64[6] j) <int64[1] k = {6}> {
            y, i = TopK<largest = 0>(x, k)
            z, j = TopK(x, k)
        }"""
    )
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        found = built({"x": np.array([1, np.nan, np.inf, -np.inf, np.nan, 2], F32)})
        assert found["i"].tolist() == [3, 0, 5, 2, 1, 4]
        assert found["j"].tolist() == [1, 4, 2, 5, 0, 3]


def test_more_elements_than_there_are_end_the_run(tmp_path: Path) -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> g (float[N] x, int64[1] k) => (float[A] y) { y, i = TopK(x, k) }"""
    )
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        with pytest.raises(softq.InputError, match="more elements than its axis has"):
            built({"x": np.ones(3, F32), "k": np.array([4])})
        assert built({"x": np.ones(3, F32), "k": np.array([3])})["y"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["bool", "float", "int32"])
def test_positions_of_what_is_not_zero(dtype: str, tmp_path: Path) -> None:
    check(
        f"g ({dtype}[N, 3, M] x) => (int64[3, A] y) {{ y = NonZero(x) }}",
        [{"x": (draw(s, "int32", 3) // 3).astype(NUMPY.get(dtype, dtype))}
         for s in ((5, 3, 2), (1, 3, 40), (0, 3, 2), (2, 3, 1))],
        tmp_path,
    )  # fmt: skip


def test_nan_is_not_zero(tmp_path: Path) -> None:
    check(
        "g (float[N] x) => (int64[1, A] y) { y = NonZero(x) }",
        [{"x": np.array(x, F32)} for x in ([np.nan, 0, -0.0, np.inf], [0, 0], [])],
        tmp_path,
    )


@pytest.mark.parametrize("axis", ["", "<axis = 1>", "<axis = -2>"])
def test_a_condition_picks_parts_of_an_axis(axis: str, tmp_path: Path) -> None:
    check(
        f"g (float[N, M] x, bool[K] c) => (float y) {{ y = Compress{axis}(x, c) }}".replace(
            "float y", "float[A] y" if not axis else "float[A, B] y"
        ),
        [{"x": draw((n, 7), "float32"), "c": draw((k,), "int32", 1) > 2} for n in (5, 1) for k in (3, 7, 9, 0)],
        tmp_path,
    )


def unique(x: Array, attributes: str) -> tuple[Array, Array, Array, Array]:
    """Return what NumPy finds; with `sorted = 0` in the order of first positions."""
    found = re.search(r"axis = (-?\d)", attributes)
    axis = int(found[1]) if found else None
    values, first, inverse, count = np.unique(x, True, True, True, axis)
    order = np.argsort(first) if "sorted = 0" in attributes else np.arange(len(first))
    inverse = np.argsort(order)[inverse.ravel()]
    return np.take(values, order, axis or 0), first[order], inverse, count[order]


@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        ("float", ""),
        ("int64", "sorted = 0"),
        ("double", "axis = 0"),
        ("bool", "axis = 1, sorted = 0"),
        ("uint8", "axis = -1"),
    ],
)
def test_each_value_once(dtype: str, attributes: str, tmp_path: Path) -> None:
    axes = "A, B" if "axis" in attributes else "A"
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> g ({dtype}[N, M] x) =>
            ({dtype}[{axes}] y, int64[C] first, int64[D] inverse, int64[E] count) {{
            y, first, inverse, count = Unique{f"<{attributes}>" if attributes else ""}(x)
        }}"""
    )
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        for shape in ((7, 5), (40, 2), (1, 1)):
            x = draw(shape, "int32", 2) // 3
            x = x.astype(NUMPY.get(dtype, dtype))
            wanted = unique(x, attributes)
            for found, value in zip(built({"x": x}).values(), wanted, strict=True):
                np.testing.assert_array_equal(found, value)


def test_the_values_of_nothing_are_none(tmp_path: Path) -> None:
    check(
        "g (float[N] x) => (float[A] y, int64[A] f, int64[N] i, int64[A] c) { y, f, i, c = Unique(x) }",
        [{"x": np.zeros(n, F32)} for n in (3, 0, 1)],
        tmp_path,
    )


@pytest.mark.parametrize("center", [0, 1])
def test_boxes_that_overlap_a_better_one_go(center: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    check(
        f"""g (float[B, N, 4] boxes, float[B, C, N] scores, int64 most, float overlap, float least)
            => (int64[K, 3] all, int64[L, 3] some) {{
            all = NonMaxSuppression<center_point_box = {center}>(boxes, scores, most, overlap)
            some = NonMaxSuppression<center_point_box = {center}>(boxes, scores, most, overlap, least)
        }}""",
        [
            {
                "boxes": rng.random((batch, n, 4), F32),
                "scores": draw((batch, classes, n), "float32", n) / F32(6),
                "most": np.array(most),
                "overlap": np.array(overlap, F32),
                "least": np.array(0.4, F32),
            }
            for batch, classes, n in ((2, 3, 40), (1, 1, 7), (1, 2, 1))
            for most, overlap in ((1000, 0.3), (3, 0.0), (0, 0.5))
        ],
        tmp_path,
    )


@pytest.mark.parametrize("operator", ["y, i = TopK(x, k)", "z = NonZero(x) y = Cast<to = 1>(z)"])
def test_a_gpu_refuses_by_name(operator: str, tmp_path: Path) -> None:
    axes = "A, B" if "NonZero" in operator else "A"
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[9] x) => (float[{axes}] y) <int64[1] k = {{2}}> {{ {operator} }}"""
    )
    with pytest.raises(softq.RefusalError, match="has no kernel for this target"):
        softq.build(model, tmp_path / "built", target="cuda,arch=sm_90")


def test_hardmax_marks_the_first_greatest_element_along_axes_that_are_not_known(tmp_path: Path) -> None:
    check(
        """g (float[N, M] x) => (float[N, M] y, float[N, M] z) {
            y = Hardmax (x)
            z = Hardmax <axis = 0> (x)
        }""",
        [{"x": np.random.default_rng(5).integers(0, 3, shape).astype(np.float32)} for shape in ((3, 4), (6, 2))],
        tmp_path,
    )


def test_of_one_element_the_first_is_the_least(tmp_path: Path) -> None:
    check("g (float[1] x) => (int64 y) { y = ArgMin <keepdims = 0> (x) }", [{"x": np.ones(1, np.float32)}], tmp_path)
