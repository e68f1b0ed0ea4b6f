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
    parts += [] if plan.head is None else [pipe.at(plan.head, SHARED, stage).to_width(head)]
    parts.append(pipe.at(LAST, SHARED, stage).name)
    leave = module.undriven("results_leave", 1).name
    # Positions have a bit more than the memory asks for: they are equal only where it is empty.
    whole, bits = row.width * lanes + lanes + head, words.bit_length()
    module.memory("results", whole, words, 'ram_style = "distributed"')
    module.register("results_write", bits, f"results_write + {bits}'d1", when=valid, start=0)
    module.clocked(f"results[results_write[{bits - 2}:0]]", f"{{{', '.join(reversed(parts))}}}", when=valid)
    module.register("results_read", bits, f"results_read + {bits}'d1", when=leave, start=0)
    module.wire("results_beat", whole, f"results[results_read[{bits - 2}:0]]")
    module.line("assign m_axis_tvalid = results_write != results_read;")
    module.line(f"assign {leave} = m_axis_tvalid & m_axis_tready;")
    fields = [
        Signal("results_beat", row.width, row.signed, None, row.width * lane, whole).to_width(row.padded)
        for lane in reversed(range(lanes))
    ]
    module.line(f"assign m_axis_tdata = {{{', '.join(fields)}}};")
    module.line(f"assign m_axis_tlast = results_beat[{whole - 1}];")
    if lanes > 1:
        kept = ", ".join(f"results_beat[{row.width * lanes + lane - 1}]" for lane in reversed(range(1, lanes)))
        module.line(f"assign m_axis_tkeep = {{{kept}, 1'b1}};")
    if head:
        module.line(f"assign m_axis_tid = {Signal('results_beat', head, False, None, whole - 1 - head, whole).name};")
    return module.register("results_left", 1, leave, start=0).name


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
    module.line(f"assign n_axis_tdata = {{{', '.join(reversed(parts))}}};")
    module.line(f"assign n_axis_tvalid = {prefix}_hold_full;")
    module.line(f"assign {prefix}_taken = n_axis_tvalid & n_axis_tready;")
