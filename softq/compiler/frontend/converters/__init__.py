"""ONNX operators that softq imports itself, one file for each kind.

Each file has its `CONVERTERS` by operator of the default domain. One that returns None leaves the node to TVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from softq.compiler.frontend.converters import (
    convolutions,
    indices,
    limits,
    pointwise,
    products,
    reductions,
    shapes,
    slices,
    softmaxes,
)
from softq.compiler.frontend.converters.softmaxes import softq_function

if TYPE_CHECKING:
    from softq.compiler.frontend.onnx_node import Converter

__all__ = ["CONVERTERS", "softq_function"]


def _merged(*kinds: ModuleType) -> Mapping[str, Converter]:
    found: dict[str, Converter] = {}
    owner: dict[str, str] = {}
    for kind in kinds:
        for operator, converter in kind.CONVERTERS.items():
            assert operator not in found, f"{operator} is in {owner[operator]} and {kind.__name__}"
            found[operator], owner[operator] = converter, kind.__name__
    return found


CONVERTERS: Mapping[str, Converter] = _merged(
    convolutions, indices, limits, pointwise, products, reductions, shapes, slices, softmaxes
)
