"""The command `softq explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from softq.cli import completing, options
from softq.cli.arguments import parse_settings
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import print_json, print_text


@takes_config
@options.limits
@command(Section.LOOK)
@click.argument("model")
@click.argument("site", shell_complete=completing.sites)
@click.option(
    "--method",
    metavar="NAME",
    shell_complete=completing.METHODS,
    help="The method whose cost is told; the default one if not given.",
)
@options.METHOD_BITS
@options.METHOD_SETTINGS
@options.MASKS
@options.ALLOW_FLOAT32
@options.JSON
def explain(
    model: str, site: str, method: str | None, bits: int | None, settings: Sequence[str], as_json: bool, **given: Any
) -> None:
    """Tell all about one softmax of MODEL.

    What was matched, why this verdict, and what a method would cost there. SITE is an id that softq inspect prints,
    or a part of one.
    """
    from softq.explanation import explain as explain_site
    from softq.explanation import to_text
    from softq.methods import DEFAULT_METHOD
    from softq.site import SCHEMA

    told = explain_site(model, site, method=method or DEFAULT_METHOD, settings=parse_settings(settings, bits), **given)
    if as_json:
        print_json({"schema": SCHEMA, "model": model} | told.to_json())
    else:
        print_text(to_text(told))
