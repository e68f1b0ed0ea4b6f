"""What leaves a product with V: the sums of a row one after another, as they are or divided by the normalizer.

An average is floor(2^f S / n + 1/2) with S the sum, n the normalizer, at least 1, and f bits behind the point. As no
element of V is below -128, S + 128 n is at least 0, and less than 256 n: its quotient has 8 + f bits, of which the
highest says by being 0 that the average is negative. One more bit of the quotient rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.serial import Job, divide
from softq.codegen.verilog.signals import Signal, literal
from softq.codegen.verilog.weighted_plan import VALUE_BITS, WeightedPlan


@dataclass(frozen=True)
class Drain:
    """When the sums of a row leave.

    Attributes:
        element: Clocks from a sum taken to its result given.
        every: Clocks from a result to the next.
        gap: Further ones to the first result of the next word of sums.
        behind: Clocks from a sum on its way to the next one taken.
    """

    element: int
    every: int
    gap: int
    behind: int


def give_sums(module: Module, plan: WeightedPlan) -> Drain:
    """Write the stream of the sums."""
    _pick(module, plan, "~picked_full | picked_left")
    module.part("Results")
    picked = Signal("picked", plan.sum_bits, True)
    module.assign("o_axis_tdata", picked.to_width(plan.padded))
    module.assign("o_axis_tvalid", "picked_full")
    module.assign("o_axis_tlast", "picked_last")
    module.assign("picked_left", "o_axis_tvalid & o_axis_tready")
    if plan.gives_normalizer:
        module.assign("n_axis_tdata", "n_inner_tdata")
        module.assign("n_axis_tvalid", "n_inner_tvalid")
        module.assign("n_inner_tready", "n_axis_tready")
    return Drain(1, 1, plan.settings.chunks > 1, 0)


class Averages:
    """The stream of averages, and a division of its own, which finds a bit at each clock.

    Args:
        module: Where it is written.
        plan: The core.
    """

    def __init__(self, module: Module, plan: WeightedPlan) -> None:
        assert plan.normalizer is not None
        self._module = module
        self._plan = plan
        self._normalizer = plan.normalizer
        self._bits = VALUE_BITS + plan.settings.fraction

    def write(self) -> Drain:
        """Write it."""
        module, plan, clocks = self._module, self._plan, self._bits + 1
        # A division takes longer than the way of the next sum: that may wait until this one has left.
        _pick(module, plan, "~picked_full")
        divisor = self._take_normalizer()
        module.part("Division")
        whole = divisor.width + VALUE_BITS
        sums = Signal("picked", plan.sum_bits, True)
        above = Signal(divisor.base, divisor.width, False)
        module.wire("raised", whole, f"{sums.to_width(whole)} + {{{above.to_width(divisor.width + 1)}, 7'd0}}")
        dividend = module.wire(
            "dividend", whole + clocks - VALUE_BITS, f"{{raised, {literal(0, clocks - VALUE_BITS)}}}"
        )
        count = clocks.bit_length()
        module.undriven("start", 1)
        module.register("divide_step", count, start=0)
        module.clocked("divide_step", f"divide_step + {literal(1, count)}", when="start | (divide_step != 0)")
        module.clocked("divide_step", literal(0, count), when="divided")
        module.wire("divided", 1, f"divide_step == {literal(clocks, count)}")
        quotient = module.register("quotient", clocks)
        steps = {0: "start", clocks: "divided"}
        divide(module, "divide", [Job(0, (dividend, divisor), quotient)], clocks, steps.__getitem__)
        module.part("Results")
        module.register("result_full", 1, "divided | (result_full & ~o_axis_tready)", start=0)
        module.register("result_last", 1, "picked_last", when="start")
        module.assign("start", "picked_full & n_known & (divide_step == 0) & (~result_full | o_axis_tready)")
        module.assign("picked_left", "start")
        bits = self._bits
        module.wire("rounded", bits, f"quotient[{bits}:1] + {{{literal(0, bits - 1)}, quotient[0]}}")
        module.wire("result", bits, f"{{~rounded[{bits - 1}], rounded[{bits - 2}:0]}}")
        module.assign("o_axis_tdata", Signal("result", bits, True).to_width(plan.padded))
        module.assign("o_axis_tvalid", "result_full")
        module.assign("o_axis_tlast", "result_last")
        return Drain(clocks + 2, clocks + 1, 0, 1)

    def _take_normalizer(self) -> Signal:
        """Write the register of the normalizer of the row whose sums leave, and return what they are divided by."""
        module, field = self._module, self._normalizer
        module.part("Normalizer")
        given = Signal("n_inner_tdata", field.width, False, None, 0, field.padded)
        free = ""
        if self._plan.gives_normalizer:
            module.register("n_waits", 1, "n_taken | (n_waits & ~n_axis_tready)", start=0)
            module.assign("n_axis_tvalid", "n_waits")
            free = " & (~n_waits | n_axis_tready)"
        module.wire("n_taken", 1, f"n_inner_tvalid & ~n_known{free}")
        module.assign("n_inner_tready", "n_taken")
        module.register("n_known", 1, "n_taken | (n_known & ~(picked_left & picked_last))", start=0)
        normalizer = module.register("n", field.width, given.name, when="n_taken")
        if self._plan.gives_normalizer:
            module.assign("n_axis_tdata", normalizer.to_width(field.padded))
        if self._plan.rows.simplified.intervals[field.node].low >= 1:
            return normalizer
        module.register("n_zero", 1, f"{given.name} == {literal(0, field.width)}", when="n_taken")
        return module.wire("divisor", field.width, f"n | {Signal('n_zero', 1, False).to_width(field.width)}")


def _pick(module: Module, plan: WeightedPlan, free: str) -> None:
    """Write the register of the sum that leaves next: `picked`, while `picked_full`; it is taken where that is free."""
    values, bits = plan.settings, plan.sum_bits
    module.part("Sums that leave")
    module.undriven("picked_left", 1)
    ready = "held_full" if values.chunks == 1 else "fetched"
    module.wire("pick", 1, f"{ready} & ({free})")
    module.register("picked_full", 1, "pick | (picked_full & ~picked_left)", start=0)
    lane_last = _count(module, "pick_lane", values.lanes, "pick")
    chunk_last = _count(module, "pick_chunk", values.chunks, f"pick & {lane_last}")
    module.wire("pick_last", 1, f"{lane_last} & {chunk_last}")
    module.assign("held_left", "pick & pick_last")
    module.register("picked_last", 1, "pick_last", when="pick")
    if values.chunks > 1:
        module.wire("fetch", 1, "held_full & ~fetched")
        module.register("fetched", 1, f"fetch | (fetched & ~(pick & {lane_last}))", start=0)
        _count(module, "fetch_chunk", values.chunks, "fetch")
        module.register("held", bits * values.lanes, "held_memory[fetch_chunk]", when="fetch")
    parts = [f"held[{bits * (lane + 1) - 1}:{bits * lane}]" for lane in range(values.lanes)]
    level = 0
    while len(parts) > 1:
        level += 1
        for at in range(len(parts) // 2):
            name = f"choice_{level}_{at}"
            select = f"pick_lane[{level - 1}]" if values.lanes > 2 else "pick_lane"
            module.wire(name, bits, f"{select} ? {parts[2 * at + 1]} : {parts[2 * at]}")
        parts = [f"choice_{level}_{at}" for at in range(len(parts) // 2)] + parts[len(parts) // 2 * 2 :]
    module.register("picked", bits, parts[0], when="pick", signed=True)


def _count(module: Module, name: str, many: int, when: str) -> str:
    """Write a counter that begins anew behind its last number, and return the condition that this is it."""
    if many == 1:
        return "1'b1"
    width = (many - 1).bit_length()
    module.register(name, width, start=0)
    last = module.wire(f"{name}_last", 1, f"{name} == {literal(many - 1, width)}").name
    module.clocked(name, f"{last} ? {literal(0, width)} : {name} + {literal(1, width)}", when=when)
    return last
