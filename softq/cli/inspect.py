"""The commands that show: `inspect` and `explain` a model, `methods`, `targets` and `limits` what there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from softq.cli import options
from softq.cli.arguments import parse_settings
from softq.cli.printing import print_json, print_text
from softq.errors import UsageError


@click.command()
@click.argument("model", required=False)
@click.option("--forms", is_flag=True, help="List the forms of a softmax that are recognised, instead of a model's.")
@click.option("--method", metavar="NAME", help="The method to come: not each can take every softmax.")
@options.INPUT_SHAPES
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
            print_text(forms_to_text())
        return
    sites = inspect_model(model, **given)
    if as_json:
        print_json({"schema": SCHEMA, "model": model, "sites": [site.to_json() for site in sites]})
    else:
        print_text(sites_to_text(sites))


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
        print_text(to_text(told))


@click.command()
@click.argument("name", required=False)
@click.option(
    "--length", type=click.IntRange(1, 2**31 - 1), default=1024, show_default=True, metavar="N",
    help="Elements of the row for which the widest integer is told.",
)  # fmt: skip
@options.JSON
def methods(name: str | None, length: int, as_json: bool) -> None:
    """List the softmax methods, or describe one."""
    from softq.methods import METHODS
    from softq.specification import describe_method, method_to_text, methods_to_text

    chosen = METHODS.entries().values() if name is None else [METHODS.get(name)]
    if as_json:
        print_json({"schema": 1, "methods": [describe_method(method, length) for method in chosen]})
    else:
        print_text(methods_to_text(length) if name is None else method_to_text(METHODS.get(name), length))


@click.command()
@click.argument("name", required=False)
@options.JSON
def targets(name: str | None, as_json: bool) -> None:
    """List the targets, or describe one."""
    from softq.formatting import describe_target, target_to_text, targets_to_text
    from softq.targets import TARGETS

    chosen = TARGETS.entries().values() if name is None else [TARGETS.get(name)]
    if as_json:
        print_json({"schema": 1, "targets": [describe_target(target) for target in chosen]})
    else:
        print_text(targets_to_text() if name is None else target_to_text(TARGETS.get(name)))


@click.command()
@click.argument("name", required=False)
def packages(name: str | None) -> None:
    """List the forms of packages that a model in C may get, or describe one."""
    from softq.formatting import package_to_text, packages_to_text
    from softq.packages import PACKAGES

    print_text(packages_to_text() if name is None else package_to_text(PACKAGES.get(name)))


@click.command()
@options.JSON
def limits(as_json: bool) -> None:
    """List how much is read of a file at most; every command that reads one has --limit-NAME to change it."""
    from softq.limits import describe

    if as_json:
        print_json({"schema": 1, "limits": {name: number for name, number, _ in describe()}})
        return
    print_text("".join(f"{name:<9}  {number:>12,}  {about}\n" for name, number, about in describe()))
