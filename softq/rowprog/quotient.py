"""The division of a pair, as part of the program: probabilities = weights * (1 / normalizer)."""

from __future__ import annotations

from dataclasses import replace

from softq.rowprog.program import Node, Program
from softq.rowprog.types import DType, Kind


def quotient(program: Program) -> Program:
    """Return a program that gives the probabilities instead of weights and their normalizer.

    They are within two roundings of the quotient, 2^-23 relatively: one division per row, one product per element.
    Where the normalizer is 0 or NaN they are NaN, as the quotient of a weight of 0 is; a program without a pair stays.
    """
    if not program.is_pair:
        return program
    weights, normalizer = (_float(program.outputs[name]) for name in ("weights", "normalizer"))
    one = Node("const", (), DType.F32, Kind.SCALAR, {"value": 1.0})
    inverse = Node("divide", (one, normalizer), DType.F32, Kind.SCALAR)
    probabilities = Node("mul", (weights, inverse), DType.F32, Kind.ROW)
    structure = f"{program.structure}_quotient".lstrip("_")
    return replace(program, structure=structure, outputs={"probabilities": probabilities})


def _float(node: Node) -> Node:
    return node if node.dtype is DType.F32 else Node("cast", (node,), DType.F32, node.kind)
