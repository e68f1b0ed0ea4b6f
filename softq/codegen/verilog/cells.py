"""The cells that a module comes to, counted before synthesis: what is asked for, bit by bit, from its outputs on.

Nothing is placed, and nothing is optimized beyond what follows from constants. Logic is packed into tables of four
inputs as it comes (packing.py). A sum is a chain of carries as long as the bits that are asked for. A register has the
bits that something reads; its conditions are one net that enables it, and a constant that it takes last is its reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from softq.codegen.verilog.expressions import Expression, is_signed, parse, width_of
from softq.codegen.verilog.module import RESET, Memory, Module, Port, Step
from softq.codegen.verilog.packing import Bit, Packing

_SHORT = 2
"""Bits of a sum up to which it is logic."""

Bits = list[Bit]
"""The bits of a value, the lowest first."""


@dataclass(frozen=True)
class BlockRead:
    """What is read from a block of memory.

    Attributes:
        name: Name of the memory.
        memory: The memory.
        beside_write: Whether it is read at the position that is written.
        bits: Bits of a word that are asked for.
        moved: Those whose only reader is a register that takes them at each clock: the block has one for it.
    """

    name: str
    memory: Memory
    beside_write: bool
    bits: frozenset[int]
    moved: frozenset[int]


@dataclass(frozen=True)
class Cells:
    """What a module is made of.

    Attributes:
        tables: Tables of four inputs.
        registers: Bits of registers, those beside blocks of memory and multipliers too.
        chains: Bits of each sum, difference and comparison.
        products: How many products there are.
        product_registers: Bits of registers beside them that a multiplier has, too.
        reads: What is read from blocks of memory.
        read_beside: Memories that are read otherwise, once for each reader: distributed ones, and blocks with a register
            that does not take what is read at each clock.
    """

    tables: int
    registers: int
    chains: tuple[int, ...]
    products: int
    product_registers: int
    reads: tuple[BlockRead, ...]
    read_beside: tuple[Memory, ...]


def count_cells(module: Module, ports: Sequence[Port]) -> Cells:
    """Return what a module with these ports is made of."""
    return _Count(module, ports).run()


@dataclass(frozen=True)
class _Taken:
    """What a bit of a register takes: `data` while `enable` is set, always if that is None; `constant` at `reset`."""

    data: Bit
    enable: Bit | None
    reset: Bit | None
    constant: Bit | None

    @property
    def is_plain(self) -> bool:
        return self.enable is None and self.reset is None


_Key = tuple[str, tuple[Bit, ...], tuple[Bit, ...]]
"""A sum, a comparison or a product: its operator and its operands."""


class _Count:
    def __init__(self, module: Module, ports: Sequence[Port]) -> None:
        self._module, self._packing = module, Packing()
        self._inputs = {port.name: port.width for port in ports if not port.output} | {RESET: 1}
        self._outputs = {port.name: port.width for port in ports if port.output}
        self._steps: dict[str, list[Step]] = {}
        for step in module.steps:
            self._steps.setdefault(step.target.partition("[")[0], []).append(step)
        self._values: dict[str, Bits] = {}
        self._taken: dict[str, list[_Taken]] = {}
        self._asked: set[Bit] = set()
        self._first: dict[Bit, Bit] = {}
        self._lengths: dict[_Key, int] = {}
        self._readers: dict[Bit, list[_Taken | _Key | None]] = {}

    def run(self) -> Cells:
        roots = [*self._outputs, *(name for name in sorted(self._module.connected) if name in self._module.assigned)]
        waiting = [bit for name in roots for bit in self._value(name)]
        while waiting:
            bit = self._packing.table(waiting.pop())
            if bit.support and bit not in self._asked:
                self._asked.add(bit)
                waiting += self._follow(bit)
        kinds = [bit.of[0] for bit in self._asked if isinstance(bit.of, tuple)]
        reads = {bit.of[1:3] for bit in self._asked if isinstance(bit.of, tuple) and bit.of[0] == "read"}
        joined = {key: tables for key in self._lengths if (tables := self._joining(key)) is not None}
        return Cells(
            kinds.count("table") + sum(joined.values()),
            kinds.count("register"),
            tuple(sorted(length for key, length in self._lengths.items() if key[0] != "*" and key not in joined)),
            sum(key[0] == "*" for key in self._lengths),
            len({bit for key in self._lengths if key[0] == "*" for bit in self._beside_product(key)}),
            tuple(self._block_reads()),
            tuple(self._module.memories[name] for name in sorted(str(read[0]) for read in reads)),
        )

    # What a bit follows from

    def _follow(self, bit: Bit) -> Bits:
        """Return what a leaf follows from, and note who reads it."""
        assert isinstance(bit.of, tuple)
        kind, what, *more = bit.of
        found: list[tuple[Bit, _Taken | _Key | None]] = []
        if kind == "table":
            found += ((leaf, None) for leaf in what.support)
        elif kind == "beside":
            found += ((leaf, None) for leaf in bit.of[1:])
        elif kind == "chain":
            # A bit of a sum asks for those below, too.
            _, a, b = what
            done = self._lengths.get(what, 0)
            self._lengths[what] = max(done, more[0] + 1)
            found += ((x, what) for side in (a, b) for x in side[done : more[0] + 1])
        elif kind == "product":
            if what not in self._lengths:
                self._lengths[what] = 0
                found += ((x, what) for side in what[1:] for x in side)
        elif kind == "read":
            found += ((x, None) for x in (*more[0], *self._written(what)))
        elif kind == "word":
            (step,) = self._steps[what]
            address = parse(step.expression)
            found += ((x, None) for x in (*self._bits(address.args[0]), *self._written(address.name)))
        elif kind == "register":
            taken = self._take(what)[more[0]]
            found.append((taken.data, taken))
            found += ((x, None) for x in (taken.enable, taken.reset) if x is not None)
        for other, reader in found:
            self._readers.setdefault(self._packing.table(other), []).append(reader)
        return [other for other, _ in found]

    def _written(self, memory: str) -> Bits:
        found: Bits = []
        for step in self._steps.get(memory, []):
            found += self._condition(step.when)
            found += self._bits(parse(step.target).args[0])
            found += self._bits(parse(step.expression), self._module.memories[memory].width)
        return found

    def _take(self, name: str) -> list[_Taken]:
        """Return what each bit of a register takes."""
        if name not in self._taken:
            steps = list(self._steps_of(name))
            conditions, data = [when for when, _ in steps], [bits for _, bits in steps]
            reset = None
            if len(steps) > 1 and not any(bit.support for bit in data[-1]):
                reset, conditions = conditions[-1], conditions[:-1]
            enable: Bit | None = self._packing.zero
            for when in conditions:
                enable = None if when is None or enable is None else self._packing.either(enable, when)
            self._taken[name] = [
                _Taken(
                    self._last([bits[at] for bits in data], conditions), enable, reset, data[-1][at] if reset else None
                )
                for at in range(len(data[0]))
            ]
        return self._taken[name]

    def _steps_of(self, name: str) -> Iterator[tuple[Bit | None, Bits]]:
        """Yield what a register takes, and when; a choice with a constant is a reset, and so is the module's."""
        register, packing, steps = self._module.registers[name], self._packing, self._steps[name]
        resets = self._module.reset and register.start is not None
        for step in steps:
            when = self._any(self._bits(parse(step.when))) if step.when else None
            expression = parse(step.expression)
            while expression.kind == "name" and expression.name in self._module.assigned:
                expression = parse(self._module.assigned[expression.name])
            if len(steps) > 1 or resets or expression.kind != "choice":
                yield when, self._bits(parse(step.expression), register.width)
                continue
            condition = self._any(self._bits(expression.args[0]))
            yes, no = (self._bits(arg, register.width) for arg in expression.args[1:])
            if not any(bit.support for bit in yes):
                yield from ((when, no), (condition, yes))
            elif not any(bit.support for bit in no):
                yield from ((when, yes), (packing.invert(condition), no))
            else:
                yield when, [packing.choose(condition, a, b) for a, b in zip(yes, no, strict=True)]
        if resets:
            assert register.start is not None
            yield (
                packing.invert(self._value(RESET)[0]),
                [packing.constant(register.start >> at) for at in range(register.width)],
            )

    def _last(self, data: Bits, conditions: Sequence[Bit | None]) -> Bit:
        """Return what a bit takes of several data: the last whose condition holds."""
        found = data[0]
        for when, bit in zip(conditions[1:], data[1:], strict=False):
            found = bit if when is None else self._packing.choose(when, bit, found)
        return found

    # Values as bits

    def _condition(self, text: str) -> Bits:
        return [self._any(self._bits(parse(text)))] if text else []

    def _value(self, name: str) -> Bits:
        """Return the bits of a wire, a port or a register."""
        if name not in self._values:
            module, width = self._module, self._width(name)
            if name in module.assigned:
                found = self._bits(parse(module.assigned[name]), width)
            elif name in module.registers:
                found = self._register(name, width)
            else:
                found = [self._packing.leaf(("input", name, at)) for at in range(width)]
            self._values[name] = found
        return self._values[name]

    def _register(self, name: str, width: int) -> Bits:
        """Return the bits of a register: those that never change are constants, and equal ones are one."""
        packing, register = self._packing, self._module.registers[name]
        if self._is_word(name):
            return [packing.leaf(("word", name, at)) for at in range(width)]
        own = [packing.leaf(("register", name, at)) for at in range(width)]
        self._values[name] = own  # For what follows from the register itself.
        found: Bits = []
        for at, taken in enumerate(self._take(name)):
            start = None if register.start is None else register.start >> at & 1
            if not taken.data.support and taken.reset is None and start in (None, int(taken.data is packing.one)):
                found.append(taken.data)
            else:
                same = packing.leaf(("same", taken, start))
                found.append(self._first.setdefault(same, own[at]))
        return found

    def _width(self, name: str) -> int:
        module = self._module
        if name.endswith("[]"):
            memory = module.memories.get(name[:-2])
            return 1 if memory is None else memory.width
        if name in module.functions:
            return module.functions[name].width
        if name in module.registers:
            return module.registers[name].width
        return module.wires.get(name) or self._inputs.get(name) or self._outputs[name]

    def _is_word(self, name: str) -> bool:
        """Say whether a register is the one that a block of memory reads into."""
        (step, *others) = self._steps.get(name, [Step(name, "", "")])
        memory = self._module.memories.get(step.expression.partition("[")[0])
        return memory is not None and memory.block and not others and not step.when

    def _bits(self, expression: Expression, width: int = 0) -> Bits:
        """Return the bits of an expression in a place of a width; by default it has its own."""
        own = width_of(expression, self._width)
        return self._evaluate(expression, max(own, width), is_signed(expression))[: width or own]

    def _evaluate(self, expression: Expression, width: int, signed: bool) -> Bits:
        kind, args, packing = expression.kind, expression.args, self._packing
        if kind == "literal":
            return [packing.constant(expression.low >> at) for at in range(width)]
        if kind == "choice":
            condition = self._any(self._bits(args[0]))
            yes, no = (self._evaluate(arg, width, signed) for arg in args[1:])
            return [packing.choose(condition, a, b) for a, b in zip(yes, no, strict=True)]
        if kind in ("<<", ">>", ">>>"):
            return self._shift(kind, self._evaluate(args[0], width, signed), self._bits(args[1]), signed)
        if len(args) == 2 and kind in ("&", "|", "^", "~^", "+", "-", "*"):
            if kind == "*":
                return self._extend(self._multiply(args, width), width, False)
            a, b = (self._evaluate(arg, width, signed) for arg in args)
            return self._chain(kind, a, b) if kind in "+-" else self._logic(kind, a, b)
        if kind == "~":
            return list(map(packing.invert, self._evaluate(args[0], width, signed)))
        if kind == "-":
            return self._chain("-", [packing.zero] * width, self._evaluate(args[0], width, signed))
        return self._extend(self._alone(expression), width, signed and kind == "signed")

    def _extend(self, bits: Bits, width: int, signed: bool) -> Bits:
        return (bits + [bits[-1] if signed else self._packing.zero] * (width - len(bits)))[:width]

    def _alone(self, expression: Expression) -> Bits:
        """Return the bits of an expression whose width nothing outside changes."""
        kind, args, packing = expression.kind, expression.args, self._packing
        if kind == "name":
            return self._value(expression.name)
        if kind == "slice":
            return self._value(expression.name)[expression.low : expression.high + 1]
        if kind == "join":
            return [bit for arg in reversed(args) for bit in self._bits(arg)]
        if kind == "repeat":
            return self._bits(args[0]) * expression.high
        if kind == "signed":
            return self._bits(args[0])
        if kind == "call":
            table, at = self._module.functions[expression.name], self._bits(args[0])
            return [packing.look_up([entry >> bit & 1 for entry in table.entries], at) for bit in range(table.width)]
        if kind == "index":
            return self._index(expression.name, self._bits(args[0]))
        if kind in ("==", "!=", "<", "<=", ">", ">="):
            return [self._compare(kind, args)]
        bits = self._bits(args[0])
        if kind in ("|", "~|"):
            found = self._any(bits)
        else:
            assert kind in ("&", "~&"), kind
            found = self._join(packing.both, bits)
        return [packing.invert(found) if kind.startswith("~") else found]

    def _index(self, name: str, at: Bits) -> Bits:
        """Return a word of a memory, or a bit of a value, at a position that is computed."""
        if name in self._module.memories:
            words = range(self._module.memories[name].width)
            return [self._packing.leaf(("read", name, tuple(at), bit)) for bit in words]
        bits = self._value(name)
        for condition in at:
            more = [bits[i + 1] if i + 1 < len(bits) else self._packing.zero for i in range(0, len(bits), 2)]
            bits = [self._packing.choose(condition, b, a) for a, b in zip(bits[::2], more, strict=True)]
        return bits[:1]

    def _any(self, bits: Bits) -> Bit:
        return self._join(self._packing.either, bits)

    def _join(self, join: Callable[[Bit, Bit], Bit], bits: Bits) -> Bit:
        """Return many bits as one, joined two by two."""
        while len(bits) > 1:
            pairs = zip(bits[::2], bits[1::2], strict=False)
            bits = [join(a, b) for a, b in pairs] + (bits[-1:] if len(bits) % 2 else [])
        return bits[0]

    def _logic(self, kind: str, a: Bits, b: Bits) -> Bits:
        packing = self._packing
        join = {"&": packing.both, "|": packing.either}.get(kind, packing.differ)
        found = [join(x, y) for x, y in zip(a, b, strict=True)]
        return list(map(packing.invert, found)) if kind == "~^" else found

    def _compare(self, kind: str, args: Sequence[Expression]) -> Bit:
        packing, width = self._packing, max(width_of(arg, self._width) for arg in args)
        signed = all(map(is_signed, args))
        a, b = (self._evaluate(arg, width, signed) for arg in args)
        if kind in ("==", "!="):
            found = self._any(self._logic("^", a, b))
            return found if kind == "!=" else packing.invert(found)
        return packing.leaf(("chain", ("<", tuple(a), tuple(b)), width - 1))

    def _chain(self, kind: str, a: Bits, b: Bits) -> Bits:
        """Return a sum or a difference: bits below the first that both have are no part of the chain."""
        packing, low = self._packing, 0
        while low < len(a) - 1 and (b[low] is packing.zero or (kind == "+" and a[low] is packing.zero)):
            low += 1
        if len(a) - low <= _SHORT:
            return self._add(kind, a, b)
        key = (kind, tuple(a[low:]), tuple(b[low:]))
        below = [y if x is packing.zero else x for x, y in zip(a[:low], b[:low], strict=True)]
        return below + [packing.leaf(("chain", key, at)) for at in range(len(a) - low)]

    def _add(self, kind: str, a: Bits, b: Bits) -> Bits:
        """Return a short sum or difference as logic."""
        packing, carry, found = self._packing, self._packing.constant(kind == "-"), list[Bit]()
        for x, y in zip(a, b, strict=True):
            y = packing.invert(y) if kind == "-" else y
            half = packing.differ(x, y)
            found.append(packing.differ(half, carry))
            carry = packing.either(packing.both(x, y), packing.both(half, carry))
        return found

    def _multiply(self, args: Sequence[Expression], width: int) -> Bits:
        a, b = (self._bits(arg) for arg in args)
        return [self._packing.leaf(("product", ("*", tuple(a), tuple(b)), at)) for at in range(min(width, len(a + b)))]

    def _shift(self, kind: str, bits: Bits, by: Bits, signed: bool) -> Bits:
        packing = self._packing
        fill = bits[-1] if kind == ">>>" and signed else packing.zero

        def moved(many: int) -> Bits:
            far = [fill] * min(many, len(bits))
            return (far + bits)[: len(bits)] if kind == "<<" else (bits + far)[-len(bits) :]

        for level, condition in enumerate(by):
            bits = [packing.choose(condition, a, b) for a, b in zip(moved(1 << level), bits, strict=True)]
        return bits

    # What is joined, and registers beside blocks

    def _joining(self, key: _Key) -> int | None:
        """Return the tables that join three bits to two, where all that reads a sum is another sum: then both are one
        chain. None where it is another."""
        bits = [self._packing.leaf(("chain", key, at)) for at in range(self._lengths[key])]
        readers = {reader for bit in bits for reader in self._readers.get(bit, [])}
        if key[0] not in "+-" or len(readers) != 1:
            return None
        (reader,) = readers
        if not isinstance(reader, tuple) or reader[0] not in "+-":
            return None
        side = next(side for side in reader[1:] if bits[0] in side)
        low, other = side.index(bits[0]), reader[2] if side is reader[1] else reader[1]
        return 2 * sum(
            bool(a.support and b.support and c.support) for a, b, c in zip(key[1], key[2], other[low:], strict=False)
        )

    def _block_reads(self) -> Iterator[BlockRead]:
        for name in self._module.registers:
            if not self._is_word(name):
                continue
            value = self._value(name)
            asked = [at for at, bit in enumerate(value) if bit in self._asked]
            moved = [at for at in asked if self._is_moved(value[at])]
            read = parse(self._steps[name][0].expression)
            writes = [parse(step.target).args[0] for step in self._steps.get(read.name, [])]
            memory, beside = self._module.memories[read.name], read.args[0] in writes
            if asked:
                yield BlockRead(read.name, memory, beside, frozenset(asked), frozenset(moved))

    def _is_moved(self, bit: Bit) -> bool:
        """Say whether a register that takes a bit at each clock is all that reads it."""
        readers = self._readers.get(bit, [])
        return len(readers) == 1 and isinstance(readers[0], _Taken) and readers[0].is_plain

    def _beside_product(self, key: _Key) -> Iterator[Bit]:
        """Yield bits of registers that a multiplier takes: those behind it, and those that only products read."""
        result = [bit for bit in self._asked if isinstance(bit.of, tuple) and bit.of[:2] == ("product", key)]
        if all(map(self._is_moved, result)):
            yield from result  # The register behind, which nothing else tells apart from it.
        for side in key[1:]:
            own = {bit for bit in side if bit.support}
            if all(map(self._is_plain_register, own)):
                yield from (bit for bit in own if all(isinstance(r, tuple) and r[0] == "*" for r in self._readers[bit]))

    def _is_plain_register(self, bit: Bit) -> bool:
        return isinstance(bit.of, tuple) and bit.of[0] == "register" and self._take(bit.of[1])[bit.of[2]].is_plain
