"""Registers beside a block, moved into it.

A block of memory of an ECP5 has a register at its output, and a multiplier has registers at its inputs and its output,
which it takes to be fast. yosys leaves them unused and puts flip-flops beside the block; the tools of the vendors move
these into it, and so does this, in the netlist that yosys writes as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Cell = dict[str, Any]


@dataclass(frozen=True)
class _Port:
    """A port of a block that may have a register.

    Attributes:
        pins: The names of its pins.
        mode: Parameters of a block without the register; those that it has already count as it.
        with_register: Those of one with it.
        clock: Pin of the clock; it is of no other net if the block has it connected.
        tied: Other pins of the register, and what they are tied to.
        output: Whether the register is at an output.
    """

    pins: str
    mode: Mapping[str, str]
    with_register: Mapping[str, str]
    clock: str
    tied: Mapping[str, str]
    output: bool = True


def _of_memory(data: str, clock: str, enable: str, mode: str) -> _Port:
    return _Port(rf"{data}\d+", {mode: "NOREG"}, {mode: "OUTREG"}, clock, {enable: "1"})


def _of_multiplier(pins: str, name: str, output: bool = False) -> _Port:
    used = {f"REG_{name}_CLK": "CLK0", f"REG_{name}_CE": "CE0", f"REG_{name}_RST": "RST0"}
    return _Port(rf"{pins}\d+", {f"REG_{name}_CLK": "NONE"}, used, "CLK0", {"CE0": "1", "RST0": "0"}, output)


_BLOCKS = {
    "DP16KD": tuple(_of_memory(f"DO{side}", f"CLK{side}", f"OCE{side}", f"REGMODE_{side}") for side in "AB"),
    "PDPW16KD": (_of_memory("DO", "CLKR", "OCER", "REGMODE"),),
    "MULT18X18D": (
        _of_multiplier("A", "INPUTA"),
        _of_multiplier("B", "INPUTB"),
        _of_multiplier("P", "OUTPUT", output=True),
    ),
}
_CONSTANTS = ("0", "1", "x")


@dataclass
class _Nets:
    """Who drives and who reads each net; a port of the module is a cell of no name.

    Attributes:
        readers: Cells and pins by net.
        drivers: Cells and pins by net.
    """

    readers: dict[int | str, list[tuple[str, str]]] = field(default_factory=dict)
    drivers: dict[int | str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, module: Mapping[str, Any]) -> _Nets:
        """Return those of a module."""
        found = cls()
        for name, port in module["ports"].items():
            for bit in port["bits"]:
                found.add("", name, bit, port["direction"] == "input")
        for name, cell in module["cells"].items():
            for pin, bits in cell["connections"].items():
                for bit in bits:
                    found.add(name, pin, bit, cell["port_directions"][pin] == "output")
        return found

    def add(self, cell: str, pin: str, net: int | str, drives: bool) -> None:
        """Note that a pin drives or reads a net."""
        if drives:
            self.drivers[net] = (cell, pin)
        else:
            self.readers.setdefault(net, []).append((cell, pin))


def move_registers(netlist: Mapping[str, Any]) -> int:
    """Move flip-flops into the blocks beside them, and return how many left the fabric.

    Those of a port move together: each is of the block's clock, takes a value at each clock, and nothing sets or resets
    it. At an output it is the only reader of its pin; at an input one that others read, too, stays for these.

    Args:
        netlist: Of `write_json` after `synth_ecp5`; it is changed.
    """
    moved = 0
    for module in netlist["modules"].values():
        cells: dict[str, Cell] = module["cells"]
        for kind, ports in _BLOCKS.items():
            for name in [name for name, cell in cells.items() if cell["type"] == kind]:
                for port in ports:
                    nets = _Nets.of(module)
                    found = _find(name, port, cells, nets)
                    if found:
                        moved += _move(name, port, found, cells, nets)
    return moved


def _find(name: str, port: _Port, cells: Mapping[str, Cell], nets: _Nets) -> dict[str, str]:
    """Return the flip-flops beside the pins of a port that are used; none if one of them cannot move."""
    block = cells[name]
    known = {key: block["parameters"].get(key, value) for key, value in port.mode.items()}
    found: dict[str, str] = {}
    clocks: set[int | str] = set(block["connections"].get(port.clock, []))
    for pin, (net, *_) in block["connections"].items():
        if not re.fullmatch(port.pins, pin) or net in _CONSTANTS:
            continue
        beside = nets.readers.get(net, []) if port.output else [nets.drivers[net]]
        if not beside:
            continue
        cell = cells.get(beside[0][0])
        if len(beside) > 1 or cell is None or beside[0][1] != ("DI" if port.output else "Q") or not _is_plain(cell):
            return {}
        clocks.update(cell["connections"]["CLK"])
        found[pin] = beside[0][0]
    return found if known == port.mode and len(clocks - set(_CONSTANTS)) == 1 else {}


def _is_plain(cell: Cell) -> bool:
    """Say whether a cell is a flip-flop that takes a value at each clock and is never set."""
    if cell["type"] != "TRELLIS_FF":
        return False
    values, pins = cell["parameters"], cell["connections"]
    return (
        values["CLKMUX"] == "CLK"
        # yosys writes a text that could be read as a number with a space behind.
        and (values["CEMUX"].strip() == "1" or pins["CE"] == ["1"])
        and pins["LSR"] == ["0"]
        and values["REGSET"] == "RESET"
    )


def _move(name: str, port: _Port, found: Mapping[str, str], cells: dict[str, Cell], nets: _Nets) -> int:
    """Move flip-flops into a port, and return how many nothing else reads."""
    block = cells[name]
    block["parameters"].update(port.with_register)
    for pin, tied in port.tied.items():
        block["connections"][pin] = [tied]
        block["port_directions"][pin] = "input"
    block["connections"][port.clock] = next(iter(cells[register]["connections"]["CLK"] for register in found.values()))
    block["port_directions"][port.clock] = "input"
    for pin, register in found.items():
        block["connections"][pin] = cells[register]["connections"]["Q" if port.output else "DI"]
    gone = [
        register
        for register in dict.fromkeys(found.values())
        if port.output or {cell for cell, _ in nets.readers[cells[register]["connections"]["Q"][0]]} == {name}
    ]
    for register in gone:
        del cells[register]
    return len(gone)
