"""What softmaxes and attentions of tensors take: each thing that does not fit is one line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from softq.errors import UsageError


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return what keeps autocast from operators on a device; there are devices that have none, such as meta."""
    kind = device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def cast_for_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors in the type that autocast gives the operands of products, as they are where it is off."""
    kind = tensors[0].device.type
    return tuple(x.to(torch.get_autocast_dtype(kind)) for x in tensors) if _casts(kind) else tensors


def check_transforms() -> None:
    """Check that no transform of torch.func is at work.

    Raises:
        UsageError: one is.
    """
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():  # pyright: ignore[reportPrivateUsage]
        raise UsageError(
            "softq.torch runs under no transform of torch.func (vmap, grad, jvp): any leading axes are a batch, "
            "and torch.autograd has the gradients"
        )


def check_scores(scores: Any, dim: object, valid: Tensor | None) -> None:
    """Check the arguments of a softmax.

    Raises:
        UsageError: scores are no floats, the axis is none of theirs, or the mask is not of them.
    """
    if not _is_float(scores):
        raise UsageError(f"scores are {_kind(scores)}; expected floats")
    if not isinstance(dim, int) or not -scores.dim() <= dim < max(scores.dim(), 1):
        raise UsageError(f"dim is {dim!r}; scores are {tuple(scores.shape)}")
    if valid is not None and (_kind(valid) is not torch.bool or not _broadcasts(valid.shape, scores.shape)):
        raise UsageError(f"valid is {_described(valid)}; expected bool that broadcasts to {tuple(scores.shape)}")


def check_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, sinks: Tensor | None, *, grouped: bool
) -> None:
    """Check the tensors of an attention.

    Args:
        query, key, value, attn_mask, sinks: As in `softq.torch.attention`.
        grouped: Whether keys and values may have fewer heads.

    Raises:
        UsageError: they do not fit each other.
    """
    told = f"query is {_described(query)}, key {_described(key)}, value {_described(value)}"
    every = (query, key, value)
    if not all(map(_is_float, every)) or min(x.dim() for x in every) < 2:
        raise UsageError(f"{told}; expected floats with at least 2 axes")
    if query.dtype is not key.dtype and not _casts(query.device.type):
        raise UsageError(f"{told}; expected query and key of one type")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2] or query.shape[-1] == 0:
        raise UsageError(f"{told}; expected [..., L, E], [..., S, E] and [..., S, D]")
    if grouped and min(x.dim() for x in every) < 3:
        raise UsageError(f"{told}; enable_gqa asks for an axis of heads, third from the end")
    leads = [x.shape[: -3 if grouped else -2] for x in every]
    for x in (key, value) if grouped else ():
        heads = x.shape[-3]
        if query.shape[-3] != heads and (heads == 0 or query.shape[-3] % heads):
            raise UsageError(f"{told}; {query.shape[-3]} heads of queries are no multiple of {heads}")
    lead = _broadcast(leads[0], leads[1])
    if lead is None or _broadcast(lead, leads[2]) is None:
        raise UsageError(f"{told}; expected leading axes that broadcast" + ("" if grouped else ", or enable_gqa"))
    shape = (*lead, *((query.shape[-3],) if grouped else ()), query.shape[-2], key.shape[-2])
    masks = attn_mask is None or _is_float(attn_mask) or _kind(attn_mask) is torch.bool
    if not masks or (attn_mask is not None and not _broadcasts(attn_mask.shape, shape)):
        raise UsageError(f"attn_mask is {_described(attn_mask)}; expected bool or floats that broadcast to {shape}")
    if sinks is not None and (len(shape) < 3 or sinks.shape != shape[-3:-2]):
        raise UsageError(f"sinks are {tuple(sinks.shape)}; expected one per head of scores {shape}")


def check_numbers(dropout_p: float, softcap: float | None, block: object) -> None:
    """Check the numbers of an attention.

    Raises:
        UsageError: one is not allowed, or there is a dropout in blocks.
    """
    if not 0 <= dropout_p <= 1:
        raise UsageError(f"dropout_p is {dropout_p}; allowed is 0 to 1")
    if softcap is not None and not 0 < softcap < math.inf:
        raise UsageError(f"softcap is {softcap}; expected a number above 0")
    if block is not None and (not isinstance(block, int) or block < 1 or dropout_p > 0):
        raise UsageError(f"block is {block} with dropout_p={dropout_p}; expected at least 1 query, and no dropout")


def _casts(kind: str) -> bool:
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _broadcast(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape that two broadcast to, None if they do not."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    found = list(longer)
    for at in range(1, len(shorter) + 1):
        a, b = longer[-at], shorter[-at]
        if a != b and a != 1 and b != 1:
            return None
        found[-at] = b if a == 1 else a
    return tuple(found)


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    return len(shape) <= len(to) and all(shape[-at] in (1, to[-at]) for at in range(1, len(shape) + 1))


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_floating_point


def _kind(value: Any) -> object:
    return value.dtype if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _described(value: Any) -> str:
    return f"{tuple(value.shape)} {_kind(value)}" if isinstance(value, Tensor) else str(_kind(value))
