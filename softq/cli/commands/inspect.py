"""The command `softq inspect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from softq.cli import completing, options
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import exit_unless, print_json, print_line, print_notes, print_text
from softq.errors import UsageError

if TYPE_CHECKING:
    from softq.site import Site


@takes_config
@options.limits
@command(Section.LOOK)
@click.argument("model", metavar="MODEL...", nargs=-1)
@click.option("--forms", is_flag=True, help="List the forms of a softmax that are recognised, instead of a model's.")
@click.option(
    "--method",
    metavar="NAME",
    shell_complete=completing.METHODS,
    help="Judge for this method: not each can replace every softmax.",
)
@options.PROFILE
@options.INPUT_SHAPES
@options.SITES
@options.ALL_SITES
@options.MASKS
@options.ALLOW_FLOAT32
@click.option(
    "--fail-on",
    type=click.Choice(["refused", "none"]),
    help="Exit 1 where a softmax is refused, or where a model has none that is to be converted.",
)
@options.JSON
def inspect(
    model: Sequence[str], forms: bool, fail_on: str | None, profile: str | None, as_json: bool, **given: Any
) -> None:
    """Show every softmax of MODEL and whether it can be replaced.

    For each: form, role, shape, mask, verdict and reason. Of several models, one after the other. With --for: whether
    a device takes it, by its documents.
    """
    from softq.conversion import inspect as inspect_model
    from softq.formatting import describe_forms, forms_to_text, sites_to_text
    from softq.site import SCHEMA

    if forms == bool(model):
        raise UsageError("inspect takes a model, or --forms without one")
    if profile is not None:
        if forms:
            raise UsageError("--for is about a model, --forms about none")
        _judge(model, profile, fail_on, as_json, given)
        return
    if not model:
        if as_json:
            print_json({"schema": SCHEMA, "forms": describe_forms()})
        else:
            print_text(forms_to_text())
        return
    found = {name: inspect_model(name, **given) for name in model}
    told = [
        {"schema": SCHEMA, "model": name, "sites": [site.to_json() for site in sites]} for name, sites in found.items()
    ]
    if as_json:
        print_json(told[0] if len(told) == 1 else {"schema": SCHEMA, "models": told})
    for name, sites in found.items() if not as_json else ():
        if len(found) > 1:
            print_line(name)
        print_text(sites_to_text(sites))
    failed = [name for name, sites in found.items() if fail_on is not None and _fails(sites, fail_on)]
    if failed:
        why = "has a softmax that is refused" if fail_on == "refused" else "has no softmax that is to be converted"
        print_notes([f"{name} {why}" for name in failed])
    exit_unless(not failed)


def _fails(sites: Sequence[Site], fail_on: str) -> bool:
    actions = [site.verdict.action for site in sites]
    return "refuse" in actions if fail_on == "refused" else "convert" not in actions


def _judge(model: Sequence[str], name: str, fail_on: str | None, as_json: bool, given: Mapping[str, Any]) -> None:
    from softq.profiles import judge, load_profile
    from softq.profiles.text import SCHEMA, describe_judgements, judgements_to_text

    profile = load_profile(name)
    shapes = options.alone_with_profile(given, "input_shapes")["input_shapes"]
    found = {path: judge(path, profile, input_shapes=shapes) for path in model}
    told = [{"model": path, **describe_judgements(judged, profile)} for path, judged in found.items()]
    if as_json:
        print_json(told[0] if len(told) == 1 else {"schema": SCHEMA, "models": told})
    for path, judged in found.items() if not as_json else ():
        if len(found) > 1:
            print_line(path)
        print_text(judgements_to_text(judged, profile, name))
    wanted = "no" if fail_on == "refused" else "after convert"
    failed = [path for path, judged in found.items() if any(one.taken == wanted for one in judged) == (wanted == "no")]
    if fail_on is not None and failed:
        why = "is not taken" if fail_on == "refused" else "is taken after a conversion"
        print_notes([f"{path} has {'a' if fail_on == 'refused' else 'no'} softmax that {why}" for path in failed])
    exit_unless(fail_on is None or not failed)
