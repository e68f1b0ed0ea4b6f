"""Cores as LiteX modules: which streams and registers they have, and what a write to a register comes to.

Runs where LiteX is installed: `make integrations`.
"""

# The tool is not there where types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("litex")
pytestmark = pytest.mark.integrations

from litex.gen import ClockDomain, Display, Finish, If, LiteXModule, Signal  # noqa: E402
from litex.gen.fhdl.verilog import convert  # noqa: E402

from softq.errors import InputError  # noqa: E402
from softq.integrations.litex import SoftqCore  # noqa: E402
from softq.rtl import rtl, write_rtl  # noqa: E402


class _Platform:
    def __init__(self) -> None:
        self.sources: list[str] = []

    def add_source(self, path: str) -> None:
        self.sources.append(path)


def test_streams_are_the_cores(tmp_path: Path) -> None:
    """Endpoints have the core's signals, and the platform its file."""
    made = rtl("deferred-log", {"step": 0.06}, length=64, lanes=2, masked=True, rows=0)
    write_rtl(made, tmp_path)
    platform = _Platform()
    core = SoftqCore(platform, tmp_path / "deferred_log.json")
    assert platform.sources == [str(tmp_path / "deferred_log.v")]
    payload = dict(core.sink.description.payload_layout)
    assert (payload["data"], payload["user"], payload["keep"]) == (16, 2, 2)
    assert core.n_axis.description.payload_layout[0][0] == "data"
    assert not hasattr(core, "bus")


def test_registers_are_a_bus(tmp_path: Path) -> None:
    """A word that is written comes back."""
    if shutil.which("iverilog") is None:
        pytest.skip("iverilog is not installed")
    made = rtl("deferred-log", {"step": 0.06}, length=64, registers=True, rows=0, name="core")
    write_rtl(made, tmp_path)
    table = made.facts["registers"]["tables"][0]  # pyright: ignore[reportIndexIssue, reportCallIssue, reportArgumentType]

    class Bench(LiteXModule):  # type: ignore[misc]
        def __init__(self) -> None:
            self.cd_sys = ClockDomain("sys")
            self.core = core = SoftqCore(None, tmp_path / "core.json")
            bus, step = core.bus, Signal(3)
            address = table["address"]
            self.comb += [
                bus.aw.addr.eq(address), bus.w.data.eq(1), bus.w.strb.eq(15), bus.ar.addr.eq(address),
                bus.aw.valid.eq(step == 0), bus.w.valid.eq((step == 0) | (step == 1)), bus.b.ready.eq(1),
                bus.ar.valid.eq(step == 3), bus.r.ready.eq(1),
            ]  # fmt: skip
            self.sync += [
                If((step == 0) & bus.aw.ready, step.eq(1)),
                If((step <= 1) & bus.w.valid & bus.w.ready, step.eq(2)),
                If((step == 2) & bus.b.valid, step.eq(3)),
                If((step == 3) & bus.ar.ready, step.eq(4)),
                If(bus.r.valid, Display("%d %d", bus.r.data, bus.r.resp), Finish()),
            ]

    bench = Bench()
    convert(bench, {bench.cd_sys.clk, bench.cd_sys.rst}, name="bench").write(str(tmp_path / "bench.v"))
    top = "module top; reg c = 0, r = 1; always #5 c = ~c; initial #50 r = 0; initial #9999 $finish; bench b(c, r); "
    (tmp_path / "top.v").write_text(top + "endmodule")
    command = ["iverilog", "-o", "bench", "-s", "top", "top.v", "bench.v", "core.v"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run(["vvp", "bench"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert said.split()[:2] == ["1", "0"], said


def test_refuses_other_files(tmp_path: Path) -> None:
    """A file that describes no core, and one whose core is gone, are a line."""
    (tmp_path / "a.json").write_text('{"module": "a"}')
    with pytest.raises(InputError, match="describes no core"):
        SoftqCore(None, tmp_path / "a.json")
    write_rtl(rtl("relu", {"step": 0.06}, length=8, rows=0), tmp_path)
    (tmp_path / "relu.v").unlink()
    with pytest.raises(InputError, match="is not there"):
        SoftqCore(None, tmp_path / "relu.json")
