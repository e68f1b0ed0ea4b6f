"""Equal programs whose numbers need fewer bits, for processors that compute each in the words that it needs."""

from __future__ import annotations

from dataclasses import replace

from softq.rowprog.program import Node, Program, number_of, substitute
from softq.rowprog.types import Kind


def shorten(program: Program) -> Program:
    """Return a program with the same results.

    A shift that rounds, (x + (1 << (r - 1))) >> r, becomes ((x >> (r - 1)) + 1) >> 1: floor((x + h) / 2h) is
    floor((floor(x / h) + 1) / 2), and what is added has one bit where it had r.
    """
    known = {node: made for node in program.nodes() if (made := _rounding_shift(node)) is not None}
    return replace(program, outputs=substitute(program.outputs, known, assumptions=True)) if known else program


def _rounding_shift(node: Node) -> Node | None:
    if node.op != "shr" or node.args[0].op != "add":
        return None
    (x, half), right = node.args[0].args, node.args[1]
    if half.op != "shl" or not _is_one(half.args[0]):
        return None
    less = half.args[1]
    if less.op != "sub" or less.args[0] is not right or not _is_one(less.args[1]):
        return None
    one = Node("const", (), node.dtype, Kind.SCALAR, {"value": 1})
    above = replace(node.args[0], args=(replace(node, args=(x, less)), one))
    return replace(node, args=(above, one))


def _is_one(node: Node) -> bool:
    return node.op == "const" and number_of(node) == 1
