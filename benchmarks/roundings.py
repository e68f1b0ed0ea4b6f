"""Models and inputs that are off by one rounding: what no program with floats can tell from the given ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Array = np.ndarray[Any, Any]
DRAWS = 6
"""How many such models are tried where a result may be as wrong as these are: in codes few of them change anything."""

_FEW = 9
"""Elements of a tensor below which it may be no weight: scales of a Resize decide shapes. One number may be a weight or
not, so that it is moved in every second draw."""


def nudged(model: onnx.ModelProto, feeds: Mapping[str, Array], seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model and inputs of which each float, by chance, is the next greater one of its type or the same."""
    rng, other = np.random.default_rng(seed), onnx.ModelProto()
    other.CopyFrom(model)

    def moved(array: Array) -> Array:
        up = np.nextafter(array, array.dtype.type(np.inf))
        return np.where((rng.random(array.shape) < 0.5) & (array != 0) & np.isfinite(up), up, array)

    for tensor in other.graph.initializer:
        weight = np.prod(tensor.dims) >= _FEW or (np.prod(tensor.dims) == 1 and seed % 2 == 0)
        if weight and tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            tensor.CopyFrom(numpy_helper.from_array(moved(numpy_helper.to_array(tensor)), tensor.name))
    return other, {name: moved(array) if array.dtype.kind == "f" else array for name, array in feeds.items()}
