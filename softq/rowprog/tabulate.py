"""Programs with 8-bit scores folded into tables.

Of most methods, all that comes before the sum is a function of d = max - score, which has 256 values; the reference
interpreter says which, on all 32,896 pairs of a maximum and a score. Each row value for which that is so and that
something else needs becomes one look-up in a table of 256 entries at d. Every 8-bit method then costs the same on every
device. A masked element either has the entry at the d of the least score, as one of that score has, or the same value
in every row (which of the two is checked too); in the second case a select behind the look-up puts it there.

Only what depends on no run-time parameter can be folded; what follows from a parameter stays as it is behind the
tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from softq.errors import RefusalError
from softq.rowprog.interpreter import run
from softq.rowprog.ops import OPS, names_of
from softq.rowprog.program import Node, Number, Program, ScanBody, body_of
from softq.rowprog.ranges import prove
from softq.rowprog.text import to_text
from softq.rowprog.trace import Trace
from softq.rowprog.types import DType, Kind
from softq.rowprog.value import Value

Array = NDArray[np.generic]

ENTRIES = 256
_DEAR_COST = 2
_NOT_FOLDED = names_of("reduction", "loop") - {"row_max"} | {"param", "index", "length"}


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
    folded = _foldable(program)
    result = _Rebuild(program, folded).program()
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


def _foldable(program: Program) -> dict[Node, _Folded]:
    """Return the row values that are functions of d, and as what."""
    nodes = _pure(program)
    rows = [node for node in nodes if node.kind is Kind.ROW and node.op != "input"]
    low, high = program.scores.low, program.scores.high
    x = np.arange(low, high + 1, dtype=program.scores.numpy)
    pairs = np.minimum(x[None, :], x[:, None])  # row m holds every score up to the maximum m
    open_values = _values(program, rows, pairs, None if not program.masked else np.ones(pairs.shape, np.bool_))
    masked_values: list[dict[Node, Array]] = []
    if program.masked:
        # Behind the maximum every score, masked; and a row of nothing else.
        behind = np.concatenate([x[:, None], np.broadcast_to(x, (ENTRIES, ENTRIES))], axis=1)
        valid = np.zeros(behind.shape, np.bool_)
        valid[:, 0] = True
        masked_values.append({k: v[:, 1:] for k, v in _values(program, rows, behind, valid).items()})
        masked_values.append(_values(program, rows, x[None, :], np.zeros((1, ENTRIES), np.bool_)))
    result: dict[Node, _Folded] = {}
    distance = np.subtract.outer(np.arange(ENTRIES), np.arange(ENTRIES))
    occurs = distance >= 0
    for node in rows:
        values = _bits(open_values[node])
        table = values[-1, ::-1]
        if not np.array_equal(values[occurs], table[distance[occurs]]):
            continue
        masked: Number | None = None
        if program.masked:
            behind_it, all_masked = (_bits(values[node]) for values in masked_values)
            follows = np.all(np.equal(behind_it, table[:, None])) and np.all(np.equal(all_masked, table[0]))
            constant = np.all(np.equal(behind_it, all_masked[0, 0])) and np.all(np.equal(all_masked, all_masked[0, 0]))
            if not follows and not constant:
                continue
            masked = None if follows else masked_values[1][node][0, 0].item()
        result[node] = _Folded(tuple(v.item() for v in open_values[node][-1, ::-1]), masked)
    return result


def _values(program: Program, rows: list[Node], scores: Array, valid: Array | None) -> dict[Node, Array]:
    asked = replace(program, outputs={str(i): node for i, node in enumerate([*rows, *_inputs(program)])})
    found = run(asked, scores, valid=valid)
    return {node: found[str(i)] for i, node in enumerate(rows)}


def _inputs(program: Program) -> list[Node]:
    return [node for node in program.nodes() if node.op == "input"]


def _bits(values: Array) -> Array:
    """Return floats as their bits, which tell -0 from 0 and find a NaN equal to itself."""
    return values.view(np.uint32) if values.dtype == np.float32 else values


def _pure(program: Program) -> list[Node]:
    """Return the nodes that follow from the greatest score and the element alone."""
    pure: list[Node] = []
    known: set[Node] = set()
    for node in program.nodes():
        if node.op in _NOT_FOLDED or any(arg not in known for arg in node.args):
            continue
        if node.op == "row_max" and not _rises(program, node.args[0]):
            continue
        known.add(node)
        pure.append(node)
    return pure


def _rises(program: Program, row: Node) -> bool:
    """Say whether a row value grows with the score and masked elements have the least: the greatest score has it."""
    if any(node.op == "row_max" for node in replace(program, outputs={"row": row}).nodes()):
        return False
    x = np.arange(program.scores.low, program.scores.high + 1, dtype=program.scores.numpy)[None, :]
    values = _values(program, [row], x, np.ones(x.shape, np.bool_) if program.masked else None)[row][0]
    rising = bool(np.all(np.less_equal(values[:-1], values[1:])))
    if not program.masked or not rising:
        return rising
    hidden = _values(program, [row], x, np.zeros(x.shape, np.bool_))[row][0]
    return bool(np.all(np.equal(hidden, hidden[0])) and np.less_equal(hidden[0], values[0]))


def _chosen(program: Program, folded: dict[Node, _Folded]) -> set[Node]:
    """Return the values to look up: those that something else needs and that take more than one cheap operation.

    One operation on d or on another looked-up value stays: it costs no more than a look-up, and keeps what relates the
    two (a share of a sum is at most 1) visible to range analysis.
    """
    chosen: set[Node] = set()
    wanted = _outermost(program, folded)
    for node in program.nodes():
        if node in wanted and not folded[node].is_identity and _cost(node, folded, chosen) > 1:
            chosen.add(node)
    return chosen


def _outermost(program: Program, folded: dict[Node, _Folded]) -> set[Node]:
    """Return the values that an output or a value that is not folded needs."""
    found: set[Node] = set()
    seen: set[Node] = set()
    wanted = list(program.outputs.values())
    while wanted:
        node = wanted.pop()
        if node in folded and node.dtype is not DType.BOOL:
            found.add(node)
        elif node not in seen:
            seen.add(node)
            wanted.extend(node.args)
    return found


def _cost(root: Node, folded: dict[Node, _Folded], chosen: set[Node]) -> int:
    cost = 0
    seen: set[Node] = set()
    wanted = [root]
    while wanted:
        node = wanted.pop()
        at_hand = node in chosen or (node in folded and folded[node].is_identity)
        if node.kind is Kind.ROW and node.op != "input" and node not in seen and not at_hand:
            seen.add(node)
            cost += _DEAR_COST if OPS[node.op].cost == "dear" else 1
            wanted.extend(node.args)
    return cost


class _Rebuild:
    """The program again, on a trace of its own, with look-ups in place of what is folded."""

    def __init__(self, program: Program, folded: dict[Node, _Folded]) -> None:
        self._old = program
        self._folded = folded
        structure = f"{program.structure}_table".lstrip("_")
        self._t = Trace(
            program.name,
            structure=structure,
            scores=program.scores,
            masked=program.masked,
            contract=program.contract,
        )
        self._chosen = _chosen(program, folded)
        self._new: dict[Node, Value] = {}
        self._bodies: dict[ScanBody, ScanBody] = {}

    def program(self) -> Program:
        outputs = {name: self._copy(node) for name, node in self._old.outputs.items()}
        return self._t.program(**outputs)

    def _distance(self) -> Value:
        t = self._t
        x = t.cast(t.scores, DType.I32)
        if t.valid is not None:
            x = t.select(t.valid, x, self._old.scores.low)
        return t.row_max(x) - x

    def _copy(self, node: Node) -> Value:
        if node not in self._new:
            self._new[node] = self._look_up(node) if node in self._chosen else self._rebuilt(node)
        return self._new[node]

    def _look_up(self, node: Node) -> Value:
        t, folded = self._t, self._folded[node]
        value = t.lut(t.table(folded.entries, node.dtype), self._distance())
        if folded.masked is None:
            return value
        assert t.valid is not None
        return t.select(t.valid, value, t.const(folded.masked, node.dtype))

    def _rebuilt(self, node: Node) -> Value:
        if node.op == "input":
            t = self._t
            value = t.scores if node.attrs["name"] == "scores" else t.valid
            assert value is not None
            return value
        args = tuple(self._copy(arg).node for arg in node.args)
        attrs = dict(node.attrs)
        if node.op == "scan":
            attrs["body"] = self._body(body_of(node))
        return self._t.make(node.op, args, node.dtype, node.kind, attrs)

    def _body(self, body: ScanBody) -> ScanBody:
        if body not in self._bodies:
            # The placeholders may stand as they are; what the step takes from outside may not.
            self._new.update({holder: Value(self._t, holder) for holder in (*body.states, *body.elements)})
            after, outputs = (tuple(self._copy(n).node for n in nodes) for nodes in (body.next, body.outputs))
            self._bodies[body] = replace(body, next=after, outputs=outputs)
        return self._bodies[body]
