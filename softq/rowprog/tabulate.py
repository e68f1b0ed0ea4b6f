"""Programs with 8-bit scores folded into tables.

Of most methods, all that comes before the sum is a function of d = max - score, which has 256 values; the reference
interpreter says which, on all 32,896 pairs of a maximum and a score. Each row value for which that is so and that
something else needs becomes one look-up in a table of 256 entries at d, or in a shorter one at another value that is
looked up already and determines it: a weight at its code. Every 8-bit method then costs about the same on every device.
A masked element either has the entry at the d of the least score, as one of that score has, or the same value in every
row (which of the two is checked too); in the second case a select behind the look-up puts it there.

Only what depends on no run-time parameter can be folded; what follows from a parameter stays as it is behind the
tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from softq.errors import RefusalError
from softq.rowprog.interpreter import run
from softq.rowprog.ops import OPS, names_of
from softq.rowprog.program import Node, Number, Program, ScanBody, body_of, walk
from softq.rowprog.ranges import prove
from softq.rowprog.text import to_text
from softq.rowprog.trace import Trace
from softq.rowprog.types import DType, Kind
from softq.rowprog.value import Value

Array = NDArray[np.generic]

ENTRIES = 256
_NOT_FOLDED = names_of("reduction", "group", "loop") - {"row_max"} | {"param", "index", "length"}


@dataclass(frozen=True)
class _Folded:
    """A row value as a table at d.

    Attributes:
        entries: Its value at each d.
        masked: What each masked element has; None if that is the entry at d too, the least score in place of its own.
    """

    entries: tuple[Number, ...]
    masked: Number | None

    @property
    def values(self) -> tuple[Number, ...]:
        """The entries, and behind them what masked elements have of their own."""
        return self.entries if self.masked is None else (*self.entries, self.masked)

    @property
    def is_identity(self) -> bool:
        """Whether this is d itself, perhaps in another type."""
        return self.entries == tuple(range(ENTRIES))


def tabulate(program: Program) -> Program:
    """Return a program with the same outputs in which functions of max - score are tables of 256 entries.

    Its structure gets the suffix `table`. The program itself has to be proved, so that no overflow hides in a table.

    Raises:
        RefusalError: nothing can be folded; the message says why.
        ProofError: the program has no proof, not even for rows of one element.
    """
    if program.scores not in (DType.I8, DType.U8):
        raise RefusalError(
            f"program {program.name}: scores are {program.scores.value}; only 8-bit scores can be folded into tables"
        )
    prove(program, max_length=1)
    folded = _find_foldable(program)
    result = _rebuild(program, folded)
    if _body(result) == _body(program):
        blocking = sorted({node.op for node in program.nodes() if node.op in _NOT_FOLDED})
        why = f" (it has {', '.join(blocking)})" if blocking else ""
        raise RefusalError(
            f"program {program.name}: no row value is a function of the distance from the maximum and takes more than "
            f"one operation from it{why}"
        )
    return result


def tabulate_or_keep(program: Program) -> tuple[Program, str | None]:
    """Return the tabulated program and None, or the program as it is and why it cannot be folded."""
    try:
        return tabulate(program), None
    except RefusalError as refusal:
        return program, str(refusal)


def _body(program: Program) -> str:
    return to_text(replace(program, structure=""))


def _find_foldable(program: Program) -> dict[Node, _Folded]:
    """Return the row values that are functions of d, and as what."""
    nodes = _find_pure(program)
    rows = [node for node in nodes if node.kind is Kind.ROW and node.op != "input"]
    low, high = program.scores.low, program.scores.high
    x = np.arange(low, high + 1, dtype=program.scores.numpy)
    pairs = np.minimum(x[None, :], x[:, None])  # row m holds every score up to the maximum m
    open_values = _evaluate(program, rows, pairs, None if not program.masked else np.ones(pairs.shape, np.bool_))
    masked_values: list[dict[Node, Array]] = []
    if program.masked:
        # Behind the maximum every score, masked; and a row of nothing else.
        behind = np.concatenate([x[:, None], np.broadcast_to(x, (ENTRIES, ENTRIES))], axis=1)
        valid = np.zeros(behind.shape, np.bool_)
        valid[:, 0] = True
        masked_values.append({k: v[:, 1:] for k, v in _evaluate(program, rows, behind, valid).items()})
        masked_values.append(_evaluate(program, rows, x[None, :], np.zeros((1, ENTRIES), np.bool_)))
    result: dict[Node, _Folded] = {}
    distance = np.subtract.outer(np.arange(ENTRIES), np.arange(ENTRIES))
    occurs = distance >= 0
    for node in rows:
        values = _to_bits(open_values[node])
        table = values[-1, ::-1]
        if not np.array_equal(values[occurs], table[distance[occurs]]):
            continue
        masked: Number | None = None
        if program.masked:
            behind_it, all_masked = (_to_bits(values[node]) for values in masked_values)
            follows = np.all(np.equal(behind_it, table[:, None])) and np.all(np.equal(all_masked, table[0]))
            constant = np.all(np.equal(behind_it, all_masked[0, 0])) and np.all(np.equal(all_masked, all_masked[0, 0]))
            if not follows and not constant:
                continue
            masked = None if follows else masked_values[1][node][0, 0].item()
        result[node] = _Folded(tuple(v.item() for v in open_values[node][-1, ::-1]), masked)
    return result


def _evaluate(program: Program, rows: list[Node], scores: Array, valid: Array | None) -> dict[Node, Array]:
    values = run(replace(program, outputs={str(i): node for i, node in enumerate(rows)}), scores, valid=valid)
    return {node: values[str(i)] for i, node in enumerate(rows)}


def _to_bits(values: Array) -> Array:
    """Return floats as their bits, which tell -0 from 0 and find a NaN equal to itself."""
    return values.view(np.uint32) if values.dtype == np.float32 else values


def _find_pure(program: Program) -> list[Node]:
    """Return the nodes that follow from the greatest score and the element alone."""
    pure: dict[Node, None] = {}
    for node in program.nodes():
        follows = node.op not in _NOT_FOLDED and pure.keys() >= set(node.args)
        if follows and (node.op != "row_max" or _rises(program, node.args[0])):
            pure[node] = None
    return list(pure)


def _rises(program: Program, row: Node) -> bool:
    """Say whether a row value grows with the score and masked elements have the least: the greatest score has it."""
    if any(node.op == "row_max" for node in walk([row])):
        return False
    x = np.arange(program.scores.low, program.scores.high + 1, dtype=program.scores.numpy)[None, :]
    values = _evaluate(program, [row], x, np.ones(x.shape, np.bool_) if program.masked else None)[row][0]
    rising = bool(np.all(np.less_equal(values[:-1], values[1:])))
    if not program.masked or not rising:
        return rising
    hidden = _evaluate(program, [row], x, np.zeros(x.shape, np.bool_))[row][0]
    return bool(np.all(np.equal(hidden, hidden[0])) and np.less_equal(hidden[0], values[0]))


def _choose(program: Program, folded: dict[Node, _Folded]) -> set[Node]:
    """Return the values to look up: those that something else needs and that take more than one cheap operation.

    One operation on d or on another looked-up value stays: it costs no more than a look-up, and keeps what relates the
    two (a share of a sum is at most 1) visible to range analysis.
    """
    identities = {node for node, table in folded.items() if table.is_identity}
    at_hand = identities | {node for node in program.nodes() if node.kind is not Kind.ROW or node.op == "input"}
    wanted = _find_outermost(program, {node for node in folded if node.dtype is not DType.BOOL}) - identities
    chosen: set[Node] = set()
    for node in program.nodes():
        if node in wanted and sum(2 if OPS[n.op].cost == "dear" else 1 for n in walk([node], at_hand)) > 1:
            chosen.add(node)
            at_hand.add(node)
    return chosen


def _find_outermost(program: Program, folded: set[Node]) -> set[Node]:
    """Return the values that an output or a value that is not folded needs."""
    outputs = program.outputs.values()
    needed = {arg for node in walk(outputs, folded) for arg in node.args} | set(outputs)
    return folded & needed


def _find_narrower(
    node: Node, chosen: set[Node], folded: dict[Node, _Folded]
) -> tuple[Node, tuple[Number, ...]] | None:
    """Return the value with the shortest table of entries that determines another one, with that one's entries at it.

    Only codes count whose greatest is below that of the value itself and below 255: so no two wait for each other, and
    the table is shorter than that at d.
    """
    table = folded[node]
    own = max(table.entries) if node.dtype.is_integer else math.inf
    bits = _to_bits(np.array(table.values, node.dtype.numpy)).tolist()
    best: tuple[int, Node, tuple[Number, ...]] | None = None
    for other in sorted(chosen - {node}, key=lambda n: str(folded[n].entries)):
        codes = folded[other]
        if not other.dtype.is_integer or min(codes.values) < 0 or (codes.masked is None) != (table.masked is None):
            continue
        greatest = int(max(codes.values))
        if greatest >= min(own, ENTRIES - 1) or (best is not None and greatest >= best[0]):
            continue
        at: dict[Number, int] = {}
        if all(bits[at.setdefault(code, i)] == bits[i] for i, code in enumerate(codes.values)):
            # Codes that no element has may have any entry.
            best = greatest, other, tuple(table.values[at.get(code, 0)] for code in range(greatest + 1))
    return None if best is None else best[1:]


def _rebuild(program: Program, folded: dict[Node, _Folded]) -> Program:
    """Return the program again, on a trace of its own, with look-ups in place of what is folded."""
    structure = f"{program.structure}_table".lstrip("_")
    t = Trace(
        program.name, structure=structure, scores=program.scores, masked=program.masked, contract=program.contract
    )
    x = t.cast(t.scores, DType.I32)
    x = x if t.valid is None else t.select(t.valid, x, program.scores.low)
    distance = t.row_max(x) - x
    chosen = _choose(program, folded)
    new: dict[Node, Value] = {}
    bodies: dict[ScanBody, ScanBody] = {}

    def copy(nodes: Iterable[Node]) -> tuple[Node, ...]:
        nodes = tuple(nodes)
        for node in walk(nodes, new):
            new[node] = look_up(node) if node in chosen else make(node)
        return tuple(new[node].node for node in nodes)

    def look_up(node: Node) -> Value:
        table, narrower = folded[node], _find_narrower(node, chosen, folded)
        if narrower is not None:
            other, entries = narrower
            copy((other,))
            return t.lut(t.table(entries, node.dtype), new[other])
        value = t.lut(t.table(table.entries, node.dtype), distance)
        if t.valid is None or table.masked is None:
            return value
        return t.select(t.valid, value, t.const(table.masked, node.dtype))

    def make(node: Node) -> Value:
        attrs = {**node.attrs, "body": copy_body(body_of(node))} if node.op == "scan" else node.attrs
        return t.make(node.op, copy(node.args), node.dtype, node.kind, attrs)

    def copy_body(body: ScanBody) -> ScanBody:
        if body not in bodies:
            # The placeholders may stand as they are; what the step takes from outside may not.
            new.update({holder: Value(t, holder) for holder in (*body.states, *body.elements)})
            bodies[body] = replace(body, next=copy(body.next), outputs=copy(body.outputs))
        return bodies[body]

    copy(program.outputs.values())
    return t.program(**{name: new[node] for name, node in program.outputs.items()})
