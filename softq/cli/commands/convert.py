"""The command `softq convert`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from softq.cli import completing, options
from softq.cli.arguments import check_outputs, parse_settings
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import print_json, print_notes, print_text, progress
from softq.cli.spelling import place


@takes_config
@options.limits
@command(Section.CONVERT)
@click.argument("model")
@place("out", "Where the converted model goes.")
@click.option(
    "--method",
    metavar="NAME",
    shell_complete=completing.METHODS,
    help="The softmax method (softq methods lists them), or a file of your own: my_method.py.",
)
@options.PROFILE
@options.METHOD_BITS
@options.METHOD_SETTINGS
@click.option(
    "--calibration",
    metavar="DATA",
    help="Data for fitted options, with --for for ranges (.npz, a folder, file.py:function or module:function).",
)
@options.sampling
@options.SITES
@options.ALL_SITES
@click.option("--plan", metavar="FILE", help="Follow a plan instead of method, bits, settings, calibration and sites.")
@click.option("--save-plan", metavar="FILE", help="Write what was done as a plan.")
@click.option("--require", is_flag=True, help="Fail if nothing is converted.")
@click.option("--inline", is_flag=True, help="Write plain operators instead of functions.")
@click.option("--fuse-attention", is_flag=True, help="Write each attention as one function, its softmax in it.")
@click.option("--qdq", is_flag=True, help="Write the products of attentions on 8-bit integers (QuantizeLinear).")
@click.option(
    "--max-length",
    type=int,
    metavar="N",
    help="Greatest length of a row that is proved where the graph gives none; 65536 by default.",
)
@click.option("--batch", type=int, metavar="N", help="Samples per run of the calibration.")
@options.INPUT_SHAPES
@options.MASKS
@options.ALLOW_FLOAT32
@click.option("--allow-substitute", is_flag=True, help="Allow methods for models that were trained with them.")
@click.option("--dry-run", is_flag=True, help="Do everything but write.")
@options.JSON
def convert(
    model: str,
    out: str,
    profile: str | None,
    bits: int | None,
    settings: Sequence[str],
    plan: str | None,
    save_plan: str | None,
    calibration: str | None,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Replace the softmaxes of MODEL and write OUT.

    With --for they stay, and what is around them becomes what a device asks for by its documents.
    """
    from softq.conversion import convert as convert_model
    from softq.formatting import conversion_to_text
    from softq.modelfile import check_output, save
    from softq.site import SCHEMA

    # Before the work, not after it.
    check_outputs([out, save_plan], [model, plan, calibration])
    if not dry_run:
        check_output(out, source=model)
    if profile is not None:
        asked = {"bits": bits, "set": settings, "plan": plan, "save_plan": save_plan}
        _convert_for(model, out, profile, calibration, dry_run, as_json, asked | given)
        return
    chosen = parse_settings(settings, bits)
    with progress() as step:
        result = convert_model(
            model, bits=bits, settings=chosen, plan=plan, calibration=calibration, progress=step, **given
        )
        if not dry_run:
            plan_file = {} if save_plan is None else {Path(save_plan): result.plan.to_text().encode()}
            save(result.model, out, source=model, also=plan_file)
    print_notes([f"warning: {warning}" for warning in result.warnings])
    if as_json:
        sites = [site.to_json() for site in result.sites]
        print_json({"schema": SCHEMA, "model": model, "output": None if dry_run else out, "sites": sites,
                    "plan": result.plan.to_json(), "warnings": list(result.warnings)})  # fmt: skip
    else:
        print_text(conversion_to_text(result.sites, result.plan, None if dry_run else out))


def _convert_for(
    model: str, out: str, name: str, calibration: str | None, dry_run: bool, as_json: bool, given: Mapping[str, Any]
) -> None:
    from softq.calibration import Sampling
    from softq.modelfile import save
    from softq.profiles import convert_for, load_profile
    from softq.profiles.text import describe_judgements, profile_conversion_to_text

    profile = load_profile(name)
    rows = None if given["sampling"] == Sampling() else given["sampling"]
    asked = options.alone_with_profile({**given, "sampling": rows}, "input_shapes", "require", "batch")
    wanted = {name: asked[name] for name in ("input_shapes", "require", "batch")}
    with progress() as step:
        result = convert_for(model, profile, calibration=calibration, progress=step, **wanted)
        if not dry_run:
            save(result.model, out, source=model)
    written = None if dry_run else out
    if as_json:
        converted = [one.site for one in result.converted]
        print_json(
            describe_judgements(result.sites, profile) | {"model": model, "output": written, "converted": converted}
        )
    else:
        print_text(profile_conversion_to_text(result, profile, written))
