"""Phases: what each pass over the row computes, and what it leaves for the next one.

A reduction is known only after a whole pass over the row, so a program needs one pass more than the longest chain of
reductions in it. The *number* of a value is the number of reductions on the longest chain above it, itself not counted:
the first pass in which a row value can be computed, and the pass that a reduction is accumulated in. A scan is a
reduction in its last states, and a row of the same pass in its outputs. A `group_max` is found when the pass that has
its operand is over: of that pass by its number, and there for the next one.

The contract for emitters, phase by phase in order:

1. before the first pass, compute `setup`;
2. pass over the row: read `loads`, compute `rows` in their order, accumulate `reductions`, write `stored` and
   `outputs`;
3. find `groups` from their operands, which are inputs or stored, and store them;
4. compute `scalars` in their order.

A row value of an earlier phase that is needed again is recomputed if that takes at most `CHEAP_OPS` cheap operations
from the inputs and from stored values; else it is stored in the phase that its number names. Constants, parameters,
tables, `index` and `length` are at hand everywhere and not listed; of a stream, `length` is at hand behind the first
pass, like a reduction that this pass finishes (`softq.rowprog.streaming`). An emitter may overwrite an output row of
the same type by a stored one where that output is written later. The structure depends on the program alone, never on a
device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from softq.errors import RefusalError
from softq.rowprog.ops import OPS, names_of
from softq.rowprog.program import Node, Program, table_of
from softq.rowprog.types import Kind

CHEAP_OPS = 4
"""Recomputing up to so many operations was faster than a store and a load in kernels on AVX-512 and AVX2."""

_BYTE_ENTRIES = 256
"""Entries up to which a table is looked up at a byte: by permutes of bytes, or in the nearest cache."""

_AT_HAND = names_of("leaf") - {"input"}
_REDUCTIONS = names_of("reduction")
_GROUPS = names_of("group")


@dataclass(frozen=True)
class Phase:
    """One pass over the row and the scalars that follow it.

    Attributes:
        number: Position of the pass, from 0.
        setup: Scalars that need no reduction, to be computed before the first pass; empty in all other phases.
        loads: Row values read in this pass: inputs of the program first, then values stored by earlier phases.
        rows: Row values computed in this pass, arguments first; recomputed ones are listed again.
        reductions: Reductions (and last states of scans) that this pass finishes.
        scalars: Scalars computed after it, arguments first.
        stored: Those of `rows` that are kept for a later phase, or for `groups`.
        groups: The maxima over groups that this pass finishes, to be stored like those.
        outputs: Names of the program's row outputs that this pass writes.
    """

    number: int
    setup: tuple[Node, ...]
    loads: tuple[Node, ...]
    rows: tuple[Node, ...]
    reductions: tuple[Node, ...]
    scalars: tuple[Node, ...]
    stored: tuple[Node, ...]
    groups: tuple[Node, ...]
    outputs: tuple[str, ...]


def phases(
    program: Program, *, stores: bool = True, streamed: bool = False, kept: Collection[Node] = ()
) -> tuple[Phase, ...]:
    """Return the passes over the row that the program needs, in order.

    Args:
        program: The program.
        stores: Whether row values may be stored for later passes; else all are computed again where they are needed,
            scans from the row's first element on.
        streamed: Whether the length is known only when the first pass is over.
        kept: Row values that are stored where a later pass needs them, however cheap they are.

    Raises:
        RefusalError: the program takes maxima over groups of elements, and nothing may be stored.
    """
    nodes = program.nodes()
    if not stores and any(is_group(node) for node in nodes):
        raise RefusalError(f"{program.name} takes maxima over groups of elements, which are stored for a later pass")
    numbers = number_passes(program, streamed=streamed)
    # An output that is a maximum over groups is written by the next pass.
    written = {name: numbers[node] + is_group(node) for name, node in program.outputs.items()}
    last = max((numbers[node] for node in nodes if node.kind is Kind.ROW or is_reduction(node)), default=0)
    last = max((last, *(written[name] for name, node in program.outputs.items() if node.kind is Kind.ROW)))
    stored: set[Node] = set()
    passes: list[tuple[set[Node], set[Node]]] = []
    for number in range(last, -1, -1):
        roots = [arg for node in nodes if is_reduction(node) and numbers[node] == number for arg in node.args]
        roots += [node for name, node in program.outputs.items() if written[name] == number]
        # The later phases are done: all that they want of this one is known.
        roots += [node for node in stored if numbers[node] == number]
        passes.append(_collect(roots, number, numbers, stored, stores, kept))
    return tuple(
        Phase(
            number=number,
            setup=tuple(n for n in nodes if _is_computed_scalar(n) and numbers[n] == 0) if number == 0 else (),
            loads=tuple(sorted((n for n in nodes if n in loads), key=lambda n: n.op != "input")),
            rows=tuple(n for n in nodes if n in rows),
            reductions=tuple(n for n in nodes if is_reduction(n) and numbers[n] == number),
            scalars=tuple(n for n in nodes if _is_computed_scalar(n) and numbers[n] == number + 1),
            stored=tuple(n for n in nodes if n in stored and numbers[n] == number and not is_group(n)),
            groups=tuple(n for n in nodes if n in stored and numbers[n] == number and is_group(n)),
            outputs=tuple(
                name for name, n in program.outputs.items() if n.kind is Kind.ROW and written[name] == number
            ),
        )
        for number, (loads, rows) in enumerate(reversed(passes))
    )


def number_passes(program: Program, *, streamed: bool = False) -> Mapping[Node, int]:
    """Return the number of each value: the first pass in which it can be computed, arguments first.

    Args:
        program: The program.
        streamed: Whether the length is known only when the first pass is over.
    """
    numbers: dict[Node, int] = {}
    for node in program.nodes():
        behind = (is_reduction(arg) or is_group(arg) or (streamed and arg.op == "length") for arg in node.args)
        known = (numbers[arg] + later for arg, later in zip(node.args, behind, strict=True))
        numbers[node] = max(known, default=0)
    return numbers


def is_reduction(node: Node) -> bool:
    """Say whether this is a scalar that a whole pass over the row finishes."""
    return node.op in _REDUCTIONS or (node.op == "scan" and node.kind is Kind.SCALAR)


def is_group(node: Node) -> bool:
    """Say whether this is a row that is known, like a scalar, when a whole pass over the row is over."""
    return node.op in _GROUPS


def _is_computed_scalar(node: Node) -> bool:
    return node.kind is Kind.SCALAR and node.op not in _AT_HAND and not is_reduction(node)


def _collect(
    roots: Iterable[Node],
    number: int,
    numbers: Mapping[Node, int],
    stored: set[Node],
    stores: bool,
    kept: Collection[Node],
) -> tuple[set[Node], set[Node]]:
    """Return the row values that a pass loads and computes; what it has to find stored is added to `stored`."""
    loads: set[Node] = set()
    rows: set[Node] = set()
    wanted = list(roots)
    while wanted:
        node = wanted.pop()
        if node.kind is not Kind.ROW or node.op in _AT_HAND or node in rows or node in loads:
            continue
        early = numbers[node] < number
        if is_group(node) and not early:
            # Found from memory when the pass is over.
            stored.update(arg for arg in node.args if arg.op != "input")
            wanted.extend(node.args)
            continue
        if stores and early and node.op != "input" and (node in kept or not _is_cheap(node, stored)):
            stored.add(node)
        if node.op == "input" or (early and node in stored):
            loads.add(node)
        else:
            rows.add(node)
            wanted.extend(node.args)
    return loads, rows


def _is_cheap(node: Node, stored: set[Node]) -> bool:
    """Say whether a row value takes few and cheap operations from inputs and stored values."""
    counted: set[Node] = set()
    wanted = [node]
    while wanted:
        value = wanted.pop()
        if value.kind is not Kind.ROW or OPS[value.op].group == "leaf" or value in counted or value in stored:
            continue
        if _is_dear(value) or len(counted) == CHEAP_OPS:
            return False
        counted.add(value)
        wanted.extend(value.args)
    return True


def _is_dear(node: Node) -> bool:
    if node.op == "lut" and node.args[0].op == "table":
        return len(table_of(node.args[0])) > _BYTE_ENTRIES
    return OPS[node.op].cost == "dear"
