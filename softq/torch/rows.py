"""Row programs in PyTorch: a walker whose result is a function of tensors.

The program is walked once. What is left is a list of calls of torch with numbers for operands, which eager mode runs,
torch.compile traces without a break, and autograd follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from softq.errors import RefusalError, UsageError
from softq.rowprog import Kind, Program
from softq.rowprog.library import EXP_LIMIT
from softq.rowprog.ops import Rules
from softq.rowprog.program import Node, body_of, param_of, result_of, walk
from softq.torch.rules import CARRIERS, OF_VALUES, ExpMinus, Row, Rule, operands


def _scan(node: Node) -> Callable[..., tuple[Tensor, ...]]:
    """Return what carries the states along the row, an element at a time for all rows together: all its results."""
    body = body_of(node)
    states, held = len(body.states), len(body.states) + len(body.elements)
    step = _Steps((*body.next, *body.outputs), (*body.states, *body.elements, *node.args[held:]))

    def scan(row: Row, *args: Tensor) -> tuple[Tensor, ...]:
        carried = tuple(x.expand(row.scalar) for x in args[:states])
        rows = [x.expand(row.shape) for x in args[states:held]]
        columns: list[tuple[Tensor, ...]] = []
        for at in range(row.shape[-1]):
            found = step(row, (*carried, *(x[..., at : at + 1] for x in rows), *args[held:]))
            carried, column = found[:states], found[states:]
            carried = tuple(x.expand(row.scalar) for x in carried)
            columns.append(tuple(x.expand(row.scalar) for x in column))
        if not columns:
            return (*carried, *(torch.empty(row.shape, dtype=row.dtype(n), device=row.device) for n in body.outputs))
        return (*carried, *(torch.cat(column, -1) for column in zip(*columns, strict=True)))

    return scan


def _exp_minus(node: Node) -> Callable[..., Tensor]:
    steps = _Steps((node.args[1],), (node.args[0],))

    def exp_minus(row: Row, d: Tensor) -> Tensor:
        if row.real is not torch.float32:
            return torch.where(d <= EXP_LIMIT, torch.exp(-torch.clamp(d, max=EXP_LIMIT)), 0.0)
        return ExpMinus.apply(d, lambda x: steps(row, (x,))[0])

    return exp_minus


RULES: Rules[Rule] = Rules("PyTorch", {**OF_VALUES, "scan": _scan, "exp_minus": _exp_minus})


class _Steps:
    """The calls that compute some nodes from given ones, in order, with the positions of what they take."""

    def __init__(self, wanted: Sequence[Node], given: Sequence[Node]) -> None:
        places = {node: at for at, node in enumerate(given)}
        loops: dict[int, int] = {}
        self._calls: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
        for node in walk(wanted, given, operands):
            taken = tuple(places[arg] for arg in operands(node))
            if node.op == "scan":
                loop = loops.get(id(body_of(node)))
                if loop is None:
                    loop = loops[id(body_of(node))] = self._add(len(given), RULES["scan"](node), taken)
                places[node] = self._add(len(given), _pick(result_of(node)), (loop,))
            else:
                places[node] = self._add(len(given), RULES[node.op](node), taken)
        self._wanted = tuple(places[node] for node in wanted)
        # Of a long row every value is large: each goes after its last use.
        last = {at: number for number, (_, taken) in enumerate(self._calls) for at in taken}
        last |= {at: len(self._calls) for at in self._wanted}
        self._done = [tuple(at for at, use in last.items() if use == number) for number in range(len(self._calls))]

    def _add(self, given: int, call: Callable[..., Any], taken: tuple[int, ...]) -> int:
        self._calls.append((call, taken))
        return given + len(self._calls) - 1

    def __call__(self, row: Row, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        values: list[Any] = list(given)
        for (call, taken), done in zip(self._calls, self._done, strict=True):
            values.append(call(row, *(values[at] for at in taken)))
            for at in done:
                values[at] = None
        return tuple(values[at] for at in self._wanted)


def steps_of(wanted: Sequence[Node], given: Sequence[Node]) -> Callable[[Row, Sequence[Tensor]], tuple[Tensor, ...]]:
    """Return what computes some nodes of a program from the values of given ones, in their order."""
    return _Steps(wanted, given)


def _pick(position: int) -> Callable[..., Tensor]:
    return lambda row, results: results[position]


class RowFunction:
    """A row program as a function of tensors.

    Args:
        program: The program.
        outputs: Names of the outputs wanted; None for all.
        real: The type that floats are computed in: float32, or float64 for the check of gradients.

    Raises:
        RefusalError: the program has values of a type that torch does not compute in.
    """

    def __init__(
        self, program: Program, outputs: Sequence[str] | None = None, real: torch.dtype = torch.float32
    ) -> None:
        refused = sorted({node.dtype.value for node in program.nodes() if node.dtype not in CARRIERS})
        if refused:
            raise RefusalError(f"{program.name} has values of {', '.join(refused)}, in which PyTorch does not compute")
        self.names = tuple(program.outputs if outputs is None else outputs)
        self.params = program.params
        self.masked = program.masked
        self._scores = program.scores
        self._real = real
        self._kinds = tuple(program.outputs[name].kind for name in self.names)
        inputs = {str(node.attrs["name"]): node for node in program.nodes() if node.op == "input"}
        params = {param_of(node).name: node for node in program.nodes() if node.op == "param"}
        # A program need not look at its mask, nor even at its scores.
        self._inputs = tuple(name for name in ("scores", "valid") if name in inputs)
        given = (*(inputs[name] for name in self._inputs), *(params[param.name] for param in self.params))
        self._steps = _Steps([program.outputs[name] for name in self.names], given)

    def __call__(
        self, scores: Tensor, valid: Tensor | None = None, params: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Return the outputs by name: rows [..., N], scalars [..., 1], integers in their `CARRIERS`.

        Args:
            scores: [..., N], of the program's type (f32: the type that floats are computed in).
            valid: bool, broadcastable to the scores; given if and only if the program is masked.
            params: As in `softq.rowprog.run`, in the carriers of their types.

        Raises:
            UsageError: an argument is missing or of another type.
        """
        wanted = self._real if self._scores.is_float else CARRIERS[self._scores]
        if scores.dtype is not wanted or scores.dim() == 0:
            raise UsageError(f"scores are {scores.dtype} with {scores.dim()} axes; expected {wanted} with at least one")
        kind, expected = None if valid is None else valid.dtype, torch.bool if self.masked else None
        if kind is not expected:
            raise UsageError(f"valid is {kind}; expected {expected}")
        known = {} if params is None else params
        missing = [param.name for param in self.params if param.name not in known]
        if missing:
            raise UsageError(f"parameters {missing} are missing; the program takes {[p.name for p in self.params]}")
        row = Row(scores.shape, scores.device, self._real)
        inputs = {"scores": scores} | ({} if valid is None else {"valid": valid})
        given = (*(inputs[name] for name in self._inputs), *(known[param.name] for param in self.params))
        found = self._steps(row, given)
        return {
            name: value.expand(row.shape if kind is Kind.ROW else row.scalar)
            for name, kind, value in zip(self.names, self._kinds, found, strict=True)
        }

    def pair(self, scores: Tensor, params: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """Return weights [..., N] and what they are to be divided by, [..., 1], as floats.

        Args:
            scores: As in a call; programs with a mask take none here, since -inf is one.
            params: The run-time parameters in the order of `params`.
        """
        found = self(scores, None, {param.name: value for param, value in zip(self.params, params, strict=True)})
        if "normalizer" in found:
            return found["weights"].to(self._real), found["normalizer"].to(self._real)
        return found["probabilities"].to(self._real), scores.new_ones((1,))
