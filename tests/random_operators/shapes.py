"""Operators that move elements, and those that make tensors."""

from __future__ import annotations

import math

import numpy as np
from onnx import numpy_helper

from tests.random_graph import BOOL, DOUBLE, FLOAT, I8, I32, I64, U8, Draw, Graph

_MOVED = (FLOAT, I64, BOOL, DOUBLE, U8, I32, I8)


def _transpose(g: Graph) -> None:
    x = g.pick(_MOVED, least=1)
    g.add("Transpose", [x], moves=True, perm=g.rng.sample(range(len(x.shape)), len(x.shape)))


def _reshape(g: Graph) -> None:
    x = g.pick(_MOVED, least=1)
    cut = g.rng.randint(0, len(x.shape))
    shape = (math.prod(x.shape[:cut]), math.prod(x.shape[cut:]))
    g.add("Reshape", [x, g.ints(-1, shape[1]) if g.rng.random() < 0.5 else g.ints(*shape)], moves=True)


def _flatten(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    g.add("Flatten", [x], moves=True, axis=g.rng.randint(0, len(x.shape)))


def _unsqueeze(g: Graph) -> None:
    x = g.pick(_MOVED)
    g.add("Unsqueeze", [x, g.ints(g.rng.randint(0, len(x.shape)))], moves=True)


def _squeeze(g: Graph) -> None:
    x = g.pick(_MOVED, least=1)
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    if ones:
        g.add("Squeeze", [x, g.ints(g.rng.choice(ones))], moves=True)


def _slice(g: Graph) -> None:
    x = g.pick(_MOVED, least=1)
    axis = g.rng.randrange(len(x.shape))
    start, end, step = g.rng.randint(-8, 8), g.rng.randint(-8, 8), g.rng.choice((1, 1, 2, -1, -2))
    length = len(range(x.shape[axis])[start:end:step])
    if length and (step > 0 or end >= 0):
        g.add("Slice", [x, *(g.ints(n) for n in (start, end, axis, step))], moves=True)


def _concat(g: Graph) -> None:
    a = g.pick(_MOVED, least=1)
    axis = g.rng.randrange(len(a.shape))
    b = g.input(a.dtype, [g.rng.choice((1, 2, 4)) if i == axis else d for i, d in enumerate(a.shape)])
    g.add("Concat", [a, b], moves=True, axis=axis)


def _split(g: Graph) -> None:
    x = g.pick(_MOVED, least=1)
    axis = g.rng.randrange(len(x.shape))
    if x.shape[axis] > 1:
        first = g.rng.randint(1, x.shape[axis] - 1)
        g.add("Split", [x, g.ints(first, x.shape[axis] - first)], results=2, moves=True, axis=axis)


def _pad(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    mode = g.rng.choice(("constant", "constant", "edge", "reflect", "wrap"))
    most = [min(2, d - 1) if mode == "reflect" else 1 if mode == "wrap" else 2 for d in x.shape]
    pads = [g.rng.randint(0, n) for _ in range(2) for n in most]
    g.add("Pad", [x, g.ints(*pads)], moves=True, mode=mode)


def _expand(g: Graph) -> None:
    x = g.pick(_MOVED)
    # Axes that stay are asked for as 1: a name is not known to be a number.
    g.add("Expand", [x, g.ints(2, *(3 if d == 1 else 1 for d in x.shape))], moves=True)


def _tile(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    repeats = np.array([g.rng.randint(1, 2) for _ in x.shape])
    g.add("Tile", [x, g.constant(repeats) if g.rng.random() < 0.7 else g.given(repeats)], moves=True)


def _trilu(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=2)
    k = [g.constant(np.array(g.rng.randint(-2, 2)))] if g.rng.random() < 0.6 else []
    g.add("Trilu", [x, *k], moves=True, upper=g.rng.randint(0, 1))


def _about(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        g.add(operator, [g.pick((FLOAT, I64), least=1)])

    return draw


def _depth_to_space(g: Graph) -> None:
    mode = g.rng.choice(("DCR", "CRD"))
    g.add(
        "DepthToSpace", [g.input(FLOAT, (2, 8, 3, 2), fixed=g.rng.random() < 0.5)], moves=True, blocksize=2, mode=mode
    )


def _space_to_depth(g: Graph) -> None:
    g.add("SpaceToDepth", [g.input(FLOAT, (2, 3, 4, 6), fixed=g.rng.random() < 0.5)], moves=True, blocksize=2)


def _center_crop_pad(g: Graph) -> None:
    x = g.pick((FLOAT,), least=2)
    g.add("CenterCropPad", [x, g.ints(3, 4)], moves=True, axes=[0, -1])


def _constant(g: Graph) -> None:
    dtype = g.rng.choice((FLOAT, I64, I32))
    g.add("Constant", [], value=numpy_helper.from_array(g.data(dtype, g.rng.choice(((), (3,), (2, 5))))))


def _constant_of_shape(g: Graph) -> None:
    lengths = np.array([g.rng.choice((1, 3, 5)) for _ in range(2)])
    shape = g.constant(lengths) if g.rng.random() < 0.5 else g.given(lengths)
    dtype = g.rng.choice((FLOAT, I64, BOOL))
    g.add("ConstantOfShape", [shape], value=numpy_helper.from_array(g.data(dtype, (1,))))


def _range(g: Graph) -> None:
    start, end, step = g.rng.choice(((0, 5, 1), (2, 9, 3), (7, 1, -2), (-3, 4, 2)))
    dtype = g.rng.choice((np.int64, np.int64, np.int32, np.float32))
    numbers = [np.array(v, dtype) for v in (start, end, step)]
    known = g.rng.random() < 0.5
    g.add("Range", [g.constant(v) if known else g.given(v) for v in numbers])


def _eye_like(g: Graph) -> None:
    g.add("EyeLike", [g.pick((FLOAT, I64), rank=2)], k=g.rng.randint(-1, 1), dtype=g.rng.choice((FLOAT, I64)))


def _window(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        g.add(operator, [g.constant(np.array(g.rng.choice((4, 9))))], periodic=g.rng.randint(0, 1))

    return draw


def _upsample(g: Graph) -> None:
    x = g.pick((FLOAT,), rank=4)
    # What onnxruntime does between elements is another thing than what its Resize does.
    g.add("Upsample", [x, g.constant((1.0, 1.0, 2.0, 3.0), FLOAT)], mode="nearest")


OPERATORS: dict[str, Draw] = {
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Pad": _pad,
    "Expand": _expand,
    "Tile": _tile,
    "Trilu": _trilu,
    "Shape": _about("Shape"),
    "Size": _about("Size"),
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "CenterCropPad": _center_crop_pad,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "EyeLike": _eye_like,
    "Upsample": _upsample,
    **{name: _window(name) for name in ("BlackmanWindow", "HammingWindow", "HannWindow")},
}
