"""The step of a GEMM in a built model: nothing is packed at run time, weights once when the model is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from softq.artifact.program import Size
from softq.codegen.gpu.gemm.operands import pad_rows
from softq.compiler.steps.builder import Builder, StepCall, Value
from softq.compiler.steps.product import Product, Weight
from softq.compiler.tir.symbolic import computed, multiplied

KINDS: Mapping[str, str] = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8",
}  # fmt: skip
"""Types of operands that have kernels, and what kernels call them."""


def lower_gemm(out: Builder, given: Product, result: Any, kernel: Callable[[str, str, bool], str]) -> Value:
    """Append the step of a product and return its result.

    Args:
        out: What is lowered.
        given: What is multiplied.
        result: Relax's type of the result.
        kernel: What gives a kernel's symbol for the types of both operands, and for a right one that is [k, n].
    """
    (rows, inner, columns), b = given.sizes, given.right
    if isinstance(b, Weight):
        # The name of a weight that something else has as it is stands for that.
        array = pad_rows(b.array, given.transposed)
        right, pitch, b_is_kn = out.weight(("rows", b.name, given.transposed), array), array.shape[1], False
        ahead: Size = 0
    else:
        right, b_is_kn = b, not given.transposed
        pitch, ahead = (columns if b_is_kn else inner), multiplied([inner, columns])
    product = out.new(result)
    symbol = kernel(KINDS[given.left.dtype], KINDS[right.dtype], b_is_kn)
    scalars: list[Size] = [rows, inner, columns, multiplied([given.step, inner]), ahead, pitch]
    # None where the result has no elements, so that nothing is started.
    lead = multiplied([*given.lead, computed("min", rows, 1), computed("min", columns, 1)])
    tensors = [given.left, right, *given.zeros, product, *given.others]
    out.append(StepCall(symbol, tensors, scalars, lead, product.elements))
    return product
