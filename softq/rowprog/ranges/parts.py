"""Intervals of the numbers that a mantissa is put through, from the parts of its own interval.

A reciprocal by Newton's method, x + x (1 - m x), stays within the ends of its steps for every m; the interval of its
sum does not, since it takes the two x and the m for independent. Over a part of m's interval they nearly are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from softq.rowprog.program import Node, Program
from softq.rowprog.ranges.bounds import Bounds, constant, packed
from softq.rowprog.ranges.interval import Interval
from softq.rowprog.ranges.proof import Proof
from softq.rowprog.ranges.rules import RULES
from softq.rowprog.types import Kind

_PARTS = 256
_FOLLOWED = frozenset(("add", "sub", "mul", "shl", "shr", "min", "max", "cast"))


def intervals_in_parts(program: Program, proof: Proof) -> Mapping[Node, Interval]:
    """Return the intervals of a program's values, narrower ones where they are numbers of one mantissa.

    Args:
        program: A program with one mantissa; with none or several, whose parts would have to be paired, the intervals
            are the proof's.
        proof: Its proof.
    """
    nodes = program.nodes()
    mantissas = [node for node in nodes if node.op == "normalize" and node.attrs["part"] == "mantissa"]
    if len(mantissas) != 1:
        return proof.intervals
    found = {mantissas[0]: _split(proof.intervals[mantissas[0]])}
    for node in nodes:
        is_number = node.kind is Kind.SCALAR and node.dtype.is_integer and node.op in _FOLLOWED
        if is_number and any(arg in found for arg in node.args):
            args = [found[arg] if arg in found else _whole(arg, proof) for arg in node.args]
            found[node] = RULES[node.op](node, args)
    return {**proof.intervals, **{node: bounds.interval for node, bounds in found.items()}}


def _split(interval: Interval) -> Bounds:
    low, count = int(interval.low), int(interval.high) - int(interval.low) + 1
    parts = min(_PARTS, count)
    ends = [low + count * i // parts for i in range(parts + 1)]
    first, last = (packed(np.array([values], np.object_)) for values in (ends[:-1], [end - 1 for end in ends[1:]]))
    return Bounds(first, last)


def _whole(node: Node, proof: Proof) -> Bounds:
    interval = proof.intervals[node]
    return constant(interval.low, interval.high, node.dtype)
