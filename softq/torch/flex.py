"""FlexAttention with any method: long contexts without a matrix of scores, by torch's own kernel.

`flex_attention` has a softmax of its own; what can be given to it is a function of each score. So the scalars of a row
(its greatest score, as a rule) are found first, some queries and keys at a time, and the kernel is then given the
logarithm of each weight: its softmax of these is the weights over their sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import cast

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import BlockMask, FlexKernelOptions

from softq.errors import RefusalError, UsageError
from softq.methods import DEFAULT_METHOD, Options, OptionValue
from softq.torch.arguments import cast_for_autocast, check_attention, without_autocast
from softq.torch.elements import Elements, Sweep, elements_of
from softq.torch.functional import Weighing, params_of, weighing
from softq.torch.rules import Row
from softq.torch.tiles import ScoreMod, Scores

_SHAPES = 64
"""Kernels per program, for each shape one."""

_BLOCK = 512
"""Queries and keys at a time on CPUs: 1 MiB of scores per thread."""


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None, block_mask: BlockMask | None = None,
    scale: float | None = None, enable_gqa: bool = False, kernel_options: FlexKernelOptions | None = None, *,
    method: str | Weighing = DEFAULT_METHOD, **settings: OptionValue,
) -> Tensor:  # fmt: skip
    """Return `torch.nn.attention.flex_attention.flex_attention` with a method in the softmax's place.

    It is compiled by itself, and holds no matrix of scores. Weights are those of `softq.torch.attention` on the same
    scores, in float32 also for half-precision tensors; there is no gradient. A query whose keys are all masked gets 0.

    Args:
        query: [batch, heads, L, E].
        key: [batch, heads, S, E]; with `enable_gqa` fewer heads, each for a group of queries' heads.
        value: [batch, heads, S, D].
        score_mod: What is made of each scaled score, called with it, batch, head, query and key; of operators that
            broadcast.
        block_mask: Which scores take part.
        scale: What products are multiplied by; by default 1 / sqrt(E).
        enable_gqa: Whether keys and values have fewer heads.
        kernel_options: As in torch.
        method: As in `softq.torch.softmax`.
        **settings: Options of the method.

    Raises:
        UsageError: as in `softq.torch.weighing`; tensors do not fit each other; one, or a number that is learned, wants
            a gradient.
        RefusalError: the method carries a state from key to key, gives keys that are masked a weight, or has weights
            below 0; or torch.compile makes no kernel of it here. `softq.torch.attention(block=...)` is the way then.
    """
    if not isinstance(method, Weighing):
        method = weighing(method, **settings)  # pyright: ignore[reportArgumentType]
    elif settings:
        raise UsageError("options beside a method that has them: give them to weighing")
    shapes = [tuple(x.shape) for x in (query, key, value)]
    if {len(shape) for shape in shapes} != {4} or shapes[1][:2] != shapes[2][:2]:
        raise UsageError(f"query, key, value are {shapes}; expected [batch, heads, N, E], keys as many as values")
    check_attention(query, key, value, None, None, grouped=enable_gqa)
    shape = (*query.shape[:-1], key.shape[-2])
    if block_mask is not None and (
        tuple(block_mask.seq_lengths) != shape[2:]
        or any(given not in (1, size) for given, size in zip(block_mask.shape, shape[:2], strict=False))
    ):
        raise UsageError(f"block_mask is {tuple(block_mask.shape)}; the scores are {shape}")
    query, key, value = cast_for_autocast(query, key, value)
    with without_autocast(query.device):
        return _attend(query, key, value, score_mod, block_mask, scale, enable_gqa, kernel_options, method)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None, block_mask: BlockMask | None,
    scale: float | None, enable_gqa: bool, kernel_options: FlexKernelOptions | None, method: Weighing,
) -> Tensor:  # fmt: skip
    scores = Scores(query, key, 1 / math.sqrt(query.shape[-1]) if scale is None else scale, score_mod, block_mask)
    params = params_of(method, scores.of_no_keys())
    if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value, *params, *method.learned.values())):
        raise UsageError("flex_attention has no gradient; use softq.torch.attention(block=...), or torch.no_grad()")
    elements = elements_of(method.method.name, method.options)
    if scores.rows == 0 or scores.keys == 0:
        return query.new_zeros(*query.shape[:-1], value.shape[-1])
    with torch.no_grad():
        found = _find(elements, params, scores)
        mod = _mod_of(elements, params, found, scores)
        run = _compiled(method.method.name, method.options)
        try:
            mask = _whole_mask(query, key) if block_mask is None and query.device.type == "cpu" else block_mask
            out = run(query, key, value, mod, mask, scale, enable_gqa, kernel_options=kernel_options)
        except Exception as error:  # torch names no class for what it cannot compile
            line = next(iter(str(error.__cause__ or error).strip().splitlines()), type(error).__name__)
            raise RefusalError(
                f"torch.compile makes no flex_attention here ({line}); use softq.torch.attention(block=...)"
            ) from error
        none = out.isnan().any(-1, keepdim=True) & ~found.peak.isnan()
        if bool(none.any()) and bool(value.isfinite().all()):
            raise RefusalError(f"{elements.name} has weights below 0; use softq.torch.attention(block=...)")
        out = out if found.factor is None else (out.float() * found.factor).to(out.dtype)
        return out.masked_fill(found.peak.isnan(), math.nan).masked_fill(found.peak == -math.inf, 0.0)


@dataclass(frozen=True)
class _Found:
    """What is known of each row, [batch, heads, L, 1].

    Attributes:
        peak: The greatest score: -inf where nothing takes part, NaN where a score is.
        scalars: What the row's elements take.
        factor: What a mean by the weights is to be multiplied by; None for 1.
    """

    peak: Tensor
    scalars: tuple[Tensor, ...]
    factor: Tensor | None


def _find(elements: Elements, params: tuple[Tensor, ...], scores: Scores) -> _Found:
    """Return the scalars of all rows.

    Raises:
        RefusalError: the method gives keys that are masked a weight.
    """
    length = torch.full((1,), scores.keys, dtype=torch.int32, device=scores.query.device)

    def given(part: Tensor, keys: slice, reductions: tuple[Tensor, ...]) -> list[Tensor]:
        index = torch.arange(keys.start, keys.stop, dtype=torch.int32, device=part.device)
        return elements.given(part, index, length, params, reductions)

    def sweep(
        one: Sweep | None, rows: slice, columns: list[slice], known: tuple[Tensor, ...], left_out: Tensor
    ) -> tuple[Tensor, ...]:
        """Return reductions of whole rows, or their greatest scores; rows that are left out are as if of zeros."""
        found: tuple[Tensor, ...] = ()
        for keys in columns:
            if (one is None or one.skips) and scores.is_masked(rows, keys):
                # Of many masked keys one is enough.
                keys = slice(keys.start, keys.start + 1)
                part = masked.expand(left_out.shape)
            else:
                part = scores(rows, keys)
            part = part.masked_fill(left_out, 0.0)
            if one is None:
                peak = part.amax(-1, keepdim=True)
                found = (peak if not found else torch.maximum(found[0], peak),)
            else:
                found = one.reduce(Row(part.shape, part.device, torch.float32), given(part, keys, known), found)
        return found

    masked = torch.full((1,), -math.inf, device=length.device)
    parts: list[tuple[Tensor, ...]] = []
    for rows, columns in scores.tiles():
        shape = (*scores.lead, rows.stop - rows.start, 1)
        (peak,) = sweep(None, rows, columns, (), torch.zeros(shape, dtype=torch.bool, device=length.device))
        left_out = peak.isnan() | (peak == -math.inf)
        known: tuple[Tensor, ...] = ()
        for one in elements.sweeps:
            known += sweep(one, rows, columns, known, left_out)
        row = Row(peak.shape, peak.device, torch.float32)
        hidden = partial(given, masked.expand(shape), slice(0, 1))
        scalars = elements.scalars(row, hidden(known))
        if scores.may_be_masked and bool(((elements.weigh(row, hidden(scalars)) != 0) & ~left_out).any()):
            raise RefusalError(f"{elements.name} gives masked keys a weight; use softq.torch.attention(block=...)")
        factor = (elements.factor(row, hidden(known)),) if elements.normalized else ()
        parts.append(tuple(x.expand(shape) for x in (peak, *scalars, *factor)))
    peak, *whole = (torch.cat(column, -2) for column in zip(*parts, strict=True))
    factor = whole.pop() if elements.normalized else None
    return _Found(peak, tuple(whole), factor)


def _mod_of(elements: Elements, params: tuple[Tensor, ...], found: _Found, scores: Scores) -> ScoreMod:
    """Return what makes of a score the logarithm of its weight."""
    device, heads, inner = found.peak.device, scores.lead[1], scores.score_mod
    most = torch.finfo(torch.float32).max
    length = torch.full((), scores.keys, dtype=torch.int32, device=device)
    scalars = tuple(x.squeeze(-1).contiguous() for x in found.scalars)
    # Tables per head are looked up at the head (`Row.head`), numbers are taken there.
    tables = tuple(x.expand(heads, *x.shape[1:])[:, 0].contiguous() if x.dim() == 3 else x for x in params)
    is_number = tuple(x.shape[-1] == 1 for x in tables)

    def mod(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        score = (score if inner is None else inner(score, batch, head, query, key)).float()
        # Rows with a NaN have none here, and get it in the end.
        score = torch.clamp(torch.where(score == score, score, 0.0), max=most)
        numbers = tuple(
            (x[head, 0] if x.dim() == 2 else x[0]) if single else x for x, single in zip(tables, is_number, strict=True)
        )
        known = tuple(x[batch, head, query] for x in scalars)
        given = elements.given(score, key.to(torch.int32), length, numbers, known)
        return torch.log(elements.weigh(Row(torch.Size(()), device, torch.float32, head), given))

    return mod


@lru_cache(maxsize=256)
def _compiled(method: str, options: Options) -> Callable[..., Tensor]:
    """Return torch's function for one program: what was compiled for others does not count against its limit."""
    # Numbers of the program are constants of the kernel: nothing of them is to become dynamic.
    return torch.compile(  # pyright: ignore[reportCallIssue]  # its overloads lack the limit
        cast("Callable[..., Tensor]", flex.flex_attention),
        fullgraph=True,
        dynamic=False,
        isolate_recompiles=True,
        recompile_limit=_SHAPES,
    )


def _whole_mask(query: Tensor, key: Tensor) -> BlockMask:
    """Return a mask that leaves all: without one the kernel of CPUs takes all queries and keys for one block."""
    rows, columns = (-(-x.shape[-2] // _BLOCK) for x in (query, key))
    every = torch.arange(columns, dtype=torch.int32, device=query.device).expand(1, 1, rows, columns).contiguous()
    count = torch.full((1, 1, rows), columns, dtype=torch.int32, device=query.device)
    return BlockMask.from_kv_blocks(
        torch.zeros_like(count),
        torch.zeros_like(every),
        count,
        every,
        BLOCK_SIZE=_BLOCK,
        seq_lengths=(query.shape[-2], key.shape[-2]),
    )
