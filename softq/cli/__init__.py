"""The command line: arguments to library calls, results to text or JSON. Nothing here knows more than the library.

A file holds a command or a few that belong together; what they share is in `options`, `arguments` and `printing`. They
import the library inside their functions: `softq --help` loads none of it.
"""

from __future__ import annotations

import click

from softq.cli import build, check, config, convert, hls, inspect, options, plan, rtl, sweep, vectors
from softq.cli.configuration import takes_config
from softq.cli.group import Group


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="softq")
def main(debug: bool) -> None:
    """Replace the softmaxes of ONNX models by ones that small and fast hardware likes, and measure what that costs.

    Exit codes: 0 done; 1 an accuracy gate failed; 2 bad usage, bad input, or a refusal.
    """


for _command in (
    inspect.inspect,
    inspect.explain,
    convert.convert,
    check.check,
    build.build,
    build.run,
    build.size,
    sweep.sweep,
    sweep.sensitivity,
    plan.plan,
    sweep.report,
    vectors.vectors,
):
    main.add_command(takes_config(options.limits(_command)))
for _command in (rtl.rtl, hls.hls):
    main.add_command(takes_config(_command))
for _command in (inspect.methods, inspect.targets, inspect.packages, inspect.limits, config.config):
    main.add_command(_command)
