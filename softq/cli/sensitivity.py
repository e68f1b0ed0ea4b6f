"""The command `softq sensitivity`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from softq.cli import measuring
from softq.cli.options import JSON
from softq.cli.printing import progress

if TYPE_CHECKING:
    from softq.sweeps.settings import Granularity


@click.command()
@measuring.common
@measuring.OUT
@measuring.FORCE
@measuring.granularity("What is converted alone; heads have errors but no metric.")
@click.option("--top", type=int, metavar="K", help="Measure the metric where the errors are greatest; 10 by default.")
@JSON
def sensitivity(
    model: str,
    out: str,
    methods: str,
    bits: str,
    options: Sequence[str],
    granularity: Granularity,
    top: int | None,
    force: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure each softmax of MODEL alone at each width: errors of its rows for all, the metric for the worst."""
    from softq.sweeps.sensitivity import run

    with progress() as step:
        found = run(
            measuring.task(model, given), out=out, methods=methods, bits=bits, options=options,
            granularity=granularity, top=top, force=force, progress=step,
        )  # fmt: skip
    measuring.finish(found, None, as_json, measuring.write_page(out, None))
