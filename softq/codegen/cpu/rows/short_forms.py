"""Equal programs whose numbers need fewer bits, for processors that compute each in the words that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from softq.rowprog.program import Node, Program, number_of
from softq.rowprog.ranges import Interval, intervals_in_parts, prove
from softq.rowprog.types import Kind

Intervals = Mapping[Node, Interval]


def shorten(program: Program, max_length: int) -> Program:
    """Return a program with the same results for rows of 0 to `max_length` elements.

    * Of the row's numbers, a select or an extreme that always gives the same operand becomes that operand, and a clamp
      that never acts what it says of its operand.
    * A shift that rounds, (x + (1 << (r - 1))) >> r, becomes ((x >> (r - 1)) + 1) >> 1: floor((x + h) / 2h) is
      floor((floor(x / h) + 1) / 2), and what is added has one bit where it had r.

    A program with a scan is returned as it is.

    Raises:
        ProofError: the program has no complete proof.
    """
    if any(node.op == "scan" for node in program.nodes()):
        return program  # Steps of scans name numbers of the row, which have to stay the same nodes.
    intervals = intervals_in_parts(program, prove(program, max_length=max_length))
    made: dict[Node, Node] = {}
    for node in program.nodes():
        args = tuple(made[arg] for arg in node.args)
        same = all(new is old for new, old in zip(args, node.args, strict=True))
        over = node if same else replace(node, args=args)
        made[node] = (
            _idle_clamp(node, intervals, made) or _decided(node, intervals, made) or _rounding_shift(over) or over
        )
    return replace(program, outputs={name: made[node] for name, node in program.outputs.items()})


def least_maximums(program: Program) -> Mapping[Node, float]:
    """Return the maximums of floats that are used for nothing but max(maximum, a constant), with that constant.

    A maximum that begins with the constant is that already: no NaN becomes one of a row.
    """
    users: dict[Node, set[Node]] = {}
    for node in program.nodes():
        for arg in node.args:
            users.setdefault(arg, set()).add(node)
    found: dict[Node, float] = {}
    for node, of in users.items():
        (user, *others) = of
        is_maximum = node.op == "row_max" and node.dtype.is_float and node not in program.outputs.values()
        if is_maximum and not others and user.op == "max" and user.args[0] is node and user.args[1].op == "const":
            found[node] = number_of(user.args[1])
    return found


def _idle_clamp(node: Node, intervals: Intervals, made: Mapping[Node, Node]) -> Node | None:
    """Return min(max(x, low), high) as an assumption of what is made of x; None if it is none or acts."""
    if node.op != "min" or node.args[0].op != "max" or not _is_number(node):
        return None
    (x, low), high = node.args[0].args, node.args[1]
    if low.op != "const" or high.op != "const":
        return None
    least, most = int(number_of(low)), int(number_of(high))
    if not least <= intervals[x].low <= intervals[x].high <= most:
        return None
    attrs = {"low": least, "high": most, "because": "no clamp acts on it"}
    return Node("assume", (made[x],), node.dtype, node.kind, attrs)


def _decided(node: Node, intervals: Intervals, made: Mapping[Node, Node]) -> Node | None:
    """Return what is made of the operand that a select or an extreme always gives; None if there is none."""
    if node.op == "select" and node.kind is Kind.SCALAR:
        condition = intervals[node.args[0]]
        return made[node.args[1 if condition.low else 2]] if condition.low == condition.high else None
    if node.op not in ("min", "max") or not _is_number(node):
        return None
    for lesser, greater in (node.args, node.args[::-1]):
        if intervals[lesser].high <= intervals[greater].low:
            return made[lesser if node.op == "min" else greater]
    return None


def _is_number(node: Node) -> bool:
    return node.kind is Kind.SCALAR and node.dtype.is_integer


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
