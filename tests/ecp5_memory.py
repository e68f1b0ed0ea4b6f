"""A model of DP16KD, the block of memory of an ECP5, of which Yosys' library has the pins alone.

From the names and the meaning of pins in Yosys' mapping (`lattice/brams_map_16kd.v`): words of 9 bits and more are in a
row, of narrower ones 8 bits in each 9; a word of 36 bits is written by port A and read by port B through the pins of
both. The register at the output follows the word at each clock (OUTREG), else the word itself leaves (NOREG).
"""

from __future__ import annotations

import re
from pathlib import Path

_BUSES = {"DI": 18, "AD": 14, "CS": 3}
_PINS = ("CE", "OCE", "CLK", "WE", "RST")
_MODEL = """
    {parameters}
    reg [18431:0] memory;
    reg [35:0] word_a, word_b, kept_a, kept_b;
    integer row, at, from;
    initial begin
        {initial}
        {{word_a, word_b, kept_a, kept_b}} = 144'd0;
    end
    function integer place(input [13:0] address, input integer width);
        if (width >= 9) place = (address >> (width == 36 ? 5 : width == 18 ? 4 : 3)) * width;
        else begin
            from = (address >> (width == 4 ? 2 : width == 2 ? 1 : 0)) * width;
            place = from / 8 * 9 + from % 8;
        end
    endfunction
    wire [35:0] data = {{DIB, DIA}};
    wire [3:0] bytes = DATA_WIDTH_A >= 18 ? ADA[3:0] : 4'hf;
    always @(posedge CLKA) if (CEA && CSA == 0) begin
        if (WEA) begin
            for (at = 0; at < DATA_WIDTH_A; at = at + 1)
                if (bytes[at / 9]) memory[place(ADA, DATA_WIDTH_A) + at] <= data[at];
        end else word_a <= memory[place(ADA, DATA_WIDTH_A) +: 36];
    end
    always @(posedge CLKB) if (CEB && CSB == 0) begin
        if (WEB) begin
            for (row = 0; row < DATA_WIDTH_B; row = row + 1) memory[place(ADB, DATA_WIDTH_B) + row] <= DIB[row];
        end else word_b <= memory[place(ADB, DATA_WIDTH_B) +: 36];
    end
    always @(posedge CLKA) if (OCEA) kept_a <= word_a;
    always @(posedge CLKB) if (OCEB) kept_b <= word_b;
    wire [35:0] out_a = REGMODE_A == "OUTREG" ? kept_a : word_a;
    wire [35:0] out_b = REGMODE_B == "OUTREG" ? kept_b : word_b;
    wire is_wide = DATA_WIDTH_B == 36;
    always @(posedge CLKB)
        if (RSTA || RSTB || (is_wide && REGMODE_A != REGMODE_B)) $display("FAIL: a use of DP16KD without a model");
    assign {results_a} = is_wide ? out_b[17:0] : out_a[17:0];
    assign {results_b} = is_wide ? out_b[35:18] : out_b[17:0];
endmodule
"""


def models(cells: Path) -> str:
    """Return models of an ECP5's cells in Verilog.

    Args:
        cells: Yosys' models, `ecp5/cells_sim.v`; their pads and their other names of flip-flops are left out.
    """
    text = cells.read_text()
    for name in ("common_sim.vh", "ccu2c_sim.vh"):
        text = text.replace(f'`include "{name}"', (cells.parent / name).read_text() if name in text else "")
    # Icarus Verilog knows no $error that is made for a parameter.
    for module in ("DP16KD", "TRELLIS_COMB"):
        text = re.sub(rf"(\(\* blackbox \*\)\s*)?module {module}\b.*?endmodule", "", text, flags=re.DOTALL)
    return "`define NO_INCLUDES\n" + text + _memory()


def _memory() -> str:
    pins = [f"input {name}{side}" for side in "AB" for name in _PINS]
    pins += [f"input {name}{side}{at}" for side in "AB" for name, width in _BUSES.items() for at in range(width)]
    pins += [f"output DO{side}{at}" for side in "AB" for at in range(18)]
    buses = [f"wire [{width - 1}:0] {name}{side} = {_bits(name + side, width)};"
             for side in "AB" for name, width in _BUSES.items()]  # fmt: skip
    slices = [f"INITVAL_{at:02X}" for at in range(64)]
    texts = [f'{name}_{side} = "{value}"' for side in "AB"
             for name, value in (("REGMODE", "NOREG"), ("CSDECODE", ""), ("WRITEMODE", "NORMAL"))]  # fmt: skip
    texts += ['CLKAMUX = "CLKA"', 'CLKBMUX = "CLKB"', 'RESETMODE = ""', 'ASYNC_RESET_RELEASE = ""', 'GSR = ""']
    parameters = [f"parameter [319:0] {name} = 320'd0;" for name in slices]
    parameters += [f"parameter {text};" for text in ("DATA_WIDTH_A = 18", "DATA_WIDTH_B = 18", *texts)]
    initial = [f"for (row = 0; row < 16; row = row + 1) memory[({at} + row) * 18 +: 18] = {name}[row * 20 +: 18];"
               for at, name in zip(range(0, 1024, 16), slices, strict=True)]  # fmt: skip
    return f"module DP16KD({', '.join(pins)});" + _MODEL.format(
        parameters=" ".join(parameters + buses),
        initial=" ".join(initial),
        results_a=_bits("DOA", 18),
        results_b=_bits("DOB", 18),
    )


def _bits(name: str, width: int) -> str:
    return f"{{{', '.join(f'{name}{at}' for at in reversed(range(width)))}}}"
