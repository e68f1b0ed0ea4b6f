"""A core of weights and their product with V: for each score comes a row of V, for each row of scores a row of results.

A core of its own computes the weights. Beside each of them, as it leaves that core, the row of V of the same element is
taken in one beat or more, is weighed and added to the sums of the row, one for each element of a row of V. When the
last element is added, the sums move to a place of their own, and leave one after another, each divided, while the next
row is added up; its last element waits until they have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from softq.codegen.verilog.averages import Averages, Drain, give_sums
from softq.codegen.verilog.cells import Cells, count_cells
from softq.codegen.verilog.core import Core, write_core
from softq.codegen.verilog.description import describe_tables, describe_values
from softq.codegen.verilog.estimate import Resources, describe_estimate, estimate
from softq.codegen.verilog.module import CLOCK, RESET, Module, Port
from softq.codegen.verilog.signals import Signal, literal
from softq.codegen.verilog.weighing import Weighing
from softq.codegen.verilog.weighted_plan import NORMALIZER, VALUE_BITS, WeightedPlan

_FEW_SUMS = 32
"""Words of sums up to which tools have the choice, and take distributed memory where there is any."""


@dataclass(frozen=True)
class WeightedCore:
    """A core of weights and their product with V.

    Attributes:
        plan: What it is made of.
        name: The module's name.
        weights: The core of the weights.
        text: Both modules.
        module: What the outer one was written from.
        added: Clocks from a beat of V taken to its elements added.
        drain: When the sums of a row leave.
    """

    plan: WeightedPlan
    name: str
    weights: Core
    text: str
    module: Module = field(repr=False, compare=False)
    added: int
    drain: Drain

    @cached_property
    def cells(self) -> tuple[Cells, ...]:
        """What its modules are made of."""
        return (*self.weights.cells, count_cells(self.module, self.plan.ports))

    @cached_property
    def resources(self) -> Resources:
        """What it takes, before synthesis: an estimate."""
        return estimate(self.cells)

    @property
    def passes(self) -> int:
        """How many passes over a row of scores there are."""
        return self.weights.passes

    @property
    def longest(self) -> int:
        """Elements of the longest row."""
        return self.plan.rows.settings.length

    def latency(self, length: int) -> int:
        """Return the clocks of one row from its first beat of scores taken to its last result given, both counted, if
        nothing outside makes it wait."""
        values, drain = self.plan.settings, self.drain
        first = self.weights.latency(length) - length + 1
        left = drain.element + (values.width - 1) * drain.every + (values.chunks - 1) * drain.gap
        return first + length * values.chunks - 1 + self.added + left

    def interval(self, length: int) -> float:
        """Return the clocks from one row to the next, on average, if rows of a length come without a gap and nothing
        outside makes them wait."""
        values, drain = self.plan.settings, self.drain
        # The last element of a row is added when all sums of the row before have left, but for the one on its way.
        moved = values.chunks + self.added + 1 + (values.chunks - 1) * drain.gap
        if values.width > 1:
            moved += 1 + (values.width - 2) * drain.every + drain.behind
        return max(length * values.chunks, moved, values.width * drain.every, self.weights.interval(length))

    def describe(self) -> dict[str, object]:
        """Return what the core is, as plain values."""
        plan = self.plan
        outputs: dict[str, object] = {
            plan.result_name: {
                "bits": plan.result_bits,
                "signed": True,
                "field": plan.padded,
                "fraction": plan.settings.fraction if plan.divides else 0,
            }
        }
        if plan.gives_normalizer and plan.normalizer is not None:
            field = plan.normalizer
            outputs[NORMALIZER] = {"bits": field.width, "signed": field.signed, "field": field.padded}
        lengths = sorted({1, plan.rows.settings.length})
        return {
            "ports": [
                {"name": port.name, "width": port.width, "output": port.output, "meaning": port.meaning}
                for port in plan.ports
            ],
            "outputs": outputs,
            "passes": len(self.weights.clocks),
            "latency": {str(length): self.latency(length) for length in lengths},
            "interval": {str(length): self.interval(length) for length in lengths},
            "estimate": describe_estimate(self.resources, self.latency(lengths[-1]), self.interval(lengths[-1])),
            "values": describe_values(plan.rows),
            "tables": describe_tables(plan.rows),
        }


def write_weighted_sum(plan: WeightedPlan, name: str, head: Sequence[str] = ()) -> WeightedCore:
    """Return a core; the same plan always gives the same text.

    Args:
        plan: What it is made of.
        name: The module's name.
        head: Lines of comment before it.
    """
    weights = write_core(plan.rows, f"{name}_weights", head)
    module = Module(name, reset=plan.rows.settings.reset)
    _place(module, plan, weights.name)
    stage = _take_beats(module, plan)
    _add(module, plan, stage)
    drain = Averages(module, plan).write() if plan.divides else give_sums(module, plan)
    text = f"{weights.text}\n{module.text(plan.ports, ['The weights and their product with V.'])}"
    return WeightedCore(plan, name, weights, text, module, stage + 1 + 2 * (plan.settings.chunks > 1), drain)


def _place(module: Module, plan: WeightedPlan, name: str) -> None:
    """Write the core of the weights."""
    module.part("Weights")
    inner = [port for port in plan.rows.ports if port.name[:7] in ("m_axis_", "n_axis_")]
    for port in inner:
        module.undriven(_inner(port), port.width)
    given = {CLOCK: CLOCK, **({RESET: RESET} if plan.rows.settings.reset else {})}
    module.instance(
        name, "weights", {**given, **{p.name: _inner(p) if p in inner else p.name for p in plan.rows.ports}}
    )


def _inner(port: Port) -> str:
    return port.name.replace("_axis_", "_inner_")


def _take_beats(module: Module, plan: WeightedPlan) -> int:
    """Write the beats that enter and their products; return the stage in which these are there."""
    values = plan.settings
    module.part("Beats that enter: a weight, and a row of V in one beat or more")
    module.undriven("held_begun", 1)
    last = "m_inner_tlast"
    if values.chunks > 1:
        bits = (values.chunks - 1).bit_length()
        module.register("chunk_0", bits, start=0)
        module.clocked("chunk_0", f"chunk_0_last ? {literal(0, bits)} : chunk_0 + {literal(1, bits)}", when="enter")
        module.wire("chunk_0_last", 1, f"chunk_0 == {literal(values.chunks - 1, bits)}")
        module.register("begins", 1, last, when="enter & chunk_0_last", start=1)
    # A row ends only where the place for its sums is free: with its first beat that is taken.
    begun = " & ~|chunk_0" if values.chunks > 1 else ""
    module.wire("may_enter", 1, f"m_inner_tvalid & ~({last}{begun} & held_begun)")
    module.assign("v_axis_tready", "may_enter")
    module.wire("enter", 1, "may_enter & v_axis_tvalid")
    module.assign("m_inner_tready", f"enter{' & chunk_0_last' if values.chunks > 1 else ''}")
    position = Signal("m_inner_tdata", plan.position.width, False, None, 0, plan.position.padded)
    lanes = VALUE_BITS * values.lanes
    elements = [
        Signal("v_axis_tdata", VALUE_BITS, True, None, VALUE_BITS * lane, lanes) for lane in range(values.lanes)
    ]
    module.part("Products")
    stage, products = Weighing(module, plan, position, elements).write()
    flags = {"valid": "enter", "last": last}
    if values.chunks > 1:
        flags |= {"first": "begins", "chunk": "chunk_0"}
    for flag, source in flags.items():
        width = (values.chunks - 1).bit_length() if flag == "chunk" else 1
        for at in range(1, stage + 1 + (values.chunks > 1)):
            before = source if at == 1 else f"{flag}_{at - 1}"
            module.register(f"{flag}_{at}", width, before, start=0 if flag == "valid" else None)
    for lane, value in enumerate(products):
        module.wire(f"weighed_{lane}", plan.sum_bits, value.to_width(plan.sum_bits))
    return stage


def _add(module: Module, plan: WeightedPlan, stage: int) -> None:
    """Write the sums of a row, and the place from which those of a whole row leave: `held`, while `held_full`."""
    bits, values = plan.sum_bits, plan.settings
    module.part("Sums")
    whole = bits * values.lanes
    module.undriven("held_left", 1)
    if values.chunks == 1:
        module.wire("ended", 1, f"valid_{stage} & last_{stage}")
        for lane in range(values.lanes):
            # The sum begins anew behind the last element, so that no choice stands in front of the adder.
            module.wire(f"total_{lane}", bits, f"sum_{lane} + weighed_{lane}")
            module.register(f"sum_{lane}", bits, start=0)
            module.clocked(f"sum_{lane}", f"total_{lane}", when=f"valid_{stage}")
            module.clocked(f"sum_{lane}", literal(0, bits), when="ended")
        module.register("held", whole, _together("total", values.lanes), when="ended")
    else:
        # A sum is read a clock before it is written: the same one comes again two clocks later at the earliest.
        chunk, next_chunk = f"chunk_{stage}", f"chunk_{stage + 1}"
        valid, last = f"valid_{stage + 1}", f"last_{stage + 1}"
        bits_of = (values.chunks - 1).bit_length()
        style = "no_rw_check" if values.chunks <= _FEW_SUMS else 'ram_style = "block", no_rw_check'
        module.memory("sums", whole, 1 << bits_of, style)
        module.register("sums_read", whole, f"sums[{chunk}]")
        module.clocked("sums_read", literal(0, whole), when=f"first_{stage}")
        for lane in range(values.lanes):
            module.register(f"weighed_{lane}_kept", bits, f"weighed_{lane}")
            module.wire(
                f"total_{lane}", bits, f"sums_read[{bits * (lane + 1) - 1}:{bits * lane}] + weighed_{lane}_kept"
            )
        total = _together("total", values.lanes)
        module.clocked(f"sums[{next_chunk}]", total, when=valid)
        module.memory("held_memory", whole, 1 << bits_of, style)
        module.clocked(f"held_memory[{next_chunk}]", total, when=f"{valid} & {last}")
        module.wire("ended", 1, f"{valid} & {last} & ({next_chunk} == {literal(values.chunks - 1, bits_of)})")
    module.register("held_gone", 1, "held_left", start=0)
    module.register("held_waits", 1, "(enter & m_inner_tlast) | (held_waits & ~held_gone)", start=0)
    module.assign("held_begun", "held_waits")
    module.register("held_full", 1, "ended | (held_full & ~held_left)", start=0)


def _together(name: str, lanes: int) -> str:
    return f"{{{', '.join(f'{name}_{lane}' for lane in reversed(range(lanes)))}}}"
