"""Writing codes of tensors: QuantizeLinear and DequantizeLinear, computed scales, and sums of coded weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from softq.graph.rewriter import Rewriter

LEAST_REACH = 2.0**-100
"""The least greatest value of a tensor for which a scale is made: of zeros alone every scale is right but 0."""


@dataclass(frozen=True)
class Codes:
    """Codes that a tensor becomes.

    Attributes:
        dtype: Their type.
        zero: The code of 0.
    """

    dtype: ir.DataType
    zero: int


def add_scale(rewriter: Rewriter, before: ir.Node, source: ir.Value, reach: int, name: str) -> ir.Value:
    """Put in front of a node what computes max |x| / reach of a float32 tensor, and return it; NaN if it has one."""
    add, kind, shape = rewriter.add, ir.DataType.FLOAT, rewriter.facts.shape(source)
    size = add(before, "Abs", [source], f"{name}.size", kind, shape)
    greatest = add(before, "ReduceMax", [size], f"{name}.greatest", kind, (), keepdims=0)
    least = rewriter.add_number(before, LEAST_REACH, kind, f"{name}.least")
    divisor = rewriter.add_number(before, reach, kind, f"{name}.reach")
    present = add(before, "Max", [greatest, least], f"{name}.present", kind, ())
    finite = add(before, "Div", [present, divisor], f"{name}.reached", kind, ())
    # onnxruntime's ReduceMax passes NaN over, and an infinite one has no code.
    total = add(before, "ReduceSum", [source], f"{name}.total", kind, (), keepdims=0)
    part = add(before, "Div", [total, present], f"{name}.part", kind, ())
    undefined = add(before, "IsNaN", [part], f"{name}.undefined", ir.DataType.BOOL, ())
    return add(before, "Where", [undefined, part, finite], f"{name}.scale", kind, ())


def add_codes(
    rewriter: Rewriter, before: ir.Node, source: ir.Value, scales: tuple[ir.Value, ir.Value], codes: Codes, name: str
) -> ir.Value:
    """Put a tensor's codes, divided by one scale, and their numbers, multiplied by another, in front of a node.

    Returns:
        The numbers, of the type of the scales.
    """
    add, shape = rewriter.add, rewriter.facts.shape(source)
    tensor = ir.Tensor(np.array(codes.zero).astype(codes.dtype.numpy()), dtype=codes.dtype)
    point = add(before, "Constant", [], f"{name}.zero", codes.dtype, (), value=tensor)
    quantized = add(before, "QuantizeLinear", [source, scales[0], point], f"{name}.codes", codes.dtype, shape)
    kind = scales[1].dtype or ir.DataType.FLOAT
    return add(before, "DequantizeLinear", [quantized, scales[1], point], f"{name}.decoded", kind, shape)


def add_sum(
    rewriter: Rewriter, before: ir.Node, decoded: ir.Value, own: ir.Value, name: str, least: ir.Value | None = None
) -> ir.Value:
    """Put the sum of each row of coded weights in front of a node; where their own sum is NaN it stays so.

    Args:
        rewriter: Of the model, whose opset is 13 at least.
        before: The node.
        decoded: The weights after their codes, [..., N].
        own: The sum of the weights before, [..., 1].
        name: What values are named after.
        least: A number that the sum is raised to where it is less; None for none.
    """
    add, kind, shape = rewriter.add, decoded.dtype or ir.DataType.FLOAT, rewriter.facts.shape(own)
    axes = rewriter.add_ints(before, [-1], f"{name}.axes")
    total = add(before, "ReduceSum", [decoded, axes], f"{name}.sum", kind, shape)
    if least is not None:
        total = add(before, "Max", [total, least], f"{name}.raised", kind, shape)
    undefined = add(before, "IsNaN", [own], f"{name}.undefined", ir.DataType.BOOL, shape)
    return add(before, "Where", [undefined, own, total], f"{name}.coded", kind, shape)
