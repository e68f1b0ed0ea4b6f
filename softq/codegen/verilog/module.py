"""The text of a module of Verilog-2001, part by part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from softq.codegen.verilog.signals import Signal, literal

CLOCK = "aclk"
RESET = "aresetn"


@dataclass(frozen=True)
class Port:
    """A port of a module.

    Attributes:
        name: Its name.
        width: Its bits.
        output: Whether the module drives it.
        meaning: What it is.
    """

    name: str
    width: int
    output: bool
    meaning: str


@dataclass(frozen=True)
class Register:
    """A register.

    Attributes:
        width: Its bits.
        start: What it begins with, and has after a reset; None: nothing depends on that.
    """

    width: int
    start: int | None


@dataclass(frozen=True)
class Memory:
    """A memory.

    Attributes:
        width: Bits of a word.
        depth: Words.
        block: Whether synthesis is told to take blocks of memory.
    """

    width: int
    depth: int
    block: bool


@dataclass(frozen=True)
class Function:
    """A table that is logic.

    Attributes:
        address: Bits of a position.
        width: Bits of an entry.
        entries: The entries; what stands behind them is never asked for.
    """

    address: int
    width: int
    entries: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """What a register, or a word of a memory, takes at a clock.

    Attributes:
        target: The register, or the memory with the position of the word.
        expression: What it takes.
        when: The condition under which it does; empty: always.
    """

    target: str
    expression: str
    when: str


@dataclass
class _Part:
    title: str
    declared: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    clocked: list[tuple[str, str]] = field(default_factory=list)
    resets: list[tuple[str, str]] = field(default_factory=list)


class Module:
    """A module that is being written.

    Args:
        name: Its name.
        reset: Whether it has a synchronous reset, active when low.

    Attributes:
        name: Its name.
        reset: Whether it has a reset.
        wires: Bits of each wire.
        registers: The registers by name.
        memories: The memories by name.
        functions: The tables that are logic, by name.
        assigned: The expression of each wire and each output that has one.
        steps: What registers and memories take at a clock; of several for one, the last whose condition holds counts.
        connected: Signals that a module inside takes or gives.
    """

    def __init__(self, name: str, *, reset: bool) -> None:
        self.name = name
        self.reset = reset
        self.wires: dict[str, int] = {}
        self.registers: dict[str, Register] = {}
        self.memories: dict[str, Memory] = {}
        self.functions: dict[str, Function] = {}
        self.assigned: dict[str, str] = {}
        self.steps: list[Step] = []
        self.connected: set[str] = set()
        self._parts: list[_Part] = []

    def part(self, title: str) -> None:
        """Begin a part; what follows stands under this comment."""
        self._parts.append(_Part(title))

    def line(self, text: str) -> None:
        """Add a line."""
        self._parts[-1].lines.append(text)

    def wire(self, name: str, width: int, expression: str, *, signed: bool = False) -> Signal:
        """Add a wire and what drives it."""
        found = self.undriven(name, width, signed=signed)
        self.assign(name, expression)
        return found

    def undriven(self, name: str, width: int, *, signed: bool = False) -> Signal:
        """Add a wire that an assignment drives later."""
        self._claim(name)
        self.wires[name] = width
        self._parts[-1].declared.append(f"wire {_range(width)}{name};")
        return Signal(name, width, signed)

    def assign(self, name: str, expression: str) -> None:
        """Say what drives a wire or an output."""
        self.assigned[name] = expression
        self.line(f"assign {name} = {expression};")

    def register(
        self,
        name: str,
        width: int,
        expression: str = "",
        *,
        when: str = "",
        start: int | None = None,
        signed: bool = False,
    ) -> Signal:
        """Add a register.

        Args:
            name: Its name.
            width: Its bits.
            expression: What it takes at each clock; empty: `clocked` says it later.
            when: The condition under which it does.
            start: What it begins with, and has after a reset; None: nothing depends on that.
            signed: Whether it is two's complement.
        """
        self._claim(name)
        self.registers[name] = Register(width, start)
        begin = "" if start is None else f" = {literal(start, width)}"
        self._parts[-1].declared.append(f"reg {_range(width)}{name}{begin};")
        if start is not None:
            self._parts[-1].resets.append((name, literal(start, width)))
        if expression:
            self.clocked(name, expression, when=when)
        return Signal(name, width, signed)

    def clocked(self, name: str, expression: str, *, when: str = "") -> None:
        """Say what a register takes at each clock, where a condition holds; the last one that holds counts."""
        self.steps.append(Step(name, expression, when))
        self._parts[-1].clocked.append((when, f"{name} <= {expression};"))

    def memory(self, name: str, width: int, depth: int, style: str = "") -> None:
        """Add a memory; `style` is what synthesis is told of it."""
        self._claim(name)
        self.memories[name] = Memory(width, depth, '"block"' in style)
        told = f"(* {style} *) " if style else ""
        self._parts[-1].declared.append(f"{told}reg {_range(width)}{name} [0:{depth - 1}];")

    def function(self, name: str, address: int, width: int, entries: Sequence[int]) -> None:
        """Add a table that is logic: a function of a position."""
        self.functions[name] = Function(address, width, tuple(entries))
        self.line(f"function {_range(width)}{name}(input {_range(address)}at);")
        self.line("    case (at)")
        cases = [f"{literal(at, address)}: {name} = {literal(entry, width)};" for at, entry in enumerate(entries)]
        for line in four_a_line(cases):
            self.line(f"        {line}")
        self.line(f"        default: {name} = {width}'bx;")
        self.line("    endcase")
        self.line("endfunction")

    def instance(self, module: str, name: str, connections: Mapping[str, str]) -> None:
        """Add a module inside, with the signal at each of its ports."""
        self.connected.update(connections.values())
        self.line(f"{module} {name} (")
        for at, (port, signal) in enumerate(connections.items()):
            self.line(f"    .{port}({signal}){',' if at + 1 < len(connections) else ''}")
        self.line(");")

    def text(self, ports: Sequence[Port], head: Iterable[str] = ()) -> str:
        """Return the whole module."""
        given = [Port(CLOCK, 1, False, "clock")]
        given += [Port(RESET, 1, False, "reset, synchronous, active when low")] if self.reset else []
        given += ports
        lines = [*(f"// {line}".rstrip() for line in head), f"module {self.name} ("]
        for at, port in enumerate(given):
            comma = "," if at + 1 < len(given) else ""
            side = "output" if port.output else "input"
            lines.append(f"    {side} wire {_range(port.width)}{port.name}{comma} // {port.meaning}")
        lines.append(");")
        for part in self._parts:
            lines += ["", f"    // {part.title}: signals", *(f"    {line}" for line in part.declared)]
        for part in self._parts:
            lines += ["", f"    // {part.title}"]
            lines += [f"    {line}" for line in part.lines]
            lines += [f"    {line}" for line in self._always(part)]
        return "\n".join([*lines, "", "endmodule", ""])

    def _always(self, part: _Part) -> list[str]:
        if not part.clocked:
            return []
        lines = [f"always @(posedge {CLOCK}) begin"]
        at = 0
        while at < len(part.clocked):
            when = part.clocked[at][0]
            group = []
            while at < len(part.clocked) and part.clocked[at][0] == when:
                group.append(part.clocked[at][1])
                at += 1
            if not when:
                lines += [f"    {line}" for line in group]
            elif len(group) == 1:
                lines.append(f"    if ({when}) {group[0]}")
            else:
                lines += [f"    if ({when}) begin", *(f"        {line}" for line in group), "    end"]
        if self.reset and part.resets:
            lines.append(f"    if (!{RESET}) begin")
            lines += [f"        {name} <= {value};" for name, value in part.resets]
            lines.append("    end")
        return [*lines, "end"]

    def _claim(self, name: str) -> None:
        assert not any(name in taken for taken in (self.wires, self.registers, self.memories)), name


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""


def four_a_line(parts: Sequence[str]) -> list[str]:
    """Return lines with four parts each."""
    return [" ".join(parts[at : at + 4]) for at in range(0, len(parts), 4)]
