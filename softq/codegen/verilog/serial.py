"""Units that take many clocks for one result, and that several values of a row share.

A job gives a unit its operands at the end of a step; the result is in a register of its own `clocks` steps later, and
the unit is free one step before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.signals import Signal


@dataclass(frozen=True)
class Job:
    """One use of a unit.

    Attributes:
        step: The step at whose end it takes the operands.
        operands: They.
        result: The register of the result; it has its width.
        part: Which of several results that is.
    """

    step: int
    operands: tuple[Signal, ...]
    result: Signal
    part: str = ""


IsStep = Callable[[int], str]


def clocks_of_product(jobs: Sequence[tuple[Signal, Signal]]) -> int:
    """Return the clocks of a multiplication: one for each bit of the greatest factor that is taken bit by bit."""
    return max(_order(*job)[1].width for job in jobs)


def multiply(
    module: Module, name: str, jobs: Sequence[Job], clocks: int, is_step: IsStep, *, at_once: bool = False
) -> None:
    """Write a unit that adds one of the factors for each bit of the other, which is at least 0.

    Args:
        module: Where it is written.
        name: What its names begin with.
        jobs: What it computes.
        clocks: As `clocks_of_product` says.
        is_step: Gives the condition that this is a step.
        at_once: Whether its operands are chosen at once, of which one is loaded in a step, not one after the other:
            fewer tables where there are many.
    """
    pairs = _share([_order(*job.operands) for job in jobs], clocks)
    width = max(a.width + (not a.signed) for a, _ in pairs)
    module.register(f"{name}_factor", width)
    module.register(f"{name}_sum", width + 1)
    module.register(f"{name}_bits", clocks)
    # A register of one bit has no bits to select.
    low = f"{name}_bits[0]" if clocks > 1 else f"{name}_bits"
    sign = f"{name}_factor[{width - 1}]" if width > 1 else f"{name}_factor"
    added = f"{{{width + 1}{{{low}}}}} & {{{sign}, {name}_factor}}"
    module.wire(f"{name}_added", width + 1, added)
    module.wire(f"{name}_next", width + 2, f"$signed({name}_sum) + $signed({name}_added)")
    rest = f"{name}_bits[{clocks - 1}:1]" if clocks > 1 else ""
    module.clocked(f"{name}_sum", f"{name}_next[{width + 1}:1]")
    shifted = f"{{{name}_next[0]{', ' if rest else ''}{rest}}}"
    if not at_once:
        module.clocked(f"{name}_bits", shifted)
    for at, (side, size) in enumerate((("factor", width), ("bits", clocks))):
        # Jobs that take the same operand load it together.
        loads = (
            (
                " | ".join(is_step(job.step) for job, pair in zip(jobs, pairs, strict=True) if pair[at] == operand),
                operand.to_width(size),
            )
            for operand in dict.fromkeys(pair[at] for pair in pairs)
        )
        if at_once:
            _load_at_once(module, f"{name}_{side}", list(loads), size, shifted if side == "bits" else "")
            continue
        for when, operand in loads:
            module.clocked(f"{name}_{side}", operand, when=when)
    module.clocked(f"{name}_sum", f"{width + 1}'d0", when=" | ".join(is_step(job.step) for job in jobs))
    for job in jobs:
        whole = Signal(f"{name}_result", width + 1 + clocks, True)
        module.clocked(job.result.name, whole.to_width(job.result.width), when=is_step(job.step + clocks))
    module.wire(
        f"{name}_result",
        width + 1 + clocks,
        f"{{{name}_next[{width + 1}:1], {name}_next[0]{', ' if rest else ''}{rest}}}",
    )


def _load_at_once(module: Module, name: str, loads: Sequence[tuple[str, str]], width: int, otherwise: str) -> None:
    """Write what a register takes of several values, of whose conditions at most one holds, and what if none does."""
    if len(loads) == 1 and not otherwise:
        module.clocked(name, loads[0][1], when=loads[0][0])
        return
    parts = [f"({{{width}{{{when}}}}} & {value})" for when, value in loads]
    loaded = " | ".join(when for when, _ in loads)
    if otherwise:
        parts.append(f"({{{width}{{~({loaded})}}}} & {otherwise})")
    module.clocked(name, " | ".join(parts), when="" if otherwise else loaded)


def _order(a: Signal, b: Signal) -> tuple[Signal, Signal]:
    """Return the factor that is added, and the one whose bits are taken, which has no sign."""
    plain = sorted((x for x in (a, b) if not x.signed), key=lambda x: x.width)
    assert plain, "a product of two values that may both be negative"
    taken = plain[0]
    return (b if taken is a else a), taken


def _share(pairs: list[tuple[Signal, Signal]], clocks: int) -> list[tuple[Signal, Signal]]:
    """Return the pairs, some with their sides exchanged, so that each side loads few different operands."""

    def operands(chosen: Sequence[tuple[Signal, Signal]]) -> int:
        return sum(len(set(side)) for side in zip(*chosen, strict=True))

    found = list(pairs)
    for at, (factor, bits) in enumerate(pairs):
        other = [*found[:at], (bits, factor), *found[at + 1 :]]
        if not factor.signed and factor.width <= clocks and operands(other) < operands(found):
            found = other
    return found


def divide(module: Module, name: str, jobs: Sequence[Job], clocks: int, is_step: IsStep) -> None:
    """Write a unit that finds one bit of a quotient at each clock; the quotient has at most `clocks` bits."""
    width = max(job.operands[1].width for job in jobs)
    module.register(f"{name}_divisor", width)
    module.register(f"{name}_left", width)
    module.register(f"{name}_bits", clocks)
    module.wire(f"{name}_trial", width + 1, f"{{{name}_left, {name}_bits[{clocks - 1}]}}")
    module.wire(f"{name}_less", width + 2, f"{{1'b0, {name}_trial}} - {{2'b0, {name}_divisor}}")
    rest = f"{name}_bits[{clocks - 2}:0], " if clocks > 1 else ""
    module.wire(f"{name}_next", clocks, f"{{{rest}~{name}_less[{width + 1}]}}")
    module.clocked(
        f"{name}_left", f"{name}_less[{width + 1}] ? {name}_trial[{width - 1}:0] : {name}_less[{width - 1}:0]"
    )
    module.clocked(f"{name}_bits", f"{name}_next")
    for job in jobs:
        dividend, divisor = job.operands
        at = is_step(job.step)
        rest_of = dividend.drop(clocks) if dividend.width > clocks else Signal("1'b0", 1, False, 0)
        module.clocked(f"{name}_divisor", divisor.to_width(width), when=at)
        module.clocked(f"{name}_left", rest_of.to_width(width), when=at)
        module.clocked(f"{name}_bits", dividend.to_width(clocks), when=at)
        quotient = Signal(f"{name}_next", clocks, False)
        module.clocked(job.result.name, quotient.to_width(job.result.width), when=is_step(job.step + clocks))


NORMALIZING_CLOCKS = 32


def normalize(module: Module, name: str, jobs: Sequence[Job], is_step: IsStep) -> None:
    """Write a unit that shifts a value to the left until its 32nd bit is set, and counts."""
    module.register(f"{name}_value", 32)
    module.register(f"{name}_count", 5)
    more = f"~{name}_value[31]"
    module.clocked(f"{name}_value", f"{{{name}_value[30:0], 1'b0}}", when=more)
    module.clocked(f"{name}_count", f"{name}_count + 5'd1", when=more)
    for job in jobs:
        at = is_step(job.step)
        module.clocked(f"{name}_value", job.operands[0].to_width(32), when=at)
        module.clocked(f"{name}_count", "5'd0", when=at)
        found = Signal(f"{name}_value", 32, False) if job.part == "mantissa" else Signal(f"{name}_count", 5, False)
        width = job.result.width
        module.clocked(job.result.name, found.to_width(width), when=is_step(job.step + NORMALIZING_CLOCKS))
