"""The commands that study a model: `softq sweep` and `softq sensitivity` measure, `softq report` writes the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from softq.cli import measuring, options
from softq.cli.arguments import check_outputs
from softq.cli.printing import print_line, print_text, progress

if TYPE_CHECKING:
    from softq.sweeps import Sweep


@click.command()
@measuring.common
@measuring.OUT
@measuring.FORCE
@measuring.granularity("What options are fitted for on calibration data.")
@options.TIME
@click.option(
    "--max-drop", metavar="X|X%", help="Gate: some setting is at most X worse (X% of the float value), shown."
)
@click.option("--junit", metavar="FILE", help="Write a test case for each setting as JUnit XML.")
@options.JSON
def sweep(
    model: str, out: str, force: bool, max_drop: str | None, junit: str | None, as_json: bool, **given: Any
) -> None:
    """Measure every combination of method and width for MODEL; the same command again goes on where it stopped.

    With the extra `report` the report is written into the folder, as by softq report.
    """
    from softq.reports import parse_drop
    from softq.sweeps import run
    from softq.sweeps.budget import Budget, judge_all

    check_outputs([junit], [model, given["data"], given["calibration"]])
    allowance = None if max_drop is None else parse_drop(max_drop)
    with progress() as step:
        found = run(model, out=out, force=force, command=measuring.command_line(), progress=step, **given)
    budget = None if allowance is None else Budget.of(allowance, found.study)
    written = measuring.write_page(out, max_drop)
    if junit is not None:
        _write_junit(junit, found, budget)
    measuring.finish(found, None if budget is None else judge_all(budget, found.outcomes), as_json, written)


@click.command()
@measuring.common
@measuring.OUT
@measuring.FORCE
@measuring.granularity("What is converted alone; heads have errors but no metric.")
@click.option("--top", type=int, metavar="K", help="Measure the metric where the errors are greatest; 10 by default.")
@options.JSON
def sensitivity(model: str, out: str, as_json: bool, **given: Any) -> None:
    """Measure each softmax of MODEL alone at each width: errors of its rows for all, the metric for the worst."""
    from softq.sweeps.sensitivity import run

    task = measuring.take_task(model, given)
    with progress() as step:
        found = run(task, out=out, progress=step, **given)
    measuring.finish(found, None, as_json, measuring.write_page(out, None))


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
        print_text(to_json(written.content))
        return
    answer = written.content.answer
    print_line(f"{answer.sentence} {answer.peers_sentence}".rstrip())
    print_line("wrote " + ", ".join(str(file) for file in written.files))


def _write_junit(path: str, found: Sweep, budget: Any) -> None:
    from softq.files import write_text
    from softq.reports import Case, to_junit
    from softq.sweeps.engine import describe
    from softq.sweeps.formatting import study_name

    cases: list[Case] = []
    for outcome in found.outcomes:
        gate = None if budget is None else budget.judge_outcome(outcome)
        message = f"{found.study.metric} is {outcome.metric.value:.6g}" if gate is None else gate.sentence
        cases.append(Case(describe(outcome.setting), outcome.seconds, message, gate is None or gate.passed))
    write_text(path, to_junit(study_name(found.study), cases))
