"""Operators that TVM imports in part: what it would compute something else for is refused, the rest is left to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from softq.compiler.frontend.onnx_node import Array, Converter, Node
from softq.compiler.tir.symbolic import plain
from softq.errors import RefusalError


def _refused(node: Node, what: str) -> RefusalError:
    return RefusalError(f"{node.operator} {node.name!r}: TVM has no {what}")


def _each(array: Array | None) -> Iterable[Any]:
    return itertools.repeat(None) if array is None else array.ravel().tolist()


def _resize(node: Node) -> None:
    if node.attributes.get("antialias", 0):
        raise _refused(node, "antialiasing")
    if node.attributes.get("axes") or node.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise _refused(node, "resizing of chosen axes or with a kept aspect ratio")
    scales = node.array(2) if node.has(2) else None
    lengths = node.array(3) if node.has(3) else None
    for dim, scale, length in zip(node.shape(0), _each(scales), _each(lengths), strict=False):
        dim = plain(dim)
        if not isinstance(dim, int) or node.attributes.get("mode", "nearest") != "nearest":
            continue
        new = int(length) if length is not None else round(dim * float(scale or 1))
        # Halfway between two elements TVM and onnxruntime round differently, by the last bit of a quotient.
        if new and dim and new % dim and dim % new:
            raise _refused(node, f"nearest element from {dim} to {new}, where neither is a multiple of the other")
    if scales is None:
        return
    for dim, scale in zip(node.shape(0), scales.ravel(), strict=False):
        dim = plain(dim)
        # TVM has the ratio of the lengths in place of the scale.
        if isinstance(dim, int) and not float(dim * float(scale)).is_integer():
            raise _refused(node, f"scale {float(scale):g} for an axis of {dim}, whose new length is rounded")


def _conv_transpose(node: Node) -> None:
    if node.attributes.get("output_shape"):
        raise _refused(node, "output_shape; give pads")


def _lp_pool(node: Node) -> None:
    if node.attributes.get("ceil_mode", 0):
        raise _refused(node, "ceil_mode")
    check_auto_pad(node)


def check_auto_pad(node: Node) -> None:
    """Refuse padding by the result's shape where lengths are not known."""
    same = str(node.attributes.get("auto_pad", "NOTSET")).startswith("SAME")
    dims = node.shape(0)[2 if node.operator in ("Conv", "AveragePool") else 0 :]
    if same and not all(isinstance(plain(d), int) for d in dims):
        raise _refused(node, "auto_pad for axes whose lengths are not constant")


def _pow(node: Node) -> None:
    if not str(node.tensor(0).ty.dtype).startswith("float"):
        raise _refused(node, f"powers of {node.tensor(0).ty.dtype}")


CONVERTERS: Mapping[str, Converter] = {
    "Resize": _resize,
    "Upsample": _resize,
    "ConvTranspose": _conv_transpose,
    "AveragePool": check_auto_pad,
    "LpPool": _lp_pool,
    "Pow": _pow,
}
