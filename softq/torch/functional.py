"""Softmaxes and attentions of tensors, by any method: what `torch.nn.functional` has of the exact one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from softq.errors import UsageError
from softq.methods import DEFAULT_METHOD, METHODS, Fitted, Method, Options, OptionValue
from softq.torch.arguments import check_attention, check_numbers, check_scores, check_transforms, without_autocast
from softq.torch.curves import Curve
from softq.torch.gradients import Attend, Backward, InBlocks, StraightThrough, is_smooth
from softq.torch.rows import RowFunction


@dataclass(frozen=True, eq=False)
class Weighing:
    """A method with its options, ready for tensors: made once, used for any number of softmaxes.

    Attributes:
        method: The method.
        options: Its options, resolved.
        weigh: Its weights and normalizer as a function of tensors.
        curve: How the run-time parameters follow from fitted numbers.
        smooth: Whether the gradient is the program's own.
        backward: As it was asked for.
        params: The run-time parameters by name: numbers as [1] or [heads, 1, 1], tables as [size] or [heads, 1, size].
        numbers: Where numbers are learned that the parameters follow from, all of these; `params` is empty then.
    """

    method: Method
    options: Options
    weigh: RowFunction
    curve: Curve
    smooth: bool
    backward: Backward
    params: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    numbers: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    @property
    def learned(self) -> dict[str, Tensor]:
        """The parameters and numbers that have a gradient, by name."""
        return {name: value for name, value in (*self.params.items(), *self.numbers.items()) if value.requires_grad}

    def with_learned(self, values: Mapping[str, Tensor]) -> Weighing:
        """Return the same with others in the place of some of `learned`."""
        params = {name: values.get(name, value) for name, value in self.params.items()}
        return replace(self, params=params, numbers={k: values.get(k, value) for k, value in self.numbers.items()})

    @property
    def quantized(self) -> bool:
        """Whether the scores' gradient takes the method's own weights."""
        return self.backward == "quantized"

    def with_params(self, params: Mapping[str, Tensor]) -> Weighing:
        """Return the same with these run-time parameters."""
        return replace(self, params=params, numbers={})

    def with_numbers(self, numbers: Mapping[str, Tensor]) -> Weighing:
        """Return the same with parameters that follow, at each call, from these numbers: [1] or [heads, 1, 1]."""
        return replace(self, params={}, numbers=numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        # The program's functions cannot be pickled; they are made again.
        return _of_options, (self.method.name, self.options, self.backward, self.params, self.numbers)


def _of_options(
    method: str, options: Options, backward: Backward, params: Mapping[str, Tensor], numbers: Mapping[str, Tensor]
) -> Weighing:
    """Return a method with options that are resolved."""
    chosen = METHODS.get(method)
    program = chosen.program(options)
    weigh = RowFunction(program, ("weights", "normalizer") if program.is_pair else ("probabilities",))
    smooth = backward in ("auto", "exact") and is_smooth(program)
    curve = Curve.of(chosen, options, weigh.params)
    return Weighing(chosen, options, weigh, curve, smooth, backward, params, numbers)


def weighing(
    method: str = DEFAULT_METHOD,
    *,
    backward: Backward = "auto",
    fitted: Fitted | None = None,
    **settings: OptionValue,
) -> Weighing:
    """Return a method with its options.

    Args:
        method: Name of the method.
        backward: What gradients go through (`softq.torch.gradients`); `auto` is `exact` where the method is smooth,
            else `float`.
        fitted: Numbers for options that say `site` or `head`, as plans hold them.
        **settings: Options of the method.

    Raises:
        UsageError: the method or an option is unknown, a value is not allowed, fitted numbers are missing or too many,
            or the method is not smooth and `exact` was asked for.
    """
    chosen = METHODS.open(method)
    options = chosen.resolve(chosen.configure(settings), fitted is not None)
    if backward not in get_args(Backward):
        raise UsageError(f"backward is {backward!r}; allowed are {', '.join(get_args(Backward))}")
    made = _of_options(chosen.name, options, backward, {}, {})
    if backward == "exact" and not made.smooth:
        raise UsageError(f"{method} rounds, so that its own derivative is 0; backward may be float or quantized")
    return made.with_params(made.curve.tensors({} if fitted is None else fitted))


def softmax(
    scores: Tensor, dim: int = -1, *, method: str | Weighing = DEFAULT_METHOD, valid: Tensor | None = None,
    backward: Backward = "auto", **settings: OptionValue,
) -> Tensor:  # fmt: skip
    """Return the method's softmax along an axis, in the type of the scores; it is computed in float32.

    Args:
        scores: Floats of any shape; -inf is masked.
        dim: The axis.
        method: Name of the method, or what `weighing` made of one (under torch.compile make it outside).
        valid: bool, broadcastable to the scores: which of them take part.
        backward: As in `weighing`.
        **settings: Options of the method.

    Raises:
        UsageError: as in `weighing`; scores are no floats, the axis is none of theirs, or the mask is not of them;
            numbers are per head, and the axis is that of heads or one before it.
    """
    made = _made(method, backward, settings)
    check_scores(scores, dim, valid)
    with without_autocast(scores.device):
        rows = scores.float()
        rows = rows if valid is None else rows.masked_fill(~valid, -math.inf)
        behind = dim - rows.dim() if dim >= 0 else dim
        last = behind == -1
        rows = rows if last else rows.movedim(dim, -1)
        params = params_of(made, rows, moved=behind < -2)
        if made.smooth:
            weights, normalizer = made.weigh.pair(rows, params)
            p = weights / normalizer
        else:
            p = StraightThrough.apply(rows, made.weigh, params, made.quantized, *_numbers(made))
        return (p if last else p.movedim(-1, dim)).to(scores.dtype)


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
    method: str | Weighing = DEFAULT_METHOD, softcap: float | None = None, sinks: Tensor | None = None,
    block: int | None = None, backward: Backward = "auto", **settings: OptionValue,
) -> Tensor:  # fmt: skip
    """Return `torch.nn.functional.scaled_dot_product_attention` with a method in the softmax's place.

    Weights are multiplied with V before they are divided, forward and backward; scores and weights are float32. A query
    whose keys are all masked gets 0, as in torch.

    Args:
        query: [..., heads, L, E].
        key: [..., heads, S, E]; with `enable_gqa` fewer heads, each for a group of queries' heads.
        value: [..., heads, S, D].
        attn_mask: bool (which scores take part) or floats that are added, broadcastable to [..., heads, L, S].
        dropout_p: Share of the weights that is dropped, after they are summed.
        is_causal: Whether query i sees keys up to i alone; not beside a mask.
        scale: What products are multiplied by; by default 1 / sqrt(E).
        enable_gqa: Whether keys and values have fewer heads.
        method: As in `softmax`.
        softcap: c, where c tanh(scores / c) takes the place of scaled scores (Gemma 2), before the mask.
        sinks: [heads]: a score beside those of the keys whose weight is multiplied with nothing (gpt-oss).
        block: So many queries at a time: what is held is [..., heads, block, S], forward and backward, where it is
            computed again. The result is the same. Not with dropout.
        backward: As in `weighing`.
        **settings: Options of the method.

    Raises:
        UsageError: as in `weighing`; tensors that do not fit each other; a mask beside `is_causal`; a number that is
            not allowed.
    """
    made = _made(method, backward, settings)
    if is_causal and attn_mask is not None:
        raise UsageError("attn_mask is given beside is_causal; expected one of them")
    check_attention(query, key, value, attn_mask, sinks, grouped=enable_gqa)
    check_numbers(dropout_p, softcap, block)
    if enable_gqa:
        key, value = (_repeat_heads(x, query.shape[-3]) for x in (key, value))
    part = _Part(made, 1 / math.sqrt(query.shape[-1]) if scale is None else scale, softcap, dropout_p, is_causal)
    if block is None or block >= query.shape[-2]:
        return part(query, key, value, attn_mask, sinks, 0)
    given = (query, key, value, attn_mask, sinks, *made.learned.values())
    return InBlocks.apply(partial(_attend_part, part, tuple(made.learned)), block, *given)


def _repeat_heads(x: Tensor, heads: int) -> Tensor:
    return x if x.shape[-3] == heads else x.repeat_interleave(heads // x.shape[-3], -3)


def _attend_part(
    part: _Part, names: tuple[str, ...], start: int, query: Tensor, key: Tensor, value: Tensor,
    attn_mask: Tensor | None, sinks: Tensor | None, *learned: Tensor,
) -> Tensor:  # fmt: skip
    """Return the attention of some queries, with numbers that are learned as arguments."""
    made = part.made.with_learned(dict(zip(names, learned, strict=True)))
    if attn_mask is not None and attn_mask.dim() > 1 and attn_mask.shape[-2] > 1:
        attn_mask = attn_mask[..., start : start + query.shape[-2], :]
    return replace(part, made=made)(query, key, value, attn_mask, sinks, start)


@dataclass(frozen=True, eq=False)
class _Part:
    """The attention of some queries, all heads alike."""

    made: Weighing
    scale: float
    softcap: float | None
    dropout: float
    causal: bool

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, sinks: Tensor | None, start: int
    ) -> Tensor:
        """Return the weighted means for queries that begin at a place, in the type of the products."""
        scores = query @ key.transpose(-2, -1) * self.scale
        kind = scores.dtype  # of autocast, where it is on
        with without_autocast(query.device):
            scores = scores.float()
            scores = scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)
            may_be_empty = attn_mask is not None and sinks is None
            if self.causal:
                seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
                attn_mask = seen.tril(start)
            if attn_mask is not None:
                masked = attn_mask.dtype is torch.bool
                scores = scores.masked_fill(~attn_mask, -math.inf) if masked else scores + attn_mask.float()
            values = value.float()
            if sinks is not None:
                beside = sinks.float().reshape(-1, 1, 1).expand(*scores.shape[:-1], 1)
                scores = torch.cat([scores, beside], -1)
                values = torch.cat([values, values.new_zeros(*values.shape[:-2], 1, values.shape[-1])], -2)
            if scores.shape[-1] == 0:
                return (scores @ values).to(kind)  # 0, as in torch
            empty = scores.amax(-1, keepdim=True) == -math.inf if may_be_empty else None
            scores = scores if empty is None else scores.masked_fill(empty, 0.0)
            keep = torch.nn.functional.dropout(torch.ones_like(scores), self.dropout) if self.dropout > 0 else None
            params = params_of(self.made, scores)
            if self.made.smooth:
                weights, normalizer = self.made.weigh.pair(scores, params)
                out = (weights if keep is None else weights * keep) @ values / normalizer
            else:
                out = Attend.apply(
                    scores, values, keep, self.made.weigh, params, self.made.quantized, *_numbers(self.made)
                )
            return (out if empty is None else out.masked_fill(empty, 0.0)).to(kind)


def params_of(made: Weighing, scores: Tensor, *, moved: bool = False) -> tuple[Tensor, ...]:
    """Return the run-time parameters where the scores are, in the order of the program.

    Args:
        made: The method.
        scores: The scores, whose rows are the last axis.
        moved: Whether heads are no more third from the end, since the axis of the softmax was moved to the end.

    Raises:
        UsageError: one is missing, or those of heads are as many as the scores' third axis from the end is not.
    """
    if made.numbers:
        params = tuple(value.to(scores.device) for value in made.curve.at(made.numbers))
    elif all(param.name in made.params for param in made.weigh.params):
        params = tuple(made.params[param.name].to(scores.device) for param in made.weigh.params)
    else:
        raise UsageError(f"{made.method.name}: {', '.join(made.options.fitted)} is per site or head; give `fitted`")
    for value in params:
        if value.dim() == 3 and (moved or value.shape[0] not in (1, *scores.shape[-3:-2])):
            behind = "heads are third from the end" + ", the softmax's axis has to be behind them" * moved
            raise UsageError(
                f"{made.method.name}: numbers are fitted for {value.shape[0]} heads; scores are {tuple(scores.shape)}; "
                f"{behind}"
            )
    return params


def _numbers(made: Weighing) -> tuple[Any, ...]:
    """Return what the gradient of numbers that are learned takes: how parameters follow from them, and themselves."""
    return (made.curve, tuple(made.numbers), *made.numbers.values()) if made.numbers else (None, ())


def _made(method: str | Weighing, backward: Backward, settings: Mapping[str, OptionValue]) -> Weighing:
    check_transforms()
    if not isinstance(method, Weighing):
        return weighing(method, backward=backward, **settings)  # pyright: ignore[reportArgumentType]
    if settings or backward != "auto":
        raise UsageError("options beside a method that has them: give them to weighing")
    return method
