"""The commands that measure accuracy versus bits: `softq sweep`, `softq sensitivity`, `softq plan`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from softq.report import Gate
    from softq.sweep import Sweep, Task
    from softq.sweep.settings import Granularity

_COMMON = (
    click.argument("model"),
    click.option("--data", required=True, metavar="DATA", help="A .npz file, a folder of them, or module:function."),
    click.option("--metric", required=True, metavar="NAME", help="The task's metric, or module:function."),
    click.option("--methods", default="all", show_default=True, metavar="LIST", help="Names with commas, or all."),
    click.option("--bits", default="2-8", show_default=True, metavar="RANGE", help="Such as 4, 2-8 or 2,4,6-8."),
    click.option("--set", "options", multiple=True, metavar="METHOD.KEY=VALUE", help="An option of a method."),
    click.option("--calibration", metavar="DATA", help="Data for options that are fitted."),
    click.option("--limit", type=int, metavar="N", help="The first N samples only."),
    click.option("--sites", multiple=True, metavar="GLOB", help="Exactly the sites whose id matches."),
    click.option("--all", "all_sites", is_flag=True, help="Every site that can be converted, not only attention."),
    click.option("--mask", "masks", multiple=True, metavar="NAME", help="A float tensor that is a mask: see convert."),
    click.option("--allow-float32", is_flag=True, help="Compute the softmax of double scores in float32."),
    click.option("--allow-substitute", is_flag=True, help="Let methods take part that are no drop-in: see convert."),
    click.option("--max-length", type=int, metavar="N", help="Greatest length of a row that is proved: see convert."),
    click.option("--labels", metavar="NAME", help="The label array to use (label.NAME), or a model input."),
    click.option("--output", metavar="NAME", help="The model output that the metric looks at."),
    click.option("--batch", type=int, metavar="N", help="Samples a run."),
    click.option("--threads", type=int, metavar="N", help="Threads of the runtime; all cores by default."),
)
_OUT = click.option("--out", required=True, metavar="DIR", help="The folder of the results; made if it is not there.")
_FORCE = click.option("--force", is_flag=True, help="Remove what the folder holds and start anew.")
_SPREAD = (
    click.option(
        "--workers", type=int, default=1, metavar="N", help="Processes, each with so many threads; softq[cluster]."
    ),
    click.option("--scheduler", metavar="ADDRESS", help="The dask scheduler of a cluster whose workers measure."),
    click.option(
        "--timeout", type=float, metavar="S", help="A worker hangs after S seconds; by default 10 times the longest."
    ),
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments that all these commands share."""
    return reduce(lambda made, decorate: decorate(made), reversed((*_COMMON, *_SPREAD)), command)


@click.command()
@_common
@_OUT
@_FORCE
@click.option(
    "--granularity",
    type=click.Choice(["site", "head"]),
    default="site",
    show_default=True,
    help="What options are fitted for on calibration data.",
)
@click.option("--max-drop", metavar="X|X%", help="Gate: some setting is worse by at most X (X% of the float value).")
@click.option("--junit", metavar="FILE", help="Write a test case for each setting as JUnit XML.")
@_JSON
def sweep(
    model: str, out: str, force: bool, max_drop: str | None, junit: str | None, as_json: bool, **given: Any
) -> None:
    """Measure every combination of method and width for MODEL; the same command again goes on where it stopped.

    With the extra `report` the report is written into the folder, as by softq report.
    """
    from softq.cli import _check_outputs, _progress
    from softq.report import parse_drop
    from softq.sweep import run
    from softq.sweep.gate import Budget, judge_all

    _check_outputs([junit], [model, given["data"], given["calibration"]])
    allowance = None if max_drop is None else parse_drop(max_drop)
    with _progress() as step:
        found = run(model, out=out, force=force, command=_command(), progress=step, **given)
    budget = None if allowance is None else Budget.of(allowance, found.study)
    written = _report(out, max_drop)
    if junit is not None:
        _write_junit(junit, found, budget)
    _finish(found, None if budget is None else judge_all(budget, found.outcomes), as_json, written)


@click.command()
@_common
@_OUT
@_FORCE
@click.option(
    "--granularity",
    type=click.Choice(["site", "head"]),
    default="site",
    show_default=True,
    help="What is converted alone; heads have errors but no metric.",
)
@click.option("--top", type=int, metavar="K", help="Measure the metric where the errors are greatest; 10 by default.")
@_JSON
def sensitivity(
    model: str,
    out: str,
    force: bool,
    granularity: Granularity,
    top: int | None,
    as_json: bool,
    methods: str,
    bits: str,
    options: Sequence[str],
    **given: Any,
) -> None:
    """Measure each softmax of MODEL alone at each width: errors of its rows for all, the metric for the worst."""
    from softq.cli import _progress
    from softq.sweep.sensitivity import run

    with _progress() as step:
        found = run(
            _task(model, given), out=out, methods=methods, bits=bits, options=options, granularity=granularity, top=top,
            force=force, progress=step,
        )  # fmt: skip
    _finish(found, None, as_json, _report(out, None))


@click.command()
@_common
@click.option("--max-drop", required=True, metavar="X|X%", help="The budget: worse by at most X (X% of float's value).")
@click.option("--verify", metavar="DATA", help="Data to verify on; the second half of --data by default.")
@click.option("--out", required=True, metavar="PLAN.json", help="The file of the plan, for convert --plan.")
@_JSON
def plan(
    model: str,
    max_drop: str,
    verify: str | None,
    out: str,
    as_json: bool,
    methods: str,
    bits: str,
    options: Sequence[str],
    **given: Any,
) -> None:
    """Find method and width for each softmax of MODEL under a budget; exit 1 if the best plan breaks it.

    What was measured goes beside the plan, into PLAN.measured.json, for softq report --plan.
    """
    from softq.cli import EXIT_GATE, _check_outputs, _print_json, _progress
    from softq.errors import UsageError
    from softq.sweep.listing import plan_to_json, plan_to_text
    from softq.sweep.planned import record_of, record_text
    from softq.sweep.search import find_plan
    from softq.textfile import write_text

    if Path(out).is_dir():
        raise UsageError(f"--out {out} is a folder; expected the name of a file")
    _check_outputs([out, str(record_of(out))], [model, given["data"], given["calibration"], verify])
    task = _task(model, given)
    with _progress() as step:
        found = find_plan(
            task, max_drop=max_drop, methods=methods, bits=bits, options=options, verify=verify,
            progress=step,
        )  # fmt: skip
    text, result = found.plan.to_text(), plan_to_json(found, out)
    write_text(out, text)
    write_text(record_of(out), record_text(result, text, metric=task.metric, budget=max_drop, command=task.command))
    for note in found.notes:
        click.echo(f"softq: {note}", err=True)
    if as_json:
        _print_json(result)
    else:
        click.echo(plan_to_text(found, out), nl=False)
    if not found.gate.passed:
        click.get_current_context().exit(EXIT_GATE)


def _task(model: str, given: dict[str, Any]) -> Task:
    """Return what is measured, from the arguments that the commands share."""
    from softq.sweep import Selection, Task

    fields = ("sites", "all_sites", "masks", "allow_float32", "allow_substitute", "max_length", "batch")
    chosen = {name: given.pop(name) for name in fields}
    return Task(model=model, selection=Selection(**chosen), command=_command(), **given)


def _command() -> str:
    return shlex.join(["softq", *sys.argv[1:]])


def _report(out: str, budget: str | None) -> str:
    """Write the report of a folder and return a line that says so; what goes wrong is a note: the values are there."""
    from softq.errors import SoftqError
    from softq.sweep.page import report

    try:
        return f"wrote {report(out, budget=budget).files[0]}"
    except SoftqError as error:
        click.echo(f"softq: no report was written: {error}", err=True)
        return ""


def _finish(found: Sweep, gate: Gate | None, as_json: bool, written: str) -> None:
    """Print what was found, and end with the gate's exit code if that failed."""
    from softq.cli import EXIT_GATE, _print_json
    from softq.sweep.listing import sweep_to_json, sweep_to_text

    for note in found.notes:
        click.echo(f"softq: {note}", err=True)
    if as_json:
        _print_json(sweep_to_json(found, gate))
    else:
        click.echo(sweep_to_text(found), nl=False)
        if written:
            click.echo(written)
        if gate is not None:
            click.echo(f"{'passed' if gate.passed else 'FAILED'}: {gate.sentence}")
    if gate is not None and not gate.passed:
        click.get_current_context().exit(EXIT_GATE)


def _write_junit(path: str, found: Sweep, budget: Any) -> None:
    from softq.report import Case, to_junit
    from softq.sweep.engine import describe
    from softq.sweep.listing import study_name
    from softq.textfile import write_text

    cases: list[Case] = []
    for outcome in found.outcomes:
        gate = None if budget is None else budget.judge(outcome.metric)
        message = f"{found.study.metric} is {outcome.metric.value:.6g}" if gate is None else gate.sentence
        cases.append(Case(describe(outcome.setting), outcome.seconds, message, gate is None or gate.passed))
    write_text(path, to_junit(study_name(found.study), cases))


COMMANDS = (sweep, sensitivity, plan)
