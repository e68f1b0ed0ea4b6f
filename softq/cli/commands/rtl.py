"""The command `softq rtl`."""

from __future__ import annotations

from typing import Any

import click

from softq.cli.arguments import parse_settings
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.hardware import hardware_options, parse_arguments, print_doubts
from softq.cli.printing import print_json, print_line
from softq.errors import UsageError
from softq.wording import counted


@takes_config
@command(Section.KERNELS)
@hardware_options
@click.option("--lanes", type=int, default=1, show_default=True, metavar="P", help="Elements of a beat: 1, 2, 4 or 8.")
@click.option("--no-reset", "reset", flag_value=False, default=True, help="Without a reset.")
@click.option("--packed", is_flag=True, help="Results of at most 4 bits share bytes.")
@click.option("--cut", is_flag=True, help="A row that is too long is cut and marked.")
@click.option(
    "--products",
    default="parallel",
    show_default=True,
    metavar="HOW",
    help="parallel: an element each clock, by multipliers; serial: bit by bit, by one unit that all share.",
)
@click.option("--registers", is_flag=True, help="Tables are written and read back through a port of AXI4-Lite.")
@click.option("--heads", type=int, default=1, show_default=True, metavar="H", help="Heads with tables of their own.")
@click.option(
    "--per-head", multiple=True, metavar="KEY=V,V...", help="An option that is not the same in all heads: a value each."
)
@click.option("--values", "width", type=int, metavar="D", help="The product with V, too: D elements of each row of V.")
@click.option("--value-lanes", type=int, default=1, show_default=True, metavar="L", help="Elements of a beat of V.")
@click.option(
    "--fraction", type=int, default=0, show_default=True, metavar="F", help="Bits of averages behind the point."
)
@click.option("--multipliers", is_flag=True, help="Weigh V by multipliers, not by shifts and adders.")
@click.option("--clock", type=float, default=125.0, show_default=True, metavar="MHZ", help="What constraints ask for.")
def rtl(
    method: str,
    bits: int | None,
    settings: tuple[str, ...],
    fitted: tuple[str, ...],
    per_head: tuple[str, ...],
    outputs: str,
    width: int | None,
    value_lanes: int,
    fraction: int,
    multipliers: bool,
    clock: float,
    out: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Write a method as a streaming core in Verilog-2001.

    With a testbench and golden vectors, into the folder of --out. softq methods lists the methods.
    """
    from softq.codegen.verilog.weighted_plan import AVERAGES, ValueSettings
    from softq.rtl import rtl as make
    from softq.rtl import rtl_with_values, write_rtl
    from softq.rtl.making import options_of_heads

    chosen, numbers, wanted = parse_arguments(bits, settings, fitted, outputs)
    heads = {key: str(values).split(",") for key, values in parse_settings(per_head, None, "--per-head").items()}
    if width is None:
        if (value_lanes, fraction, multipliers) != (1, 0, False):
            raise UsageError("--value-lanes, --fraction and --multipliers are for a core with V; --values is missing")
        made = make(method, chosen, fitted=numbers, per_head=heads, outputs=wanted, **given)
    else:
        usual = {"lanes": 1, "heads": 1, "products": "parallel", "constants": True}
        usual |= dict.fromkeys(("registers", "packed", "cut"), False)
        if {name: given.pop(name) for name in usual} != usual or heads:
            raise UsageError(
                "a core with V takes one score in a beat, and its tables are constants of all heads; nothing is "
                "packed, cut or left out, and no product of elements is serial"
            )
        values = ValueSettings(width, value_lanes, fraction, multipliers, wanted or (AVERAGES,))
        made = rtl_with_values(method, values, chosen, fitted=numbers, **given)
    print_doubts(method, options_of_heads(chosen, heads, given.get("heads", 1)), numbers, given["scores"])
    written = write_rtl(made, out, clock=clock)
    if as_json:
        print_json(dict(made.facts))
        return
    core, longest = made.core, made.core.longest
    passes, elements = counted(core.passes, "pass", "passes"), counted(longest, "element")
    print_line(f"{core.name}: {passes}, {core.latency(longest):,} clocks for a row of {elements}")
    print_line(core.resources.text)
    print_line(f"wrote {', '.join(path.name for path in written)} into {out}")
