"""Operators that draw random numbers, which a built model has not."""

from __future__ import annotations

from collections.abc import Mapping

from softq.compiler.frontend.onnx_node import Converter, Node
from softq.errors import RefusalError


def _refuse(node: Node) -> None:
    raise RefusalError(
        f"{node.operator} {node.name!r} draws random numbers; a built model gives the same result each run: "
        "make what it draws an input"
    )


CONVERTERS: Mapping[str, Converter] = dict.fromkeys(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), _refuse
)
