"""The command line: arguments to library calls, results to text or JSON. Nothing here knows more than the library.

Each command is a file in `softq.cli.commands`; what several share is in `options`, `arguments`, `measuring`,
`hardware` and `printing`.
"""

from __future__ import annotations

import click

from softq.cli.group import Group


@click.group(
    "softq",
    cls=Group,
    package="softq.cli.commands",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="softq")
def main(debug: bool) -> None:
    """Replace the softmaxes of ONNX models by ones that small and fast hardware likes, and measure what that costs.

    Exit codes: 0 done; 1 an accuracy gate failed; 2 bad usage, bad input, or a refusal; 130 interrupted (Ctrl-C), 143
    terminated (SIGTERM), 141 nobody reads its output any more.
    """
