"""Commands for Yosys that make the netlist of a core for nextpnr-ecp5.

A block of memory of an ECP5 has a register at its output. Yosys leaves it unused and adds flip-flops after the block;
the vendor's tools move these into it, and so do these commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_WIDE = "t:DP16KD r:DATA_WIDTH_B=36"
_PORTS = ((f"{_WIDE} %d", "A"), (f"{_WIDE} %d", "B"), (f"{_WIDE} %i", "AB"))
"""Blocks, and the letters of the pins of one port that reads: a word of 36 bits is read through the pins of both."""

_WIRE = """\
read_verilog <<EOT
module TRELLIS_FF(input CLK, CE, LSR, DI, output Q);
    parameter GSR = "", CEMUX = "", CLKMUX = "", LSRMUX = "", REGSET = "", SRMODE = "", LSRMODE = "";
    assign Q = DI;
endmodule
EOT
design -stash wire
"""


def script(name: str) -> str:
    """Return the script NAME_ecp5.ys, which reads NAME.v and writes NAME_ecp5.json.

    Args:
        name: The core's name.
    """
    return commands([f"read_verilog {name}.v", f"synth_ecp5 -top {name}"], f"{name}_ecp5.json")


def commands(read: Iterable[str], netlist: str) -> str:
    """Return the commands that move registers into the blocks of memory of a netlist.

    The flip-flops of a port move together: each takes a value at every clock, nothing sets or resets it, and nothing
    else reads the port. The netlist has one clock.

    Args:
        read: Commands that leave the netlist of one module for an ECP5.
        netlist: The file that is written.
    """
    return _WIRE + "".join(f"{line}\n" for line in (*read, *_list_moves(), f"write_json {netlist}"))


def _list_moves() -> Iterator[str]:
    yield "splitnets"
    yield "select -set plain t:TRELLIS_FF r:CEMUX=1 %i r:CLKMUX=CLK %i r:REGSET=RESET %i"
    yield "select -set plain @plain @plain %ci1:+TRELLIS_FF[LSR] w:* %i %co1:+TRELLIS_FF[LSR] %d"
    for blocks, letters in _PORTS:
        port = f"+DP16KD[{','.join(f'DO{letter}{bit}' for letter in letters for bit in range(18))}]"
        reset = f"+DP16KD[{','.join(f'RST{letter}' for letter in letters)}]"
        yield f"select -set blocks {blocks}{''.join(f' r:REGMODE_{letter}=NOREG %i' for letter in letters)}"
        yield f"select -set blocks @blocks @blocks %ci1:{reset} w:* %i %co1:{reset} %d"
        yield f"select -set words @blocks %co1:{port} w:* %i"
        yield "select -set other @words %co1 t:* %i @plain %d @words %co1:-TRELLIS_FF[DI] t:TRELLIS_FF %i %u"
        yield "select -set other @other %ci1 @words %i @words o:* %i %u"
        yield f"select -set blocks @blocks @other %ci1:{port} %d"
        yield f"select -set registers @blocks %co1:{port} w:* %i %co1:+TRELLIS_FF[DI] t:TRELLIS_FF %i"
        for letter in letters:
            yield f'setparam -set REGMODE_{letter} "OUTREG" @registers %ci1 w:* %i %ci1:{port} @blocks %i'
        yield "techmap -map %wire @registers"
    yield "clean"
