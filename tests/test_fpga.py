"""What the benchmark of cores does by itself: registers moved into blocks of memory, changes counted, tables."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.fpga.block_registers import move_registers
from benchmarks.fpga.pictures import FOLDER, STREAMS, pipelines, streams
from benchmarks.fpga.results import RESULTS, document, load
from benchmarks.fpga.simulation import changes_of, samples_of
from benchmarks.fpga.tools import missing

Netlist = dict[str, Any]


def _register(data: int, out: int) -> Netlist:
    return {
        "type": "TRELLIS_FF",
        "parameters": {"CEMUX": "1 ", "CLKMUX": "CLK", "REGSET": "RESET"},
        "port_directions": {"CLK": "input", "DI": "input", "LSR": "input", "Q": "output"},
        "connections": {"CLK": [2], "DI": [data], "LSR": ["0"], "Q": [out]},
    }


def _netlist() -> Netlist:
    """Return a block that reads two bits by its second port, a register behind each, and a table behind these."""
    block = {
        "type": "DP16KD",
        "parameters": {"REGMODE_A": "NOREG", "REGMODE_B": "NOREG"},
        "port_directions": {"CLKA": "input", "CLKB": "input", "OCEB": "input", "RSTA": "input", "RSTB": "input",
                            "DOA0": "output", "DOB0": "output", "DOB1": "output", "DOB2": "output"},
        "connections": {"CLKA": [2], "CLKB": [2], "OCEB": ["0"], "RSTA": ["0"], "RSTB": ["0"],
                        "DOA0": [9], "DOB0": [10], "DOB1": [11], "DOB2": [12]},
    }  # fmt: skip
    table = {
        "type": "LUT4",
        "parameters": {},
        "port_directions": {"A": "input", "B": "input", "Z": "output"},
        "connections": {"A": [20], "B": [21], "Z": [30]},
    }
    ports = {"clock": {"direction": "input", "bits": [2]}, "out": {"direction": "output", "bits": [30]}}
    cells = {"block": block, "low": _register(10, 20), "high": _register(11, 21), "table": table}
    return {"modules": {"core": {"ports": ports, "cells": cells}}}


def test_registers_behind_a_block_of_memory_move_into_it() -> None:
    netlist = _netlist()
    assert move_registers(netlist) == 2
    cells = netlist["modules"]["core"]["cells"]
    assert list(cells) == ["block", "table"]
    assert cells["block"]["parameters"] == {"REGMODE_A": "NOREG", "REGMODE_B": "OUTREG"}
    pins = cells["block"]["connections"]
    assert (pins["DOB0"], pins["DOB1"], pins["DOB2"], pins["OCEB"]) == ([20], [21], [12], ["1"])


def _read_twice(module: Netlist) -> None:
    module["cells"]["table"]["connections"]["B"] = [11]


def _leave(module: Netlist) -> None:
    module["ports"]["out"]["bits"] = [11]


def _set(module: Netlist) -> None:
    module["cells"]["high"]["parameters"]["REGSET"] = "SET"


def _reset(module: Netlist) -> None:
    module["cells"]["high"]["connections"]["LSR"] = [40]


def _enable(module: Netlist) -> None:
    module["cells"]["high"]["parameters"]["CEMUX"] = "CE"
    module["cells"]["high"]["connections"]["CE"] = [40]
    module["cells"]["high"]["port_directions"]["CE"] = "input"


def _clock(module: Netlist) -> None:
    module["cells"]["high"]["connections"]["CLK"] = [3]


def _used(module: Netlist) -> None:
    module["cells"]["block"]["parameters"]["REGMODE_B"] = "OUTREG"


@pytest.mark.parametrize("change", [_read_twice, _leave, _set, _reset, _enable, _clock, _used])
def test_a_register_that_does_more_stays(change: Callable[[Netlist], None]) -> None:
    """And the others of its port with it."""
    netlist = _netlist()
    change(netlist["modules"]["core"])
    before = copy.deepcopy(netlist)
    assert move_registers(netlist) == 0
    assert netlist == before


def test_changes_of_nets_are_counted_bit_by_bit() -> None:
    """What leaves the unknown is no change, and leading zeros that a dump leaves out count."""
    dump = """$timescale 1ps $end
    $var wire 1 ! clock $end
    $var wire 4 " word [3:0] $end
    $var wire 1 # alias $end
    $var wire 1 & quiet $end
    $enddefinitions $end
    #0
    $dumpvars
    x!
    bx "
    1#
    0&
    $end
    #5
    1!
    b1 "
    #10
    0!
    b1010 "
    0#
    #15
    1!
    b11 "
    """
    assert changes_of(f"{line.strip()}\n" for line in dump.splitlines()) == {
        "clock": 2,
        "word": 3 + 2,
        "alias": 1,
        "quiet": 0,
    }


def test_nets_are_sampled_before_the_clock_changes_them() -> None:
    dump = """$var wire 1 ! clock $end
    $var reg 4 " word [3:0] $end
    $enddefinitions $end
    #0
    0!
    bx "
    #5
    1!
    b11 "
    #10
    0!
    #15
    b100 "
    1!
    #20
    0!
    """
    lines = (f"{line.strip()}\n" for line in dump.splitlines())
    assert samples_of(lines, "clock", ["word"]) == {"word": [None, 3]}


def test_pictures_are_those_of_the_generator() -> None:
    """Else `python -m benchmarks.fpga.pictures` draws them."""
    for file, text in pipelines().items():
        assert (FOLDER / file).read_text("utf-8") == text, file


def test_timing_diagram_is_that_of_the_core() -> None:
    """The same in every version of Icarus Verilog: the standard says which random numbers it draws."""
    if absent := missing("iverilog", "vvp"):
        pytest.skip(f"{absent} is not installed")
    assert (FOLDER / STREAMS).read_text("utf-8") == streams()


def test_tables_hold_every_core() -> None:
    """And what they say of the first one."""
    rows = load()
    assert rows, RESULTS
    text = document()
    for row in rows.values():
        assert f"| {row.name} | {row.cells['ecp5']['lut']:,} | {row.total:,} |" in text
        assert len(row.mhz) == 5
        assert row.core["length"] == 1024 or row.part == "options"
