"""The command `softq report`."""

from __future__ import annotations

import click


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True)
@click.option("--out", metavar="FOLDER", help="Where the files go; the first DIR by default.")
@click.option("--budget", metavar="X|X%", help="The loss that is allowed (X% of the float value).")
@click.option("--plan", metavar="PLAN.json", help="What softq plan left: the plan, and its record beside it.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def report(folders: tuple[str, ...], out: str | None, budget: str | None, plan: str | None, as_json: bool) -> None:
    """Write the report of what sweep and sensitivity left in DIR: a page, and the same as JSON, CSV and Markdown."""
    from softq.sweeps.report import report as write_report
    from softq.sweeps.report.texts import to_json

    written = write_report(*folders, out=out, budget=budget, plan=plan)
    if as_json:
        click.echo(to_json(written.content), nl=False)
        return
    answer = written.content.answer
    click.echo(f"{answer.sentence} {answer.peers_sentence}".rstrip())
    click.echo("wrote " + ", ".join(str(file) for file in written.files))
