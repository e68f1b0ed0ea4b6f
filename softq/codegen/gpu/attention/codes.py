"""What an attention needs to know of a row program: the code per element from its distance, the weight per code."""

from __future__ import annotations

from dataclasses import dataclass

from softq.codegen.common.patterns import rounded
from softq.errors import RefusalError
from softq.rowprog.codes import CODES, coded
from softq.rowprog.program import Node, Program, number_of, table_of

_LAST_HALVING = 15
"""The greatest code of weights that are powers of two in float16."""

_MOST = 1 << 15
"""Greatest weight, of 16 bits."""


@dataclass(frozen=True)
class Codes:
    """Weights of the form table[c], c = rint(f((max - x) * rate)) from 0 to the last code.

    Attributes:
        rate: Codes per unit of distance.
        table: The weight of each code.
        root: Whether f(u) is sqrt(max(u + offset, 0)) - shift; else it is u.
        offset: What is added under the root.
        shift: What is taken off it.
    """

    rate: float
    table: tuple[int, ...]
    root: bool
    offset: float = 0.0
    shift: float = 0.0

    @property
    def halving(self) -> bool:
        """Whether each code has half the weight of the one before it, and the last one none."""
        top = len(self.table) - 1
        # 2^-14 is the least normal float16.
        few = not self.root and top <= _LAST_HALVING and self.table[top] == 0
        return few and all(self.table[c] << c == self.table[0] for c in range(top))


def codes_of(program: Program) -> Codes:
    """Return how a program of float scores makes its weights.

    Raises:
        RefusalError: it makes them in another way, or has fitted numbers.
    """
    why = RefusalError(f"{program.name} {program.structure} does not make its weights of codes of a scaled distance")
    if not program.scores.is_float:
        raise why
    found = coded(program)
    node = found.program.outputs[CODES]
    node, table = _strip_casts(node), found.table
    if node.op == "lut" and node.args[0].op == "table":
        # Codes that are looked up themselves: what they are looked up at is the code.
        table = tuple(table[int(c)] for c in table_of(node.args[0]))
        node = _strip_casts(node.args[1])
    inner = rounded(node)
    if inner is None or not all(isinstance(w, int) and 0 <= w <= _MOST for w in table):
        raise why
    level, offset, shift = inner[0].args[0], 0.0, 0.0
    if level.op == "sub" and level.args[1].op == "const":
        level, shift = level.args[0], float(number_of(level.args[1]))
    root = level.op == "sqrt"
    level = level.args[0] if root else level
    if root and level.op == "max" and level.args[0].op == "add" and level.args[0].args[1].op == "const":
        if level.args[1].op != "const" or number_of(level.args[1]) != 0:
            raise why
        level, offset = level.args[0].args[0], float(number_of(level.args[0].args[1]))
    if shift and not root:
        raise why
    if level.op != "mul" or level.args[0].op != "sub":
        raise why
    rate = level.args[1].args[2] if level.args[1].op == "select" else level.args[1]
    if rate.op != "const":
        raise why
    return Codes(float(number_of(rate)), tuple(int(w) for w in table), root, offset, shift)


def _strip_casts(node: Node) -> Node:
    while node.op in ("cast", "assume"):
        node = node.args[0]
    return node
