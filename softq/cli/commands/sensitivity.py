"""The command `softq sensitivity`."""

from __future__ import annotations

from typing import Any

import click

from softq.cli import measuring, options
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import progress


@takes_config
@options.limits
@command(Section.CHOOSE)
@measuring.common
@measuring.OUT
@measuring.FORCE
@measuring.granularity("What is converted alone; heads have errors but no metric.")
@click.option("--top", type=int, metavar="K", help="Measure the metric where the errors are greatest; 10 by default.")
@options.COST
@options.JSON
def sensitivity(model: str, out: str, as_json: bool, **given: Any) -> None:
    """Measure each softmax of MODEL alone, at each width.

    The errors of its rows for all, the metric for the worst.
    """
    from softq.sweeps.sensitivity import run

    with progress() as step:
        found = run(model, out=out, command=measuring.command_line(), progress=step, **given)
    measuring.finish(found, None, as_json, measuring.write_page(out, None))
