"""What a simulation counts: clocks between rows, and nets that change."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.fpga.tools import call
from softq.rtl import MadeCore, write_rtl
from softq.rtl.beats import beats
from softq.vectors.rows import Row

ROWS, LENGTH, SPREAD = 9, 512, 20.0
"""Rows of normal scores of this spread, in units of the score's last bit."""

_CLOCKS = re.compile(r"^PASS: .* (\d+) clocks$", re.MULTILINE)

_GATES = (
    "hierarchy -top {top}; proc -norom; flatten; opt; wreduce; peepopt; opt_clean; alumacc; share; opt; memory -nomap; "
    "opt -fast -full; techmap; opt -fast; abc -lut 4; opt -fast; splitnets; opt_clean -purge; "
    "setundef -zero -init -params; write_verilog -noattr {out}"
)
"""Tables of four inputs, flip-flops and memories of no particular device; all begins with zeros, since what is unknown
spreads farther in a netlist than in what it was made from."""

DUMP = """\
module dump;
    initial begin
        $dumpfile("changes.vcd");
        $dumpvars(1, {core});
    end
endmodule
"""


def _with_rows(made: MadeCore, count: int) -> MadeCore:
    """Return the core with so many rows in its testbench."""
    kind = made.core.plan.source.scores
    middle = (kind.low + kind.high + 1) // 2
    rng = np.random.default_rng(0)
    length = min(LENGTH, made.core.plan.settings.length)
    scores = np.clip(np.rint(rng.normal(middle, SPREAD, (count, length))), kind.low, kind.high).astype(kind.numpy)
    rows = [Row("normal", row, np.ones(length, np.bool_)) for row in scores]
    return MadeCore(made.core, beats(made.core.plan, rows), made.facts)


def count_clocks(made: MadeCore, folder: Path) -> float:
    """Return the clocks from one row of `LENGTH` elements to the next, where nothing outside makes the core wait.

    Raises:
        RuntimeError: the core gives something else than the interpreter.
    """
    one, many = (_simulate(_with_rows(made, count), folder, f"{made.core.name}.v") for count in (1, ROWS))
    return (many - one) / (ROWS - 1)


def count_changes(made: MadeCore, folder: Path) -> float:
    """Return how many nets of a netlist of the core change for each element, the clock aside.

    Raises:
        RuntimeError: the netlist gives something else than the interpreter.
    """
    core, given = made.core.name, _with_rows(made, ROWS)
    write_rtl(given, folder)
    script = f"read_verilog {core}.v; {_GATES.format(top=core, out='gates.v')}"
    call("yosys", ["-q", "-p", script], folder)
    (folder / "dump.v").write_text(DUMP.format(core=f"{core}_tb.core"))
    _simulate(given, folder, "gates.v", "dump.v")
    with (folder / "changes.vcd").open(encoding="utf-8") as lines:
        changes = changes_of(lines)
    elements = ROWS * min(LENGTH, made.core.plan.settings.length)
    return sum(count for name, count in changes.items() if name != "aclk") / elements


def _simulate(made: MadeCore, folder: Path, *sources: str) -> int:
    """Return the clocks that the testbench counts."""
    write_rtl(made, folder)
    bench = f"{made.core.name}_tb"
    tops = [argument for top in (bench, *(["dump"] if "dump.v" in sources else [])) for argument in ("-s", top)]
    call("iverilog", ["-g2001", "-o", "simulation", *tops, *sources, f"{bench}.v"], folder)
    said = call("vvp", ["simulation"], folder)
    found = _CLOCKS.search(said)
    if not found:
        raise RuntimeError(f"{made.core.name}: {said[-500:]}")
    return int(found[1])


def changes_of(lines: Iterable[str]) -> dict[str, int]:
    """Return how often each bit of a value change dump goes from 0 to 1 or back, added up by name."""
    lines = iter(lines)
    names = _names(lines)
    before: dict[str, str] = {}
    found = dict.fromkeys(names.values(), 0)
    for line in lines:
        if not line.strip() or line[0] not in "b01xz":
            continue
        value, net = _change(line)
        width = max(len(value), len(before.get(net, "")))
        value = _extend(value, width)
        found[names[net]] += _differences(_extend(before.get(net, "x"), width), value)
        before[net] = value
    return found


def samples_of(lines: Iterable[str], clock: str, wanted: Container[str]) -> dict[str, list[int | None]]:
    """Return what nets of a value change dump are when the clock rises, by name; None where a bit is unknown."""
    lines = iter(lines)
    names = _names(lines)
    now: dict[str, str] = {}
    found: dict[str, list[int | None]] = {name: [] for name in names.values() if name in wanted}
    changed: dict[str, str] = {}
    for line in (*lines, "#"):
        if line.startswith("#"):
            # What changes together with the clock is there behind it.
            if changed.get(clock) == "1" and now.get(clock) == "0":
                for name, values in found.items():
                    bits = now.get(name, "x")
                    values.append(int(bits, 2) if set(bits) <= {"0", "1"} else None)
            now, changed = now | changed, {}
        elif line.strip() and line[0] in "b01xz":
            value, net = _change(line)
            changed[names[net]] = value
    return found


def _names(lines: Iterator[str]) -> dict[str, str]:
    """Return the names of nets by what a dump calls them, and stop behind its declarations."""
    names: dict[str, str] = {}
    for line in lines:
        parts = line.split()
        if parts[:1] == ["$var"]:
            names[parts[3]] = parts[4]
        elif parts[:1] == ["$enddefinitions"]:
            break
    return names


def _change(line: str) -> tuple[str, str]:
    """Return a value and the net that has it now."""
    value, net = line[1:].split() if line[0] == "b" else (line[0], line[1:].strip())
    return value, net


def _extend(value: str, width: int) -> str:
    """Return a value with the bits to its left that a dump leaves out: zeros, or x and z as the leftmost."""
    return ("0" if value[0] in "01" else value[0]) * (width - len(value)) + value


def _differences(before: str, after: str) -> int:
    return sum({a, b} == {"0", "1"} for a, b in zip(before, after, strict=True))
