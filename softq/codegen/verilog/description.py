"""What a core holds, as plain values: its values with their proved intervals, and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from softq.codegen.verilog.pipeline import table_for
from softq.codegen.verilog.plan import CorePlan
from softq.codegen.verilog.tables import Table
from softq.rowprog.program import Node
from softq.rowprog.text import node_to_text


def describe_values(plan: CorePlan) -> list[dict[str, object]]:
    """Return all that is computed, pass by pass: of each value its line of the program, its bits and its interval.

    Values are named as in the program that hardware sees, where types mean nothing: bits are those that the proved
    interval needs. `kind` is `row` for a value of each element, `scalar` for one of each row.
    """
    found: list[dict[str, object]] = []
    for node, number in _placed(plan).items():
        interval, field = plan.simplified.intervals[node], plan.field(node)
        name, text = _line(plan, node)
        found.append(
            {
                "name": name,
                "computes": text,
                "pass": number,
                "kind": node.kind.value,
                "bits": field.width,
                "signed": field.signed,
                "low": int(interval.low),
                "high": int(interval.high),
            }
        )
    return found


def describe_tables(plan: CorePlan) -> list[dict[str, object]]:
    """Return the constant tables: of each the value that is looked up in it, at which value, and its entries."""
    found: list[dict[str, object]] = []
    for node in _placed(plan):
        if node.op != "lut" or node.args[0].op != "table":
            continue
        name, _ = _line(plan, node)
        table = table_for(node, plan.simplified, {})
        assert isinstance(table, Table)
        entry, position = plan.field(node), plan.field(node.args[1])
        found.append(
            {
                "gives": [name, *(output for output, value in plan.program.outputs.items() if value is node)],
                "at": _line(plan, node.args[1])[0],
                "address_bits": position.width,
                "bits": entry.width,
                "signed": entry.signed,
                "memory": table.in_memory,
                "entries": list(table.entries),
            }
        )
    return found


def name_value(plan: CorePlan, node: Node) -> str:
    """Return the name of a value in the program's text."""
    return _line(plan, node)[0]


def _placed(plan: CorePlan) -> Mapping[Node, int]:
    """Return the values that are not constants, with the first pass that computes them."""
    found: dict[Node, int] = {}
    for node, number in _passes(plan):
        if node in plan.simplified.intervals and plan.simplified.constant(node) is None:
            found.setdefault(node, number)
    return found


def _passes(plan: CorePlan) -> Iterator[tuple[Node, int]]:
    for node in plan.inputs.values():
        yield node, 0
    for phase in plan.phases:
        lengths = plan.lengths(phase)
        for node in (*phase.setup, *phase.rows, *phase.reductions, *lengths, *phase.scalars):
            yield node, phase.number


def _line(plan: CorePlan, node: Node) -> tuple[str, str]:
    """Return a value's name in the program's text, and how it is computed; an input has no line but its name."""
    name, _, text = node_to_text(plan.program, node).partition(": ")
    return name, text.partition(" = ")[2]
