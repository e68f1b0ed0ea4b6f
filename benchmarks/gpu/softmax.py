"""Row kernels beside torch.softmax and a copy of the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.results import Result, compared
from softq.codegen.gpu.rows import RowKernel, Tiling, row_kernel
from softq.codegen.gpu.rows.load_store import bytes_of
from softq.codegen.gpu.rows.tiling import choose_tiling, list_tilings
from softq.methods import METHODS
from softq.rowprog import DType, Program
from softq.rowprog.program import quotient

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
_STEP = 0.1
_SETS = 2
_CHECKED_ROWS = 64
_BITS = 4


@dataclass(frozen=True)
class Work:
    """A kernel to time.

    Attributes:
        name: As tables name it.
        kind: Type of the scores in memory: f32, f16, bf16, i8.
        codes: Whether it gives 4-bit codes and their sum, else probabilities of the scores' type.
        aim: What its time over torch.softmax's is to be at most; None where that is on other scores.
    """

    name: str
    kind: str
    codes: bool
    aim: float | None = None

    def program(self) -> Program:
        """Return what it computes."""
        method = METHODS.get("deferred-log" if self.codes else "exact")
        settings: dict[str, float] = {}
        if self.codes:
            settings = {"bits": _BITS, "r": 1.0, **({"step": _STEP} if self.kind == "i8" else {})}
        scores = DType.I8 if self.kind == "i8" else DType.F32
        program = method.program(method.resolve(method.configure(settings), False), scores=scores)
        return program if self.codes else quotient(program)

    def bytes(self, rows: int, length: int) -> int:
        """Return what it has to read and write."""
        written = rows * (length // 2 + 4) if self.codes else rows * length * bytes_of(self.kind)
        return rows * length * bytes_of(self.kind) + written


WORKS = (
    Work("exact softmax, float32", "f32", False, 1.0),
    Work("exact softmax, float16", "f16", False, 1.0),
    Work("exact softmax, bfloat16", "bf16", False, 1.0),
    Work("4-bit codes and their sum, float32", "f32", True),
    Work("4-bit codes and their sum, float16", "f16", True, 1 / 1.5),
    Work("4-bit codes and their sum, int8", "i8", True),
)


def measure(card: Any, lengths: Sequence[int], elements: int, tune: bool) -> Iterator[Result]:
    """Yield each kernel's result for each length.

    The error is the greatest relative one of probabilities above 1e-6 (of float16 1e-4), and of codes the share that
    differs from those of float64, by one at the boundary of a code; the sum of the codes' weights is compared as it is.
    """
    for length in lengths or LENGTHS:
        rows = max(elements // length, 1)
        for work in WORKS:
            yield from _measured(card, work, rows, length, tune)


def _measured(card: Any, work: Work, rows: int, length: int, tune: bool) -> Iterator[Result]:
    chosen = choose_tiling(length, bytes_of(work.kind), even=work.codes, shared_bytes=card.shared_bytes)
    others = list_tilings(length, bytes_of(work.kind), even=work.codes, shared_bytes=card.shared_bytes) if tune else ()
    forms = [chosen, *(form for form in others if form != chosen)]
    kernels = [_kernel(card, work, form, f"k{i}") for i, form in enumerate(forms)]
    functions = card.kernels("".join(kernel.text for kernel in kernels))
    sets = [_Set(card, work, rows, length) for _ in range(_sets(card, work, rows, length))]
    errors: dict[str, float] = {}
    calls: dict[str, list[Any]] = {}
    for kernel in kernels:
        function = functions(kernel.symbol, kernel.shared_bytes)
        launches = [one.launch(card, kernel, function) for one in sets]
        launches[-1]()
        errors[kernel.tiling.name] = sets[-1].error(card)
        calls[kernel.tiling.name] = launches
    torch = card.torch
    if work.kind == "i8":
        # torch has none of integers; the same scores in float16 are what it would be given.
        halves = [one.scores.to(torch.float16) for one in sets]
        outs = [torch.empty_like(half) for half in halves]
        calls["torch.softmax, float16"] = [_softmax(torch, x, y) for x, y in zip(halves, outs, strict=True)]
    else:
        name = "torch.softmax"
        outs = [torch.empty_like(one.scores) for one in sets]
        calls[name] = [_softmax(torch, one.scores, y) for one, y in zip(sets, outs, strict=True)]
    rival = list(calls)[-1]
    times = card.times(calls)
    place = f"{rows}x{length}"
    copy = work.bytes(rows, length) / card.copy_rate()
    for kernel in kernels:
        form = kernel.tiling.name
        name = f"{work.name}, {form}" if tune else work.name
        aim = work.aim
        yield compared(times, form, rival, work=name, place=place, error=errors[form], share=copy, aim=aim)


def _softmax(torch: Any, x: Any, y: Any) -> Any:
    return lambda: torch.softmax(x, -1, out=y)


def _sets(card: Any, work: Work, rows: int, length: int) -> int:
    """Return how many sets of memory leave the cache between two uses."""
    return max(_SETS, -(-3 * card.cache_bytes // work.bytes(rows, length)) + 1)


def _kernel(card: Any, work: Work, form: Tiling, symbol: str) -> RowKernel:
    program, names = work.program(), ("codes", "normalizer")
    if work.codes:
        return row_kernel(program, form, card.dialect, symbol=symbol, max_length=LENGTHS[-1], outputs=names,
                          nibbles=names[:1], scores=work.kind)  # fmt: skip
    return row_kernel(program, form, card.dialect, symbol=symbol, max_length=LENGTHS[-1], scores=work.kind,
                      stored={"probabilities": work.kind})  # fmt: skip


class _Set:
    """Fresh random scores and room for the results."""

    def __init__(self, card: Any, work: Work, rows: int, length: int) -> None:
        torch = card.torch
        self._work, self._rows, self._length = work, rows, length
        types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
        if work.kind == "i8":
            self.scores = torch.randint(-128, 128, (rows, length), dtype=torch.int8, device=card.device)
        else:
            spread = torch.rand((rows, 1), device=card.device) * 4 + 0.5
            self.scores = (torch.randn((rows, length), device=card.device) * spread).to(types[work.kind])
        if work.codes:
            self.results = [
                torch.empty((rows, length // 2), dtype=torch.uint8, device=card.device),
                torch.empty((rows, 1), dtype=torch.float32, device=card.device),
            ]
        else:
            self.results = [torch.empty_like(self.scores)]

    def launch(self, card: Any, kernel: RowKernel, function: Any) -> Any:
        blocks = -(-self._rows // kernel.tiling.rows)
        numbers = [np.int64(self._rows), np.int32(self._length), np.int32(1), np.int32(1)]
        arguments = [self.scores, *self.results, *numbers]
        return lambda: card.launch(function, blocks, kernel.tiling.threads, arguments, kernel.shared_bytes)

    def error(self, card: Any) -> float:
        """Return how far the results of some rows are from float64; wrong ones end the run.

        Raises:
            AssertionError: they are further than the kernel's bound.
        """
        torch = card.torch
        at = torch.randint(0, self._rows, (min(_CHECKED_ROWS, self._rows),), device=card.device)
        at[0], at[-1] = 0, self._rows - 1
        x = self.scores[at].to(torch.float64)
        if self._work.codes:
            return self._error_of_codes(torch, x, [one[at] for one in self.results])
        wanted, found = torch.softmax(x, -1), self.results[0][at].to(torch.float64)
        seen = wanted > 1e-4 if self._work.kind == "f16" else wanted > 1e-6
        error = float(((found - wanted).abs() / wanted)[seen].max())
        rounding = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}[self._work.kind]
        # The distance is a float32 of up to 64, whose rounding the exponential sees; then the sum's, and the result's.
        bound = 64 * 2.0**-24 + 4e-7 + self._length * 2.0**-24 + rounding
        assert error <= bound, f"{self._work.name}: an error of {error:.2e}; the bound is {bound:.2e}"
        return error

    def _error_of_codes(self, torch: Any, x: Any, found: Sequence[Any]) -> float:
        unit = (_STEP if self._work.kind == "i8" else 1.0) * np.log2(np.e)
        wanted = ((x.max(-1, keepdim=True).values - x) * unit).round().clamp(0, 2**_BITS - 1)
        both = torch.stack([found[0] & 15, found[0] >> 4], -1).reshape(x.shape).to(torch.float64)
        differs = both != wanted
        share = float(differs.to(torch.float64).mean())
        assert float((both - wanted).abs().max()) <= 1, "a code differs by more than one"
        # 8-bit scores are multiplied by a fixed-point number, rounded half up: some boundaries are hit exactly.
        assert share <= (2e-2 if self._work.kind == "i8" else 1e-4), f"{share:.1e} of the codes differ"
        weights = torch.where(both < 2**_BITS - 1, torch.exp2(14 - both), 0.0).floor()
        assert torch.equal(weights.sum(-1, keepdim=True).to(torch.float32), found[1].to(torch.float32)), "a sum differs"
        return share
