"""What drives the register port of a core in its testbench: accesses in their order, between and during rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

FILE = "registers"
"""What the name of the file of accesses ends with, before .hex."""

WORDS, DRAW, OPEN, DONE = "axil_words", "axil_second_draw", "axil_lets", "axil_at == REGISTERS"
"""The testbench's names: of the accesses, of the last draw, that rows may go on, that all is done."""

_DECLARED = """\
    // An access waits for a beat of scores, and another beat waits for it; addresses and words come in any order, and
    // are nothing where they are not offered.
    parameter REGISTERS = {count};
    reg [135:0] axil_words [0:REGISTERS-1];
    integer axil_at = 0;
    reg axil_aw = 1'b0, axil_w = 1'b0, axil_ar = 1'b0, axil_ready = 1'b0;
    reg axil_aw_sent = 1'b0, axil_w_sent = 1'b0, axil_ar_sent = 1'b0;
    wire [31:0] axil_draw = draw({before});
    wire [31:0] axil_second_draw = draw(axil_draw);
    wire [135:0] axil_now = axil_words[axil_at < REGISTERS ? axil_at : 0];
    wire axil_lets = axil_at == REGISTERS || {scores}_at < axil_now[103:72];
    wire axil_due = axil_at < REGISTERS && {scores}_at >= axil_now[135:104];
    wire axil_writes = axil_now[65:64] == 2'd{write};
    wire axil_again = axil_now[65:64] == 2'd{wait} && s_axil_rdata !== axil_now[31:0];
    assign s_axil_awvalid = axil_aw;
    assign s_axil_awaddr = axil_aw ? axil_now[{address_top}:32] : {{{address_bits}{{1'bx}}}};
    assign s_axil_wvalid = axil_w;
    assign s_axil_wdata = axil_w ? axil_now[31:0] : {{32{{1'bx}}}};
    assign s_axil_wstrb = axil_w ? axil_now[69:66] : {{4{{1'bx}}}};
    assign s_axil_bready = axil_ready;
    assign s_axil_arvalid = axil_ar;
    assign s_axil_araddr = axil_ar ? axil_now[{address_top}:32] : {{{address_bits}{{1'bx}}}};
    assign s_axil_rready = axil_ready;

"""

CLOCKED = """\
            axil_ready <= axil_second_draw % 100 < ready_share;
            if (axil_due) begin
                axil_aw <= axil_aw ? ~s_axil_awready : axil_writes & ~axil_aw_sent & (axil_draw % 100 < valid_share);
                axil_w <= axil_w ? ~s_axil_wready : axil_writes & ~axil_w_sent & (axil_draw[15:0] % 100 < valid_share);
                axil_ar <= axil_ar ? ~s_axil_arready : ~axil_writes & ~axil_ar_sent & (axil_draw % 100 < valid_share);
            end
            if (axil_aw) axil_aw_sent <= axil_aw_sent | s_axil_awready;
            if (axil_w) axil_w_sent <= axil_w_sent | s_axil_wready;
            if (axil_ar) axil_ar_sent <= axil_ar_sent | s_axil_arready;
            if ((s_axil_bvalid | s_axil_rvalid) & axil_ready) begin
                {axil_aw_sent, axil_w_sent, axil_ar_sent} <= 3'd0;
                if (s_axil_bvalid ? ~(axil_aw_sent & axil_w_sent) | s_axil_bresp !== axil_now[71:70]
                                  : ~axil_ar_sent | s_axil_rresp !== axil_now[71:70]
                                    | (s_axil_rdata !== axil_now[31:0] & ~axil_again)) begin
                    wrong <= wrong + 1;
                    if (wrong < 10) $display("register access %0d: %h, responses %h %h, data %h", axil_at, axil_now,
                                             s_axil_bresp, s_axil_rresp, s_axil_rdata);
                end
                if (s_axil_bvalid | ~axil_again) begin
                    axil_at <= axil_at + 1;
                    quiet <= 0;
                end
            end
"""


class Kind(IntEnum):
    """What an access does; WAIT reads until what is read is what is expected."""

    WRITE = 0
    READ = 1
    WAIT = 2


@dataclass(frozen=True)
class Access:
    """An access to a register.

    Attributes:
        kind: What it does.
        address: Where.
        data: What is written, or expected.
        first: Beats of scores that are taken before it begins.
        last: The beat of scores that waits until it is done.
        refused: Whether it is answered by SLVERR.
        bytes: Bits of the bytes that are written.
    """

    kind: Kind
    address: int
    data: int
    first: int
    last: int
    refused: bool = False
    bytes: int = 0b1111

    @property
    def word(self) -> int:
        """It, as the testbench reads it."""
        low = (self.data & 0xFFFFFFFF) | self.address << 32 | self.kind << 64 | self.bytes << 66 | self.refused << 71
        return low | self.last << 72 | self.first << 104


_IDLE = """\
    assign {s_axil_awvalid, s_axil_wvalid, s_axil_arvalid, s_axil_bready, s_axil_rready} = 5'd0;
    assign {s_axil_awaddr, s_axil_araddr, s_axil_wdata, s_axil_wstrb} = 0;

"""


def declare(count: int, widths: Mapping[str, int], scores: str, before: str) -> str:
    """Return what stands before the testbench's clocked part; nothing for a core without registers.

    Args:
        count: Accesses.
        widths: Bits of the core's ports.
        scores: Prefix of the stream that accesses wait for.
        before: The draw before those that are drawn here.
    """
    if "s_axil_awvalid" not in widths or not count:
        return _IDLE * ("s_axil_awvalid" in widths)
    return _DECLARED.format(
        count=count,
        before=before,
        scores=scores,
        write=int(Kind.WRITE),
        wait=int(Kind.WAIT),
        address_bits=widths["s_axil_awaddr"],
        address_top=31 + widths["s_axil_awaddr"],
    )
