"""The elements of a row on their way through one pass: which clock computes what, and the registers between clocks.

A beat of elements, one for each lane, enters at stage 0 and goes one stage further at each clock; nothing stops it. An
operator is placed in the first stage that has its operands, unless the logic of that stage grows too long: then in the
next one. A value that a later stage asks for goes there through registers, which are made when it asks.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from softq.codegen.verilog.division import divide_in_stages
from softq.codegen.verilog.module import Module
from softq.codegen.verilog.products import Term, joined, pieces, shifted, terms_of_constant
from softq.codegen.verilog.registers import WritableTable
from softq.codegen.verilog.rules import CARRY_BITS, RULES, product
from softq.codegen.verilog.signals import Signal, constant, shape
from softq.codegen.verilog.simplification import Simplified
from softq.codegen.verilog.tables import Table, Tables
from softq.rowprog.program import Node, param_of, table_of
from softq.rowprog.types import Kind

LEVELS = 3.0
"""Tables of four inputs that stand one behind the other in one clock."""

FROM_MEMORY = 1.25
"""How much later a register is there that tools move into a block of memory than one beside it, in tables of four
inputs."""

VALID, FIRST, LAST = "valid", "first", "last"


@dataclass(frozen=True, order=True)
class Time:
    """When a value is there.

    Attributes:
        stage: In which clock of the pass.
        level: Behind how many tables of four inputs in this clock.
    """

    stage: int
    level: float = 0.0

    def within(self, levels: float, limit: float = LEVELS) -> Time:
        """Return when logic of so many levels may begin: in this clock, or in the next if it would grow too long."""
        return self if self.level == 0 or self.level + levels <= limit else Time(self.stage + 1)


Key = tuple[Node | str, int]
"""A value, and its lane; lane -1 of what all lanes share."""

SHARED = -1


class Pipeline:
    """One pass.

    Args:
        module: Where it is written.
        tables: Its tables.
        prefix: What its names begin with.
        simplified: The program.
    """

    def __init__(self, module: Module, tables: Tables, prefix: str, simplified: Simplified) -> None:
        self._module = module
        self._tables = tables
        self._prefix = prefix
        self._simplified = simplified
        self._signals: dict[Key, dict[int, Signal]] = {}
        self._times: dict[Key, Time] = {}
        self._names: dict[Node | str, str] = {}
        self._others: dict[Node | str, Node] = {}
        self._limit = LEVELS

    def rename(self, value: Node, other: Node) -> None:
        """Say that a value is another one."""
        self._others[value] = other

    @contextmanager
    def limit_levels(self, levels: float) -> Generator[None]:
        """Let the logic of a clock have so many levels, for what is computed meanwhile."""
        before, self._limit = self._limit, levels
        yield
        self._limit = before

    def put(self, value: Node | str, lane: int, signal: Signal, time: Time, before: int = 0) -> None:
        """Say where a value comes from: a signal that is there at this time, or so many registers before it."""
        self._times[value, lane] = time
        self._signals[value, lane] = {time.stage - before: signal}

    def name(self, value: Node | str, lane: int, stage: int) -> str:
        """Return the name of a value in a stage."""
        short = value if isinstance(value, str) else self.short(value)
        side = "" if lane == SHARED else f"_{lane}"
        return f"{self._prefix}_{short}{side}_{stage}"

    def short(self, value: Node) -> str:
        """Return what the names of a value have in common."""
        return self._names.setdefault(value, f"v{len(self._names)}_{value.op}")

    def time(self, value: Node | str, lane: int) -> Time:
        """Return when a value is there; it is computed if it is not yet."""
        value = self._find(value)
        if isinstance(value, Node) and self._simplified.constant(value) is not None:
            return Time(0)
        key = self._key(value, lane)
        if key not in self._times:
            assert isinstance(value, Node), key
            self._compute(value, lane)
        return self._times[key]

    def at(self, value: Node | str, lane: int, stage: int) -> Signal:
        """Return a value in a stage, not before it is there."""
        value = self._find(value)
        if isinstance(value, Node) and (fixed := self._simplified.constant(value)) is not None:
            return constant(fixed)
        time, key = self.time(value, lane), self._key(value, lane)
        known = self._signals[key]
        assert stage >= time.stage, (key, stage, time)
        for later in range(min(known) + 1, stage + 1):
            if later not in known:
                before = known[later - 1]
                known[later] = self._module.register(
                    self.name(value, key[1], later),
                    before.width,
                    before.name,
                    start=0 if value == VALID else None,
                    signed=before.signed,
                )
        return known[stage]

    def _find(self, value: Node | str) -> Node | str:
        while value in self._others:
            value = self._others[value]
        return value

    def _key(self, value: Node | str, lane: int) -> Key:
        return (value, SHARED) if (value, SHARED) in self._times else (value, lane)

    def _compute(self, node: Node, lane: int) -> None:
        rows = [arg for arg in node.args if arg.kind is not Kind.TABLE]
        ready = max((self.time(arg, lane) for arg in rows), default=Time(0))
        if node.op == "lut":
            self._look_up(node, lane, ready)
        elif node.op == "mul":
            self._multiply(node, lane, ready)
        elif node.op == "divide":
            self._divide(node, lane, ready)
        else:
            rule = RULES[node.op]
            width, _ = shape(self._simplified.intervals[node])
            levels = rule.levels([self.at(arg, lane, ready.stage) for arg in rows], width)
            begin = ready.within(levels, self._limit)
            args = [self.at(arg, lane, begin.stage) for arg in rows]
            self._wire(node, lane, rule.expression(args, width), Time(begin.stage, begin.level + levels))

    def _wire(self, node: Node, lane: int, expression: str, time: Time) -> None:
        width, signed = shape(self._simplified.intervals[node])
        name = self.name(node, lane, time.stage)
        self.put(node, lane, self._module.wire(name, width, expression, signed=signed), time)

    def _look_up(self, node: Node, lane: int, ready: Time) -> None:
        table = table_for(node, self._simplified, self._tables.writable)

        def position(stage: int) -> Signal:
            return position_in(table, [self.at(arg, lane, stage) for arg in node.args[1:]])

        if not table.in_memory:
            begin = ready.within(table.levels)
            entry = self._tables.look_up(table, position(begin.stage))
            self._wire(node, lane, entry, Time(begin.stage, begin.level + table.levels))
            return
        begin = ready.within(LEVELS - 1)
        name = self.name(node, lane, begin.stage + 1)
        raw = self._tables.read(table, position(begin.stage), name)
        # What a block of memory gives comes late in its clock: a register behind it.
        entry = Signal(raw.base, *shape(self._simplified.intervals[node]), whole=raw.width)
        self.put(node, lane, entry, Time(begin.stage + 1, LEVELS))

    def _multiply(self, node: Node, lane: int, ready: Time) -> None:
        """Write a product as a sum of parts: shifted values, or products of one multiplier, which has registers at its
        inputs and its output."""
        width, _ = shape(self._simplified.intervals[node])
        fixed = [self._simplified.constant(arg) for arg in node.args]
        parts: list[tuple[str, int, bool]] = []
        if (factor := next((value for value in fixed if value is not None), None)) is not None:
            value = next(arg for arg, known in zip(node.args, fixed, strict=True) if known is None)
            for at, term in enumerate(terms_of_constant(self.at(value, lane, ready.stage), factor)):
                key = self._part(node, at)
                self.put(key, lane, term.value, ready)
                parts.append((key, term.shift, term.minus))
        else:
            begin = ready.within(LEVELS - FROM_MEMORY).stage
            a, b = (self.at(arg, lane, begin + 1) for arg in node.args)
            pairs = [(x, i, y, j) for x, i in pieces(a) for y, j in pieces(b)]
            for at, (x, i, y, j) in enumerate(pairs):
                key = self._part(node, at)
                name = self.name(key, lane, begin + 2)
                bits = x.width + y.width
                whole = self._module.wire(f"{name}_whole", bits, product(x, y))
                register = self._module.register(name, bits, whole.name, signed=x.signed or y.signed)
                self.put(key, lane, register, Time(begin + 2))
                parts.append((key, i + j, False))
        key, shift, minus = parts[0]
        for at, (other, by, less) in enumerate(parts[1:]):
            (key, shift), minus = self._join(node, at, lane, (key, shift, minus), (other, by, less), width), False
        time = self.time(key, lane)
        last = Term(self.at(key, lane, time.stage), shift, minus)
        text = shifted(last, width)
        self._wire(node, lane, f"-({text})" if minus else text, time)

    def _part(self, node: Node, at: int) -> str:
        return f"{self.short(node)}_part{at}"

    def _join(
        self, node: Node, at: int, lane: int, a: tuple[str, int, bool], b: tuple[str, int, bool], width: int
    ) -> tuple[str, int]:
        """Write the sum of two parts of a product; return its key and how far it stands to the left."""
        low = min(a[1], b[1])
        bits = width - low
        levels = 1 + bits / CARRY_BITS
        begin = max(self.time(a[0], lane), self.time(b[0], lane)).within(levels)
        x, y = (Term(self.at(key, lane, begin.stage), shift - low, minus) for key, shift, minus in (a, b))
        x, y = (y, x) if x.minus else (x, y)
        key = f"{self.short(node)}_sum{at}"
        text = joined(x, y, bits) if not x.minus else f"-({shifted(x, bits)}) - {shifted(y, bits)}"
        wire = self._module.wire(self.name(key, lane, begin.stage), bits, text)
        self.put(key, lane, wire, Time(begin.stage, begin.level + levels))
        return key, low

    def _divide(self, node: Node, lane: int, ready: Time) -> None:
        begin = ready.within(LEVELS - FROM_MEMORY).stage
        dividend, divisor = node.args
        width, _ = shape(self._simplified.intervals[node])
        quotient = divide_in_stages(
            self._module,
            self.name(node, lane, begin),
            self.at(dividend, lane, begin),
            lambda stage: self.at(divisor, lane, begin + stage),
            width,
        )
        self.put(node, lane, quotient, Time(begin + width))


def table_for(node: Node, simplified: Simplified, writable: Mapping[str, WritableTable]) -> Table | WritableTable:
    """Return the table that a look-up reads; a constant one is as long as its greatest position asks."""
    if node.args[0].op == "param":
        return writable[param_of(node.args[0]).name]
    length = int(simplified.intervals[node.args[1]].high) + 1
    entries = tuple(int(entry) for entry in table_of(node.args[0]))[:length]
    return Table(entries, shape(simplified.intervals[node])[0])


def position_in(table: Table | WritableTable, given: Sequence[Signal]) -> Signal:
    """Return a position in a table: the entry's, and the head's above it if there is one."""
    if len(given) == 1:
        return given[0]
    entry, head = given
    assert isinstance(table, WritableTable), table
    text = f"{{{head.to_width(table.address - table.entry_bits)}, {entry.to_width(table.entry_bits)}}}"
    return Signal(text, table.address, False)
