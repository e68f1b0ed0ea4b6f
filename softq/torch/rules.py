"""What each operator of row programs means in PyTorch.

torch has no arithmetic of u16, u32 and u64: the first two are carried in wider signed types, the last is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from softq.rowprog import DType
from softq.rowprog.library import EXP_LIMIT
from softq.rowprog.ops import OPS
from softq.rowprog.program import Node, number_of, table_of

CARRIERS: Mapping[DType, torch.dtype] = {
    DType.F32: torch.float32, DType.BOOL: torch.bool, DType.U8: torch.uint8, DType.I8: torch.int8,
    DType.I16: torch.int16, DType.U16: torch.int32, DType.I32: torch.int32, DType.U32: torch.int64,
    DType.I64: torch.int64,
}  # fmt: skip
"""The types that values are computed in; u64 has none."""


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


def _bound(node: Node) -> Callable[..., Tensor]:
    raise AssertionError(f"{node.op} {node.attrs} is given, not computed")


OF_VALUES: Mapping[str, Rule] = {
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
    "exp_minus": _exp_minus,
    "assume": _elementwise(lambda x: x),
}
"""The rules of all operators but the loop, which is made of them."""
