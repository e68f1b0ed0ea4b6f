"""The command `softq quickstart`."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import click

from softq.cli import options
from softq.cli.arguments import check_outputs
from softq.cli.command import Section, command
from softq.cli.printing import print_line, print_text
from softq.errors import UsageError


@options.limits
@command(Section.LOOK)
@click.argument("model")
@click.option("--out", default="data.py", show_default=True, metavar="FILE.py", help="The file for your samples.")
def quickstart(model: str, out: str) -> None:
    """Look at MODEL, write a file for its data, and say what is next.

    The file makes samples up until you put your own into it; the commands that are printed work at once.
    """
    from softq.conversion import inspect
    from softq.files import write_text
    from softq.formatting import sites_to_text
    from softq.methods import DEFAULT_METHOD
    from softq.samples import find_inputs, skeleton
    from softq.samples.skeleton import FUNCTION

    if not out.endswith(".py"):
        raise UsageError(f"--out is {out!r}; expected the name of a Python file")
    if os.path.lexists(out):
        raise UsageError(f"{out} exists, and your samples may be in it; --out names another file")
    check_outputs([out], [model])
    sites = inspect(model)
    print_text(sites_to_text(sites))
    verdicts = {site.verdict.action for site in sites}
    if not verdicts & {"convert", "keep"}:
        allowed = sorted(
            {option for site in sites for option in re.findall(r"allowed by (--[\w-]+)", site.verdict.reason)}
        )
        unless = f" without {' '.join(allowed)}: softq convert {shlex.quote(model)} OUT {' '.join(allowed)}"
        print_line(f"nothing in this model can be converted{unless if allowed else ''}")
        return
    inputs = find_inputs(model)
    write_text(out, skeleton(model, inputs))
    # Where all softmaxes are kept by default, none would be converted.
    every = [] if "convert" in verdicts else ["--all"]
    name = Path(model).stem
    measured = ["--data", f"{out}:{FUNCTION}", "--metric", "relative-error"]
    commands = [
        ["convert", model, f"{name}.softq.onnx", "--bits", "4", *every],
        ["check", model, f"{name}.softq.onnx", *measured],
        ["sweep", model, *measured, "--methods", DEFAULT_METHOD, "--bits", "2-4", "--out", f"{name}-sweep", *every],
    ]
    lines = "".join(f"  {shlex.join(['softq', *words])}\n" for words in commands)
    print_text(f"wrote {out}: it makes samples up; put your own there\n\nNext:\n{lines}")
