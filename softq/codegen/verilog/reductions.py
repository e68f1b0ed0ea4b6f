"""Reductions over a row: lanes are joined stage by stage, beats in a register with one step at each clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.pipeline import FIRST, SHARED, VALID, Key, Pipeline, Time
from softq.codegen.verilog.plan import CorePlan
from softq.codegen.verilog.rules import CARRY_BITS, compare
from softq.codegen.verilog.signals import Signal, common, literal, shape
from softq.rowprog.program import Node
from softq.rowprog.ranges.interval import Interval

KEEP = "keep"


@dataclass(frozen=True)
class _Kind:
    """How a reduction joins two values.

    Attributes:
        join: The expression of two values of a width.
        levels: How long it takes.
        adds: Whether values are added.
        neutral: What takes the place of a lane without an element, of the interval of the values: it changes nothing.
        better: Whether a value takes the place of the one so far, where they are not added.
    """

    join: Callable[[Signal, Signal, int], str]
    levels: Callable[[int], float]
    adds: bool
    neutral: Callable[[Interval], float]
    better: Callable[[Signal, Signal], str]


def _sum(a: Signal, b: Signal, width: int) -> str:
    return f"{a.to_width(width)} + {b.to_width(width)}"


def _extreme(sign: str) -> Callable[[Signal, Signal, int], str]:
    def join(a: Signal, b: Signal, width: int) -> str:
        return f"{compare(b, sign, a)} ? {b.to_width(width)} : {a.to_width(width)}"

    return join


_KINDS = {
    "row_sum": _Kind(_sum, lambda width: 1 + width / CARRY_BITS, True, lambda values: 0, lambda value, total: ""),
    "row_max": _Kind(
        _extreme(">"),
        lambda width: 2 + width / CARRY_BITS,
        False,
        lambda values: values.low,
        lambda value, total: _greater(value, total),
    ),
    "row_min": _Kind(
        _extreme("<"),
        lambda width: 2 + width / CARRY_BITS,
        False,
        lambda values: values.high,
        lambda value, total: _greater(total, value),
    ),
}


@dataclass(frozen=True)
class Reduced:
    """What lanes come to in one beat.

    Attributes:
        node: The reduction.
        key: The value of one beat in the pipeline.
        time: When it is there.
    """

    node: Node
    key: Key
    time: Time


def join_lanes(module: Module, pipeline: Pipeline, plan: CorePlan, node: Node, name: str) -> Reduced:
    """Write what joins the lanes of a beat."""
    kind = _KINDS[node.op]
    row = node.args[0]
    width, _ = shape(plan.simplified.intervals[row])
    neutral = literal(int(kind.neutral(plan.simplified.intervals[row])), width)
    keys: list[Key] = [(row, lane) for lane in range(plan.settings.lanes)]
    for lane in range(1, plan.settings.lanes):
        begin = pipeline.time(row, lane).within(1)
        value, keep = pipeline.at(row, lane, begin.stage), pipeline.at(KEEP, lane, begin.stage)
        wire = module.wire(
            pipeline.name(f"{name}_lane{lane}", SHARED, begin.stage),
            value.width,
            f"{keep.name} ? {value.name} : {neutral}",
            signed=value.signed,
        )
        keys[lane] = (f"{name}_lane{lane}", SHARED)
        pipeline.put(*keys[lane], wire, Time(begin.stage, begin.level + 1))
    level = 0
    while len(keys) > 1:
        pairs = zip(keys[::2], keys[1::2], strict=True)
        keys = [_join(module, pipeline, kind, a, b, f"{name}_join{level}_{at}") for at, (a, b) in enumerate(pairs)]
        level += 1
    return Reduced(node, keys[0], pipeline.time(*keys[0]))


def _join(module: Module, pipeline: Pipeline, kind: _Kind, a: Key, b: Key, name: str) -> Key:
    """Write what joins two lanes."""
    ready = max(pipeline.time(*a), pipeline.time(*b))
    width, signed = common(pipeline.at(*a, ready.stage), pipeline.at(*b, ready.stage))
    width += kind.adds
    levels = kind.levels(width)
    begin = ready.within(levels)
    x, y = pipeline.at(*a, begin.stage), pipeline.at(*b, begin.stage)
    wire = module.wire(pipeline.name(name, SHARED, begin.stage), width, kind.join(x, y, width), signed=signed)
    pipeline.put(name, SHARED, wire, Time(begin.stage, begin.level + levels))
    return name, SHARED


def accumulate(
    module: Module, pipeline: Pipeline, plan: CorePlan, reduced: Sequence[Reduced], stage: int
) -> dict[Node, Signal]:
    """Write the registers that join the beats of a row, and return them.

    The values are there one clock after the row's last beat was in the stage, until a beat of the next row is.
    """
    first, valid = (pipeline.at(flag, SHARED, stage).name for flag in (FIRST, VALID)) if reduced else ("", "")
    found: dict[Node, Signal] = {}
    for at in reduced:
        width, signed = shape(plan.simplified.intervals[at.node])
        value = pipeline.at(*at.key, stage)
        name = pipeline.name(at.node, SHARED, stage + 1)
        total = module.register(name, width, signed=signed)
        found[at.node] = total
        if at.node.op == "scan":
            module.clocked(name, value.to_width(width), when=valid)
            continue
        kind = _KINDS[at.node.op]
        if kind.adds:
            before = Signal(f"({first} ? {literal(0, width)} : {name})", width, signed)
            module.clocked(name, kind.join(before, value, width), when=valid)
        else:
            better = kind.better(value, total)
            module.clocked(name, value.to_width(width), when=f"{valid} & ({first} | {better})")
    return found


def count_elements(module: Module, pipeline: Pipeline, plan: CorePlan, node: Node, stage: int) -> Signal:
    """Write the number of elements of a row as a reduction, and return its register."""
    width, _ = shape(plan.simplified.intervals[node])
    name = pipeline.name(node, SHARED, stage + 1)
    keeps = [pipeline.at(KEEP, lane, stage).to_width(width) for lane in range(1, plan.settings.lanes)]
    first, valid = (pipeline.at(flag, SHARED, stage).name for flag in (FIRST, VALID))
    count = module.register(name, width)
    more = " + ".join([f"({first} ? {literal(0, width)} : {name})", literal(1, width), *keeps])
    module.clocked(name, more, when=valid)
    return count


def _greater(a: Signal, b: Signal) -> str:
    """Return a > b in tables of four inputs, two bits each: faster in a loop of one clock than a chain of carries."""
    width = max(a.width, b.width)
    assert (a.signed, a.width) == (b.signed, b.width), (a, b)

    def bit(x: Signal, at: int) -> str:
        return f"{x.base}[{x.lowest + at}]" if (x.whole or x.width) > 1 else x.base

    groups: list[tuple[str, str]] = []
    for high in range(width - 1, -1, -2):
        p, q = bit(a, high), bit(b, high)
        if a.signed and high == width - 1:
            p, q = q, p
        more, same = f"({p} & ~{q})", f"({p} ~^ {q})"
        if high > 0:
            r, s = bit(a, high - 1), bit(b, high - 1)
            more, same = f"({more} | ({same} & {r} & ~{s}))", f"({same} & ({r} ~^ {s}))"
        groups.append((more, same))
    while len(groups) > 1:
        joined: list[tuple[str, str]] = []
        for at in range(0, len(groups) - 1, 2):
            (m0, s0), (m1, s1) = groups[at], groups[at + 1]
            joined.append((f"({m0} | ({s0} & {m1}))", f"({s0} & {s1})"))
        if len(groups) % 2:
            joined.append(groups[-1])
        groups = joined
    return groups[0][0]
