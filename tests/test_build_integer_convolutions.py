"""Convolutions of 8-bit integers of every pair of types, equal to the bit to sums that are written out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import softq
from tests.built import Array

pytest.importorskip("tvm")

RNG = np.random.default_rng(11)
U8, I8 = np.uint8, np.int8


def codes(dtype: type, *shape: int) -> Array:
    return RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


@dataclass(frozen=True)
class Case:
    """A convolution; the batch and the images' lengths are open.

    Attributes:
        types: Of images and kernels.
        kernel: [M, C / groups, window...].
        groups: How many.
        strides: Of each axis.
        dilations: Of each axis.
        pads: In front of each axis, then behind.
        each: Whether each channel of the result has a zero point of its own.
        given: Whether the zero points are inputs.
    """

    types: tuple[type, type]
    kernel: tuple[int, ...]
    groups: int = 1
    strides: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    each: bool = False
    given: bool = False


CASES = (
    Case((U8, U8), (5, 3, 3, 3), pads=(1, 1, 1, 1)),
    Case((U8, I8), (7, 4, 3, 2), strides=(2, 2), pads=(0, 1, 2, 0), each=True),
    Case((I8, U8), (9, 9, 1, 1), given=True),
    Case((I8, I8), (1, 1, 3, 3), strides=(1, 3), dilations=(2, 1), pads=(1, 2, 0, 0)),
    Case((U8, I8), (16, 6, 2, 3), groups=2, strides=(3, 5), pads=(2, 3, 2, 3), each=True, given=True),
    Case((U8, I8), (300, 5, 3, 1), pads=(4, 0, 4, 0)),
    Case((U8, U8), (4, 10, 5), strides=(2,), dilations=(2,), pads=(3, 4)),
    Case((I8, I8), (8, 1, 3, 3), groups=4, pads=(1, 1, 1, 1)),
)


def zero_points(case: Case) -> tuple[Array, Array]:
    x_type, w_type = case.types
    return codes(x_type, 1)[0], codes(w_type, case.kernel[0]) if case.each else codes(w_type, 1)[0]


def expected(case: Case, x: Array, w: Array, zeros: tuple[Array, Array]) -> Array:
    """Return the sums, by float64, in which they are exact."""
    axes = len(w.shape) - 2
    wide = x.astype(np.float64) - float(zeros[0])
    wide = np.pad(wide, [(0, 0), (0, 0), *zip(case.pads[:axes], case.pads[axes:], strict=True)])
    kernels = w.astype(np.float64) - np.reshape(zeros[1], (-1, *[1] * (axes + 1))).astype(np.float64)
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], case.dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(wide, spans, tuple(range(2, 2 + axes)))
    steps = [slice(None, None, s) for s in (*case.strides, *case.dilations)]
    windows = windows[(slice(None), slice(None), *steps)]
    parts = zip(np.split(kernels, case.groups), np.split(windows, case.groups, axis=1), strict=True)
    sums = [np.tensordot(b, a, ([1, *range(2 + axes, 2 + 2 * axes)], [1, *range(2, 2 + axes)])) for a, b in parts]
    return np.moveaxis(np.concatenate(sums, -1), -1, 1)


def model_of(weights: list[Array], zeros: list[tuple[Array, Array]]) -> onnx.ModelProto:
    nodes, inputs, outputs, arrays = [], [], [], []
    for i, (case, w, points) in enumerate(zip(CASES, weights, zeros, strict=True)):
        axes = len(case.kernel) - 2
        kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(t)) for t in case.types]
        channels = case.kernel[1] * case.groups
        inputs.append(
            helper.make_tensor_value_info(f"x{i}", kinds[0], ["n", channels, *[f"d{a}" for a in range(axes)]])
        )
        arrays.append(numpy_helper.from_array(w, f"w{i}"))
        for name, kind, point in zip("ab", kinds, points, strict=True):
            if case.given:
                inputs.append(helper.make_tensor_value_info(f"{name}{i}", kind, np.shape(point)))
            else:
                arrays.append(numpy_helper.from_array(np.asarray(point), f"{name}{i}"))
        options: dict[str, Any] = {"strides": case.strides, "dilations": case.dilations, "pads": case.pads}
        names = [f"{name}{i}" for name in "xwab"]
        nodes.append(helper.make_node("ConvInteger", names, [f"y{i}"], group=case.groups, **options))
        outputs.append(helper.make_tensor_value_info(f"y{i}", 6, [None] * (2 + axes)))
    graph = helper.make_graph(nodes, "g", inputs, outputs, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_integer_convolutions_of_every_pair_of_types(tmp_path: Path) -> None:
    weights = [codes(case.types[1], *case.kernel) for case in CASES]
    zeros = [zero_points(case) for case in CASES]
    softq.build(model_of(weights, zeros), tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        # Images within a vector, of many rows in a panel, and of panels within a row.
        for batch, *lengths in ((1, 7, 6), (2, 21, 3), (1, 9, 90), (2, 5, 33)):
            feeds: dict[str, Array] = {}
            for i, (case, points) in enumerate(zip(CASES, zeros, strict=True)):
                shape = lengths[: len(case.kernel) - 2]
                feeds[f"x{i}"] = codes(case.types[0], batch, case.kernel[1] * case.groups, *shape)
                if case.given:
                    feeds |= {f"{name}{i}": np.asarray(point) for name, point in zip("ab", points, strict=True)}
            found = built(feeds)
            for i, (case, w, points) in enumerate(zip(CASES, weights, zeros, strict=True)):
                want = expected(case, feeds[f"x{i}"], w, points)
                np.testing.assert_array_equal(found[f"y{i}"], want, err_msg=f"{case} of {lengths}")
