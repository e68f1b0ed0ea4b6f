"""A testbench in Verilog that feeds a core with rows and compares what it gives with what is expected."""

from __future__ import annotations

from collections.abc import Sequence

from softq.codegen.verilog.module import CLOCK, RESET, Port

_TEXT = """\
// Reads {name}_scores.hex and compares what the core gives with {name}_results.hex{and_numbers}.
// +valid=P and +ready=P: percentage of clocks in which a beat is offered, or taken; +seed=N.
`timescale 1ns / 1ps
module {name}_tb;
    parameter BEATS = {beats};
    parameter RESULTS = {results};
    parameter NUMBERS = {numbers};
    parameter PATIENCE = {patience};

    reg clock = 1'b0;
    reg running = 1'b0;
    always #5 clock = ~clock;

    reg [{given_top}:0] given [0:BEATS-1];
    reg [{result_top}:0] expected [0:RESULTS-1];
{number_memory}
    integer beat = 0, result = 0, number = 0, wrong = 0, clocks = 0, quiet = 0;
    integer began = -1, ended = 0;
    integer valid_share = 100, ready_share = 100, seed = 1;
    reg offered = 1'b0, ready = 1'b0, number_ready = 1'b0;
    reg [31:0] chance = 32'd1;

{signals}
    {name} core (
{connections}
    );

    // Xorshift (Marsaglia 2003): three draws for each clock.
    function [31:0] draw(input [31:0] x);
        reg [31:0] y;
        begin
            y = x ^ (x << 13);
            y = y ^ (y >> 17);
            draw = y ^ (y << 5);
        end
    endfunction

    wire [{given_top}:0] now = given[beat < BEATS ? beat : 0];
{assigns}
    initial begin
        $readmemh("{name}_scores.hex", given);
        $readmemh("{name}_results.hex", expected);
{read_numbers}        if ($value$plusargs("valid=%d", valid_share)) begin end
        if ($value$plusargs("ready=%d", ready_share)) begin end
        if ($value$plusargs("seed=%d", seed)) begin end
        chance = seed * 32'd2654435761 + 32'd1;
    end

    always @(posedge clock) begin
        clocks <= clocks + 1;
        running <= clocks > 3;
        quiet <= quiet + 1;
        chance <= draw(draw(draw(chance)));
        ready <= running & (draw(chance) % 100 < ready_share);
        number_ready <= running & (draw(draw(chance)) % 100 < ready_share);
        if (running) begin
            if (s_axis_tvalid & s_axis_tready) begin
                if (began < 0) began <= clocks;
                beat <= beat + 1;
                quiet <= 0;
            end
            // What is offered stays until it is taken.
            offered <= (offered & ~s_axis_tready) | (chance % 100 < valid_share);
            if (m_axis_tvalid & m_axis_tready) begin
                if (result >= RESULTS || ((m_now ^ expected[result]) & cares) !== 0) begin
                    wrong <= wrong + 1;
                    if (wrong < 10) $display("result %0d: %h, expected %h", result, m_now, expected[result]);
                end
                result <= result + 1;
                ended <= clocks;
                quiet <= 0;
            end
{check_numbers}            if (result == RESULTS && number == NUMBERS && quiet == 64) begin
                if (wrong == 0) $write("PASS"); else $write("FAIL");
                $display(": %0d beats, %0d numbers, %0d wrong, %0d clocks", result, number, wrong, ended - began + 1);
                $finish;
            end
            if (quiet == PATIENCE) begin
                $display("FAIL: nothing moves after %0d of %0d results", result, RESULTS);
                $finish;
            end
        end
    end
endmodule
"""


def testbench(
    name: str, ports: Sequence[Port], *, beats: int, results: int, numbers: int, patience: int, reset: bool
) -> str:
    """Return the testbench of a core.

    Args:
        name: The core's name.
        ports: Its ports, but for clock and reset.
        beats: Beats of scores in all.
        results: Beats of results in all.
        numbers: Rows, if the core gives numbers of rows, else 0.
        patience: Clocks without a move after which the core counts as stuck.
        reset: Whether it has a reset.
    """
    widths = {port.name: port.width for port in ports}
    given = [n for n in ("s_axis_tlast", "s_axis_tuser", "s_axis_tkeep", "s_axis_tdata") if n in widths]
    back = [n for n in ("m_axis_tlast", "m_axis_tkeep", "m_axis_tdata") if n in widths]
    has_numbers = "n_axis_tdata" in widths
    signals = [f"    wire {f'[{port.width - 1}:0] ' if port.width > 1 else ''}{port.name};" for port in ports]
    assigns = [
        f"    assign {{{', '.join(given)}}} = now;",
        "    assign s_axis_tvalid = running & offered & (beat < BEATS);",
    ]
    lanes = widths.get("m_axis_tkeep", 1)
    field = widths["m_axis_tdata"] // lanes
    kept = "{" + ", ".join(f"{{{field}{{m_axis_tkeep[{lane}]}}}}" for lane in reversed(range(lanes))) + "}"
    if lanes == 1:
        kept = f"{{{field}{{1'b1}}}}"
    before = sum(widths[n] for n in back if n != "m_axis_tdata")
    assigns.append(f"    wire [{before + field * lanes - 1}:0] cares = {{{{{before}{{1'b1}}}}, {kept}}};")
    assigns += [
        "    assign m_axis_tready = ready;",
        f"    wire [{sum(widths[n] for n in back) - 1}:0] m_now = {{{', '.join(back)}}};",
    ]
    check = ""
    if has_numbers:
        assigns.append("    assign n_axis_tready = number_ready;")
        check = (
            "            if (n_axis_tvalid & n_axis_tready) begin\n"
            "                if (number >= NUMBERS || n_axis_tdata !== numbers[number]) begin\n"
            "                    wrong <= wrong + 1;\n"
            '                    if (wrong < 10) $display("number %0d: %h, expected %h", number,\n'
            "                                             n_axis_tdata, numbers[number]);\n"
            "                end\n"
            "                number <= number + 1;\n"
            "                quiet <= 0;\n"
            "            end\n"
        )
    connections = [
        f"        .{CLOCK}(clock)",
        *([f"        .{RESET}(running)"] if reset else []),
        *(f"        .{p.name}({p.name})" for p in ports),
    ]
    return _TEXT.format(
        name=name,
        beats=beats,
        results=results,
        numbers=numbers,
        patience=patience,
        given_top=sum(widths[n] for n in given) - 1,
        result_top=sum(widths[n] for n in back) - 1,
        number_memory=f"    reg [{widths['n_axis_tdata'] - 1}:0] numbers [0:NUMBERS-1];" if has_numbers else "",
        read_numbers=f'        $readmemh("{name}_numbers.hex", numbers);\n' if has_numbers else "",
        and_numbers=f" and {name}_numbers.hex" if has_numbers else "",
        signals="\n".join(signals),
        connections=",\n".join(connections),
        assigns="\n".join(assigns),
        check_numbers=check,
    )
