"""What the benchmark of cores does by itself: registers moved into blocks of memory, changes counted, tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.fpga.pictures import FOLDER, STREAMS, pipelines, streams
from benchmarks.fpga.results import RESULTS, document, load
from benchmarks.fpga.simulation import changes_of, samples_of
from benchmarks.fpga.tools import missing
from softq.rtl.ecp5 import commands
from tests.proofs import yosys

MEMORY = """
    (* ram_style = "block", no_rw_check *) reg [7:0] {name}_memory [0:2047];
    reg [7:0] {name}_word, {name}_after{initial};
    always @(posedge clk) begin
        if (write) {name}_memory[to] <= data;
        {name}_word <= {name}_memory[from];
        {after}
    end
    assign {name} = {result};
"""
"""A memory, the register of its port, and what comes after it."""

UNMEASURED = ("edge-moe",)
"""Cores with multipliers whose clock `python -m benchmarks.fpga` has yet to measure without registers in these."""

AFTER = {
    "plain": ("{0}_after <= {0}_word;", "{0}_after", ""),
    "twice": ("{0}_after <= {0}_word;", "{0}_after ^ {0}_word", ""),
    "leaves": ("{0}_after <= {0}_word;", "{0}_word", ""),
    "set": ("{0}_after <= {0}_word;", "{0}_after", " = 8'hff"),
    "reset": ("{0}_after <= clear ? 8'd0 : {0}_word;", "{0}_after", ""),
    "enabled": ("if (enable) {0}_after <= {0}_word;", "{0}_after", ""),
}


def test_registers_after_a_block_of_memory_move_into_it(tmp_path: Path) -> None:
    """Those that take a value at each clock and are all that reads the port; of the others none moves."""
    memories = {name: MEMORY.format(name=name, after=after.format(name), result=result.format(name), initial=initial)
                for name, (after, result, initial) in AFTER.items()}  # fmt: skip
    outputs = ", ".join(f"output [7:0] {name}" for name in memories)
    ports = "input clk, write, clear, enable, input [10:0] to, from, input [7:0] data"
    (tmp_path / "core.v").write_text(f"module core({ports}, {outputs}); {''.join(memories.values())} endmodule\n")
    done = yosys(tmp_path, commands(["read_verilog core.v", "synth_ecp5 -top core"], "core.json"))
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "core.json").read_text())["modules"]["core"]["cells"]
    modes = {name.split("_")[0]: cell["parameters"]["REGMODE_B"] for name, cell in cells.items()
             if cell["type"] == "DP16KD"}  # fmt: skip
    assert modes == {name: "OUTREG" if name == "plain" else "NOREG" for name in memories}
    assert sum(cell["type"] == "TRELLIS_FF" for cell in cells.values()) == 8 * (len(memories) - 2)


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
        assert len(row.mhz) == (0 if row.name in UNMEASURED else 5)
        assert row.core["length"] == 1024 or row.part == "options"
