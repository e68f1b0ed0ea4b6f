"""The command `softq hls`."""

from __future__ import annotations

from typing import Any

from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.hardware import hardware_options, parse_arguments, print_doubts
from softq.cli.printing import print_json, print_line


@takes_config
@command(Section.KERNELS)
@hardware_options
def hls(
    method: str,
    bits: int | None,
    settings: tuple[str, ...],
    fitted: tuple[str, ...],
    outputs: str,
    out: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Write a method as a function in C++ for high-level synthesis.

    With a testbench and golden rows, into the folder of --out. softq methods lists the methods.
    """
    from softq.rtl import hls as make
    from softq.rtl import write_hls

    chosen, numbers, wanted = parse_arguments(bits, settings, fitted, outputs)
    made = make(method, chosen, fitted=numbers, outputs=wanted, **given)
    print_doubts(method, [chosen], numbers, given["scores"])
    written = write_hls(made, out)
    if as_json:
        print_json(dict(made.facts))
        return
    names = ", ".join(each.name for each in made.function.arguments)
    print_line(f"{made.function.name}::run(length, {names}): rows of 1 to {made.facts['length']} elements")
    print_line(f"wrote {', '.join(path.name for path in written)} into {out}")
