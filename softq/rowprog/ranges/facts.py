"""What intervals cannot see: relations between two values, found by the shape of their expressions.

* a row's maximum is no less than its elements;
* the remainder of a division is less than the divisor, and the product taken away no more than the dividend;
* an element that attains the maximum is at distance 0 from it (used by `softq.rowprog.ranges.analysis`, which knows
  when there is such an element).

Each is stated for numbers: "if both are numbers, then a >= b". A NaN in a float row makes its maximum unspecified, so
the first fact asks for a row without NaN.
"""

from __future__ import annotations

from collections.abc import Mapping

from softq.rowprog.program import Node
from softq.rowprog.ranges.interval import Interval

_DEPTH = 12
_NONDECREASING_IN_FIRST = ("add", "sub", "shr", "shl")


class Facts:
    """Relations between nodes whose intervals are known.

    Args:
        intervals: What is known so far; read only, grows while the analysis walks.
        contract: Whether a product may be fused with the addition or subtraction that follows.
    """

    def __init__(self, intervals: Mapping[Node, Interval], contract: bool) -> None:
        self._intervals = intervals
        self._contract = contract
        self._known: dict[tuple[Node, Node], bool] = {}

    def fusible(self, node: Node) -> bool:
        """Say whether this sum or difference may take an unrounded product: then it relates to no rounded value."""
        return self._contract and node.dtype.is_float and any(arg.op == "mul" for arg in node.args)

    def at_least(self, a: Node, b: Node) -> bool:
        """Say whether a >= b wherever both are numbers."""
        return self._at_least(a, b, _DEPTH)

    def _at_least(self, a: Node, b: Node, depth: int) -> bool:
        if a is b:
            return True
        if a.dtype is not b.dtype or depth == 0:
            return False
        if (a, b) not in self._known:
            self._known[a, b] = self._find(a, b, depth - 1)
        return self._known[a, b]

    def _find(self, a: Node, b: Node, depth: int) -> bool:
        known = self._intervals
        if a in known and b in known and known[a].low >= known[b].high:
            return True
        if a.op == "row_max" and self._at_least(a.args[0], b, depth) and not self._nan(a.args[0]):
            # The same element of both rows is meant on the right; the maximum is over all of the left.
            return True
        if b.op == "row_min" and self._at_least(a, b.args[0], depth) and not self._nan(b.args[0]):
            return True
        # max(p, q) = select(q < p, p, q) is q where p is NaN, and never below q otherwise.
        if a.op == "max":
            p, q = a.args
            if self._at_least(q, b, depth) or (self._at_least(p, b, depth) and not self._nan(p)):
                return True
        if b.op == "min":
            p, q = b.args
            if self._at_least(a, q, depth) or (self._at_least(a, p, depth) and not self._nan(p)):
                return True
        if b.op == "select" and all(self._at_least(a, branch, depth) for branch in b.args[1:]):
            return True
        if a.op == "select" and all(self._at_least(branch, b, depth) for branch in a.args[1:]):
            return True
        return self._same_step(a, b, depth)

    def _same_step(self, a: Node, b: Node, depth: int) -> bool:
        """Say whether one nondecreasing function was applied to p and q with p >= q."""
        if a.op != b.op or not a.args or self.fusible(a) or self.fusible(b):
            return False
        if a.op in ("cast", "rint"):
            return a.args[0].dtype is b.args[0].dtype and self._at_least(a.args[0], b.args[0], depth)
        if a.op in _NONDECREASING_IN_FIRST and a.args[1] is b.args[1]:
            return self._at_least(a.args[0], b.args[0], depth)
        if a.op in ("mul", "divide") and a.args[1] is b.args[1]:
            factor = self._intervals.get(a.args[1])
            positive = factor is not None and (factor.low > 0 or (factor.low >= 0 and a.op == "mul"))
            return positive and self._at_least(a.args[0], b.args[0], depth)
        return False

    def _nan(self, node: Node) -> bool:
        known = self._intervals.get(node)
        return known is None or known.nan

    def product_at_most(self, node: Node) -> Node | None:
        """Return x if the node is divide(x, b) * b or (x >> k) << k, which is at most x."""
        if not node.dtype.is_integer:
            return None
        if node.op == "mul":
            for quotient, divisor in (node.args, node.args[::-1]):
                if quotient.op == "divide" and quotient.args[1] is divisor:
                    return quotient.args[0]
        if node.op == "shl" and node.args[0].op == "shr" and node.args[0].args[1] is node.args[1]:
            return node.args[0].args[0]
        return None

    def remainder_below(self, node: Node) -> int | None:
        """Return m if the node is x - divide(x, b) * b or x - ((x >> k) << k), which is in [0, m - 1]."""
        whole, taken = node.args
        if self.product_at_most(taken) is not whole:
            return None
        if taken.op == "shl":
            return 1 << int(self._intervals[taken.args[1]].high)
        return max(int(self._intervals[arg].high) for arg in taken.args if not _is_quotient(arg, whole, taken))


def _is_quotient(arg: Node, whole: Node, taken: Node) -> bool:
    return arg.op == "divide" and arg.args[0] is whole and any(arg.args[1] is other for other in taken.args)
