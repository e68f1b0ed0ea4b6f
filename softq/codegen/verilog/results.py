"""What leaves a core: results of elements through a small memory, and the numbers of a row."""

from __future__ import annotations

from collections.abc import Sequence

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.pipeline import LAST, SHARED, VALID, Pipeline
from softq.codegen.verilog.plan import CorePlan
from softq.codegen.verilog.reductions import KEEP
from softq.codegen.verilog.signals import Signal, literal
from softq.rowprog.program import Node


def give_results(module: Module, pipe: Pipeline, plan: CorePlan, stage: int, words: int) -> str:
    """Write the stream of results, and return the register that says that a beat has left a clock before.

    Args:
        module: Where it is written.
        pipe: The last pass.
        plan: The core.
        stage: The stage in which results are there.
        words: Beats that the memory holds, a power of two.
    """
    lanes, row, valid = plan.settings.lanes, plan.field(plan.row), pipe.at(VALID, SHARED, stage).name
    module.part("Results")
    parts = [pipe.at(row.node, lane, stage).to_width(row.width) for lane in range(lanes)]
    parts += [pipe.at(KEEP, lane, stage).name for lane in range(1, lanes)]
    head = 0 if plan.head is None else plan.field(plan.head).width
    last = pipe.at(LAST, SHARED, stage).name
    parts += [] if plan.cut is None else [f"{pipe.at(plan.cut, SHARED, stage).name} & {last}"]
    parts += [] if plan.head is None else [pipe.at(plan.head, SHARED, stage).to_width(head)]
    parts.append(last)
    leave = module.undriven("results_leave", 1).name
    # Positions have a bit more than the memory asks for: they are equal only where it is empty.
    whole, bits = row.width * lanes + lanes + (plan.cut is not None) + head, words.bit_length()
    # Without a style: devices without distributed memory take flip-flops.
    module.memory("results", whole, words)
    module.register("results_write", bits, f"results_write + {bits}'d1", when=valid, start=0)
    module.clocked(f"results[results_write[{bits - 2}:0]]", f"{{{', '.join(reversed(parts))}}}", when=valid)
    module.register("results_read", bits, f"results_read + {bits}'d1", when=leave, start=0)
    module.wire("results_beat", whole, f"results[results_read[{bits - 2}:0]]")
    fields = [Signal("results_beat", row.width, row.signed, None, row.width * lane, whole) for lane in range(lanes)]
    kept = ["1'b1", *(f"results_beat[{row.width * lanes + lane - 1}]" for lane in range(1, lanes))]
    data = _join_fields(plan, fields, kept)
    last = f"results_beat[{whole - 1}]"
    beside = [("m_axis_tlast", 1, last)]
    if plan.cut is not None:
        beside.append(("m_axis_tuser", 1, f"results_beat[{whole - 2 - head}]"))
    if head:
        name = Signal("results_beat", head, False, None, whole - 1 - head, whole).name
        beside.append(("m_axis_tid", head, name))
    if plan.gathered > 1:
        _gather(module, plan, leave, data, beside)
    else:
        module.assign("m_axis_tvalid", "results_write != results_read")
        module.assign(leave, "m_axis_tvalid & m_axis_tready")
        module.assign("m_axis_tdata", data)
        if plan.results_end_early:
            module.assign("m_axis_tkeep", f"{{{', '.join(reversed(_keep_bytes(plan, kept)))}}}")
        for port, _, value in beside:
            module.assign(port, value)
    return module.register("results_left", 1, leave, start=0).name


def _join_fields(plan: CorePlan, fields: Sequence[Signal], kept: Sequence[str]) -> str:
    """Return results side by side, the first lowest; one that is not there is 0 where it shares a byte."""
    bits, parts = plan.result_bits, list[str]()
    for lane, field in enumerate(fields):
        wide = field.to_width(bits)
        parts.append(wide if lane * bits % 8 == 0 else f"{{{bits}{{{kept[lane]}}}}} & {wide}")
    return f"{{{', '.join(reversed(parts))}}}"


def _keep_bytes(plan: CorePlan, kept: Sequence[str]) -> list[str]:
    """Return for each byte of a beat whether it holds a result: that of its first lane is there."""
    return [kept[8 * byte // plan.result_bits] for byte in range(plan.result_bytes)]


def _gather(module: Module, plan: CorePlan, leave: str, data: str, beside: Sequence[tuple[str, int, str]]) -> None:
    """Write the register in which the results of several beats come together: a byte, or what a row leaves of one.

    Args:
        module: Where it is written.
        plan: The core.
        leave: The wire that says that a beat comes.
        data: Its results.
        beside: Ports beside the data, the end of the row first, with their bits and what they are in this beat.
    """
    last = beside[0][2]
    width, bits = plan.result_bits * plan.settings.lanes, (plan.gathered - 1).bit_length()
    full, at = "gathered_full", "gathered_at"
    module.register(full, 1, start=0)
    module.assign(leave, f"(results_write != results_read) & (~{full} | m_axis_tready)")
    module.register(at, bits, f"{last} ? {bits}'d0 : {at} + {bits}'d1", when=leave, start=0)
    module.clocked(full, f"{leave} ? {last} | (&{at}) : {full} & ~m_axis_tready")
    names: list[str] = []
    for slot in range(plan.gathered):
        names.append(f"gathered_{slot}")
        module.register(names[-1], width)
        module.clocked(names[-1], f"{width}'d0", when=f"{leave} & ({at} == {bits}'d0)")
        module.clocked(names[-1], data, when=f"{leave} & ({at} == {bits}'d{slot})")
    module.assign("m_axis_tvalid", full)
    module.assign("m_axis_tdata", f"{{{', '.join(reversed(names))}}}")
    for port, bits, value in beside:
        module.assign(port, module.register(f"gathered_{port[7:]}", bits, value, when=leave).name)


def give_numbers(module: Module, plan: CorePlan, prefix: str, wanted: Sequence[Node]) -> None:
    """Write the stream of the numbers of rows.

    Args:
        module: Where it is written.
        plan: The core.
        prefix: What names of the last pass begin with.
        wanted: The numbers that it holds, in their order.
    """
    parts: list[str] = []
    for node in plan.numbers.values():
        field, fixed = plan.field(node), plan.simplified.constant(node)
        if fixed is None:
            held = Signal(f"{prefix}_hold_{list(wanted).index(node)}", field.width, field.signed)
            parts.append(held.to_width(field.padded))
        else:
            parts.append(literal(fixed, field.padded))
    module.assign("n_axis_tdata", f"{{{', '.join(reversed(parts))}}}")
    module.assign("n_axis_tvalid", f"{prefix}_hold_full")
    module.assign(f"{prefix}_taken", "n_axis_tvalid & n_axis_tready")
