"""Row programs in PyTorch: a walker whose result is a function of tensors.

The program is walked once. What is left is a list of calls of torch with numbers for operands, which eager mode runs,
torch.compile traces without a break, and autograd follows. torch has no arithmetic of u16, u32 and u64: they are
carried in wider signed types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softq.errors import UsageError
from softq.rowprog import DType, Kind, Program
from softq.rowprog.library import EXP_LIMIT
from softq.rowprog.ops import OPS, Rules
from softq.rowprog.program import Node, body_of, number_of, param_of, result_of, table_of, walk

CARRIERS: Mapping[DType, torch.dtype] = {
    DType.F32: torch.float32, DType.BOOL: torch.bool, DType.U8: torch.uint8, DType.I8: torch.int8,
    DType.I16: torch.int16, DType.U16: torch.int32, DType.I32: torch.int32, DType.U32: torch.int64,
    DType.I64: torch.int64, DType.U64: torch.int64,
}  # fmt: skip
"""The types that values are computed in."""


@dataclass(frozen=True)
class Row:
    """What every operator may ask of the rows at hand.

    Attributes:
        shape: Of the scores.
        device: Where they are.
        real: The type that floats are computed in: float32, or float64 for the check of gradients.
    """

    shape: torch.Size
    device: torch.device
    real: torch.dtype

    def dtype(self, node: Node) -> torch.dtype:
        """Return the type that a node is computed in."""
        return self.real if node.dtype.is_float else CARRIERS[node.dtype]

    @property
    def scalar(self) -> tuple[int, ...]:
        """The shape of one number per row."""
        return (*self.shape[:-1], 1)


Rule = Callable[[Node], Callable[..., "Tensor | tuple[Tensor, ...]"]]
"""What makes of a node a function of `Row` and its operands."""


def _elementwise(function: Callable[..., Tensor]) -> Rule:
    return lambda node: lambda row, *args: function(*args)


def _minimum(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a < b, a, b)


def _maximum(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b < a, a, b)


def _const(node: Node) -> Callable[..., Tensor]:
    value = number_of(node)
    return lambda row: torch.full((1,), value, dtype=row.dtype(node), device=row.device)


def _table(node: Node) -> Callable[..., Tensor]:
    values = torch.tensor(table_of(node), dtype=CARRIERS[node.dtype])
    return lambda row: values.to(device=row.device, dtype=row.dtype(node))


def _guarded(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function without a gradient where it or an operand is infinite.

    That is where an element is masked: its gradient is 0, and 0 times infinity would be NaN for all of the row.
    """

    def guarded(row: Row, *args: Tensor) -> Tensor:
        value = function(*args)
        if not value.requires_grad:
            return value
        finite = torch.isfinite(value)
        for x in args:
            finite = finite & torch.isfinite(x)
        return torch.where(finite, function(*(torch.where(finite, x, 1.0) for x in args)), value.detach())

    return guarded


def _divide(node: Node) -> Callable[..., Tensor]:
    if node.dtype.is_float:
        return _guarded(torch.div)
    return lambda row, a, b: torch.div(a, b, rounding_mode="floor")


def _cast(node: Node) -> Callable[..., Tensor]:
    return lambda row, x: x.to(row.dtype(node))


def _look_up(row: Row, table: Tensor, at: Tensor) -> Tensor:
    if table.dim() == 1:
        return table[at.long()]
    lead = torch.broadcast_shapes(table.shape[:-1], at.shape[:-1])
    every = table.expand(*lead, table.shape[-1])
    return torch.gather(every, -1, at.long().expand(*lead, at.shape[-1]))


def _exp2(row: Row, exponent: Tensor) -> Tensor:
    return ((exponent + 127) << 23).view(torch.float32).to(row.real)


def _normalize(node: Node) -> Callable[..., Tensor]:
    """Return what finds the leading one by halves: there is no such operator on every device."""
    mantissa = node.attrs["part"] == "mantissa"

    def normalize(row: Row, x: Tensor) -> Tensor:
        shift = torch.zeros_like(x)
        for bits in (16, 8, 4, 2, 1):
            short = x < 1 << (32 - bits)
            x = torch.where(short, x << bits, x)
            shift = torch.where(short, shift + bits, shift)
        return x if mantissa else shift.to(row.dtype(node))

    return normalize


def _extreme(function: Callable[..., Tensor]) -> Rule:
    def rule(node: Node) -> Callable[..., Tensor]:
        start = OPS[node.op].of_empty_row(node.dtype)

        def reduce(row: Row, x: Tensor) -> Tensor:
            if row.shape[-1] == 0:
                return torch.full(row.scalar, start, dtype=row.dtype(node), device=row.device)
            return function(x.expand(row.shape), dim=-1, keepdim=True)

        return reduce

    return rule


def _row_sum(node: Node) -> Callable[..., Tensor]:
    return lambda row, x: x.expand(row.shape).sum(-1, keepdim=True, dtype=row.dtype(node))


def _exp_minus(node: Node) -> Callable[..., Tensor]:
    def exp_minus(row: Row, d: Tensor, written: Tensor) -> Tensor:
        if row.real is torch.float32:
            return written
        return torch.where(d <= EXP_LIMIT, torch.exp(-torch.clamp(d, max=EXP_LIMIT)), 0.0)

    return exp_minus


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


def _bound(node: Node) -> Callable[..., Tensor]:
    raise AssertionError(f"{node.op} {node.attrs} is given, not computed")


RULES: Rules[Rule] = Rules(
    "PyTorch",
    {
        "input": _bound,
        "param": _bound,
        "const": _const,
        "table": _table,
        "index": lambda node: lambda row: torch.arange(row.shape[-1], dtype=torch.int32, device=row.device),
        "length": lambda node: lambda row: torch.full((1,), row.shape[-1], dtype=torch.int32, device=row.device),
        "add": _elementwise(torch.add),
        "sub": _elementwise(torch.sub),
        "mul": lambda node: _guarded(torch.mul),
        "divide": _divide,
        "min": _elementwise(_minimum),
        "max": _elementwise(_maximum),
        "shl": _elementwise(torch.bitwise_left_shift),
        "shr": _elementwise(torch.bitwise_right_shift),
        "lt": _elementwise(torch.lt),
        "le": _elementwise(torch.le),
        "eq": _elementwise(torch.eq),
        "and": _elementwise(torch.logical_and),
        "or": _elementwise(torch.logical_or),
        "not": _elementwise(torch.logical_not),
        "select": _elementwise(torch.where),
        "cast": _cast,
        "rint": _elementwise(torch.round),
        "lut": lambda node: _look_up,
        "exp2i": lambda node: _exp2,
        "normalize": _normalize,
        "log2": lambda node: _guarded(torch.log2),
        "sqrt": _elementwise(torch.sqrt),
        "row_max": _extreme(torch.amax),
        "row_min": _extreme(torch.amin),
        "row_sum": _row_sum,
        "scan": _scan,
        "exp_minus": _exp_minus,
        "assume": _elementwise(lambda x: x),
    },
)


class _Steps:
    """The calls that compute some nodes from given ones, in order, with the positions of what they take."""

    def __init__(self, wanted: Sequence[Node], given: Sequence[Node]) -> None:
        places = {node: at for at, node in enumerate(given)}
        loops: dict[int, int] = {}
        self._calls: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
        for node in walk(wanted, given):
            taken = tuple(places[arg] for arg in node.args)
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


def _pick(position: int) -> Callable[..., Tensor]:
    return lambda row, results: results[position]


class RowFunction:
    """A row program as a function of tensors.

    Args:
        program: The program.
        outputs: Names of the outputs wanted; None for all.
        real: The type that floats are computed in: float32, or float64 for the check of gradients.

    Raises:
        RefusalError: values of u64 may be greater than int64 holds.
    """

    def __init__(
        self, program: Program, outputs: Sequence[str] | None = None, real: torch.dtype = torch.float32
    ) -> None:
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
        if (valid is None) == self.masked or (valid is not None and valid.dtype is not torch.bool):
            raise UsageError(
                f"valid is {None if valid is None else valid.dtype}; expected {self.masked and torch.bool}"
            )
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
