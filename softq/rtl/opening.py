"""Tables of a program as run-time parameters, so that a core can be given others while it runs.

Whatever follows from the distance to the maximum is a table of an integer program that has been folded, so what
calibration fits, and most options, are in its tables and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from softq.errors import ProofError, RefusalError, UsageError
from softq.rowprog import DType, Program, to_text
from softq.rowprog.program import Node, Param, Scope, substitute, table_of
from softq.rowprog.ranges import Interval, prove
from softq.rowprog.types import Kind

Entries = tuple[tuple[int, ...], ...]
"""The entries of a table for each head."""

_LOOKS_THROUGH = ("cast", "assume", "select")


@dataclass(frozen=True)
class _Table:
    """A table that is to be a parameter.

    Attributes:
        name: Its name.
        nodes: The constant tables in its place, with the same entries and looked up at the same values.
        entries: What it holds at first.
    """

    name: str
    nodes: tuple[Node, ...]
    entries: Entries

    @property
    def given(self) -> Interval:
        """What its entries lie in."""
        return Interval(min(map(min, self.entries)), max(map(max, self.entries)))

    @property
    def widest(self) -> Interval:
        """What the bits of its entries hold."""
        bits = self.given.bits
        return Interval(-(1 << bits - 1), (1 << bits - 1) - 1) if self.given.low < 0 else Interval(0, (1 << bits) - 1)


def open_tables(
    programs: Sequence[Program], outputs: Mapping[str, Node], length: int
) -> tuple[Program, Mapping[str, Entries]]:
    """Return a program whose tables are run-time parameters, and what these hold at first, for each head by name.

    A parameter may be whatever its bits hold, if nothing can overflow then; else it lies between the least and the
    greatest of what it holds at first.

    Args:
        programs: The program of each head; they differ in the entries of their tables alone.
        outputs: Values that tables are named for: a table is named for the value that is looked up in it.
        length: Elements of the longest row.

    Raises:
        UsageError: the programs of two heads differ in more than tables.
        RefusalError: there is no table, or it holds floats.
        ProofError: the program has no proof without what its tables hold.
    """
    first = programs[0]
    for head, program in enumerate(programs):
        if _skeleton(program) != _skeleton(first):
            raise UsageError(f"program {first.name} of head {head} differs from that of head 0 in more than its tables")
    tables = _find(programs, outputs)
    if not tables:
        raise RefusalError(f"program {first.name} has no table: a register port has nothing to write")
    scope: Scope = "head" if len(programs) > 1 else "site"
    intervals = [table.given for table in tables]
    prove(_open(first, tables, intervals, scope), max_length=length)
    for at, table in enumerate(tables):
        wider = [*intervals[:at], table.widest, *intervals[at + 1 :]]
        try:
            prove(_open(first, tables, wider, scope), max_length=length)
        except ProofError:
            continue
        intervals = wider
    return _open(first, tables, intervals, scope), {table.name: table.entries for table in tables}


def _tables(program: Program) -> list[Node]:
    return [node for node in program.nodes() if node.op == "table"]


def _skeleton(program: Program) -> str:
    """Return a program's text without what its tables hold."""
    known = {
        node: _parameter(f"table{at}", "site", node.dtype, Interval(0, 0), len(table_of(node)))
        for at, node in enumerate(_tables(program))
    }
    return to_text(replace(program, structure="", outputs=substitute(program.outputs, known, assumptions=True)))


def _find(programs: Sequence[Program], outputs: Mapping[str, Node]) -> list[_Table]:
    """Return the tables of a program, those once that are the same."""
    first = programs[0]
    readers: dict[Node, list[Node]] = {}
    for node in first.nodes():
        if node.op == "lut" and node.args[0].op == "table":
            readers.setdefault(node.args[0], []).append(node.args[1])
    of_head = [dict(zip(_tables(first), _tables(program), strict=True)) for program in programs]
    same: dict[tuple[Entries, tuple[Node, ...]], list[Node]] = {}
    for node, places in readers.items():
        if not node.dtype.is_integer:
            raise RefusalError(f"program {first.name} has a table of {node.dtype.value}; a core's hold integers")
        entries = tuple(tuple(int(entry) for entry in table_of(each[node])) for each in of_head)
        same.setdefault((entries, tuple(places)), []).append(node)
    names = dict(_names(outputs))
    found: list[_Table] = []
    for (entries, _), nodes in same.items():
        name = names.get(entries[0], "table")
        taken = any(table.name == name for table in found)
        found.append(_Table(f"{name}_{len(found)}" if taken else name, tuple(nodes), entries))
    return found


def _names(outputs: Mapping[str, Node]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield entries of integer tables and the outputs that are looked up among them."""
    for name, node in outputs.items():
        waiting = [node]
        while waiting:
            value = waiting.pop()
            if value.op == "lut" and value.dtype.is_integer:
                yield tuple(int(entry) for entry in table_of(value.args[0])), name
            elif value.op in _LOOKS_THROUGH:
                waiting += value.args


def _open(program: Program, tables: Sequence[_Table], intervals: Sequence[Interval], scope: Scope) -> Program:
    """Return the program with parameters in the place of tables."""
    known: dict[Node, Node] = {}
    for table, interval in zip(tables, intervals, strict=True):
        dtype = min((node.dtype for node in table.nodes), key=lambda dtype: dtype.bits)
        param = _parameter(table.name, scope, dtype, interval, len(table.entries[0]))
        known |= dict.fromkeys(table.nodes, param)
    made = substitute(program.outputs, known, assumptions=True)
    casts: dict[Node, Node] = {}
    for node in Program(program.name, "", program.scores, program.masked, made, program.contract).nodes():
        if node.op == "lut" and node.args[0].op == "param" and node.args[0].dtype is not node.dtype:
            entry = Node("lut", node.args, node.args[0].dtype, node.kind)
            casts[node] = Node("cast", (entry,), node.dtype, node.kind)
    return replace(program, outputs=substitute(made, casts, assumptions=True))


def _parameter(name: str, scope: Scope, dtype: DType, interval: Interval, size: int) -> Node:
    param = Param(name, scope, dtype, interval.low, interval.high, size, f"table of {name}")
    return Node("param", (), dtype, Kind.TABLE, {"param": param})
