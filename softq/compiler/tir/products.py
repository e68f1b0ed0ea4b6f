"""How many terms the sums of products in TVM's functions have."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import s_tir, tirx

from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import plain


def count_products(function: tirx.PrimFunc) -> int:
    """Return how many products of elements of two tensors a function adds up; 0 for lengths that are not known."""
    total = 0
    for block in found(function.body, s_tir.SBlock):
        extents = [plain(v.dom.extent) for v in block.iter_vars]
        lengths = [extent for extent in extents if isinstance(extent, int)]
        reduces = any(int(v.iter_type) == tirx.IterVar.CommReduce for v in block.iter_vars)
        if reduces and len(lengths) == len(extents) and _adds_product(block.body):
            total += math.prod(lengths)
    return total


def _adds_product(store: Any) -> bool:
    """Say whether a product of elements of two tensors is added to what is there."""
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        return False
    sources = [load.source for part in (store.value.a, store.value.b) if isinstance(part, tirx.Mul)
               for load in found(part, tvm.ir.TensorLoad)]  # fmt: skip
    return len(sources) == 2 and not sources[0].same_as(sources[1])
