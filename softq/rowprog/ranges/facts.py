"""What intervals cannot see: relations between two values, found by the shape of their expressions.

* a row's maximum is no less than its elements, and so is that of a group of them;
* a sum of non-negative elements is no less than each of them, so an element's share of it is at most 1;
* the remainder of a division is less than the divisor, and the product taken away no more than the dividend;
* what is shifted to the right, and not negative, is no less than what is left of it;
* floor(c / b) times a number from 0 to b is at most c: an element's share of a whole, by one division per row;
* the state of a scan that never falls is at last no less than what it was at each element;
* a sum of w 2^p, shifted to the right by as much as the greatest p, is at most the sum of w;
* an element that attains the maximum is at distance 0 from it (used by `softq.rowprog.ranges.analysis`, which knows
  when there is such an element).

Each is stated for numbers: "if both are numbers, then a >= b". A NaN in a float row makes its maximum unspecified, so
the first fact asks for a row without NaN.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from softq.rowprog.program import Node, body_of, result_of
from softq.rowprog.ranges import integers
from softq.rowprog.ranges.bounds import Bounds
from softq.rowprog.ranges.interval import Interval
from softq.rowprog.types import Kind

_DEPTH = 12
_NONDECREASING_IN_FIRST = ("add", "sub", "shr", "shl")


class Facts:
    """Relations between nodes whose intervals are known.

    Args:
        intervals: What is known so far; read only, grows while the analysis walks.
        contract: Whether a product may be fused with the addition or subtraction that follows.
        length: Elements of the longest row; of an empty row, the maximum is below the minimum.
    """

    def __init__(self, intervals: Mapping[Node, Interval], contract: bool, length: int) -> None:
        self._intervals = intervals
        self._contract = contract
        self._length = length
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
        if a.op == "group_max" and self._at_least(a.args[0], b, depth) and not self._nan(a.args[0]):
            return True
        if self._length > 0 and (self._of_reductions(a, b, depth) or self._of_scan(a, b, depth)):
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
        # Either is one of its last two operands, NaN or not.
        if b.op in ("select", "max") and all(self._at_least(a, choice, depth) for choice in b.args[-2:]):
            return True
        if a.op in ("select", "min") and all(self._at_least(choice, b, depth) for choice in a.args[-2:]):
            return True
        if b.op == "shr" and b.args[0] in known and known[b.args[0]].low >= 0 and self._at_least(a, b.args[0], depth):
            return True
        return self._same_step(a, b, depth)

    def _of_reductions(self, a: Node, b: Node, depth: int) -> bool:
        """Say whether a reduction on either side is related to each element of its row, and so to the other side."""
        # Where b is a row too, the same element of both rows is meant; the maximum is over all of the left.
        if a.op == "row_max" and self._at_least(a.args[0], b, depth) and not self._nan(a.args[0]):
            return True
        if b.op == "row_min" and self._at_least(a, b.args[0], depth) and not self._nan(b.args[0]):
            return True
        if a.op == "row_sum" and a.dtype.is_integer and self._at_least(a.args[0], b, depth):
            summand = self._intervals.get(a.args[0])
            return summand is not None and summand.low >= 0
        return False

    def _of_scan(self, a: Node, b: Node, depth: int) -> bool:
        """Say whether `a` is the last state of a scan, which never falls, and `b` at each element no more than that."""
        if a.op != "scan" or b.op != "scan" or body_of(a) is not body_of(b) or b.kind is not Kind.ROW:
            return False
        body, at = body_of(a), result_of(a)
        if a.kind is Kind.ROW or a.dtype.is_float:
            return False
        output = body.outputs[result_of(b) - len(body.states)]
        return self._at_least(body.next[at], body.states[at], depth) and self._at_least(body.next[at], output, depth)

    def _same_step(self, a: Node, b: Node, depth: int) -> bool:
        """Say whether one nondecreasing function was applied to p and q with p >= q."""
        if a.op != b.op or not a.args or self.fusible(a) or self.fusible(b):
            return False
        if a.op in ("cast", "rint", "round_to") and a.attrs.get("format") == b.attrs.get("format"):
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

    def narrow(self, node: Node, found: Bounds) -> Bounds:
        """Return what an operator gives, without what facts rule out."""
        low, high = found.low, found.high
        # np.maximum and np.minimum keep a NaN, which stands for a float without numbers.
        whole = self._product_at_most(node) or self._share_at_most(node)
        if whole is not None:
            high = np.minimum(high, integers.exact(self._intervals[whole].high))
        share = self._quotient_at_most(node) if node.op == "divide" else self._sum_at_most(node)
        if share is not None:
            high = np.minimum(high, integers.exact(share))
        if node.op == "sub":
            a, b = node.args
            zero = np.float32(0) if node.dtype.is_float else 0
            if self.at_least(a, b):
                low = np.maximum(low, zero)
            if self.at_least(b, a):
                high = np.minimum(high, zero)
            below = self._remainder_below(node)
            if below is not None:
                low, high = np.maximum(low, 0), np.minimum(high, integers.exact(below - 1))
        return found if low is found.low and high is found.high else Bounds(low, high, found.nan)

    def _product_at_most(self, node: Node) -> Node | None:
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

    def _share_at_most(self, node: Node) -> Node | None:
        """Return c if the node is divide(c, b) * x of integers with 0 <= x <= b, which is at most c."""
        if node.op != "mul" or not node.dtype.is_integer:
            return None
        for quotient, x in (node.args, node.args[::-1]):
            if quotient.op == "divide" and self._intervals[x].low >= 0 and self.at_least(quotient.args[1], x):
                return quotient.args[0]
        return None

    def _quotient_at_most(self, node: Node) -> int | None:
        """Return m if the node is divide(x * m, b) of integers (or divide(x << k, b), divide(x, b)) and b >= x."""
        if not node.dtype.is_integer:
            return None
        scaled, divisor = node.args
        if self.at_least(divisor, scaled):
            return 1
        if scaled.op == "shl" and self.at_least(divisor, scaled.args[0]):
            return 1 << int(self._intervals[scaled.args[1]].high)
        if scaled.op == "mul":
            for x, factor in (scaled.args, scaled.args[::-1]):
                if self.at_least(divisor, x) and self._intervals[x].low >= 0:
                    return int(self._intervals[factor].high)
        return None

    def _sum_at_most(self, node: Node) -> int | None:
        """Return the greatest sum of w if the node is row_sum(w << p) >> q of integers with w >= 0 and q >= p."""
        if self._length == 0 or node.op != "shr" or node.args[0].op != "row_sum" or node.args[0].args[0].op != "shl":
            return None
        summand, by = node.args[0].args[0].args
        if self._intervals[summand].low < 0 or not self.at_least(node.args[1], by):
            return None
        return int(self._intervals[summand].high) * self._length

    def _remainder_below(self, node: Node) -> int | None:
        """Return m if the node is x - divide(x, b) * b or x - ((x >> k) << k), which is in [0, m - 1]."""
        whole, taken = node.args
        if self._product_at_most(taken) is not whole:
            return None
        if taken.op == "shl":
            return 1 << int(self._intervals[taken.args[1]].high)
        return max(int(self._intervals[arg].high) for arg in taken.args if not _is_quotient(arg, whole, taken))


def _is_quotient(arg: Node, whole: Node, taken: Node) -> bool:
    return arg.op == "divide" and arg.args[0] is whole and any(arg.args[1] is other for other in taken.args)
