"""Products of matrices beside torch.matmul: right operands are weights [n, k], as built models have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.results import Result, compared
from softq.artifact.program import evaluate
from softq.codegen.gpu.gemm import write_gemm

SIZES = (1, 8, 128, 2048, 4096)
"""Rows of the left operand: of one sequence while it is decoded, of several, and of prompts."""

_WIDE = 4096
"""The other sizes of a product."""

_CHECKED = 64


@dataclass(frozen=True)
class Work:
    """A product to time.

    Attributes:
        kind: Type of both operands: f32, f16, bf16, i8.
        dtype: Torch's name of it.
        rival: Torch's name of the type that torch multiplies.
        rounding: Unit roundoff of the result, 0 of integers.
    """

    kind: str
    dtype: str
    rival: str
    rounding: float


WORKS = (
    Work("f32", "float32", "float32", 2.0**-24),
    Work("f16", "float16", "float16", 2.0**-11),
    Work("bf16", "bfloat16", "bfloat16", 2.0**-8),
    Work("i8", "int8", "float16", 0),  # torch has no product of integers for all sizes
)


def measure(card: Any, lengths: Sequence[int], elements: int, tune: bool) -> Iterator[Result]:
    """Yield each product's result for each number of rows; `lengths` are those.

    The error is the greatest difference from float64 over the sum of what is added up without signs.
    """
    for work in WORKS:
        if work.kind == "bf16" and card.arch == "sm_75":
            continue  # whose tensor cores do not have it
        for rows in lengths or SIZES:
            yield from measured(card, work, (rows, _WIDE, _WIDE))


def measured(card: Any, work: Work, size: tuple[int, int, int]) -> Iterator[Result]:
    """Yield the result of a product m, k, n, and torch's.

    Raises:
        AssertionError: the product is wrong.
    """
    torch, (m, k, n) = card.torch, size
    dtype, other = getattr(torch, work.dtype), getattr(torch, work.rival)
    made = write_gemm("p", work.kind, work.kind, False)
    functions = card.kernels("".join(made.texts))
    numbers = (m, k, n, m * k, 0, k)
    starts = [form.start(1, numbers) for form in made.forms]
    start = next(one for one in starts if all(condition.holds({}) for condition in one.when))
    bytes_ = (m * k + k * n + m * n) * torch.empty(0, dtype=dtype).element_size()
    sets = [_operands(torch, card.device, dtype, size) for _ in range(max(2, -(-3 * card.cache_bytes // bytes_) + 1))]
    integers = work.kind == "i8"
    zeros = [torch.zeros(1, dtype=dtype, device=card.device)] * (2 * integers)
    outs = [torch.empty((m, n), dtype=torch.int32 if integers else dtype, device=card.device) for _ in sets]
    scalars = [np.int64(number) for number in numbers]
    function, blocks = functions(start.symbol), evaluate(start.blocks, {})

    def ours(one: Sequence[Any], out: Any) -> Any:
        return lambda: card.launch(function, blocks, start.threads, [*one, *zeros, out, *scalars])

    def theirs(one: Sequence[Any]) -> Any:
        a, b = (x.to(other) for x in one)
        return lambda: torch.matmul(a, b.T)

    rival = f"torch.matmul, {work.rival}"
    calls = {work.kind: [ours(one, out) for one, out in zip(sets, outs, strict=True)],
             rival: [theirs(one) for one in sets]}  # fmt: skip
    calls[work.kind][-1]()
    error = _error(torch, sets[-1], outs[-1])
    # A sum of k terms, each rounding at most 2^-24 of them all; halves are rounded once more.
    bound = 0.0 if integers else k * 2.0**-24 + work.rounding
    assert error <= bound, f"{work.kind} {size}: an error of {error:.1e}; the bound is {bound:.1e}"
    times = card.times(calls)
    errors = {work.kind: error, rival: _error(torch, sets[-1], calls[rival][-1]())}
    for name in calls:
        yield compared(
            times, name, rival, work=f"product, {work.dtype}" if name == work.kind else name, place=f"{m}x{k}x{n}",
            error=errors[name], share=bytes_ / card.copy_rate() if m <= 8 else None, rate=2.0 * m * k * n,
        )  # fmt: skip


def _operands(torch: Any, device: str, dtype: Any, size: tuple[int, int, int]) -> list[Any]:
    m, k, n = size
    if dtype == torch.int8:
        return [torch.randint(-128, 128, shape, dtype=dtype, device=device) for shape in ((m, k), (n, k))]
    return [torch.randn(shape, device=device).to(dtype) for shape in ((m, k), (n, k))]


def _error(torch: Any, one: Sequence[Any], found: Any) -> float:
    """Return the error of some rows and columns, the last ones among them."""
    a, b = (x[-_CHECKED:].to(torch.float64) for x in one)
    wanted, most = a @ b.T, a.abs() @ b.abs().T
    return float(((found[-_CHECKED:, -_CHECKED:].to(torch.float64) - wanted).abs() / most).max())
