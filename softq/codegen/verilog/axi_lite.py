"""The register port: a subordinate of AXI4-Lite that writes tables and reads them back.

One write and one read are under way at most. An access that nothing stands for is answered by SLVERR and changes
nothing: an address without a register, a part of a word, an entry outside its interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from softq.codegen.verilog.module import Module, Port
from softq.codegen.verilog.registers import STATUS, WORD, WORD_BITS, WritableTable, address_bits
from softq.codegen.verilog.signals import literal

AT = "axil_at"
"""Address of the entry that is written or read back."""

VALUE = "axil_value"
"""The word that is written."""


def write_condition(table: WritableTable) -> str:
    """Return the name of what says that an entry of a table is written."""
    return f"axil_write_{table.name}"


def read_back(table: WritableTable) -> str:
    """Return the name of the register that has an entry a clock after its address."""
    return f"axil_back_{table.name}"


def place_of(table: WritableTable) -> str:
    """Return the position in a table that the port writes or reads back."""
    return f"{AT}[{table.address + 1}:2]"


def register_ports(tables: Sequence[WritableTable]) -> list[Port]:
    """Return the ports."""
    bits = address_bits(tables)
    return [
        Port("s_axil_awaddr", bits, False, "address of a write, in bytes"),
        Port("s_axil_awvalid", 1, False, "an address is offered"),
        Port("s_axil_awready", 1, True, "it is taken"),
        Port("s_axil_wdata", WORD_BITS, False, "word of a write"),
        Port("s_axil_wstrb", WORD, False, "bytes of it: all"),
        Port("s_axil_wvalid", 1, False, "a word is offered"),
        Port("s_axil_wready", 1, True, "it is taken"),
        Port("s_axil_bresp", 2, True, "0: written; 2: refused"),
        Port("s_axil_bvalid", 1, True, "a response is offered"),
        Port("s_axil_bready", 1, False, "it is taken"),
        Port("s_axil_araddr", bits, False, "address of a read, in bytes"),
        Port("s_axil_arvalid", 1, False, "an address is offered"),
        Port("s_axil_arready", 1, True, "it is taken"),
        Port("s_axil_rdata", WORD_BITS, True, "word of a read"),
        Port("s_axil_rresp", 2, True, "0: read; 2: refused"),
        Port("s_axil_rvalid", 1, True, "a word is offered"),
        Port("s_axil_rready", 1, False, "it is taken"),
    ]


def write_registers(
    module: Module, tables: Sequence[WritableTable], begins: str, ends: Sequence[str], most: int
) -> None:
    """Write the port.

    Args:
        module: Where it is written.
        tables: What lies behind it.
        begins: The condition that a row enters.
        ends: The conditions that one of its streams has left.
        most: Rows that can be in the core.
    """
    module.part("Registers: rows in the core")
    inside: list[str] = []
    for at, ended in enumerate(ends):
        # What leaves is counted a clock later, so that the way to the counter is short. One adder: of 1, or of -1.
        name, bits = f"axil_rows_{at}", most.bit_length()
        left = module.register(f"axil_left_{at}", 1, ended, start=0).name
        down = f"{{{{{bits - 1}{{{left}}}}}, 1'b1}}"
        module.register(name, bits, f"{name} + {down}", when=f"{begins} ^ {left}", start=0)
        inside.append(f"({name} != {bits}'d0)")
    module.wire("axil_busy", 1, " | ".join(inside))
    bits = address_bits(tables)
    module.part("Registers: writes")
    _take(module, "aw", "axil_done", [("axil_waddr", bits, "s_axil_awaddr")])
    _take(module, "w", "axil_done", [(VALUE, WORD_BITS, "s_axil_wdata"), ("axil_whole", 1, "&s_axil_wstrb")])
    module.wire("axil_done", 1, "axil_aw_full & axil_w_full & ~axil_bvalid")
    for table in tables:
        fits = _fits(table)
        module.wire(write_condition(table), 1, f"axil_done & axil_whole & {_hits(table, 'axil_waddr', bits)} & {fits}")
    written = " | ".join(write_condition(table) for table in tables)
    module.register("axil_bvalid", 1, "axil_done | (axil_bvalid & ~s_axil_bready)", start=0)
    module.register("axil_refused_write", 1, f"~({written})", when="axil_done")
    module.assign("s_axil_bvalid", "axil_bvalid")
    module.assign("s_axil_bresp", "{axil_refused_write, 1'b0}")
    module.part("Registers: reads")
    _take(module, "ar", "axil_found", [("axil_raddr", bits, "s_axil_araddr")])
    # Writes go first. What a block of memory gives comes late in its clock: a register behind it.
    module.wire("axil_read", 1, "axil_ar_full & ~axil_done & ~axil_reading & ~axil_found & ~axil_rvalid")
    module.register("axil_reading", 1, "axil_read", start=0)
    module.register("axil_found", 1, "axil_reading", start=0)
    module.wire(AT, bits, "axil_done ? axil_waddr : axil_raddr")
    module.register("axil_rvalid", 1, "axil_found | (axil_rvalid & ~s_axil_rready)", start=0)
    status = f"(axil_raddr == {literal(STATUS, bits)})"
    found = f"{status} ? {{{WORD_BITS - 1}'d0, axil_busy}} : {WORD_BITS}'d0"
    for table in tables:
        entry = module.register(f"axil_entry_{table.name}", table.width, read_back(table), signed=table.signed)
        back = entry.to_width(WORD_BITS)
        found = f"{_hits(table, 'axil_raddr', bits)} ? {back} : {found}"
    module.register("axil_data", WORD_BITS, found, when="axil_found")
    known = " | ".join((status, *(_hits(table, "axil_raddr", bits) for table in tables)))
    module.register("axil_refused_read", 1, f"~({known})", when="axil_found")
    module.assign("s_axil_rvalid", "axil_rvalid")
    module.assign("s_axil_rdata", "axil_data")
    module.assign("s_axil_rresp", "{axil_refused_read, 1'b0}")


def _take(module: Module, channel: str, done: str, kept: Sequence[tuple[str, int, str]]) -> None:
    """Write what takes one transfer of a channel and keeps it until it is done."""
    full, port = f"axil_{channel}_full", f"s_axil_{channel}"
    module.assign(f"{port}ready", f"~{full}")
    module.register(full, 1, f"{full} ? ~{done} : {port}valid", start=0)
    for name, width, given in kept:
        module.register(name, width, given, when=f"~{full}")


def _hits(table: WritableTable, address: str, bits: int) -> str:
    """Return the condition that an address is one of a table's entries."""
    low = table.address + 2
    tests = [f"({address}[1:0] == 2'd0)"]
    if low < bits:
        tests.append(f"({address}[{bits - 1}:{low}] == {literal(table.base >> low, bits - low)})")
    entry = table.entry_bits
    if table.size < 1 << entry:
        tests.append(f"({address}[{entry + 1}:2] < {literal(table.size, entry)})")
    if table.heads < 1 << (table.address - entry):
        tests.append(f"({address}[{low - 1}:{entry + 2}] < {literal(table.heads, table.address - entry)})")
    return f"({' & '.join(tests)})"


def _fits(table: WritableTable) -> str:
    """Return the condition that the word that is written lies in a table's interval."""
    width, top = table.width, WORD_BITS - 1
    if not table.signed:
        above = f"({VALUE}[{top}:{width}] == {WORD_BITS - width}'d0)" if width < WORD_BITS else ""
    else:
        above = f"({VALUE}[{top}:{width - 1}] == {{{WORD_BITS - width + 1}{{{VALUE}[{width - 1}]}}}})"
    sign = "$signed" if table.signed else ""
    tests = [above] if above else []
    least, greatest = (-(1 << width - 1), (1 << width - 1) - 1) if table.signed else (0, (1 << width) - 1)
    if table.low > least:
        tests.append(f"({sign}({VALUE}) >= {sign}({literal(table.low, WORD_BITS)}))")
    if table.high < greatest:
        tests.append(f"({sign}({VALUE}) <= {sign}({literal(table.high, WORD_BITS)}))")
    return " & ".join(tests) or "1'b1"
