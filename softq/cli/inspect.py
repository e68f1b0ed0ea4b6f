"""The commands that look at a model: `softq inspect`, `softq explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from softq.cli import options
from softq.cli.arguments import parse_settings
from softq.cli.printing import print_json
from softq.errors import UsageError


@click.command()
@click.argument("model", required=False)
@click.option("--forms", is_flag=True, help="List the forms of a softmax that are recognised, instead of a model's.")
@click.option("--method", metavar="NAME", help="The method to come: not each can take every softmax.")
@options.SITES
@options.ALL_SITES
@options.MASKS
@options.ALLOW_FLOAT32
@options.JSON
def inspect(model: str | None, forms: bool, as_json: bool, **given: Any) -> None:
    """Show every softmax of MODEL: form, role, shape, mask, verdict and reason."""
    from softq.conversion import inspect as inspect_model
    from softq.formatting import describe_forms, forms_to_text, sites_to_text
    from softq.site import SCHEMA

    if forms == (model is not None):
        raise UsageError("inspect takes a model, or --forms without one")
    if model is None:
        if as_json:
            print_json({"schema": SCHEMA, "forms": describe_forms()})
        else:
            click.echo(forms_to_text(), nl=False)
        return
    sites = inspect_model(model, **given)
    if as_json:
        print_json({"schema": SCHEMA, "model": model, "sites": [site.to_json() for site in sites]})
    else:
        click.echo(sites_to_text(sites), nl=False)


@click.command()
@click.argument("model")
@click.argument("site")
@click.option("--method", metavar="NAME", help="The method whose cost is told; the default one if not given.")
@options.METHOD_BITS
@options.METHOD_SETTINGS
@options.MASKS
@options.ALLOW_FLOAT32
@options.JSON
def explain(
    model: str, site: str, method: str | None, bits: int | None, settings: Sequence[str], as_json: bool, **given: Any
) -> None:
    """Tell the whole story of one softmax of MODEL: what was matched, why this verdict, what a method would cost."""
    from softq.explanation import explain as explain_site
    from softq.explanation import to_text
    from softq.methods import DEFAULT_METHOD
    from softq.site import SCHEMA

    told = explain_site(model, site, method=method or DEFAULT_METHOD, settings=parse_settings(settings, bits), **given)
    if as_json:
        print_json({"schema": SCHEMA, "model": model} | told.to_json())
    else:
        click.echo(to_text(told), nl=False)
