"""A testbench in Verilog that feeds a core's streams and compares what it gives with what is expected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from softq.codegen.verilog import driver
from softq.codegen.verilog.module import CLOCK, RESET, Port

_TEXT = """\
// Reads {given_files}{and_accesses} and compares what the core gives with {taken_files}.
// +valid=P and +ready=P: percentage of clocks in which a beat is offered, or taken; +seed=N.
`timescale 1ns / 1ps
module {name}_tb;
    parameter PATIENCE = {patience};
{parameters}

    reg clock = 1'b0;
    reg running = 1'b0;
    always #5 clock = ~clock;

{memories}
    integer wrong = 0, clocks = 0, quiet = 0;
    integer began = -1, ended = 0;
    integer valid_share = 100, ready_share = 100, seed = 1;
    reg [31:0] chance = 32'd1;

{signals}
    {name} core (
{connections}
    );

    // Xorshift (Marsaglia 2003): a draw for each stream and clock.
    function [31:0] draw(input [31:0] x);
        reg [31:0] y;
        begin
            y = x ^ (x << 13);
            y = y ^ (y >> 17);
            draw = y ^ (y << 5);
        end
    endfunction

{draws}
{assigns}
{driver}    initial begin
{reads}
{read_accesses}        if ($value$plusargs("valid=%d", valid_share)) begin end
        if ($value$plusargs("ready=%d", ready_share)) begin end
        if ($value$plusargs("seed=%d", seed)) begin end
        chance = seed * 32'd2654435761 + 32'd1;
    end

    always @(posedge clock) begin
        clocks <= clocks + 1;
        running <= clocks > 3;
        quiet <= quiet + 1;
        chance <= draw({last_draw});
{readies}
        if (running) begin
{feeds}
{checks}
{drives}            if ({all_done} && quiet == 64) begin
                if (wrong == 0) $write("PASS"); else $write("FAIL");
                $display(": %0d beats, %0d numbers, %0d wrong, %0d clocks",
                         {first}_at, {numbers}, wrong, ended - began + 1);
                $finish;
            end
            if (quiet == PATIENCE) begin
                $display("FAIL: nothing moves after %0d of %0d results", {first}_at, {first_words});
                $finish;
            end
        end
    end
endmodule
"""

_FEED = """\
            if ({p}_tvalid & {p}_tready) begin
{begins}                {p}_at <= {p}_at + 1;
                quiet <= 0;
            end
            // What is offered stays until it is taken.
            {p}_offered <= ({p}_offered & ~{p}_tready) | ({p}_draw % 100 < valid_share);"""

_CHECK = """\
            if ({p}_tvalid & {p}_tready) begin
                if ({p}_at >= {words} || (({p}_now ^ {p}_words[{p}_at]) & {p}_cares) !== 0) begin
                    wrong <= wrong + 1;
                    if (wrong < 10) $display("{p} %0d: %h, expected %h", {p}_at, {p}_now, {p}_words[{p}_at]);
                end
                {p}_at <= {p}_at + 1;
{ends}                quiet <= 0;
            end"""


@dataclass(frozen=True)
class Stream:
    """A stream of a core in its testbench.

    Attributes:
        prefix: What the names of its ports begin with.
        file: What the name of the file of its words ends with, before .hex.
        words: How many these are.
    """

    prefix: str
    file: str
    words: int

    @property
    def parameter(self) -> str:
        """The testbench's name of the number of words."""
        return self.file.upper()


def testbench(
    name: str,
    ports: Sequence[Port],
    given: Sequence[Stream],
    taken: Sequence[Stream],
    *,
    patience: int,
    reset: bool,
    accesses: int,
) -> str:
    """Return the testbench of a core.

    A word of a stream is its data, then bits of the lanes, the head, and the end of the row, from the lowest on.

    Args:
        name: The core's name.
        ports: Its ports, but for clock and reset.
        given: What goes in; clocks count from the first beat of the first stream on.
        taken: What comes back, to the last beat of the first stream; a second one has numbers of rows.
        patience: Clocks without a move after which the core counts as stuck.
        reset: Whether it has a reset.
        accesses: Accesses to its registers.
    """
    streams = [*given, *taken]
    widths = {port.name: port.width for port in ports}
    parts = {
        s.prefix: [n for k in ("tlast", "tid", "tuser", "tkeep", "tdata") if (n := f"{s.prefix}_{k}") in widths]
        for s in streams
    }
    whole = {prefix: sum(widths[n] for n in names) for prefix, names in parts.items()}
    memories: list[str] = []
    for stream in streams:
        p = stream.prefix
        memories.append(f"    reg [{whole[p] - 1}:0] {p}_words [0:{stream.parameter}-1];")
        memories.append(f"    integer {p}_at = 0;")
        memories.append(f"    reg {p}_{'offered' if stream in given else 'ready'} = 1'b0;")
    draws = [
        f"    wire [31:0] {s.prefix}_draw = {f'draw({before.prefix}_draw)' if before else 'chance'};"
        for s, before in zip(streams, (None, *streams), strict=False)
    ]
    assigns = [line for s in given for line in _offer(s, parts[s.prefix], whole[s.prefix])]
    assigns += [f"    assign {s.prefix}_tvalid = {_is_offered(s, accesses if s is given[0] else 0)};" for s in given]
    for stream in taken:
        p = stream.prefix
        assigns.append(f"    assign {p}_tready = {p}_ready;")
        assigns.append(f"    wire [{whole[p] - 1}:0] {p}_now = {{{', '.join(parts[p])}}};")
        assigns.append(f"    wire [{whole[p] - 1}:0] {p}_cares = {_cares(p, widths, whole[p])};")
    begins = "                if (began < 0) began <= clocks;\n"
    ends = "                ended <= clocks;\n"
    connections = [
        f"        .{CLOCK}(clock)",
        *([f"        .{RESET}(running)"] if reset else []),
        *(f"        .{p.name}({p.name})" for p in ports),
    ]
    return _TEXT.format(
        name=name,
        patience=patience,
        given_files=" and ".join(f"{name}_{s.file}.hex" for s in given),
        taken_files=" and ".join(f"{name}_{s.file}.hex" for s in taken),
        parameters="\n".join(f"    parameter {s.parameter} = {s.words};" for s in streams),
        memories="\n".join(memories),
        signals="\n".join(
            f"    wire {f'[{port.width - 1}:0] ' if port.width > 1 else ''}{port.name};" for port in ports
        ),
        connections=",\n".join(connections),
        draws="\n".join(draws),
        assigns="\n".join(assigns),
        reads="\n".join(f'        $readmemh("{name}_{s.file}.hex", {s.prefix}_words);' for s in streams),
        last_draw=driver.DRAW if accesses else f"{streams[-1].prefix}_draw",
        and_accesses=f", accesses of {name}_{driver.FILE}.hex" if accesses else "",
        driver=driver.declare(accesses, widths, given[0].prefix, f"{streams[-1].prefix}_draw"),
        read_accesses=f'        $readmemh("{name}_{driver.FILE}.hex", {driver.WORDS});\n' if accesses else "",
        drives=driver.CLOCKED if accesses else "",
        readies="\n".join(
            f"        {s.prefix}_ready <= running & ({s.prefix}_draw % 100 < ready_share);" for s in taken
        ),
        feeds="\n".join(_FEED.format(p=s.prefix, begins=begins if s is given[0] else "") for s in given),
        checks="\n".join(
            _CHECK.format(p=s.prefix, words=s.parameter, ends=ends if s is taken[0] else "") for s in taken
        ),
        all_done=" && ".join([f"{s.prefix}_at == {s.parameter}" for s in taken] + [driver.DONE] * bool(accesses)),
        first=taken[0].prefix,
        first_words=taken[0].parameter,
        numbers=f"{taken[1].prefix}_at" if len(taken) > 1 else "0",
    )


def _offer(stream: Stream, names: Sequence[str], whole: int) -> Iterator[str]:
    p, words = stream.prefix, stream.parameter
    yield f"    wire [{whole - 1}:0] {p}_now = {p}_words[{p}_at < {words} ? {p}_at : 0];"
    yield f"    assign {{{', '.join(names)}}} = {p}_now;"


def _is_offered(stream: Stream, accesses: int) -> str:
    p = stream.prefix
    return f"running & {p}_offered & ({p}_at < {stream.parameter}){f' & {driver.OPEN}' if accesses else ''}"


def _cares(prefix: str, widths: dict[str, int], whole: int) -> str:
    """Return the bits of a word that are compared: of lanes without an element only that they have none."""
    data = widths[f"{prefix}_tdata"]
    lanes = widths.get(f"{prefix}_tkeep", 0)
    if not lanes:
        return f"{{{whole}{{1'b1}}}}"
    kept = ", ".join(f"{{{data // lanes}{{{prefix}_tkeep[{lane}]}}}}" for lane in reversed(range(lanes)))
    return f"{{{{{whole - data}{{1'b1}}}}, {kept}}}"
