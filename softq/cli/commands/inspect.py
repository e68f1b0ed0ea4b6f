"""The command `softq inspect`."""

from __future__ import annotations

from typing import Any

import click

from softq.cli import completing, options
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import print_json, print_text
from softq.errors import UsageError


@takes_config
@options.limits
@command(Section.LOOK)
@click.argument("model", required=False)
@click.option("--forms", is_flag=True, help="List the forms of a softmax that are recognised, instead of a model's.")
@click.option(
    "--method",
    metavar="NAME",
    shell_complete=completing.METHODS,
    help="The method to come: not each can take every softmax.",
)
@options.INPUT_SHAPES
@options.SITES
@options.ALL_SITES
@options.MASKS
@options.ALLOW_FLOAT32
@options.JSON
def inspect(model: str | None, forms: bool, as_json: bool, **given: Any) -> None:
    """Show every softmax of MODEL and whether it can be replaced.

    For each: form, role, shape, mask, verdict and reason.
    """
    from softq.conversion import inspect as inspect_model
    from softq.formatting import describe_forms, forms_to_text, sites_to_text
    from softq.site import SCHEMA

    if forms == (model is not None):
        raise UsageError("inspect takes a model, or --forms without one")
    if model is None:
        if as_json:
            print_json({"schema": SCHEMA, "forms": describe_forms()})
        else:
            print_text(forms_to_text())
        return
    sites = inspect_model(model, **given)
    if as_json:
        print_json({"schema": SCHEMA, "model": model, "sites": [site.to_json() for site in sites]})
    else:
        print_text(sites_to_text(sites))
