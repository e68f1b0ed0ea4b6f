"""Reductions: what a thread gathers, and how the threads of a row bring it together.

The exchange is one of two, chosen by the language: registers of a warp that each thread sees (and one word per warp in
shared memory where a row has several warps), or shared memory with barriers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from softq.codegen.common.patterns import marked
from softq.codegen.gpu.dialect.text import I32, Text, converted, literal, unsigned
from softq.codegen.gpu.rows.emission import Emission, KernelContext
from softq.codegen.gpu.rows.tiling import WARP, Tiling
from softq.rowprog.ops import OPS, Rules
from softq.rowprog.program import Node


def _extreme(word: str, sign: str) -> Callable[[bool, str, str], str]:
    return lambda is_float, a, x: f"{word}({a}, {x})" if is_float else f"{a} {sign} {x} ? {a} : {x}"


REDUCTIONS: Rules[Callable[[bool, str, str], str]] = Rules(
    "the GPU emitter",
    {
        "row_max": _extreme("GREATER", ">"),
        "row_min": _extreme("LESSER", "<"),
        "row_sum": lambda is_float, a, x: f"{a} + {x}",
    },
)
"""The text of a reduction of two numbers; the first says whether they are floats."""


class Accumulator:
    """One reduction in one pass: what a thread has gathered stands in a variable.

    Args:
        kernel: What all places share.
        node: The reduction.

    Attributes:
        mark: Another reduction that this one does, too: a maximum of floats that is NaN if an element is tells of one.
    """

    def __init__(self, kernel: KernelContext, node: Node) -> None:
        self.node = node
        self._kernel = kernel
        self._type = kernel.type_of(node)
        self._start = OPS[node.op].of_empty_row(node.dtype)
        self._condition = marked(node)
        self.mark: Accumulator | None = None
        # Sums of parts may leave the interval of the whole; unsigned ones wrap and come back.
        self.held = unsigned(self._type) if node.op == "row_sum" and node.dtype.is_integer else self._type
        if self._condition is not None:
            self.held = I32
        self.name = kernel.text.name("all")

    def start(self) -> None:
        """Declare the variable."""
        start = 0 if self._condition is not None else self._start
        self._kernel.text.line(f"{self.held} {self.name} = {literal(start, self.held)};")

    @property
    def tested(self) -> Node | None:
        """The row of floats of which this says whether an element is NaN: not x = x."""
        condition = self._condition
        if condition is None or condition.op != "not" or condition.args[0].op != "eq":
            return None
        a, b = condition.args[0].args
        return a if a is b and a.dtype.is_float else None

    def add(self, place: Emission) -> None:
        """Take in the element of a place."""
        if self._condition is not None:
            self._kernel.text.line(f"{self.name} |= (i32)({place.arg(self._condition)});")
        else:
            self._kernel.text.line(f"{self.name} = {self.combined(place.arg(self.node.args[0], self.held))};")

    def combined(self, other: str) -> str:
        """Return what was gathered together with something else."""
        if self.mark is not None:
            return f"greater_or_nan({self.name}, {other})"
        if self._condition is not None:
            return f"{self.name} | {other}"
        return REDUCTIONS[self.node.op](self.node.dtype.is_float, self.name, other)

    def bind(self, scalars: Emission) -> None:
        """Let the row's scalars have the result."""
        if self._condition is None:
            scalars.bind(self.node, self.name, self.held)
        else:
            self._keep_mark(scalars, converted(self.name, I32, self._type))
        if self.mark is not None:
            self.mark._keep_mark(scalars, f"({self.mark._type})({self.name} != {self.name})")

    def _keep_mark(self, scalars: Emission, x: str) -> None:
        # A row without elements has no marks, not even 0.
        scalars.keep(self.node, f"length > 0 ? {x} : {literal(self._start, self._type)}")


def find_nans(reductions: Sequence[Accumulator]) -> list[Accumulator]:
    """Return the reductions of a pass, declared, those left out that the maximum of the same row finds by itself."""
    greatest = {r.node.args[0]: r for r in reductions if r.node.op == "row_max" and r.node.dtype.is_float}
    kept: list[Accumulator] = []
    for r in reductions:
        if r.tested is not None and r.tested in greatest:
            greatest[r.tested].mark = r
        else:
            kept.append(r)
    for r in kept:
        r.start()
    return kept


def exchange(text: Text, tiling: Tiling, reductions: Sequence[Accumulator], shuffles: bool) -> None:
    """Let each thread of a row have what all of them gathered."""
    if tiling.group > 1 and reductions:
        (_by_shuffles if shuffles else _by_memory)(text, tiling, reductions)


def _by_shuffles(text: Text, tiling: Tiling, reductions: Sequence[Accumulator]) -> None:
    _shuffle(text, reductions, min(tiling.group, WARP))
    warps = tiling.group // WARP
    if warps <= 1:
        return
    words = [text.name("of_warp") for _ in reductions]
    for r, word in zip(reductions, words, strict=True):
        text.line(f"SHARED {r.held} {word}[{warps}];")
    with text.block(f"if (lane % {WARP} == 0)"):
        for r, word in zip(reductions, words, strict=True):
            text.line(f"{word}[lane / {WARP}] = {r.name};")
    text.line("BARRIER();")
    # Each warp brings the same words together: the result is the same in all threads, to the bit.
    for r, word in zip(reductions, words, strict=True):
        text.line(f"{r.name} = {word}[lane % {warps}];")
    _shuffle(text, reductions, warps)


def _shuffle(text: Text, reductions: Sequence[Accumulator], lanes: int) -> None:
    by = text.name("by")
    with text.block(f"for (i32 {by} = {lanes // 2}; {by} > 0; {by} /= 2)", unroll="UNROLL"):
        for r in reductions:
            text.line(f"{r.name} = {r.combined(f'OF_LANE({r.name}, {by})')};")


def _by_memory(text: Text, tiling: Tiling, reductions: Sequence[Accumulator]) -> None:
    for r in reductions:
        memory = text.name("of_thread")
        text.line(f"SHARED {r.held} {memory}[{tiling.threads}];")
        text.line(f"{memory}[THREAD] = {r.name};")
        text.line("BARRIER();")
        by = text.name("by")
        with text.block(f"for (i32 {by} = {tiling.group // 2}; {by} > 0; {by} /= 2)"):
            with text.block(f"if (lane < {by})"):
                text.line(f"{r.name} = {r.combined(f'{memory}[THREAD + {by}]')};")
                text.line(f"{memory}[THREAD] = {r.name};")
            text.line("BARRIER();")
        text.line(f"{r.name} = {memory}[THREAD - lane];")
