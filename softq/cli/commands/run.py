"""The command `softq run`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from softq.cli import options
from softq.cli.arguments import check_outputs
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import print_report, progress
from softq.errors import UsageError


@takes_config
@options.limits
@command(Section.BUILD)
@click.argument("out_dir")
@options.DATA
@click.option("--reference", metavar="MODEL", help="An ONNX model or an artifact to compare with.")
@options.METRICS
@options.LABELS
@options.OUTPUT
@options.BATCH
@options.MAX_DROP
@click.option("--limit", type=float, metavar="X", help="Gate: the artifact's value is at least (at most) X.")
@click.option("--threads", type=int, default=1, metavar="N", help="Threads of the artifact; 1 by default.")
@click.option(
    "--require-signature", metavar="PUB", help="Refuse what is not signed by this key (PEM, public); softq[sign]."
)
@click.option("--time", is_flag=True, help="Time it beside --reference with as many threads, the two by turns.")
@options.MARKDOWN
@options.JSON
def run(
    out_dir: str,
    data: str,
    reference: str | None,
    max_drop: str | None,
    threads: int,
    require_signature: str | None,
    time: bool,
    markdown: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run the artifact OUT_DIR on data and measure it.

    Against a model or another artifact (--reference), or against the labels alone. With --max-drop or --limit that is a
    gate: exit 1 when it fails.
    """
    from softq.artifact import load
    from softq.compare import check as check_models
    from softq.compare import score

    check_outputs([markdown], [out_dir, reference, data, *map(str, Path(out_dir).glob("*"))])
    if reference is None and max_drop is not None:
        raise UsageError(f"--max-drop {max_drop} needs --reference; --limit bounds the value itself")
    if reference is None and time:
        raise UsageError("--time needs --reference; the two take turns")
    with load(out_dir, threads, signature=require_signature) as artifact, progress() as step:
        given["progress"] = partial(step, "run")
        if reference is None:
            report = score(artifact, data, **given)
        else:
            folder = Path(reference).is_dir()
            against = load(reference, threads, signature=require_signature) if folder else reference
            if time:
                given |= {"time": True, "threads": threads}
            report = check_models(against, artifact, data, max_drop=max_drop, **given)
    print_report(report, markdown, as_json)
