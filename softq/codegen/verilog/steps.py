"""The values of an element, computed one after the other: a pass with products that are found bit by bit.

The element and the numbers of its row stay where they are meanwhile, so that no register is on the way, and the next
element enters in the last step. What follows, reductions and results, sees a pipeline whose elements come with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.pipeline import FIRST, LAST, SHARED, VALID, Pipeline, Time
from softq.codegen.verilog.plan import CorePlan
from softq.codegen.verilog.scalars import Scalars
from softq.codegen.verilog.signals import Signal
from softq.codegen.verilog.tables import Tables
from softq.codegen.verilog.units import Units


@dataclass(frozen=True)
class Steps:
    """What computes the elements of a pass.

    Attributes:
        pipeline: The pass behind it.
        stage: The clocks from the one in which an element enters to its last step.
        uses: The register that says that an element is computed.
        done: The register that says that this is its last step.
    """

    pipeline: Pipeline
    stage: int
    uses: str
    done: str


def write_steps(
    module: Module, tables: Tables, plan: CorePlan, units: Units, number: int, front: Pipeline, load: int
) -> Steps:
    """Write the values of an element.

    Args:
        module: Where they are written.
        tables: Its tables.
        plan: The core.
        units: What computes products.
        number: The pass.
        front: What enters it.
        load: The stage in which an element and the numbers of its row are there.
    """
    prefix, phase, simplified = f"p{number}_e", plan.phases[number], plan.simplified
    loads = [f.node for f in plan.kept(number)] if number else list(plan.inputs.values())
    numbers = [f.node for f in plan.carried(number)] if number else list(plan.beside)
    given = {node: front.at(node, SHARED, load) for node in numbers}
    for at, node in enumerate(loads):
        given[node] = front.at(node, 0, load)
        if number:  # A memory gives the next element at once.
            name, read, entered = f"{prefix}_given_{at}", given[node], front.at(VALID, SHARED, load).name
            given[node] = module.register(name, read.width, read.name, when=entered, signed=read.signed)
    load += number > 0
    busy, enter = f"{prefix}_busy", f"p{number}_enter"
    module.register(busy, 1, start=0)
    computed = [node for node in phase.rows if simplified.constant(node) is None]
    values = Scalars(module, tables, prefix, simplified, busy, given, computed, units)
    last = values.compute()
    step = values.step
    done = module.register(f"{prefix}_done", 1, f"{busy} & {values.is_step(last - 1)}", start=0).name
    before = front.at(VALID, SHARED, load - 1).name if load else enter
    module.clocked(busy, f"{before} | ({busy} & ~{done})")
    module.clocked(step.name, f"{step.name} + {step.width}'d1")
    module.clocked(step.name, f"{step.width}'d0", when=f"~{busy} | {done}")
    uses = module.register(f"{prefix}_uses", 1, start=0).name
    module.clocked(uses, f"{enter} | ({uses} & ~{done})")

    back, stage = Pipeline(module, tables, prefix, simplified), load + last
    there, begun = Time(stage), min(number, 1)
    back.put(VALID, SHARED, Signal(done, 1, False), there)
    back.put(LAST, SHARED, front.at(LAST, SHARED, begun), there)
    if phase.reductions or plan.lengths(phase):
        first = front.at(FIRST, SHARED, begun)
        if number:
            first = module.register(f"{prefix}_first", 1, first.name, when=front.at(VALID, SHARED, begun).name)
        back.put(FIRST, SHARED, first, there)
    wanted = [arg for node in phase.reductions for arg in node.args]
    wanted += [plan.row] if plan.is_last(number) else [f.node for f in plan.kept(number + 1)]
    for node in dict.fromkeys(wanted):
        if simplified.constant(node) is None:
            back.put(node, 0, values.at(node, last), there)
    for node in numbers:
        back.put(node, SHARED, given[node], there)
    return Steps(back, stage, uses, done)
