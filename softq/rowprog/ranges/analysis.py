"""The walk that finds the interval of every value of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from softq.errors import ProofError
from softq.rowprog.ops import OPS, names_of
from softq.rowprog.program import Node, Program, ScanBody, body_of, result_of, walk
from softq.rowprog.ranges import floats, refine
from softq.rowprog.ranges.bounds import Bounds, along_row, constant, greatest, least
from softq.rowprog.ranges.cells import Domain
from softq.rowprog.ranges.facts import Facts
from softq.rowprog.ranges.interval import Interval, UnprovedError, require
from softq.rowprog.ranges.rules import REDUCTIONS, RULES, demand_of_operands, demand_of_result
from softq.rowprog.text import node_to_text
from softq.rowprog.types import DType, Kind

Get = Callable[[Node], Bounds]


class Analysis:
    """The analysis of one program; what does not depend on the row's length is computed once.

    Rows of 1 to N elements are analysed together, and the empty row apart: it has no elements, only scalars, and what
    holds of a sum that has at least one element does not hold of its 0.
    """

    def __init__(self, program: Program, domain: Domain) -> None:
        self._program = program
        self._domain = domain
        nodes = program.nodes()
        long = set(_find_lengthened(nodes))
        self._short = [node for node in nodes if node not in long]
        self._long = [node for node in nodes if node in long]

    def intervals(self, length: int) -> tuple[dict[Node, Interval], dict[Node, Interval]]:
        """Return the interval of every value for rows of 0 to `length` elements, and for those that are not empty.

        Raises:
            ProofError: a demand of an operator does not hold.
        """
        with np.errstate(all="ignore"):
            empty = _Empty(self._program, self._domain)
            empty.sweep(self._program.nodes(), ())
            if length == 0:
                return empty.intervals, {}
            full = self._common.extend(length)
            full.sweep(self._long, ())
        filled = full.intervals
        return {node: _join(interval, empty.intervals.get(node)) for node, interval in filled.items()}, filled

    @cached_property
    def _common(self) -> _Walk:
        common = _Walk(self._program, self._domain, 1)
        common.sweep(self._short, self._long)
        return common


OF_THE_WALK = ("input", "index", "length", "select", "scan")
"""Operators without a rule in a table: they depend on the input, on a condition, or on a step."""

_LENGTHENED = names_of("reduction", "loop") - {"row_max", "row_min"} | {"index", "length"}
"""Operators whose interval may grow with the row."""

_OF_NEIGHBOURS = names_of("loop", "group")
"""Operators that give an element more than follows from its own operands."""


def _find_lengthened(nodes: Iterable[Node]) -> Iterator[Node]:
    long: set[Node] = set()
    for node in nodes:
        inner = tuple(walk((*body_of(node).next, *body_of(node).outputs))) if node.op == "scan" else ()
        if any(n in long or n.op in _LENGTHENED for n in (node, *node.args, *inner)):
            long.add(node)
            yield node


def _join(a: Interval, b: Interval | None) -> Interval:
    return a if b is None else Interval(min(a.low, b.low), max(a.high, b.high), a.nan or b.nan)


def _list_reads(node: Node, contract: bool) -> Iterator[Node]:
    """Yield every node whose bounds are asked for when this one is computed."""
    yield from node.args
    if node.op == "select":
        yield from refine.reads(node)
    if contract and node.op in ("add", "sub"):
        yield from (factor for arg in node.args if arg.op == "mul" for factor in arg.args)


class _Walk:
    """One pass over the nodes, for rows of 1 to `length` elements."""

    def __init__(self, program: Program, domain: Domain, length: int) -> None:
        self._program = program
        self._domain = domain
        self._length = length
        self.intervals: dict[Node, Interval] = {}
        self._bounds: dict[Node, Bounds] = {}
        self._facts = Facts(self.intervals, program.contract, length)
        self._scans: dict[ScanBody, list[Bounds]] = {}

    def extend(self, length: int) -> _Walk:
        """Return a walk for another length that goes on from here."""
        other = _Walk(self._program, self._domain, length)
        other.intervals.update(self.intervals)
        other._bounds.update(self._bounds)
        other._scans.update(self._scans)
        return other

    def sweep(self, nodes: Iterable[Node], later: Iterable[Node]) -> None:
        """Compute the nodes in order; of many cells, keep only those that `later` ones ask for."""
        order = list(nodes)
        contract = self._program.contract
        left = Counter(read for node in (*order, *later) for read in _list_reads(node, contract))
        for node in order:
            self._set(node, self._prove(node))
            for read in _list_reads(node, contract):
                left[read] -= 1
                if not left[read] and self._domain.key is not None:
                    self._bounds.pop(read, None)

    def _set(self, node: Node, bounds: Bounds) -> None:
        self._bounds[node] = bounds
        self.intervals[node] = bounds.interval

    def _prove(self, node: Node) -> Bounds:
        try:
            return self._compute(node)
        except UnprovedError as unproved:
            rows = f"for rows of up to {self._length} elements" if self._length else "for the empty row"
            raise ProofError(
                f"program {self._program.name} {self._program.structure}".rstrip()
                + f": {node.op}: {unproved}, {rows}; in {node_to_text(self._program, node)}"
            ) from None

    def _compute(self, node: Node) -> Bounds:
        if node.op == "input":
            bounds = self._domain.scores if node.attrs["name"] == "scores" else self._domain.valid
            assert bounds is not None, node.attrs
            return bounds
        if node.op == "index":
            return constant(0, self._length - 1, DType.I32)
        if node.op == "length":
            return constant(min(self._length, 1), self._length, DType.I32)
        if node.op == "scan":
            return self._scan(node)
        return self._reduce(node) if node.op in REDUCTIONS else self._elementwise(node, self._bounds.__getitem__, None)

    # Elementwise operators

    def _elementwise(self, node: Node, get: Get, at_maximum: tuple[Node, Node] | None) -> Bounds:
        """Compute a node; `at_maximum` names two nodes that are equal at the element in question."""
        if node.op == "select":
            return refine.choose(node, get)
        args = [get(arg) for arg in node.args]
        demand_of_operands(node, args)
        result = RULES[node.op](node, args)
        if node.op in ("add", "sub") and self._facts.fusible(node):
            every = [result, *self._fuse(node, get)]
            return Bounds(least([b.low for b in every]), greatest([b.high for b in every]), result.nan)
        result = self._facts.narrow(node, result)
        if at_maximum is not None and node.op == "sub" and set(node.args) == set(at_maximum):
            # A NaN, which stands for a float without numbers, stays.
            none = np.multiply(np.minimum(np.abs(result.low), 1), 0).astype(result.low.dtype)
            result = Bounds(none, none, result.nan)
        return demand_of_result(node, result)

    def _fuse(self, node: Node, get: Get) -> list[Bounds]:
        results: list[Bounds] = []
        for product, other in (node.args, node.args[::-1]):
            if product.op != "mul":
                continue
            a, b, c = get(product.args[0]), get(product.args[1]), get(other)
            if node.op == "sub":
                # x - a * b = (-a) * b + x, and a * b - x = a * b + (-x)
                a, c = (floats.negative(a), c) if product is node.args[1] else (a, floats.negative(c))
            results.append(floats.fused(a, b, c))
        return results

    # Reductions

    def _reduce(self, node: Node) -> Bounds:
        if node is self._domain.key:
            assert self._domain.maxima is not None
            return self._domain.maxima
        row = node.args[0]
        return REDUCTIONS[node.op](node, along_row(self._bounds[row]), self._find_present(row), self._length)

    def _find_present(self, row: Node) -> Bounds:
        """Return what holds the value of at least one element of a row that is not empty."""
        if self._domain.attains is None:
            return self._find_at_maximum(row)
        bounds, attains = self._bounds[row], self._domain.attains
        if bounds.low.shape[-1] == 1:
            return bounds
        none = np.float32(np.nan) if row.dtype.is_float else None
        low = np.where(attains, bounds.low, np.max(bounds.low) if none is None else none)
        high = np.where(attains, bounds.high, np.min(bounds.high) if none is None else none)
        return along_row(Bounds(low, high, np.logical_and(attains, bounds.nan)))

    def _find_at_maximum(self, row: Node) -> Bounds:
        """Return the bounds of a row at an element where some row y of it attains row_max(y).

        Such an element exists in a row that is not empty and holds no NaN, whatever the mask: a mask is part of y, and
        of the bounds found here.
        """
        best = self._bounds[row]
        for maximum in walk([row]):
            if maximum.op != "row_max" or self.intervals[maximum.args[0]].nan:
                continue
            found: dict[Node, Bounds] = {maximum.args[0]: self._bounds[maximum]}
            for node in walk([row]):
                if (
                    node in found
                    or node.kind is not Kind.ROW
                    or node.op in _OF_NEIGHBOURS
                    or not any(a in found for a in node.args)
                ):
                    continue
                # The demands were proved for all elements already: these are some of them.
                found[node] = self._elementwise(
                    node, lambda n, found=found: found.get(n, self._bounds[n]), (maximum, maximum.args[0])
                )
            here = found.get(row, best)
            if np.all(np.greater(here.low, best.low)):
                best = here
        return best

    # Loops

    def _scan(self, node: Node) -> Bounds:
        body = body_of(node)
        if body not in self._scans:
            self._scans[body] = self._loop(node, body)
        return self._scans[body][result_of(node)]

    def _loop(self, node: Node, body: ScanBody) -> list[Bounds]:
        count = len(body.states)
        for i, (init, (low, high)) in enumerate(zip(node.args, body.invariants, strict=False)):
            require(f"state {i} before the loop", self.intervals[init], low, high)
        outer = set(self._bounds)
        elements = [self._bounds[row] for row in node.args[count : count + len(body.elements)]]
        states = [
            constant(low, high, state.dtype) for state, (low, high) in zip(body.states, body.invariants, strict=True)
        ]
        for holder, bounds in zip((*body.states, *body.elements), (*states, *elements), strict=True):
            self._set(holder, bounds)
        for init, holder, after in zip(node.args, body.states, body.next, strict=False):
            self._bound_sum(init, holder, after)
        self._enter(body.next, body.outputs)
        for i, (after, (low, high)) in enumerate(zip(body.next, body.invariants, strict=True)):
            require(f"state {i} after a step", self.intervals[after], low, high)
        results = [along_row(self._bounds[n]) for n in body.next] + [self._bounds[n] for n in body.outputs]
        for inner in [n for n in self._bounds if n not in outer]:
            del self._bounds[inner]
        return results

    def _enter(self, *roots: Sequence[Node]) -> None:
        for inner in walk(root for some in roots for root in some):
            if inner not in self._bounds:
                self._set(inner, self._prove(inner))

    def _bound_sum(self, init: Node, state: Node, after: Node) -> None:
        """Narrow a state to which each step adds no more than some number, and which nothing else raises."""
        if after.op != "add" or not state.dtype.is_integer:
            return
        for kept, added in (after.args, after.args[::-1]):
            # What is added may not depend on the state: its bounds are those of any step.
            if state in walk([added]) or state not in walk([kept]):
                continue
            self._enter([added], [node for node in walk([kept]) if node.op == "const"])
            if not self._facts.at_least(state, kept):
                continue
            most = max(self.intervals[added].high, 0) * (self._length - 1) + self.intervals[init].high
            low, high = self.intervals[state].low, self.intervals[state].high
            self._set(state, constant(low, max(low, min(high, most)), state.dtype))


class _Empty(_Walk):
    """The pass for a row of no elements: its scalars."""

    def __init__(self, program: Program, domain: Domain) -> None:
        super().__init__(program, Domain(domain.scores, domain.valid), 0)

    def sweep(self, nodes: Iterable[Node], later: Iterable[Node]) -> None:
        super().sweep((node for node in nodes if node.kind is not Kind.ROW), later)

    def _reduce(self, node: Node) -> Bounds:
        value = OPS[node.op].of_empty_row(node.dtype)
        return constant(value, value, node.dtype)

    def _scan(self, node: Node) -> Bounds:
        position = result_of(node)
        low, high = body_of(node).invariants[position]
        require(f"state {position} before the loop", self.intervals[node.args[position]], low, high)
        return self._bounds[node.args[position]]
