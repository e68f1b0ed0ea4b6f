"""The estimate of what a core takes, beside what synthesis made of it, and beside modules that are counted by hand."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.fpga.cores import OPTIONS, WORKS
from benchmarks.fpga.estimate import UNSEEN, Compared, compare, fit, left_out, load, measured, unseen
from benchmarks.fpga.results import load as load_measured
from softq.cli import main
from softq.codegen.verilog.cells import Cells, count_cells
from softq.codegen.verilog.estimate import TABLES_BESIDE, TABLES_FACTOR, Resources, estimate
from softq.codegen.verilog.expressions import Expression, parse
from softq.codegen.verilog.module import Memory, Module, Port


def _module() -> Module:
    module = Module("toy", reset=False)
    module.part("toy")
    return module


def _count(module: Module, out: int, **inputs: int) -> Cells:
    ports = [Port(name, width, False, "") for name, width in inputs.items()]
    return count_cells(module, [*ports, Port("out", out, True, "")])


def test_a_register_has_the_bits_that_something_reads() -> None:
    module = _module()
    module.register("kept", 8, "a")
    module.assign("out", "kept[4:2]")
    found = _count(module, 3, a=8)
    assert (found.registers, found.tables) == (3, 0)


def test_equal_registers_are_one_and_constant_ones_none() -> None:
    module = _module()
    module.register("x", 4, "a")
    module.register("y", 4, "a")
    module.register("zero", 4, "4'd0")
    module.register("started", 1, "1'b0", start=1)
    module.assign("out", "{x, y, zero, started}")
    assert _count(module, 13, a=4).registers == 4 + 1


def test_a_condition_enables_and_a_constant_resets() -> None:
    """Neither takes a table for each bit: the condition of two inputs takes one."""
    module = _module()
    module.register("kept", 8)
    module.clocked("kept", "a", when="b & c")
    module.clocked("kept", "8'd0", when="d")
    module.assign("out", "kept")
    found = _count(module, 8, a=8, b=1, c=1, d=1)
    assert (found.registers, found.tables) == (8, 1)


@pytest.mark.parametrize(
    ("expression", "tables", "chains"),
    [
        ("a & b", 8, ()),
        ("c ? a : b", 8, ()),
        ("{7'd0, &a}", 3, ()),  # Eight inputs: 4, and 1 + 3, and 1 + 1.
        ("{7'd0, a == b}", 5, ()),  # Two bits of each in a table, then four in one.
        ("a + b", 0, (8,)),
        ("{a[6:0], 1'b0} + b", 0, (7,)),  # The lowest bit is that of b.
        ("a + {b[4:0], 3'd0}", 0, (5,)),  # The lowest three bits are those of a.
        ("{4'd0, (a + b) >> 4}", 0, (8,)),
        ("a << {c, c}", 8 + 6 - 1, ()),  # One level by 1, one by 2; the lowest bits of both are ands in one table.
        ("{7'd0, a < b}", 0, (8,)),
    ],
)
def test_logic_is_packed_and_sums_are_chains(expression: str, tables: int, chains: Sequence[int]) -> None:
    module = _module()
    module.assign("out", expression)
    found = _count(module, 8, a=8, b=8, c=1)
    assert (found.tables, found.chains) == (tables, tuple(chains))


def test_memories_take_the_registers_after_them_and_products_none() -> None:
    module = _module()
    module.memory("words", 20, 1024, 'ram_style = "block"')
    module.register("at", 10, "a")
    module.clocked("words[at]", "{a, a}", when="b")
    module.register("word", 20, "words[at]")
    module.register("behind", 20, "word")
    module.register("x", 10, "behind[9:0]")
    module.register("y", 10, "behind[19:10]")
    module.wire("whole", 20, "x * y")
    module.register("product", 20, "whole")
    module.assign("out", "product")
    found = estimate([_count(module, 20, a=10, b=1)])
    # Those after the memory are in its blocks; the address, both factors and the product remain.
    assert (found.bram, found.mult18, found.ff) == (2, 1, 10 + 20 + 20)


@pytest.mark.parametrize(
    ("width", "depth", "blocks"),
    [(8, 2048, 1), (8, 8192, 4), (9, 8192, 4), (36, 512, 1), (35, 1024, 2), (71, 256, 2), (1, 16384, 1), (10, 2048, 2)],
)
def test_blocks_of_memory_are_the_fewest_that_hold_it(width: int, depth: int, blocks: int) -> None:
    module = _module()
    module.memory("words", width, depth, 'ram_style = "block"')
    module.clocked(f"words[{'a'}]", "b", when="c")
    module.register("word", width, "words[d]")
    module.assign("out", "word")
    found = estimate([_count(module, width, a=14, b=width, c=1, d=14)])
    assert found.bram == blocks
    assert module.memories["words"] == Memory(width, depth, True)


def test_a_block_of_memory_has_a_register_that_takes_a_word_under_a_condition() -> None:
    """As the sums of V: 64 words of 16 bits are a block, and what reads them is in it."""
    module = _module()
    module.memory("words", 16, 64, 'ram_style = "block"')
    module.clocked(f"words[{'a'}]", "b", when="c")
    module.register("word", 16, "words[d]")
    module.clocked("word", "16'd0", when="c")
    module.assign("out", "word")
    found = estimate([_count(module, 16, a=6, b=16, c=1, d=6)])
    assert (found.bram, found.ff) == (1, 0)


def test_what_no_core_is_written_in_is_refused() -> None:
    assert parse("a[3] & ~b") == Expression(
        "&", args=(Expression("slice", "a", 3, 3), Expression("~", args=(Expression("name", "b"),)))
    )
    for text in ("a ** b", "a & ", "a b", "{a, }", "a[3", "3'q1"):
        with pytest.raises(ValueError, match=r"cores are written in|expected"):
            parse(text)


def _check(cores: Sequence[Compared], tables: Sequence[float]) -> None:
    """What docs/fpga.md promises: BRAM and multipliers to the piece, flip-flops and tables within bounds."""
    assert [(c.name, c.estimated.bram, c.estimated.mult18) for c in cores] == [
        (c.name, c.measured.bram, c.measured.mult18) for c in cores
    ]
    for errors, usual, most in (
        (tables, 0.16, 0.4),
        ([core.error("lut4_in_all") for core in cores], 0.12, 0.3),
        ([core.error("ff") for core in cores], 0.02, 0.1),
    ):
        sizes = sorted(map(abs, errors))
        assert statistics.median(sizes) < usual / 2
        assert sizes[len(sizes) * 4 // 5] < usual, sizes
        assert sizes[-1] < most, sizes


def test_the_estimate_is_what_synthesis_makes_of_the_first_cores() -> None:
    """Of the smaller ones, with each option; flip-flops are the same to the bit."""
    rows = load_measured()
    cores: list[Compared] = []
    for work in (*(work for work in WORKS if work.lanes == 1 and work.method != "tflite-int8"), *OPTIONS):
        if work.name in rows and "octaves" not in work.name and work.name != "edge-moe":
            row = rows[work.name]
            cells = row.cells["ecp5"]
            cores.append(compare(work, Resources(cells["lut"], row.total, row.ff, cells["bram"], cells["dsp"])))
    assert len(cores) >= 10
    _check(cores, [core.error("lut4") for core in cores])
    assert [core.estimated.ff for core in cores] == [core.measured.ff for core in cores]


@pytest.mark.slow
def test_the_estimate_is_what_synthesis_makes_of_all_measured_cores() -> None:
    """By numbers that are fitted on the others; those in the code are near the ones of all, scans too."""
    cores = measured()
    _check(cores, left_out(cores))
    factor, beside = fit(cores)
    assert (factor, beside) == (pytest.approx(TABLES_FACTOR, abs=0.05), pytest.approx(TABLES_BESIDE, abs=6))


@pytest.mark.slow
def test_the_estimate_is_what_synthesis_makes_of_cores_that_nothing_was_fitted_on() -> None:
    cores = unseen()
    assert len(cores) == len(load()) == len(UNSEEN)
    _check(cores, [core.error("lut4") for core in cores])


def test_it_stands_in_the_description_and_in_what_is_printed(tmp_path: Path) -> None:
    arguments = ["rtl", "deferred-log", "--bits", "4", "--set", "step=0.06", "--no-reset", "--rows", "0"]
    done = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path)])
    facts = json.loads((tmp_path / "deferred_log.json").read_text())["estimate"]
    assert done.exit_code == 0
    line = f"{facts['lut4']} LUT4 ({facts['lut4_in_all']} in all), {facts['ff']} flip-flops, 1 block of memory"
    assert f"estimated for ECP5: {line}, 0 multipliers" in done.output
    assert (facts["ff"], facts["bram"], facts["latency"], facts["interval"]) == (203, 1, 2055, 1024.0)
