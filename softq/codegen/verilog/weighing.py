"""Products of a weight with the elements of a beat of V: shifts, sums of parts, or multipliers."""

from __future__ import annotations

from collections.abc import Sequence

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.products import Term, joined
from softq.codegen.verilog.rules import product
from softq.codegen.verilog.signals import Signal, literal, shape
from softq.codegen.verilog.tables import Table, Tables
from softq.codegen.verilog.weighted_plan import VALUE_BITS, WeightedPlan
from softq.rowprog.ranges.interval import Interval

_SHIFT_BITS = 2
"""Bits of a shift in one clock: what two tables of four inputs select."""


class Weighing:
    """Products that are being written; each stage has registers in front of it.

    Args:
        module: Where they are written.
        plan: The core.
        position: What says which weight the beat has, in stage 0.
        values: The elements of the beat of V, in stage 0.
    """

    def __init__(self, module: Module, plan: WeightedPlan, position: Signal, values: Sequence[Signal]) -> None:
        self._module = module
        self._plan = plan
        self._position = position
        self._values = list(values)

    def write(self) -> tuple[int, list[Signal]]:
        """Write them; return the stage in which they are there, and the product of each lane."""
        shifts = self._plan.shifts
        if self._plan.settings.multipliers:
            return self._multiply()
        return self._add_parts() if shifts is None else self._shift(shifts)

    def _keep(self, name: str, value: Signal) -> Signal:
        return self._module.register(name, value.width, value.name, signed=value.signed)

    def _weight(self) -> Signal:
        """Write the weight, in a register of stage 1."""
        plan, width = self._plan, shape(Interval(0, self._plan.greatest))[0]
        if plan.entries is None:
            return self._keep("weight", self._position)
        entry = Tables(self._module, {}).look_up(Table(plan.entries, width), self._position)
        return self._module.register("weight", width, entry)

    def _multiply(self) -> tuple[int, list[Signal]]:
        weight, found = self._weight(), list[Signal]()
        for lane, value in enumerate(self._values):
            kept = self._keep(f"value_{lane}_1", value)
            found.append(
                self._module.register(f"product_{lane}", weight.width + VALUE_BITS, product(weight, kept), signed=True)
            )
        return 2, found

    def _shift(self, shifts: Sequence[int]) -> tuple[int, list[Signal]]:
        """Write shifts of V to the left by the logarithm of the weight, a few bits at each clock."""
        bits = max(max(shifts).bit_length(), 1)
        # The highest bit says that the weight is not 0.
        entries = tuple(0 if shift < 0 else (1 << bits) | shift for shift in shifts)
        entry = Tables(self._module, {}).look_up(Table(entries, bits + 1), self._position)
        coded = self._module.wire("shift", bits + 1, entry)
        by = self._module.register("shift_1", bits, coded.to_width(bits))
        self._module.register("present", 1, f"shift[{bits}]")
        values = [self._keep(f"value_{lane}_1", value) for lane, value in enumerate(self._values)]
        stage, width = 1, VALUE_BITS
        for low in range(0, bits, _SHIFT_BITS):
            some = min(_SHIFT_BITS, bits - low)
            width = min(width + (((1 << some) - 1) << low), VALUE_BITS + max(shifts))
            stage += 1
            by_some = f"{{{by.to_width(some)}, {literal(0, low)}}}" if low else by.to_width(some)
            for lane, value in enumerate(values):
                text = f"{value.to_width(width)} << {by_some}"
                values[lane] = self._module.register(f"value_{lane}_{stage}", width, text, signed=True)
                if not low:
                    self._module.clocked(values[lane].name, literal(0, width), when="~present")
            if low + some < bits:
                by = self._keep(f"shift_{stage}", by.drop(some))
        return stage, values

    def _add_parts(self) -> tuple[int, list[Signal]]:
        """Write a sum of the weight where a bit of V is set, joined two by two, one level at each clock."""
        weight, greatest = self._weight(), self._plan.greatest
        lanes: list[list[tuple[Term, Interval]]] = []
        for lane, value in enumerate(self._values):
            kept = self._keep(f"value_{lane}_1", value)
            parts: list[tuple[Term, Interval]] = []
            for bit in range(VALUE_BITS):
                text = f"{weight.name} & {{{weight.width}{{{kept.name}[{bit}]}}}}"
                wire = self._module.wire(f"part_{lane}_{bit}", weight.width, text)
                top = bit == VALUE_BITS - 1
                most = greatest << bit
                parts.append((Term(wire, bit, top), Interval(-most, 0) if top else Interval(0, most)))
            lanes.append(parts)
        stage = 1
        while len(lanes[0]) > 1:
            stage += 1
            for lane, parts in enumerate(lanes):
                lanes[lane] = [
                    self._join(f"sum_{lane}_{stage}_{at}", *parts[2 * at], *parts[2 * at + 1])
                    for at in range(len(parts) // 2)
                ]
        return stage, [parts[0][0].value for parts in lanes]

    def _join(self, name: str, a: Term, of_a: Interval, b: Term, of_b: Interval) -> tuple[Term, Interval]:
        whole, low = Interval(of_a.low + of_b.low, of_a.high + of_b.high), a.shift
        width, signed = shape(Interval(int(whole.low) >> low, int(whole.high) >> low))
        text = joined(Term(a.value, 0), Term(b.value, b.shift - low, b.minus), width)
        return Term(self._module.register(name, width, text, signed=signed), low), whole
