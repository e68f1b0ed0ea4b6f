"""What each operator of row programs means in PyTorch.

torch has no arithmetic of u16, u32 and u64: the first two are carried in wider signed types, the last is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softq.rowprog import DType
from softq.rowprog.ops import OPS
from softq.rowprog.program import Node, number_of, size_of, table_of

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
        head: Where a value is one element, without axes: its head, at which tables per head [heads, size] are
            looked up.
    """

    shape: torch.Size
    device: torch.device
    real: torch.dtype
    head: Tensor | None = None

    def dtype(self, node: Node) -> torch.dtype:
        """Return the type that a node is computed in."""
        return self.real if node.dtype.is_float else CARRIERS[node.dtype]

    @property
    def scalar(self) -> tuple[int, ...]:
        """The shape of one number per row."""
        return (*self.shape[:-1], 1)

    @property
    def single(self) -> tuple[int, ...]:
        """The shape of one number for all rows."""
        return (1,) if self.head is None else ()


Derivative = Callable[..., tuple[Tensor, ...]]
"""Gradients of a function's operands, from that of its value, the value and the operands; all of one shape."""

Rule = Callable[[Node], Callable[..., "Tensor | tuple[Tensor, ...]"]]
"""What makes of a node a function of `Row` and its operands."""


def operands(node: Node) -> Sequence[Node]:
    """Return what a node is computed from; the second operand of an exponential is only how that is done."""
    return node.args[:1] if node.op == "exp_minus" else node.args


def _elementwise(function: Callable[..., Tensor]) -> Rule:
    return lambda node: lambda row, *args: function(*args)


def _minimum(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a < b, a, b)


def _maximum(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b < a, a, b)


def _extreme_of_two(kernel: Callable[..., Tensor], function: Callable[..., Tensor]) -> Rule:
    # A kernel of elements has no NaN, and would compute each operand as often as it stands in a function.
    return lambda node: lambda row, a, b: function(a, b) if row.head is None else kernel(a, b)


def _const(node: Node) -> Callable[..., Tensor]:
    value = number_of(node)
    return lambda row: torch.full(row.single, value, dtype=row.dtype(node), device=row.device)


def _table(node: Node) -> Callable[..., Tensor]:
    values = torch.tensor(table_of(node), dtype=CARRIERS[node.dtype])
    return lambda row: values.to(device=row.device, dtype=row.dtype(node))


class _Guarded(torch.autograd.Function):
    """A function of floats without a gradient where it or an operand is infinite.

    That is where an element is masked: its gradient is 0, and 0 times infinity would be NaN for all of the row.
    """

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], derivative: Derivative, *args: Tensor) -> Tensor:
        """Return the function of the operands."""
        value = function(*args)
        ctx.derivative = derivative
        ctx.save_for_backward(value, *args)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the operands."""
        value, *args = ctx.saved_tensors
        finite = torch.isfinite(value)
        for x in args:
            finite = finite & torch.isfinite(x)
        safe = [torch.where(finite, x, 1.0) for x in (value, *args)]
        given = torch.where(finite, gradients[0], 0.0)
        found = [part.sum_to_size(x.shape) if wanted else None for part, x, wanted in
                 zip(ctx.derivative(given, *safe), args, ctx.needs_input_grad[2:], strict=True)]  # fmt: skip
        return None, None, *found


def _guarded(function: Callable[..., Tensor], derivative: Derivative) -> Callable[..., Tensor]:
    def guarded(row: Row, *args: Tensor) -> Tensor:
        # Within another function's forward, too: torch.compile allows no further one there.
        needed = torch.is_grad_enabled() and any(x.requires_grad for x in args)
        return _Guarded.apply(function, derivative, *args) if needed else function(*args)

    return guarded


def _of_product(gradient: Tensor, value: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return gradient * b, gradient * a


def _of_square(gradient: Tensor, value: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    return (gradient * 2.0 * x,)


def _of_quotient(gradient: Tensor, value: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    # Not by the value: where it stands for 1 an operand does, too.
    part = gradient / b
    return part, -part * (a / b)


def _of_log2(gradient: Tensor, value: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    return (gradient / (x * math.log(2)),)


def _divide(node: Node) -> Callable[..., Tensor]:
    if node.dtype.is_float:
        return _guarded(torch.div, _of_quotient)
    return lambda row, a, b: torch.div(a, b, rounding_mode="floor")


def _multiply(node: Node) -> Callable[..., Tensor]:
    if not node.dtype.is_float:
        return lambda row, a, b: torch.mul(a, b)
    if node.args[0] is node.args[1]:  # torch.compile takes no tensor twice
        square = _guarded(torch.square, _of_square)
        return lambda row, a, b: square(row, a)
    return _guarded(torch.mul, _of_product)


def _cast(node: Node) -> Callable[..., Tensor]:
    return lambda row, x: x.to(row.dtype(node))


def _look_up(row: Row, table: Tensor, at: Tensor) -> Tensor:
    if table.dim() == 1:
        return table[at.long()]
    if row.head is not None:
        return table[row.head, at.long()]
    lead = torch.broadcast_shapes(table.shape[:-1], at.shape[:-1])
    every = table.expand(*lead, table.shape[-1])
    return torch.gather(every, -1, at.long().expand(*lead, at.shape[-1]))


def _exp2(row: Row, exponent: Tensor) -> Tensor:
    if torch.onnx.is_in_onnx_export():  # which has no operator that looks at bits
        powers = torch.tensor([2.0**n for n in range(-126, 128)], dtype=row.real, device=row.device)
        return powers[(exponent + 126).clamp(0, 253).long()]  # Of a NaN, which is put aside later, it may be anything.
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


def _group_max(node: Node) -> Callable[..., Tensor]:
    size = size_of(node)

    def greatest(row: Row, x: Tensor) -> Tensor:
        x, length = x.expand(row.shape), row.shape[-1]
        if length == 0:
            return x
        groups = -(-length // size)
        padded = torch.nn.functional.pad(x, (0, groups * size - length), value=-math.inf)
        each = padded.reshape(*row.shape[:-1], groups, size).amax(-1, keepdim=True)
        return each.expand(*row.shape[:-1], groups, size).reshape(*row.shape[:-1], groups * size)[..., :length]

    return greatest


def _row_sum(node: Node) -> Callable[..., Tensor]:
    return lambda row, x: x.expand(row.shape).sum(-1, keepdim=True, dtype=row.dtype(node))


class ExpMinus(torch.autograd.Function):
    """e^-d as the program writes it, with its own derivative: not that of polynomials and powers."""

    @staticmethod
    def forward(ctx: Any, d: Tensor, written: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what is written for the distance."""
        value = written(d)
        ctx.save_for_backward(value)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the distance."""
        (value,) = ctx.saved_tensors
        return -value * gradients[0], None


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
    "mul": _multiply,
    "divide": _divide,
    "min": _extreme_of_two(torch.minimum, _minimum),
    "max": _extreme_of_two(torch.maximum, _maximum),
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
    "log2": lambda node: _guarded(torch.log2, _of_log2),
    "sqrt": _elementwise(torch.sqrt),
    "row_max": _extreme(torch.amax),
    "row_min": _extreme(torch.amin),
    "row_sum": _row_sum,
    "round_to": _elementwise(lambda x, rounded: rounded),
    "group_max": _group_max,
    "assume": _elementwise(lambda x: x),
}
"""The rules of all operators but those that hold others: the loop, and what stands for an exponential."""
