"""The command `softq plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from softq.cli import measuring, options
from softq.cli.arguments import check_outputs
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.options import JSON
from softq.cli.printing import exit_unless, print_json, print_notes, print_text, progress
from softq.errors import UsageError


@takes_config
@options.limits
@command(Section.CHOOSE)
@measuring.common
@click.option("--max-drop", required=True, metavar="X|X%", help="The budget: worse by at most X (X% of float's value).")
@click.option("--verify", metavar="DATA", help="Data to verify on; the second half of --data by default.")
@click.option(
    "--sweep", metavar="DIR", help="What softq sweep left: its best settings are what the search starts from."
)
@click.option("--out", required=True, metavar="PLAN.json", help="The file of the plan, for convert --plan.")
@click.option(
    "--cost", metavar="TARGET[,KEY=VALUE...]:NAME", help="Save a cost on a target instead of bits: verilog:LUT4."
)
@JSON
def plan(model: str, max_drop: str, verify: str | None, out: str, as_json: bool, **given: Any) -> None:
    """Find method and width for each softmax under a budget.

    Exit 1 if the best plan breaks the budget. What was measured goes beside the plan, into PLAN.measured.json, for
    softq report --plan.
    """
    from softq.sweeps.formatting import plan_to_json, plan_to_text
    from softq.sweeps.functions import plan as find_plan
    from softq.sweeps.plan.record import record_of

    if Path(out).is_dir():
        raise UsageError(f"--out {out} is a folder; expected the name of a file")
    check_outputs([out, str(record_of(out))], [model, given["data"], given["calibration"], verify])
    with progress() as step:
        found = find_plan(
            model, max_drop=max_drop, verify=verify, out=out, command=measuring.command_line(), progress=step, **given
        )
    print_notes(found.notes)
    if as_json:
        print_json(plan_to_json(found, out))
    else:
        print_text(plan_to_text(found, out))
    exit_unless(found.gate.passed)
