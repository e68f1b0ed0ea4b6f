"""What operators on channels in blocks compute in the order of ONNX, as lines of ONNX text.

The operators: `softq/graph/channel_blocks.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from softq.graph.bodies import format_float

DOMAIN = "com.microsoft.nchwc"

LEAST_OPSET = 7
"""From here on operators broadcast as they do today; onnxruntime supports no older ones."""

POOLS = frozenset({"MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"})
"""Operators of the domain that are ONNX's own of that name but for the order."""

WIDTHS = (8, 16)
"""What `MlasNchwcGetBlockSize` gives: 16 with AVX-512 and on 64-bit Arm, 8 on other processors of x86 and LoongArch."""


def fill(node: ir.Node, opset: int, source: str, missing: int, count: int, result: str) -> list[str]:
    """Return lines for a ReorderInput.

    Args:
        node: The node.
        opset: Version of the default domain.
        source: Name of the operand.
        missing: How many channels of zeros come behind those that there are.
        count: How many channels the result has: what is behind them is cut.
        result: Name of the result [N, C, H, W].
    """
    lines = _transpose(node, [0, 3, 1, 2], source, "front" if missing else result)
    if not missing:
        return lines
    pads = [0, 0, 0, 0, 0, missing, 0, 0]
    if opset < 11:
        lines.append(f"filled = Pad <pads: ints = {pads}> (front)")
    else:
        lines.append(f"pads = Constant <value: tensor = int64[8] {{{', '.join(map(str, pads))}}}> ()")
        lines.append("filled = Pad (front, pads)")
    return [*lines, *_cut(opset, "filled", count, result)]


def leave(node: ir.Node, opset: int, source: str, there: int, result: str) -> list[str]:
    """Return lines for a ReorderOutput of an operand [N, C, H, W], where there are so many channels."""
    count = node.attributes.get_int("channels", 0)
    if count >= there:
        return _transpose(node, [0, 2, 3, 1], source, result)
    return [*_cut(opset, source, count, "front"), *_transpose(node, [0, 2, 3, 1], "front", result)]


def resize(node: ir.Node, opset: int, source: str, result: str) -> list[str]:
    """Return lines for an Upsample."""
    scales = ", ".join(format_float(scale) for scale in node.attributes["scales"].as_ints())
    mode = node.attributes.get_string("mode", "nearest")
    if opset < 9:
        return [f'{result} = Upsample <mode: string = "{mode}", scales: floats = [{scales}]> ({source})']
    lines = [f"scales = Constant <value: tensor = float[4] {{{scales}}}> ()"]
    if opset < 11:
        operator = "Resize" if opset == 10 else "Upsample"
        return [*lines, f'{result} = {operator} <mode: string = "{mode}"> ({source}, scales)']
    # The kernel for the nearest element knows but one coordinate.
    named = "" if mode == "nearest" else node.attributes.get_string("coordinate_transformation_mode", "")
    options = f'mode: string = "{mode}", coordinate_transformation_mode: string = "{named or "asymmetric"}"'
    return [*lines, f'{result} = Resize <{options}, nearest_mode: string = "floor"> ({source}, , scales)']


def _transpose(node: ir.Node, order: Sequence[int], source: str, result: str) -> list[str]:
    """Return a line that puts channels elsewhere, if the node says that they are last outside."""
    last = node.attributes.get_int("channels_last", 0)
    return [f"{result} = {f'Transpose <perm: ints = {order}>' if last else 'Identity'} ({source})"]


def _cut(opset: int, source: str, count: int, result: str) -> list[str]:
    if opset < 10:
        return [f"{result} = Slice <axes: ints = [1], starts: ints = [0], ends: ints = [{count}]> ({source})"]
    numbers = {"first": 0, "end": count, "axis": 1}
    lines = [f"{name} = Constant <value: tensor = int64[1] {{{number}}}> ()" for name, number in numbers.items()]
    return [*lines, f"{result} = Slice ({source}, first, end, axis)"]
