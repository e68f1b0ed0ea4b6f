"""The command `softq size`."""

from __future__ import annotations

import click

from softq.cli import options
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import print_json, print_text


@takes_config
@options.limits
@command(Section.BUILD)
@click.argument("out_dir")
@click.option("--compile", is_flag=True, help="Compile the files again, for flash and stack.")
@click.option("--cc", metavar="COMMAND", help="The same by this compiler with its options.")
@options.JSON
def size(out_dir: str, compile: bool, cc: str | None, as_json: bool) -> None:
    """Tell what a model in C takes: flash, arena, stack, work.

    Of the model in OUT_DIR as a whole, and of each step.
    """
    from softq.artifact.firmware.sizes import read_sizes
    from softq.formatting import sizes_to_text

    sizes = read_sizes(out_dir, compile=compile, cc=cc)
    if as_json:
        print_json(sizes)
    else:
        print_text(sizes_to_text(sizes))
