"""A core of softq as a LiteX module: streams of scores and results for gateware that LiteX builds.

LiteX knows streams of its own, whose `last` ends a packet as TLAST does; each stream of the core is one of them.
"""

from __future__ import annotations

import os
from typing import Any

from litex.gen import ClockSignal, Instance, LiteXModule, ResetSignal  # type: ignore[attr-defined]
from litex.soc.interconnect.axi import AXILiteInterface
from litex.soc.interconnect.stream import Endpoint

from softq.rtl.description import read_core

_CONTROLS = ("valid", "ready", "last")
_BUS = "s_axil_"
_CHANNELS = ("aw", "ar", "w", "b", "r")


class SoftqCore(LiteXModule):  # type: ignore[misc]
    """A core between streams, in the clock domain `sys`.

    Each stream of the core is an attribute of its name (`s_axis`, `m_axis`, ...), an `Endpoint` with TVALID, TREADY and
    TLAST as `valid`, `ready` and `last`, and its other signals as they are called: `data`, `keep`, `user`, `id`.
    `sink` is the stream of scores and `source` that of results. A stream without TLAST has a packet per beat. The
    registers of a core that has some are at `bus`, an `AXILiteInterface`.

    Args:
        platform: The platform that builds the gateware; it is given the core's file. None where nothing is built.
        path: NAME.json, as `softq rtl` writes it.

    Raises:
        InputError: the file describes no core.
    """

    def __init__(self, platform: Any, path: str | os.PathLike[str]) -> None:
        core = read_core(path)
        connected: dict[str, Any] = {"i_aclk": ClockSignal("sys")}
        if core.facts["reset"]:
            connected["i_aresetn"] = ~ResetSignal("sys")
        for name, signals in core.streams.items():
            layout = [(signal, width) for signal, width in signals.items() if signal not in _CONTROLS]
            endpoint = Endpoint(layout, name=f"{core.module}_{name}")
            setattr(self, name, endpoint)
            for signal in signals:
                port = f"{name}_t{signal}"
                connected[f"{'o' if core.is_output(port) else 'i'}_{port}"] = getattr(endpoint, signal)
            if "last" not in signals:
                self.comb += endpoint.last.eq(1)
        self.sink, self.source = self.s_axis, self.m_axis
        ports = {port["name"]: port for port in core.facts["ports"]}
        bus = {name: port for name, port in ports.items() if name.startswith(_BUS)}
        if bus:
            self.bus = AXILiteInterface(bus[f"{_BUS}wdata"]["width"], bus[f"{_BUS}awaddr"]["width"])
            for name, port in bus.items():
                signal = name.removeprefix(_BUS)
                channel = next(channel for channel in _CHANNELS if signal.startswith(channel))
                side = "o" if port["output"] else "i"
                connected[f"{side}_{name}"] = getattr(getattr(self.bus, channel), signal.removeprefix(channel))
        self.specials += Instance(core.module, **connected)
        if platform is not None:
            platform.add_source(str(core.verilog))
