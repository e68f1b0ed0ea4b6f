"""Operators that TVM imports in part: what it would compute something else for is refused, the rest is left to it."""

from __future__ import annotations

from collections.abc import Mapping

from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.tir.symbolic import plain
from softq.errors import RefusalError


def _refused(node: Node, what: str) -> RefusalError:
    return RefusalError(f"{node.operator} {node.name!r}: TVM has no {what}")


def _lp_pool(node: Node) -> None:
    if node.attributes.get("ceil_mode", 0):
        raise _refused(node, "ceil_mode")
    check_auto_pad(node)


def check_auto_pad(node: Node) -> None:
    """Refuse padding by the result's shape where lengths are not known."""
    same = str(node.attributes.get("auto_pad", "NOTSET")).startswith("SAME")
    dims = node.shape(0)[2 if node.operator == "Conv" else 0 :]
    if same and not all(isinstance(plain(d), int) for d in dims):
        raise _refused(node, "auto_pad for axes whose lengths are not constant")


CONVERTERS: Mapping[str, Converter] = {
    "LpPool": _lp_pool,
}
