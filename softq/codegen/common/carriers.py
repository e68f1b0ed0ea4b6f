"""The types that a pass over the row computes in.

All integers of a pass are carried in one width, the narrowest that holds every proven interval in it, so that all its
vectors have the same number of lanes: no widening and narrowing between operators, only at loads and stores. Legal
because range analysis has proved that nothing wraps. Rows are computed only where they have elements, so that the
intervals of filled rows decide.
"""

from __future__ import annotations

from collections.abc import Iterable

from softq.rowprog.ops import OPS
from softq.rowprog.program import Node
from softq.rowprog.ranges import Interval, Proof
from softq.rowprog.types import Kind

_WORD = 32
_WIDTHS = (8, 16, 32, 64)


def width(rows: Iterable[Node], reductions: Iterable[Node], proof: Proof) -> int:
    """Return the width in bits of a pass's lanes."""
    needed = [8]
    for node in (*rows, *reductions):
        values = [node] if OPS[node.op].modular else [node, *(a for a in node.args if a.kind is not Kind.TABLE)]
        if limit(node, proof) is not None:
            values = [node, node.args[0]]
        positions = node.op == "lut" or any(v.op == "index" for v in values)
        if positions or any(v.dtype.is_float for v in values):
            needed.append(_WORD)
        integers = [v for v in values if v.dtype.is_integer]
        needed += [_bits(*_interval(proof, [v])) for v in integers]
        if OPS[node.op].has_common_type and not OPS[node.op].modular and integers:
            needed.append(_bits(*common(node, proof)))
    return next(w for w in _WIDTHS if w >= max(needed))


def common(node: Node, proof: Proof) -> tuple[int, int]:
    """Return the interval that holds the result and the operands of an operator with operands of one type."""
    bound = limit(node, proof)
    if bound is not None:
        return interval(node.args[0], proof)[0], bound
    return _interval(proof, [v for v in (node, *node.args) if v.dtype.is_integer])


def limit(node: Node, proof: Proof) -> int | None:
    """Return the number that a wider one stands for where elements are compared with it: it is above all of them."""
    if node.op not in ("lt", "le") or [arg.kind for arg in node.args] != [Kind.ROW, Kind.SCALAR]:
        return None
    if not all(arg.dtype.is_integer for arg in node.args):
        return None
    (low, high), (least, most) = (interval(arg, proof) for arg in node.args)
    bound = high + (node.op == "lt")
    return bound if low <= least and bound < most else None


def carrier(low: int, high: int, bits: int) -> str:
    """Return the integer type of this width that holds an interval: a signed one if it can be."""
    return f"int{bits}" if _signed_bits(low, high) <= bits else f"uint{bits}"


def word(low: int, high: int) -> str:
    """Return the integer type of 32 bits that holds an interval, or that of 64 if none does."""
    return carrier(low, high, next(w for w in (32, 64) if w >= _bits(low, high)))


def interval(node: Node, proof: Proof) -> tuple[int, int]:
    """Return what an integer value of a filled row lies in."""
    return _interval(proof, [node])


def filled_interval(nodes: Iterable[Node], proof: Proof) -> tuple[int, int]:
    """Return what the integer values among some of a filled row lie in."""
    return _interval(proof, [node for node in nodes if node.dtype.is_integer])


def whole_interval(nodes: Iterable[Node], proof: Proof) -> tuple[int, int]:
    """Return what the integer values among some lie in, in rows without elements too."""
    return _hull(proof.intervals[node] for node in nodes if node.dtype.is_integer)


def bits(node: Node, proof: Proof) -> int:
    """Return the bits that hold an integer value of a filled row, 32 for a float."""
    return _bits(*interval(node, proof)) if node.dtype.is_integer else _WORD


def _interval(proof: Proof, nodes: Iterable[Node]) -> tuple[int, int]:
    return _hull(proof.filled[node] for node in nodes)


def _hull(intervals: Iterable[Interval]) -> tuple[int, int]:
    # An interval without numbers (low above high) belongs to a value that no row has.
    found = [i for i in intervals if i.low <= i.high]
    return (int(min((i.low for i in found), default=0)), int(max((i.high for i in found), default=0)))


def _signed_bits(low: int, high: int) -> int:
    return max((~low).bit_length() if low < 0 else 0, max(high, 0).bit_length()) + 1


def _bits(low: int, high: int) -> int:
    """Return the bits that hold an interval, signed if it has negative numbers."""
    return _signed_bits(low, high) if low < 0 else max(high.bit_length(), 1)
