"""A core under cocotb: rows go in with pauses on both sides, and the interpreter says what comes back."""

import itertools

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner
from cocotbext.axi import AxiStreamBus, AxiStreamSink, AxiStreamSource

from softq.rowprog import run
from softq.rtl import rtl, write_rtl

made = rtl("ita", {"step": 0.06, "output": "uint8"}, constants=False, length=256, lanes=4)


@cocotb.test()
async def gives_what_the_interpreter_gives(dut) -> None:
    Clock(dut.aclk, 4, "ns").start()
    dut.aresetn.value = 0
    source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis"), dut.aclk, dut.aresetn, False)
    sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis"), dut.aclk, dut.aresetn, False)
    source.set_pause_generator(itertools.cycle((0, 0, 1)))
    sink.set_pause_generator(itertools.cycle((1, 0, 0, 1, 0)))
    await ClockCycles(dut.aclk, 4)
    dut.aresetn.value = 1
    for row in (rows := [np.random.default_rng(n).integers(-128, 128, n, np.int8) for n in range(1, 257)]):
        await source.send(row.tobytes())
    for row in rows:
        assert bytes((await sink.recv()).tdata) == run(made.core.plan.source, row[None])["weights"].tobytes()


if __name__ == "__main__":
    write_rtl(made, "core")
    (runner := get_runner("icarus")).build(sources=["core/ita.v"], hdl_toplevel="ita", timescale=("1ns", "1ps"))
    tests, failed = get_results(runner.test(hdl_toplevel="ita", test_module="cocotb_core", test_dir="."))
    raise SystemExit(failed or print(f"{tests} test of rows of 1 to 256 elements on 4 lanes passed"))
