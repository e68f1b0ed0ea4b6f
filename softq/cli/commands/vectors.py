"""The command `softq vectors`."""

from __future__ import annotations

from typing import Any

import click

from softq.cli import completing, options
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.hardware import FITTED, parse_arguments, print_doubts
from softq.cli.options import JSON, METHOD_BITS, METHOD_SETTINGS
from softq.cli.printing import print_json, print_line
from softq.cli.spelling import place, renamed
from softq.wording import counted


@takes_config
@options.limits
@command(Section.KERNELS)
@click.argument("name", shell_complete=completing.METHODS)
@place("out", "Where the vectors go: OUT.npz and OUT.h.")
@METHOD_BITS
@METHOD_SETTINGS
@FITTED
@renamed(
    "--scores", "--dtype", "scores", default="float32", show_default=True, metavar="TYPE",
    help="Type of the scores: float32, int8, uint8 or int16.",
)  # fmt: skip
@click.option("--masked", is_flag=True, help="The kernel takes a mask.")
@click.option("--length", "lengths", type=int, multiple=True, metavar="N", help="Elements of a row; may be repeated.")
@click.option("--rows", type=int, default=10, show_default=True, metavar="R", help="Random rows of each length.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Seed of the random rows.")
@JSON
def vectors(
    name: str,
    out: str,
    bits: int | None,
    settings: tuple[str, ...],
    fitted: tuple[str, ...],
    lengths: tuple[int, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Write test vectors of a method, to check another kernel by.

    OUT.npz and OUT.h: rows, and what the method NAME makes of them.
    """
    from softq.vectors import DEFAULT_LENGTHS, write_vectors
    from softq.vectors import vectors as make

    chosen, numbers, _ = parse_arguments(bits, settings, fitted)
    made = make(name, chosen, fitted=numbers, lengths=lengths or DEFAULT_LENGTHS, **given)
    print_doubts(name, [chosen], numbers, given["scores"])
    written = write_vectors(made, out)
    if as_json:
        print_json(dict(made.manifest))
        return
    count, elements = made.arrays["length"].size, made.arrays["scores"].size
    print_line(f"{counted(count, 'row')}, {counted(elements, 'score')}; wrote {' and '.join(map(str, written))}")
