"""Models and inputs that are off by one rounding: what no program with floats can tell from the given ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Array = np.ndarray[Any, Any]
FEW, DRAWS = 6, 300
"""How many such models are tried at least, and at most while a result is further off than all of them.

A result that is as good as theirs is further off than the worst of n of them in one case of n + 1: of the 28 builds of
quantized models and of float16 in benchmarks/tool_variants, where a rounding may change any digit, the 301st part of
each being wrong by chance makes less than one in ten for all of them together.
"""

_SMALL = 9
"""Elements of a tensor below which it may be no weight: scales of a Resize decide shapes. One number may be a weight or
not, so that it is moved in every second draw."""


def nudged(model: onnx.ModelProto, feeds: Mapping[str, Array], seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model and inputs of which each float, by chance, is the next greater one of its type or the same."""
    rng, other = np.random.default_rng(seed), onnx.ModelProto()
    other.CopyFrom(model)
    # A power has no value for a negative number if its exponent is no integer: 2 is no rounding of another number.
    exponents = {node.input[1] for node in model.graph.node if node.op_type == "Pow"}

    def moved(array: Array) -> Array:
        up = np.nextafter(array, array.dtype.type(np.inf))
        return np.where((rng.random(array.shape) < 0.5) & (array != 0) & np.isfinite(up), up, array)

    for tensor in other.graph.initializer:
        weight = np.prod(tensor.dims) >= _SMALL or (np.prod(tensor.dims) == 1 and seed % 2 == 0)
        float_weight = weight and tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
        if float_weight and tensor.name not in exponents:
            tensor.CopyFrom(numpy_helper.from_array(moved(numpy_helper.to_array(tensor)), tensor.name))
    return other, {name: moved(array) if array.dtype.kind == "f" else array for name, array in feeds.items()}


def greatest_of_draws(distance: Callable[[int], float], enough: Callable[[float], bool]) -> tuple[float, int]:
    """Return the greatest distance that draws have, and how many were made.

    Whether it is enough is the same as if all draws were always made.

    Args:
        distance: The distance for a seed; NaN counts as one.
        enough: Whether no more are needed, given the greatest until now.
    """
    found: list[float] = []
    while len(found) < FEW or (len(found) < DRAWS and not enough(float(np.max(found)))):
        found.append(distance(len(found)))
    return float(np.max(found)), len(found)
