"""Attention of codes in one kernel beside torch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.gpu.results import Result, compared
from softq.codegen.gpu.attention import Codes, Shape, codes_of, write_attention
from softq.codegen.gpu.attention.tiles import THREADS
from softq.methods import METHODS

LENGTHS = (2048, 4096, 8192, 16384)
HEADS = 16
_AIM = 1.3
_TOKENS = 16384
"""Positions of all samples together; times the heads, where there are enough elements."""

_CHECKED = 256
_RIVAL = "torch attention"


def measure(card: Any, lengths: Sequence[int], elements: int, tune: bool) -> Iterator[Result]:
    """Yield each kernel's result for each length.

    The error is the relative one of the output from the exact attention in float64, over some queries: that of 4-bit
    codes, beside which torch's is named by a line of its own. What codes alone account for is taken off before: the
    output has to be that of the codes in float64 within 2 %.
    """
    method = METHODS.get("deferred-log")
    codes = codes_of(method.program(method.resolve(method.configure({"bits": 4, "r": 1}), False)))
    for width in (64, 128):
        for causal in (False, True):
            for length in lengths or LENGTHS:
                yield from _measured(card, codes, width, causal, length, batch_of(length, width, elements))


def batch_of(length: int, width: int, elements: int) -> int:
    """Return how many samples of a length there are, for so many elements at most."""
    tokens = min(_TOKENS, max(elements // (HEADS * width), length))
    return max(tokens // length, 1)


def operations(batch: int, length: int, width: int) -> float:
    """Return the floating-point operations of both products of all heads."""
    return 4.0 * batch * HEADS * length * length * width


def _measured(card: Any, codes: Codes, width: int, causal: bool, length: int, batch: int) -> Iterator[Result]:
    torch = card.torch
    functional = torch.nn.functional
    shapes = {"two phases": Shape("f16", width, causal), "one phase": Shape("f16", width, causal, online=True)}
    symbols = {name: f"a{i}" for i, name in enumerate(shapes)}
    functions = card.kernels("".join(write_attention(codes, shapes[n], symbol=symbol) for n, symbol in symbols.items()))
    size = batch * HEADS * length * width * 2
    count = max(2, -(-3 * card.cache_bytes // (4 * size)) + 1)
    shape = (batch, HEADS, length, width)
    sets = [[torch.randn(shape, device=card.device).to(torch.float16) for _ in range(3)] for _ in range(count)]
    outs = [torch.empty_like(one[0]) for one in sets]
    scale = width**-0.5
    calls: dict[str, list[Any]] = {}
    exact: dict[str, float] = {}
    for name, symbol in symbols.items():
        function = functions(symbol)
        blocks = batch * HEADS * -(-length // shapes[name].queries)
        rate = np.float32(codes.rate * scale)
        numbers = [np.int32(length), np.int32(length), np.int32(1), rate]

        def start(one: Any, out: Any, function: Any = function, blocks: int = blocks, numbers: Any = numbers) -> Any:
            return lambda: card.launch(function, blocks, THREADS, [*one, out, *numbers])

        calls[name] = [start(one, out) for one, out in zip(sets, outs, strict=True)]
        calls[name][-1]()
        of_codes, exact[name] = errors(torch, codes, sets[-1], outs[-1], scale, causal)
        # Against a running reference codes are others, so that only the error of the output can tell.
        limit = 0.02 if name == "two phases" else 0.35
        assert of_codes <= limit, f"{name}: {of_codes:.3f} from the attention of the same codes in float64"
    calls[_RIVAL] = [_torch(functional, one, causal) for one in sets]
    _, exact[_RIVAL] = errors(torch, codes, sets[-1], calls[_RIVAL][-1](), scale, causal)
    times = card.times(calls)
    work = operations(batch, length, width) / (2 if causal else 1)
    kind = f"heads of {width}{', causal' * causal}"
    for name in calls:
        yield compared(
            times, name, _RIVAL, work=f"{name}, {kind}", place=f"{batch}x{HEADS}x{length}", error=exact[name],
            rate=work, aim=None if name == _RIVAL else _AIM,
        )  # fmt: skip


def _torch(functional: Any, one: Sequence[Any], causal: bool) -> Any:
    return lambda: functional.scaled_dot_product_attention(*one, is_causal=causal)


def errors(
    torch: Any, codes: Codes | None, one: Sequence[Any], out: Any, scale: float, causal: bool
) -> tuple[float, float]:
    """Return the relative errors from the attention of the codes, if there are any, and from the exact one."""
    length = one[0].shape[2]
    at = torch.randint(0, length, (min(_CHECKED, length),), device=one[0].device)
    at[-1] = length - 1
    sample, head = one[0].shape[0] - 1, one[0].shape[1] - 1
    q, k, v = (x[sample, head].to(torch.float64) for x in one)
    scores = q[at] @ k.T * scale
    if causal:
        hidden = torch.arange(length, device=at.device)[None] > at[:, None]
        scores = scores.masked_fill(hidden, -torch.inf)
    exact, found = torch.softmax(scores, -1) @ v, out[sample, head][at].to(torch.float64)
    of_exact = float((found - exact).norm() / exact.norm())
    if codes is None:
        return of_exact, of_exact
    level = (scores.max(-1, keepdim=True).values - scores) * codes.rate
    if codes.root:
        level = (level + codes.offset).clamp(min=0).sqrt() - codes.shift
    level = level.round().clamp(0, len(codes.table) - 1)
    weights = torch.tensor(codes.table, dtype=torch.float64, device=at.device)[level.to(torch.int64)]
    coded = weights @ v / weights.sum(-1, keepdim=True)
    return float((found - coded).norm() / coded.norm()), of_exact
