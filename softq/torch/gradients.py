"""What gradients go through a softmax that is not smooth.

A method that rounds has a derivative of zero almost everywhere, so backward takes another function's in its place:

* `float`: the exact softmax's of the same scores (straight through), P (dP - sum(P dP)) with P of floats;
* `quantized`: the same formula with the method's own P, computed again in the backward pass, so that the sum that is
  taken off is that of the weights that were multiplied (Attn-QAT, arXiv 2603.00040);
* `exact`: the program's own, for methods whose weights are smooth functions of the scores.

Numbers that tables follow from, where they are learned, have the gradient of `softq.torch.curves`.
The product with V has its own gradient in each: V sees the weights that it was multiplied with. None of what stands in
place of a derivative has a derivative of its own: a second one is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from softq.rowprog import Program
from softq.rowprog.program import Node, walk
from softq.torch.curves import Curve
from softq.torch.rows import RowFunction
from softq.torch.rules import operands

Backward = Literal["auto", "float", "quantized", "exact"]


def is_smooth(program: Program) -> bool:
    """Say whether the program's own derivative is that of what it computes, but for single points.

    It is not where scores reach the result through a number that was rounded: by a table's entry, or by an integer that
    becomes a float again. Whole powers of 2, by which an exponential is put together, and conditions are neither.
    """
    depends: set[Node] = set()
    for node in walk(program.outputs.values()):
        if (node.op == "input" and node.attrs["name"] == "scores") or not depends.isdisjoint(operands(node)):
            depends.add(node)
    reached = _reached([node for name, node in program.outputs.items() if name != "codes"])
    return not any(node in depends and _rounds(node) for node in reached)


def _reached(roots: list[Node]) -> set[Node]:
    """Return the nodes that the derivative goes through: not those by which conditions and powers are found."""
    found: set[Node] = set()
    left = list(roots)
    while left:
        node = left.pop()
        if node in found:
            continue
        found.add(node)
        if node.op == "exp2i":
            continue
        left += [arg for arg in operands(node) if not (node.op == "select" and arg is node.args[0])]
    return found


def _rounds(node: Node) -> bool:
    return node.op in ("lut", "scan", "round_to") or (node.dtype.is_integer and node.op != "exp2i")


class StraightThrough(torch.autograd.Function):
    """Weights over their normalizer, with another function's gradient in the scores."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, weigh: RowFunction, params: tuple[Tensor, ...], quantized: bool, curve: Curve | None,
        names: tuple[str, ...], *numbers: Tensor,
    ) -> Tensor:  # fmt: skip
        """Return the method's probabilities of scores [..., N], f32; the other arguments are those of `Attend`."""
        ctx.weigh, ctx.quantized, ctx.curve, ctx.names = weigh, quantized, curve, names
        ctx.save_for_backward(scores, *numbers, *params)
        weights, normalizer = weigh.pair(scores, params)
        return weights / normalizer

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of scores and numbers."""
        scores, *saved = ctx.saved_tensors
        params = saved[len(ctx.names) :]
        if ctx.quantized:
            weights, normalizer = ctx.weigh.pair(scores, params)
            p = weights / normalizer
        else:
            p = torch.softmax(scores, -1)

        def result(params: tuple[Tensor, ...]) -> Tensor:
            weights, normalizer = ctx.weigh.pair(scores, params)
            return weights / normalizer

        of_numbers = _of_numbers(ctx, saved, ctx.needs_input_grad[6:], gradients[0], result)
        return through_softmax(p, gradients[0]), None, None, None, None, None, *of_numbers


class Attend(torch.autograd.Function):
    """Weights times V over their normalizer, with another function's gradient in the scores."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, values: Tensor, keep: Tensor | None, weigh: RowFunction, params: tuple[Tensor, ...],
        quantized: bool, curve: Curve | None, names: tuple[str, ...], *numbers: Tensor,
    ) -> Tensor:  # fmt: skip
        """Return the weighted means of values [..., N, D], f32.

        Args:
            ctx: What backward needs.
            scores: [..., L, N], f32.
            values: [..., N, D], f32.
            keep: What weights are multiplied with after they were summed (dropout), or None.
            weigh: The method.
            params: Its run-time parameters.
            quantized: Whether the scores' gradient takes the method's weights or the exact softmax's.
            curve: How the parameters follow from numbers that are learned, or None.
            names: Names of these numbers.
            numbers: [1] or [heads, 1, 1] each.
        """
        ctx.weigh, ctx.quantized, ctx.dropped, ctx.curve, ctx.names = weigh, quantized, keep is not None, curve, names
        ctx.save_for_backward(scores, values, *(() if keep is None else (keep,)), *numbers, *params)
        weights, normalizer = weigh.pair(scores, params)
        return (weights if keep is None else weights * keep) @ values / normalizer

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of scores, values and numbers; weights are computed again."""
        scores, values, *rest = ctx.saved_tensors
        keep, saved = (rest[0], rest[1:]) if ctx.dropped else (None, rest)
        weights, normalizer = ctx.weigh.pair(scores, saved[len(ctx.names) :])
        gradient = gradients[0] / normalizer
        kept = weights if keep is None else weights * keep
        of_values = kept.transpose(-1, -2) @ gradient
        of_weights = gradients[0] @ values.transpose(-1, -2)
        of_weights = of_weights if keep is None else of_weights * keep

        def result(params: tuple[Tensor, ...]) -> Tensor:
            weights, normalizer = ctx.weigh.pair(scores, params)
            return (weights if keep is None else weights * keep) @ values / normalizer

        of_numbers = _of_numbers(ctx, saved, ctx.needs_input_grad[8:], gradients[0], result)
        p = weights / normalizer if ctx.quantized else torch.softmax(scores, -1)
        return through_softmax(p, of_weights), of_values, None, None, None, None, None, None, *of_numbers


def _of_numbers(
    ctx: Any, saved: list[Tensor], wanted: Sequence[bool], gradient: Tensor,
    result: Callable[[tuple[Tensor, ...]], Tensor],
) -> list[Tensor | None]:  # fmt: skip
    """Return the gradients of the numbers that the first of the saved tensors are."""
    if not any(wanted):
        return [None] * len(ctx.names)
    return ctx.curve.gradients(dict(zip(ctx.names, saved, strict=False)), wanted, gradient, result)


class InBlocks(torch.autograd.Function):
    """A function of queries and of what all of them share, some queries at a time; computed again for its gradient."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], block: int, query: Tensor, *shared: Tensor | None) -> Tensor:
        """Return the function's results side by side, [..., L, D].

        Args:
            ctx: What backward needs.
            function: Called with the place of the first query, the queries, and what is shared.
            block: Queries at a time.
            query: [..., L, E].
            shared: What every block takes; None where there is nothing.
        """
        ctx.function, ctx.block, ctx.given = function, block, tuple(x is not None for x in shared)
        ctx.save_for_backward(query, *(x for x in shared if x is not None))
        kind = query.device.type
        ctx.autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        starts = range(0, query.shape[-2], block)
        return torch.cat([function(at, query[..., at : at + block, :], *shared) for at in starts], -2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of queries and of what is shared."""
        query, *saved = ctx.saved_tensors
        left = iter(saved)
        shared = [next(left) if given else None for given in ctx.given]
        wanted = ctx.needs_input_grad[3:]
        # A sum of many blocks in half precision would lose what each of them adds.
        sums = [torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) if x is not None and w else None
                for x, w in zip(shared, wanted, strict=True)]  # fmt: skip
        of_query: list[Tensor] = []
        for at in range(0, query.shape[-2], ctx.block):
            rows = slice(at, at + ctx.block)
            inputs = [query[..., rows, :].detach().requires_grad_()]
            inputs += [x if x is None else x.detach().requires_grad_(w) for x, w in zip(shared, wanted, strict=True)]
            with torch.enable_grad(), torch.autocast(*ctx.autocast):
                out = ctx.function(at, *inputs)
            asked = [x for x in inputs if x is not None and x.requires_grad]
            parts = list(torch.autograd.grad(out, asked, gradients[0][..., rows, :]))
            of_query.append(parts.pop(0))
            for total in sums:
                if total is not None:
                    total += parts.pop(0)
        found = (s if s is None or x is None else s.to(x.dtype) for s, x in zip(sums, shared, strict=True))
        return None, None, torch.cat(of_query, -2), *found


def through_softmax(p: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the scores from that of the probabilities p, by the softmax's Jacobian."""
    product = p * gradient
    return product - p * product.sum(-1, keepdim=True)
