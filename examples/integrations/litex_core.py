"""A core in gateware of LiteX, simulated: a bench offers it rows, and compares what comes back."""

import subprocess
from pathlib import Path

from litex.gen import ClockDomain, Display, Finish, If, LiteXModule, Memory, Signal
from litex.gen.fhdl.verilog import convert

from softq.integrations.litex import SoftqCore
from softq.rtl import rtl, write_rtl

made = rtl("ita", {"step": 0.06, "output": "uint8"}, constants=False, length=64)
write_rtl(made, "core")


class Bench(LiteXModule):
    def __init__(self) -> None:
        self.cd_sys, self.core = ClockDomain("sys"), SoftqCore(None, "core/ita.json")
        sink, source = self.core.sink, self.core.source
        given, _, ended = self._read(sink, made.beats.scores)
        self.comb += [sink.data.eq(given), sink.last.eq(given[8]), sink.valid.eq(~ended), source.ready.eq(1)]
        expected, at, ended = self._read(source, made.beats.results)
        wrong = source.valid & ((source.data != expected[:8]) | (source.last != expected[8]))
        self.sync += If(wrong, Display("beat %d is wrong", at), Finish())
        self.sync += If(ended, Display("%d beats, each as the interpreter's", at), Finish())

    def _read(self, stream, words):  # TLAST stands above TDATA
        self.specials += (memory := Memory(9, len(words), init=words), port := memory.get_port(async_read=True))
        at = Signal(max=len(words) + 1)
        self.sync += If(stream.valid & stream.ready, at.eq(at + 1))
        self.comb += port.adr.eq(at)
        return port.dat_r, at, at == len(words)


bench = Bench()
convert(bench, {bench.cd_sys.clk, bench.cd_sys.rst}, name="bench").write("bench.v")
Path("top.v").write_text("module top; reg c = 0, r = 1; always #5 c = ~c; initial #50 r = 0; bench b(c, r); endmodule")
subprocess.run(["iverilog", "-o", "bench", "-s", "top", "top.v", "bench.v", "core/ita.v"], check=True)
subprocess.run("vvp bench | tee said | grep 'each as'", shell=True, check=True)
