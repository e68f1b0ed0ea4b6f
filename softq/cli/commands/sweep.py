"""The command `softq sweep`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from softq.cli import measuring, options
from softq.cli.arguments import check_outputs
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import progress

if TYPE_CHECKING:
    from softq.sweeps import Sweep


@takes_config
@options.limits
@command(Section.CHOOSE)
@measuring.common
@measuring.OUT
@measuring.FORCE
@options.PROFILE
@measuring.granularity("What options are fitted for on calibration data.")
@options.TIME
@options.TIME_ON
@options.COST
@click.option(
    "--max-drop", metavar="X|X%", help="Gate: some setting is at most X worse (X% of the float value), shown."
)
@click.option("--junit", metavar="FILE", help="Write a test case for each setting as JUnit XML.")
@options.JSON
def sweep(
    model: str,
    out: str,
    force: bool,
    profile: str | None,
    max_drop: str | None,
    junit: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure every method at every width for MODEL.

    With --for what a device asks for is measured, too: the model that softq convert --for makes, with each type of
    codes that the rules allow; methods are then those that compute what its kernels do, unless --methods names others.

    The same command again goes on where it stopped. With the extra `report` the report is written into the folder, as
    by softq report.
    """
    from softq.reports import parse_drop
    from softq.sweeps import run
    from softq.sweeps.budget import Budget, judge_all

    check_outputs([junit], [model, given["data"], given["calibration"]])
    if profile is not None and not measuring.is_given("methods"):
        from softq.profiles import load_profile

        given["methods"] = ",".join(load_profile(profile).methods)
    allowance = None if max_drop is None else parse_drop(max_drop)
    with progress() as step:
        found = run(
            model, out=out, force=force, profile=profile, command=measuring.command_line(), progress=step, **given
        )
    budget = None if allowance is None else Budget.of(allowance, found.study)
    written = measuring.write_page(out, max_drop)
    if junit is not None:
        _write_junit(junit, found, budget)
    measuring.finish(found, None if budget is None else judge_all(budget, found.outcomes), as_json, written)


def _write_junit(path: str, found: Sweep, budget: Any) -> None:
    from softq.files import write_text
    from softq.reports import Case, to_junit
    from softq.sweeps.engine import describe
    from softq.sweeps.formatting import study_name

    cases: list[Case] = []
    for outcome in found.outcomes:
        gate = None if budget is None else budget.judge_measured(outcome)
        message = f"{found.study.metric} is {outcome.metric.value:.6g}" if gate is None else gate.sentence
        cases.append(Case(describe(outcome.setting), outcome.seconds, message, gate is None or gate.passed))
    write_text(path, to_junit(study_name(found.study), cases))
