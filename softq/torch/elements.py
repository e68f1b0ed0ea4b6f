"""Row programs an element at a time: what flex_attention asks, where no whole row of scores is ever held.

Scalars of a row are found in sweeps, some keys at a time; with them the weight of an element follows from its score
alone. Both are the program's own nodes, so nothing is said here of any method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from softq.errors import RefusalError
from softq.methods import METHODS, Options
from softq.rowprog import DType, Kind, Program
from softq.rowprog.phases import is_group, is_reduction, number_passes
from softq.rowprog.program import Node, number_of, param_of, substitute, walk
from softq.torch.rows import RULES, steps_of
from softq.torch.rules import Row

_BOUNDS = {"row_max": "min", "row_min": "max"}
"""What keeps an element within its row's reduction, if its score was computed again with other roundings."""


@dataclass(frozen=True)
class Sweep:
    """Reductions that one pass over the keys finishes.

    Attributes:
        reductions: The nodes.
        operands: What is reduced, as a function of what `Elements.given` says.
        skips: Whether many masked keys are for all of them the same as one.
    """

    reductions: tuple[Node, ...]
    operands: Callable[[Row, Sequence[Tensor]], tuple[Tensor, ...]]
    skips: bool

    def reduce(self, row: Row, given: Sequence[Tensor], before: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the reductions of some more elements, [..., 1] each."""
        found: list[Tensor] = []
        for at, (node, operand) in enumerate(zip(self.reductions, self.operands(row, given), strict=True)):
            part = RULES[node.op](node)(row, operand)
            assert isinstance(part, Tensor)
            if before:
                both = torch.cat([before[at], part], -1)
                part = RULES[node.op](node)(Row(both.shape, row.device, row.real), both)
                assert isinstance(part, Tensor)
            found.append(part)
        return tuple(found)


class Elements:
    """A row program cut into sweeps and what is left for each element.

    Args:
        program: The program, without a mask.

    Attributes:
        name: That of the program.
        params: Names of the run-time parameters.
        sweeps: In order.
        normalized: Whether the weights have to be divided by something else than their sum.

    Raises:
        RefusalError: the program carries a state along the row, or takes maxima over groups.
    """

    def __init__(self, program: Program) -> None:
        weights = program.outputs["weights" if program.is_pair else "probabilities"]
        wanted = {"weights": _as_float(weights, Kind.ROW)}
        normalizer = program.outputs.get("normalizer")
        while normalizer is not None and _guards(normalizer):
            normalizer = normalizer.args[2]
        self.normalized = normalizer is None or not _is_sum(normalizer, weights)
        if self.normalized:
            wanted["total"] = Node("row_sum", (wanted["weights"],), DType.F32, Kind.SCALAR)
            if normalizer is not None:
                wanted["normalizer"] = _as_float(normalizer, Kind.SCALAR)
        wanted = _write_out(wanted)
        whole = replace(program, outputs=wanted)
        if any(node.op == "scan" for node in whole.nodes()):
            raise RefusalError(
                f"{program.name} carries a state from key to key, so that no weight follows from its score alone; "
                "use softq.torch.attention(block=...)"
            )
        if any(is_group(node) for node in whole.nodes()):
            raise RefusalError(
                f"{program.name} takes maxima over groups of keys, so that no weight follows from its score alone; "
                "use softq.torch.attention(block=...)"
            )
        self.name = program.name
        self.params = tuple(param.name for param in program.params)
        numbers = number_passes(whole)
        reductions = [node for node in whole.nodes() if is_reduction(node)]
        holders = {node: Node("input", (), node.dtype, Kind.SCALAR, {"name": "reduction"}) for node in reductions}
        leaves = {str(node.attrs.get("name", node.op)): node for node in program.nodes() if _is_given(node)}
        params = {param_of(node).name: node for node in program.nodes() if node.op == "param"}
        # A program need not look at all of them.
        self._leaves = tuple(leaves)
        given = [*leaves.values(), *(params[name] for name in self.params)]
        known: dict[Node, Node] = {}
        sweeps: list[Sweep] = []
        for number in sorted({numbers[node] for node in reductions}):
            here = tuple(node for node in reductions if numbers[node] == number)
            operands = [substitute({"": node.args[0]}, known, assumptions=False)[""] for node in here]
            skips = "index" not in leaves and all(node.op in _BOUNDS for node in here)
            sweeps.append(Sweep(here, steps_of(operands, given), skips))
            for node, operand in zip(here, operands, strict=True):
                known[node] = holders[node]
                if node.op in _BOUNDS:
                    source = node.args[0]
                    bounded = known.get(source, operand)
                    known[source] = Node(_BOUNDS[node.op], (bounded, holders[node]), source.dtype, source.kind)
            given += [holders[node] for node in here]
        self.sweeps = tuple(sweeps)
        cut = substitute(wanted, known, assumptions=False)
        # Of scalars an element takes those alone that it needs itself: a kernel would compute the others at each.
        scalars = list(dict.fromkeys(_scalars_of(cut["weights"], leaves)))
        self._scalars = steps_of(scalars, given)
        self._weight = steps_of([cut["weights"]], [*given[: len(leaves) + len(self.params)], *scalars])
        self._factor = steps_of([cut[name] for name in ("total", "normalizer") if name in cut], given)

    def given(
        self, scores: Tensor, index: Tensor, length: Tensor, params: Sequence[Tensor], reductions: Sequence[Tensor]
    ) -> list[Tensor]:
        """Return what every step takes, in its order.

        Args:
            scores: f32.
            index: Positions of the keys, i32.
            length: The number of keys, i32.
            params: Run-time parameters in the order of `params`.
            reductions: Those of the sweeps so far; for weights, what `scalars` returns.
        """
        leaves = {"scores": scores, "index": index, "length": length}
        return [*(leaves[name] for name in self._leaves), *params, *reductions]

    def scalars(self, row: Row, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return what the elements of a row take beside their scores, from its reductions."""
        return self._scalars(row, given)

    def weigh(self, row: Row, given: Sequence[Tensor]) -> Tensor:
        """Return the weights of elements as floats."""
        return self._weight(row, given)[0]

    def factor(self, row: Row, given: Sequence[Tensor]) -> Tensor:
        """Return the sum of the weights over their normalizer, [..., 1]."""
        total, *normalizer = self._factor(row, given)
        return total / normalizer[0] if normalizer else total


@lru_cache(maxsize=256)
def elements_of(method: str, options: Options) -> Elements:
    """Return a method's program, cut.

    Raises:
        RefusalError: as in `Elements`.
    """
    return Elements(METHODS.get(method).program(options))


def _write_out(outputs: Mapping[str, Node]) -> dict[str, Node]:
    """Return outputs with exponentials as they are written: only for a gradient they are more than that."""
    known: dict[Node, Node] = {}
    for node in walk(outputs.values()):
        if node.op == "exp_minus":
            known[node] = substitute({"": node.args[1]}, known, assumptions=False)[""]
    return substitute(outputs, known, assumptions=False)


def _is_given(node: Node) -> bool:
    return node.op in ("input", "index", "length")


def _as_float(node: Node, kind: Kind) -> Node:
    return node if node.dtype is DType.F32 and node.kind is kind else Node("cast", (node,), DType.F32, kind)


def _scalars_of(weights: Node, leaves: Mapping[str, Node]) -> Iterator[Node]:
    """Yield the scalars that row values are computed from, but for constants and what is given everywhere."""
    for node in walk([weights]):
        for arg in node.args:
            given = arg.op in ("const", "param") or arg in leaves.values()
            if node.kind is Kind.ROW and arg.kind is Kind.SCALAR and not given:
                yield arg


def _guards(node: Node) -> bool:
    """Say whether a value is NaN under a condition, else another one."""
    if node.op != "select" or node.dtype is not DType.F32 or node.args[1].op != "const":
        return False
    return math.isnan(number_of(node.args[1]))


def _is_sum(normalizer: Node, weights: Node) -> bool:
    """Say whether a normalizer is the sum of the weights, perhaps in another type."""
    total = _widened(normalizer)
    return total.op == "row_sum" and _widened(total.args[0]) is _widened(weights)


def _widened(node: Node) -> Node:
    while node.op == "assume" or (node.op == "cast" and node.args[0].dtype.is_integer):
        node = node.args[0]
    return node
