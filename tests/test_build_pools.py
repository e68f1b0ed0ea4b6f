"""Pools with the places of their greatest elements, means of windows that the run pads, transposed convolutions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import softq
from tests.built import check

pytest.importorskip("tvm")

RNG = np.random.default_rng(3)
TYPES = {"float": np.float32, "double": np.float64, "uint8": np.uint8, "int8": np.int8, "float16": np.float16}
PLACES = {
    "line": ("float", "N, 3, A", "kernel_shape = [3]", [(2, 3, 7), (1, 3, 12)]),
    "columns": ("float", "2, 3, 7, 9", "kernel_shape = [2, 3], strides = [2, 1], storage_order = 1", [(2, 3, 7, 9)]),
    "columns of open axes": (
        "float", "2, 3, A, B", "kernel_shape = [3, 2], pads = [1, 0, 1, 1], storage_order = 1",
        [(2, 3, 7, 9), (2, 3, 4, 2)],
    ),
    "volumes": ("float", "1, 2, 4, 5, 6", "kernel_shape = [2, 2, 3], dilations = [1, 2, 1]", [(1, 2, 4, 5, 6)]),
    "as long as before": ("float", "1, 2, A, B", 'kernel_shape = [3, 3], auto_pad = "SAME_LOWER"', [(1, 2, 6, 7)]),
    "rounded up": ("float", "1, 2, 6, 7", "kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1", [(1, 2, 6, 7)]),
    "bytes": ("uint8", "1, 2, 6, 7", "kernel_shape = [3, 3], pads = [1, 1, 1, 1]", [(1, 2, 6, 7)]),
    "double": ("double", "1, 2, 6", "kernel_shape = [3]", [(1, 2, 6)]),
}  # fmt: skip


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("case", PLACES)
def test_where_the_greatest_elements_stand(case: str, tmp_path: Path) -> None:
    """Of equal ones the first; a quarter of the elements are equal to others. Some windows have but -inf."""
    dtype, shape, attributes, shapes = PLACES[case]
    rank = shape.count(",")
    dims = ", ".join(f"D{i}" for i in range(rank + 1))
    graph = f"g ({dtype}[{shape}] x) => ({dtype}[{dims}] y, int64[{dims}] i) {{ y, i = MaxPool <{attributes}> (x) }}"
    feeds = [{"x": RNG.integers(0 if dtype == "uint8" else -9, 9, s).astype(TYPES[dtype])} for s in shapes]
    if dtype == "double":
        feeds.append({"x": np.where(np.arange(12).reshape(shapes[0]) % 6 < 4, -np.inf, feeds[0]["x"])})
    check(graph, feeds, tmp_path)


@pytest.mark.parametrize(
    ("dtype", "shape", "attributes"),
    [
        ("double", "1, 2, A, 7", "kernel_shape = [2, 3], pads = [0, 1, 1, 1]"),
        ("float16", "1, 2, 6, 7", "kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1"),
        # Of float, onnxruntime's are the least finite number here.
        ("double", "1, A, 4, 5, 6", 'kernel_shape = [2, 2, 3], auto_pad = "SAME_UPPER"'),
    ],
)
def test_windows_of_nothing_but_infinities(dtype: str, shape: str, attributes: str, tmp_path: Path) -> None:
    dims = ", ".join(f"D{i}" for i in range(shape.count(",") + 1))
    graph = f"g ({dtype}[{shape}] x) => ({dtype}[{dims}] y) {{ y = MaxPool <{attributes}> (x) }}"
    lengths = [int(d) for d in shape.replace("A", "6").split(", ")]
    x = RNG.integers(-9, 9, lengths).astype(TYPES[dtype])
    x[:, :, : lengths[2] // 2 + 1] = -np.inf
    check(graph, [{"x": x}], tmp_path)


def test_windows_rounded_up_on_open_axes_are_refused_where_places_are_asked_for(tmp_path: Path) -> None:
    graph = """g (float[1, 2, A] x) => (float[1, 2, B] y, int64[1, 2, B] i) {
        y, i = MaxPool <kernel_shape = [3], strides = [2], ceil_mode = 1> (x) }"""
    with pytest.raises(softq.RefusalError, match="MaxPool 'y': ceil_mode on axes whose lengths are not constant"):
        check(graph, [], tmp_path)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_means_of_windows_that_the_run_pads(auto_pad: str, tmp_path: Path) -> None:
    graph = f"""g (float[1, 2, A, B] x) => (float[1, 2, C, D] y) {{
        y = AveragePool <kernel_shape = [3, 4], strides = [2, 1], auto_pad = "{auto_pad}"> (x) }}"""
    shapes = (1, 2, 6, 7), (1, 2, 1, 2), (1, 2, 9, 3)
    check(graph, [{"x": RNG.standard_normal(s, np.float32)} for s in shapes], tmp_path, absolute=1e-6)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_windows_that_the_run_pads_or_cuts_off(p: int, tmp_path: Path) -> None:
    graph = f"""g (float[1, 2, A, B] x, float[1, 2, 6, 7] w) => (float[1, 2, C, D] y, float[1, 2, E, F] z) {{
        y = LpPool <kernel_shape = [3, 4], strides = [2, 1], auto_pad = "SAME_UPPER", p = {p}> (x)
        z = LpPool <kernel_shape = [3, 3], strides = [2, 3], ceil_mode = 1, p = {p}> (w) }}"""
    shapes = (1, 2, 6, 7), (1, 2, 1, 2), (1, 2, 9, 3)
    w = RNG.standard_normal((1, 2, 6, 7), np.float32)
    check(graph, [{"x": RNG.standard_normal(s, np.float32), "w": w} for s in shapes], tmp_path, absolute=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        "output_shape = [7, 9]",
        'output_shape = [6, 8], auto_pad = "SAME_UPPER"',
        "output_shape = [6, 8]",
        "output_shape = [8, 9]",
    ],
)
def test_transposed_convolutions_whose_results_have_a_given_shape(attributes: str, tmp_path: Path) -> None:
    """Shorter than the windows reach, as long, and longer."""
    weights = ", ".join(str(i % 7 - 3) for i in range(2 * 3 * 3 * 2))
    graph = f"""g (float[2, 2, 3, 4] x) => (float[2, 3, A, B] y) <float[2, 3, 3, 2] w = {{{weights}}}> {{
        y = ConvTranspose <strides = [2, 2], {attributes}> (x, w) }}"""
    check(graph, [{"x": RNG.standard_normal((2, 2, 3, 4), np.float32)}], tmp_path, absolute=1e-5)


GREATEST = {
    "line": ("N, 3, A", "kernel_shape = [3], strides = [2], pads = [1, 1]", [(2, 3, 7), (1, 3, 70)]),
    "narrow": ("2, 3, 7, 7", "kernel_shape = [3, 3], pads = [1, 1, 1, 1]", [(2, 3, 7, 7)]),
    "wide": (
        "2, 3, A, B",
        "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]",
        [(2, 3, 9, 75), (2, 3, 40, 33)],
    ),
    "rounded up": ("1, 2, 12, 54", "kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1", [(1, 2, 12, 54)]),
    "dilated": ("1, 2, 12, 54", "kernel_shape = [2, 3], strides = [1, 3], dilations = [2, 4]", [(1, 2, 12, 54)]),
    "one side": ("1, 2, 12, 21", 'kernel_shape = [2, 2], auto_pad = "SAME_UPPER"', [(1, 2, 12, 21)]),
    "next to each other": ("1, 2, A, B", "kernel_shape = [2, 2], strides = [2, 2]", [(1, 2, 41, 140), (1, 2, 3, 15)]),
    "one row of two in the image": (
        "1, 2, 2, 30",
        "kernel_shape = [2, 2], dilations = [2, 2], pads = [1, 1, 1, 1]",
        [(1, 2, 2, 30)],
    ),
    "far apart": ("1, 2, 12, 50", "kernel_shape = [5, 7], strides = [5, 7]", [(1, 2, 12, 50)]),
}


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("case", GREATEST)
def test_greatest_elements(case: str, tmp_path: Path) -> None:
    shape, attributes, shapes = GREATEST[case]
    dims = ", ".join(f"D{i}" for i in range(shape.count(",") + 1))
    graph = f"g (float[{shape}] x) => (float[{dims}] y) {{ y = MaxPool <{attributes}> (x) }}"
    # Less than the zeros that would stand around an image.
    check(graph, [{"x": RNG.standard_normal(s, np.float32) - 9} for s in shapes], tmp_path, absolute=0)
    assert "softq_greatest" in (tmp_path / "built" / "driver.c").read_text()
