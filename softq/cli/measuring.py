"""What the commands that measure accuracy versus bits share: their arguments, their task, and how they end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from softq.cli import completing, options
from softq.cli.printing import exit_unless, print_json, print_line, print_notes, print_text
from softq.cli.spelling import renamed
from softq.errors import SoftqError

if TYPE_CHECKING:
    from softq.reports import Gate
    from softq.sweeps import Sweep

_COMMON = (
    click.argument("model"),
    click.option(
        "--framework",
        default="onnx",
        show_default=True,
        metavar="NAME",
        help="What MODEL is of; torch: module:function or file.py:function, which gives a torch.nn.Module.",
    ),
    options.DATA,
    click.option(
        "--metric",
        required=True,
        metavar="NAME",
        shell_complete=completing.METRICS,
        help="The task's metric, file.py:function or module:function.",
    ),
    click.option(
        "--methods",
        default="all",
        shell_complete=completing.METHODS,
        show_default=True,
        metavar="LIST",
        help="Names or files (my_method.py) with commas, or all.",
    ),
    click.option("--bits", default="2-8", show_default=True, metavar="RANGE", help="Such as 4, 2-8 or 2,4,6-8."),
    click.option("--set", "options", multiple=True, metavar="METHOD.KEY=VALUE", help="An option of a method."),
    click.option("--calibration", metavar="DATA", help="Data for options that are fitted."),
    options.sampling,
    renamed(
        "--limit", "--samples", "samples", type=click.IntRange(min=1), metavar="N", help="The first N samples only."
    ),
    click.option(
        "--sites",
        multiple=True,
        metavar="GLOB",
        shell_complete=completing.sites,
        help="Exactly the sites whose id matches.",
    ),
    options.ALL_SITES,
    click.option("--mask", "masks", multiple=True, metavar="NAME", help="A float tensor that is a mask: see convert."),
    options.ALLOW_FLOAT32,
    click.option("--allow-substitute", is_flag=True, help="Let methods take part that are no drop-in: see convert."),
    click.option("--max-length", type=int, metavar="N", help="Greatest length of a row that is proved: see convert."),
    options.LABELS,
    click.option("--output", metavar="NAME", help="The model output that the metric looks at."),
    options.BATCH,
    options.THREADS,
    click.option(
        "--workers", type=int, default=1, metavar="N", help="Processes, each with so many threads; softq[cluster]."
    ),
    click.option("--scheduler", metavar="ADDRESS", help="The dask scheduler of a cluster whose workers measure."),
    click.option(
        "--timeout", type=float, metavar="S", help="A worker hangs after S seconds; by default 10 times the longest."
    ),
    options.tls,
)
OUT = click.option("--out", required=True, metavar="DIR", help="The folder of the results; made if it is not there.")
FORCE = click.option("--force", is_flag=True, help="Remove what the folder holds and start anew.")


def granularity(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option that takes sites or heads, of which `what` says what they are taken for."""
    choices = click.Choice(["site", "head"])
    return click.option("--granularity", type=choices, default="site", show_default=True, help=what)


def common(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments that all these commands share."""
    return reduce(lambda made, decorate: decorate(made), reversed(_COMMON), command)


def is_given(name: str) -> bool:
    """Say whether the user gave an option, on the command line or in a file of them; the others have their defaults."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def command_line() -> str:
    """Return the command as a user would type it."""
    return shlex.join(["softq", *sys.argv[1:]])


def write_page(out: str, budget: str | None) -> str:
    """Write the report of a folder and return a line that says so; what goes wrong is a note: the values are there."""
    from softq.sweeps.report import report

    try:
        return f"wrote {report(out, max_drop=budget).files[0]}"
    except SoftqError as error:
        print_notes([f"no report was written: {error}"])
        return ""


def finish(found: Sweep, gate: Gate | None, as_json: bool, written: str) -> None:
    """Print what was found, and end with the gate's exit code if that failed."""
    from softq.sweeps.formatting import sweep_to_json, sweep_to_text

    print_notes(found.notes)
    if as_json:
        print_json(sweep_to_json(found, gate))
    else:
        print_text(sweep_to_text(found))
        if written:
            print_line(written)
        if gate is not None:
            print_line(f"{'passed' if gate.passed else 'FAILED'}: {gate.sentence}")
    exit_unless(gate is None or gate.passed)
