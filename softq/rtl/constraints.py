"""Constraints to begin from: how fast the clock is, in the forms that tools read, and commands that meet it."""

from __future__ import annotations

from softq.codegen.verilog.module import CLOCK
from softq.errors import UsageError
from softq.rtl.ecp5 import script

SPEED = 125.0
"""Megahertz that every core of docs/fpga.md reaches in an ECP5 of the slowest grade by the commands of NAME_ecp5.ys."""

FASTEST = 2000.0
"""Megahertz; no device is near."""


def check_clock(megahertz: float) -> None:
    """Raise UsageError for a clock that no core has."""
    if not 0 < megahertz <= FASTEST:
        raise UsageError(f"clock is {megahertz:g}; allowed is up to {FASTEST:g} MHz, above 0")


def constraints(name: str, megahertz: float) -> dict[str, str]:
    """Return the files that say how fast the clock of a core is, and Yosys' commands for an ECP5.

    NAME.sdc is for Quartus, Libero, Efinity and OpenSTA; NAME.xdc for Vivado, where the core is synthesized by itself;
    NAME.lpf for nextpnr-ecp5 and Diamond; NAME_ecp5.ys makes the netlist for nextpnr-ecp5.

    Args:
        name: The core's name.
        megahertz: Its clock.

    Raises:
        UsageError: no core has such a clock.
    """
    check_clock(megahertz)
    period = f"create_clock -name {CLOCK} -period {1000 / megahertz:.3f} [get_ports {CLOCK}]\n"
    return {
        f"{name}.sdc": period,
        f"{name}.xdc": f"# read_xdc -mode out_of_context {name}.xdc\n{period}",
        f"{name}.lpf": f'FREQUENCY PORT "{CLOCK}" {megahertz:g} MHZ;\n',
        f"{name}_ecp5.ys": script(name),
    }
