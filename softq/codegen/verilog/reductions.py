"""Reductions over a row: lanes are joined stage by stage, beats in a register with one step at each clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.pipeline import FIRST, LAST, SHARED, VALID, Pipeline, Time
from softq.codegen.verilog.rules import CARRY_BITS, compare
from softq.codegen.verilog.signals import Signal, shape
from softq.codegen.verilog.simplification import Simplified
from softq.errors import RefusalError
from softq.rowprog.program import Node

KEEP = "keep"


@dataclass(frozen=True)
class _Kind:
    """How a reduction joins two values.

    Attributes:
        join: The expression of two values of a width.
        levels: How long it takes.
        drop: What takes the place of a lane without an element: 0, or the first lane's.
    """

    join: Callable[[Signal, Signal, int], str]
    levels: Callable[[int], float]
    drops_to_zero: bool


def _sum(a: Signal, b: Signal, width: int) -> str:
    return f"{a.to_width(width)} + {b.to_width(width)}"


def _extreme(sign: str) -> Callable[[Signal, Signal, int], str]:
    def join(a: Signal, b: Signal, width: int) -> str:
        return f"{compare(b, sign, a)} ? {b.to_width(width)} : {a.to_width(width)}"

    return join


_KINDS = {
    "row_sum": _Kind(_sum, lambda width: 1 + width / CARRY_BITS, True),
    "row_max": _Kind(_extreme(">"), lambda width: 2 + width / CARRY_BITS, False),
    "row_min": _Kind(_extreme("<"), lambda width: 2 + width / CARRY_BITS, False),
}


@dataclass(frozen=True)
class Reduced:
    """What lanes come to in one beat.

    Attributes:
        node: The reduction.
        signal: The value of one beat, a key of the pipeline.
        time: When it is there.
    """

    node: Node
    key: str
    time: Time


def join_lanes(module: Module, pipeline: Pipeline, simplified: Simplified, node: Node, lanes: int, name: str) -> Reduced:
    """Write what joins the lanes of a beat.

    Raises:
        RefusalError: the reduction has no form in hardware.
    """
    kind = _KINDS.get(node.op)
    if kind is None:
        raise RefusalError(f"{node.op} has no form in hardware yet")
    row = node.args[0]
    keys: list[tuple[object, int]] = [(row, lane) for lane in range(lanes)]
    for lane in range(1, lanes):
        time = pipeline.time(row, lane)
        begin = time.within(1)
        value = pipeline.at(row, lane, begin.stage)
        keep = pipeline.at(KEEP, lane, begin.stage)
        other = f"{value.width}'h0" if kind.drops_to_zero else pipeline.at(row, 0, begin.stage).name
        key = f"{name}_lane{lane}"
        wire = module.wire(
            pipeline.name(key, SHARED, begin.stage), value.width, f"{keep.name} ? {value.name} : {other}",
            signed=value.signed,
        )  # fmt: skip
        pipeline.put(key, SHARED, wire, Time(begin.stage, begin.level + 1))
        keys[lane] = (key, SHARED)
    level = 0
    while len(keys) > 1:
        joined: list[tuple[object, int]] = []
        for pair in range(0, len(keys), 2):
            (a, of_a), (b, of_b) = keys[pair], keys[pair + 1]
            joined.append((_join(module, pipeline, kind, (a, of_a), (b, of_b), f"{name}_tree{level}_{pair // 2}"), SHARED))
        keys, level = joined, level + 1
    key, lane = keys[0]
    return Reduced(node, key, pipeline.time(key, lane))  # type: ignore[arg-type]


def _join(module, pipeline, kind, a, b, key):  # noqa: ANN001, ANN202
    ready = max(pipeline.time(*a), pipeline.time(*b))
    x, y = pipeline.at(*a, ready.stage), pipeline.at(*b, ready.stage)
    signed = x.signed or y.signed
    width = max(x.width + (signed and not x.signed), y.width + (signed and not y.signed)) + kind.drops_to_zero
    levels = kind.levels(width)
    begin = ready.within(levels)
    x, y = pipeline.at(*a, begin.stage), pipeline.at(*b, begin.stage)
    wire = module.wire(pipeline.name(key, SHARED, begin.stage), width, kind.join(x, y, width), signed=signed)
    pipeline.put(key, SHARED, wire, Time(begin.stage, begin.level + levels))
    return key


def accumulate(
    module: Module, pipeline: Pipeline, simplified: Simplified, reduced: Sequence[Reduced], lanes: int, stage: int
) -> dict[Node, Signal]:
    """Write the registers that join the beats of a row, in one stage, and return them: the values are there one clock
    after the row's last beat was in this stage."""
    found: dict[Node, Signal] = {}
    for at in reduced:
        kind = _KINDS[at.node.op]
        width, signed = shape(simplified.intervals[at.node])
        value = pipeline.at(at.key, 0 if not isinstance(at.key, str) else SHARED, stage)
        first = pipeline.at(FIRST, SHARED, stage)
        valid = pipeline.at(VALID, SHARED, stage)
        name = pipeline.name(at.node, SHARED, stage + 1)
        total = module.register(name, width, signed=signed)
        if kind.drops_to_zero:
            before = Signal(f"({first.name} ? {width}'h0 : {name})", width, signed)
            module.clocked(name, kind.join(before, value, width), when=valid.name)
        else:
            sign = ">" if at.node.op == "row_max" else "<"
            wins = _greater(value, total) if sign == ">" else _greater(total, value)
            module.clocked(name, value.to_width(width), when=f"{valid.name} & ({first.name} | {wins})")
        found[at.node] = total
    return found


def _greater(a: Signal, b: Signal) -> str:
    """Return a > b in tables of four inputs, of two bits each: in a loop of one clock faster than a chain of carries."""
    width = max(a.width, b.width)
    assert a.signed == b.signed and a.width == b.width, (a, b)

    def bit(x: Signal, at: int, other: bool) -> str:
        return f"{x.base}[{x.lowest + at}]" if (x.whole or x.width) > 1 else x.base

    groups: list[tuple[str, str]] = []
    for high in range(width - 1, -1, -2):
        p, q = bit(a, high, False), bit(b, high, False)
        if a.signed and high == width - 1:
            p, q = q, p
        more, same = f"({p} & ~{q})", f"({p} ~^ {q})"
        if high > 0:
            r, s = bit(a, high - 1, False), bit(b, high - 1, False)
            more, same = f"({more} | ({same} & {r} & ~{s}))", f"({same} & ({r} ~^ {s}))"
        groups.append((more, same))
    while len(groups) > 1:
        joined = []
        for at in range(0, len(groups) - 1, 2):
            (m0, s0), (m1, s1) = groups[at], groups[at + 1]
            joined.append((f"({m0} | ({s0} & {m1}))", f"({s0} & {s1})"))
        if len(groups) % 2:
            joined.append(groups[-1])
        groups = joined
    return groups[0][0]
