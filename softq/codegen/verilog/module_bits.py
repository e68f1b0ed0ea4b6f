"""The bits of the values of a module: logic, sums, products, registers and memories, as its text has them.

Each bit is a constant, logic of others (packing.py), or a leaf that says what it is of: a bit of an input, of a
register, of a sum, of a product, or of what is read from a memory. Nothing is optimized beyond what follows from
constants, and from registers that are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from softq.codegen.verilog.expressions import Expression, is_signed, parse, width_of
from softq.codegen.verilog.module import RESET, Module, Port, Step
from softq.codegen.verilog.packing import Bit, Packing

_SHORT = 2
"""Bits of a sum up to which it is logic."""

Bits = list[Bit]
"""The bits of a value, the lowest first."""


@dataclass(frozen=True)
class Taken:
    """What a bit of a register takes: `data` while `enable` is set, always if that is None; `constant` at `reset`."""

    data: Bit
    enable: Bit | None
    reset: Bit | None
    constant: Bit | None

    @property
    def is_plain(self) -> bool:
        """Whether it takes what there is at each clock."""
        return self.enable is None and self.reset is None


Key = tuple[str, tuple[Bit, ...], tuple[Bit, ...]]
"""A sum, a comparison or a product: its operator and its operands."""


class ModuleBits:
    """The bits of a module's values.

    Args:
        module: The module.
        ports: Its ports, beside clock and reset.

    Attributes:
        packing: What logic is packed by.
        outputs: Widths of the output ports, by name.
        steps: What each register and memory takes, by its name.
    """

    def __init__(self, module: Module, ports: Sequence[Port]) -> None:
        self._module, self.packing = module, Packing()
        self.outputs = {port.name: port.width for port in ports if port.output}
        self.steps: dict[str, list[Step]] = {}
        for step in module.steps:
            self.steps.setdefault(step.target.partition("[")[0], []).append(step)
        self._inputs = {port.name: port.width for port in ports if not port.output} | {RESET: 1}
        self._values: dict[str, Bits] = {}
        self._taken: dict[str, list[Taken]] = {}
        self._first: dict[Bit, Bit] = {}

    def take(self, name: str) -> list[Taken]:
        """Return what each bit of a register takes."""
        if name not in self._taken:
            steps = list(self._steps_of(name))
            conditions, data = [when for when, _ in steps], [bits for _, bits in steps]
            reset = None
            if len(steps) > 1 and not any(bit.support for bit in data[-1]):
                reset, conditions = conditions[-1], conditions[:-1]
            enable: Bit | None = self.packing.zero
            for when in conditions:
                enable = None if when is None or enable is None else self.packing.either(enable, when)
            self._taken[name] = [
                Taken(
                    self._last([bits[at] for bits in data], conditions), enable, reset, data[-1][at] if reset else None
                )
                for at in range(len(data[0]))
            ]
        return self._taken[name]

    def _steps_of(self, name: str) -> Iterator[tuple[Bit | None, Bits]]:
        """Yield what a register takes, and when; a choice with a constant is a reset, and so is the module's."""
        register, packing, steps = self._module.registers[name], self.packing, self.steps[name]
        resets = self._module.reset and register.start is not None
        for step in steps:
            when = self._any(self.bits(parse(step.when))) if step.when else None
            expression = parse(step.expression)
            while expression.kind == "name" and expression.name in self._module.assigned:
                expression = parse(self._module.assigned[expression.name])
            if len(steps) > 1 or resets or expression.kind != "choice":
                yield when, self.bits(parse(step.expression), register.width)
                continue
            condition = self._any(self.bits(expression.args[0]))
            yes, no = (self.bits(arg, register.width) for arg in expression.args[1:])
            if not any(bit.support for bit in yes):
                yield from ((when, no), (condition, yes))
            elif not any(bit.support for bit in no):
                yield from ((when, yes), (packing.invert(condition), no))
            else:
                yield when, [packing.choose(condition, a, b) for a, b in zip(yes, no, strict=True)]
        if resets:
            assert register.start is not None
            yield (
                packing.invert(self.value(RESET)[0]),
                [packing.constant(register.start >> at) for at in range(register.width)],
            )

    def _last(self, data: Bits, conditions: Sequence[Bit | None]) -> Bit:
        """Return what a bit takes of several data: the last whose condition holds."""
        found = data[0]
        for when, bit in zip(conditions[1:], data[1:], strict=False):
            found = bit if when is None else self.packing.choose(when, bit, found)
        return found

    def condition(self, text: str) -> Bits:
        """Return a condition as a bit; none where there is no condition."""
        return [self._any(self.bits(parse(text)))] if text else []

    def value(self, name: str) -> Bits:
        """Return the bits of a wire, a port or a register."""
        if name not in self._values:
            module, width = self._module, self._width(name)
            if name in module.assigned:
                found = self.bits(parse(module.assigned[name]), width)
            elif name in module.registers:
                found = self._register(name, width)
            else:
                found = [self.packing.leaf(("input", name, at)) for at in range(width)]
            self._values[name] = found
        return self._values[name]

    def _register(self, name: str, width: int) -> Bits:
        """Return the bits of a register: those that never change are constants, and equal ones are one."""
        packing, register = self.packing, self._module.registers[name]
        if self.is_word(name):
            return [packing.leaf(("word", name, at)) for at in range(width)]
        own = [packing.leaf(("register", name, at)) for at in range(width)]
        self._values[name] = own  # For what follows from the register itself.
        found: Bits = []
        for at, taken in enumerate(self.take(name)):
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
        return module.wires.get(name) or self._inputs.get(name) or self.outputs[name]

    def is_word(self, name: str) -> bool:
        """Say whether a register is the one that a block of memory reads into."""
        (step, *others) = self.steps.get(name, [Step(name, "", "")])
        memory = self._module.memories.get(step.expression.partition("[")[0])
        return memory is not None and memory.block and not others and not step.when

    def bits(self, expression: Expression, width: int = 0) -> Bits:
        """Return the bits of an expression in a place of a width; by default it has its own."""
        own = width_of(expression, self._width)
        return self._evaluate(expression, max(own, width), is_signed(expression))[: width or own]

    def _evaluate(self, expression: Expression, width: int, signed: bool) -> Bits:
        kind, args, packing = expression.kind, expression.args, self.packing
        if kind == "literal":
            return [packing.constant(expression.low >> at) for at in range(width)]
        if kind == "choice":
            condition = self._any(self.bits(args[0]))
            yes, no = (self._evaluate(arg, width, signed) for arg in args[1:])
            return [packing.choose(condition, a, b) for a, b in zip(yes, no, strict=True)]
        if kind in ("<<", ">>", ">>>"):
            return self._shift(kind, self._evaluate(args[0], width, signed), self.bits(args[1]), signed)
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
        return (bits + [bits[-1] if signed else self.packing.zero] * (width - len(bits)))[:width]

    def _alone(self, expression: Expression) -> Bits:
        """Return the bits of an expression whose width nothing outside changes."""
        kind, args, packing = expression.kind, expression.args, self.packing
        if kind == "name":
            return self.value(expression.name)
        if kind == "slice":
            return self.value(expression.name)[expression.low : expression.high + 1]
        if kind == "join":
            return [bit for arg in reversed(args) for bit in self.bits(arg)]
        if kind == "repeat":
            return self.bits(args[0]) * expression.high
        if kind == "signed":
            return self.bits(args[0])
        if kind == "call":
            table, at = self._module.functions[expression.name], self.bits(args[0])
            return [packing.look_up([entry >> bit & 1 for entry in table.entries], at) for bit in range(table.width)]
        if kind == "index":
            return self._index(expression.name, self.bits(args[0]))
        if kind in ("==", "!=", "<", "<=", ">", ">="):
            return [self._compare(kind, args)]
        bits = self.bits(args[0])
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
            return [self.packing.leaf(("read", name, tuple(at), bit)) for bit in words]
        bits = self.value(name)
        for condition in at:
            more = [bits[i + 1] if i + 1 < len(bits) else self.packing.zero for i in range(0, len(bits), 2)]
            bits = [self.packing.choose(condition, b, a) for a, b in zip(bits[::2], more, strict=True)]
        return bits[:1]

    def _any(self, bits: Bits) -> Bit:
        return self._join(self.packing.either, bits)

    def _join(self, join: Callable[[Bit, Bit], Bit], bits: Bits) -> Bit:
        """Return many bits as one, joined two by two."""
        while len(bits) > 1:
            pairs = zip(bits[::2], bits[1::2], strict=False)
            bits = [join(a, b) for a, b in pairs] + (bits[-1:] if len(bits) % 2 else [])
        return bits[0]

    def _logic(self, kind: str, a: Bits, b: Bits) -> Bits:
        packing = self.packing
        join = {"&": packing.both, "|": packing.either}.get(kind, packing.differ)
        found = [join(x, y) for x, y in zip(a, b, strict=True)]
        return list(map(packing.invert, found)) if kind == "~^" else found

    def _compare(self, kind: str, args: Sequence[Expression]) -> Bit:
        packing, width = self.packing, max(width_of(arg, self._width) for arg in args)
        signed = all(map(is_signed, args))
        a, b = (self._evaluate(arg, width, signed) for arg in args)
        if kind in ("==", "!="):
            found = self._any(self._logic("^", a, b))
            return found if kind == "!=" else packing.invert(found)
        return packing.leaf(("chain", ("<", tuple(a), tuple(b)), width - 1))

    def _chain(self, kind: str, a: Bits, b: Bits) -> Bits:
        """Return a sum or a difference: bits below the first that both have are no part of the chain."""
        packing, low = self.packing, 0
        while low < len(a) - 1 and (b[low] is packing.zero or (kind == "+" and a[low] is packing.zero)):
            low += 1
        if len(a) - low <= _SHORT:
            return self._add(kind, a, b)
        key = (kind, tuple(a[low:]), tuple(b[low:]))
        below = [y if x is packing.zero else x for x, y in zip(a[:low], b[:low], strict=True)]
        return below + [packing.leaf(("chain", key, at)) for at in range(len(a) - low)]

    def _add(self, kind: str, a: Bits, b: Bits) -> Bits:
        """Return a short sum or difference as logic."""
        packing, carry, found = self.packing, self.packing.constant(kind == "-"), list[Bit]()
        for x, y in zip(a, b, strict=True):
            y = packing.invert(y) if kind == "-" else y
            half = packing.differ(x, y)
            found.append(packing.differ(half, carry))
            carry = packing.either(packing.both(x, y), packing.both(half, carry))
        return found

    def _multiply(self, args: Sequence[Expression], width: int) -> Bits:
        a, b = (self.bits(arg) for arg in args)
        return [self.packing.leaf(("product", ("*", tuple(a), tuple(b)), at)) for at in range(min(width, len(a + b)))]

    def _shift(self, kind: str, bits: Bits, by: Bits, signed: bool) -> Bits:
        packing = self.packing
        fill = bits[-1] if kind == ">>>" and signed else packing.zero

        def moved(many: int) -> Bits:
            far = [fill] * min(many, len(bits))
            return (far + bits)[: len(bits)] if kind == "<<" else (bits + far)[-len(bits) :]

        for level, condition in enumerate(by):
            bits = [packing.choose(condition, a, b) for a, b in zip(moved(1 << level), bits, strict=True)]
        return bits
