"""The command `softq report`."""

from __future__ import annotations

import click

from softq.cli import options
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import print_line, print_plain
from softq.cli.spelling import renamed


@takes_config
@options.limits
@command(Section.CHOOSE)
@click.argument("folders", metavar="DIR...", nargs=-1, required=True)
@click.option("--out", metavar="DIR", help="Where the files go; the first DIR by default.")
@renamed("--budget", "--max-drop", "budget", metavar="X|X%", help="The loss that is allowed (X% of the float value).")
@click.option("--front", default="bits", show_default=True, metavar="NAME", help="What is saved: bits, or a column.")
@click.option("--plan", metavar="FILE", help="What softq plan left: the plan, and its record beside it.")
@options.JSON
def report(
    folders: tuple[str, ...], out: str | None, budget: str | None, front: str, plan: str | None, as_json: bool
) -> None:
    """Write the page of what sweep and sensitivity measured.

    DIR is a folder that one of them wrote. Several of one study are joined; several studies (of other models, data or
    metrics) are compared. The page, and the same as JSON, CSV and Markdown, go into --out.
    """
    from softq.sweeps.report import report as write_report
    from softq.sweeps.report.texts import to_json

    written = write_report(*folders, out=out, max_drop=budget, plan=plan, front=front)
    if as_json:
        print_plain(to_json(written.content))
        return
    studies = written.content.studies
    if len(studies) > 1:
        print_line(written.content.together)
    for study in studies:
        label = f"{study.label}: " if len(studies) > 1 else ""
        print_line(f"{label}{study.answer.sentence} {study.answer.peers_sentence}".rstrip())
    print_line("wrote " + ", ".join(str(file) for file in written.files))
