"""The scores that enter the first pass, from their stream."""

from __future__ import annotations

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.pipeline import FIRST, LAST, SHARED, VALID, Pipeline, Time
from softq.codegen.verilog.plan import CorePlan
from softq.codegen.verilog.reductions import KEEP
from softq.rowprog.program import Node


def take_stream(module: Module, pipe: Pipeline, plan: CorePlan, may_begin: str, *, stays: bool) -> None:
    """Write the registers that take beats of scores, and when there is room for one.

    Args:
        module: Where they are written.
        pipe: The first pass.
        plan: The core.
        may_begin: The condition that a row may begin.
        stays: Whether a beat stays until the next one enters, since its elements are computed step by step.
    """
    zero, lanes = Time(0), plan.settings.lanes
    enter, begins = "p0_enter", "p0_begins"
    has_room = f"p0_room & (~{begins} | {may_begin})"
    when = enter if stays else ""
    if (cut := plan.cut) is None:
        ends = "s_axis_tlast"
        module.assign("s_axis_tready", has_room)
        module.assign(enter, "s_axis_tvalid & s_axis_tready")
    else:
        ends = _cut_rows(module, pipe, plan, enter, has_room, cut)
    module.register(begins, 1, ends, when=enter, start=1)
    module.assign("p0_enter_first", f"{enter} & {begins}")
    pipe.put(VALID, SHARED, module.register(pipe.name(VALID, SHARED, 0), 1, enter, start=0), zero)
    pipe.put(FIRST, SHARED, module.register(pipe.name(FIRST, SHARED, 0), 1, begins, when=when), zero)
    pipe.put(LAST, SHARED, module.register(pipe.name(LAST, SHARED, 0), 1, ends, when=when), zero)
    if (head := plan.head) is not None:
        name, width = pipe.name(head, SHARED, 0), plan.field(head).width
        pipe.put(head, SHARED, module.register(name, width, "s_axis_tid", when="p0_enter_first"), zero)
    scores = plan.score_field
    for lane in range(lanes):
        low = scores.width * lane
        part = f"s_axis_tdata[{low + scores.width - 1}:{low}]"
        name = pipe.name(scores.node, lane, 0)
        score = module.register(name, scores.width, part, when=when, signed=scores.signed)
        pipe.put(scores.node, lane, score, zero)
        bits: list[tuple[Node | str, str]] = []
        if "valid" in plan.inputs:
            bits.append((plan.inputs["valid"], "s_axis_tuser"))
        if lane:
            bits.append((KEEP, "s_axis_tkeep"))
        for value, port in bits:
            bit = f"{port}[{lane}]" if lanes > 1 else port
            pipe.put(value, lane, module.register(pipe.name(value, lane, 0), 1, bit, when=when), zero)


def _cut_rows(module: Module, pipe: Pipeline, plan: CorePlan, enter: str, has_room: str, cut: Node) -> str:
    """Write what ends a row that is too long and then takes the rest of it; return what ends a row."""
    bits = (plan.settings.beats - 1).bit_length()
    first = (1 << bits) - plan.settings.beats + 1
    count, drains = "p0_count", "p0_drains"
    # From such a number on that the highest bit is set in the last beat that a row may have.
    full = f"{count}[{bits}]" if bits else count
    ends = module.wire("p0_ends", 1, f"s_axis_tlast | {full}").name
    begin, one = f"{bits + 1}'d{first}", f"{bits + 1}'d1"
    module.register(count, bits + 1, f"{ends} ? {begin} : {count} + {one}", when=enter, start=first)
    module.register(drains, 1, start=0)
    done = f"{drains} & ~(s_axis_tvalid & s_axis_tlast)"
    module.clocked(drains, f"({enter} & {full} & ~s_axis_tlast) | ({done})")
    module.assign("s_axis_tready", f"{drains} | ({has_room})")
    module.assign(enter, f"s_axis_tvalid & ~{drains} & {has_room}")
    mark = module.register(pipe.name(cut, SHARED, 0), 1, f"{full} & ~s_axis_tlast", when=enter)
    pipe.put(cut, SHARED, mark, Time(0))
    return ends
