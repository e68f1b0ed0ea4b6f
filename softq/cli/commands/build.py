"""The command `softq build`."""

from __future__ import annotations

from typing import Any

import click

from softq.cli import completing, options
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.loading import keeping_garbage
from softq.cli.printing import print_json, print_notes, print_text, progress
from softq.cli.spelling import place


@takes_config
@options.limits
@command(Section.BUILD)
@click.argument("model")
@place("out_dir", "The folder of the artifact.")
@click.option(
    "--target",
    required=True,
    metavar="NAME[,KEY=VALUE...]",
    shell_complete=completing.TARGETS,
    help="What to build for; softq targets lists.",
)
@click.option(
    "--package",
    metavar="NAME[,KEY=VALUE...]",
    shell_complete=completing.PACKAGES,
    help="Of a model in C: lay the files out for another tool; softq packages lists.",
)
@click.option(
    "--method", "methods", multiple=True, metavar="FILE",
    help="The file of a method of your own that MODEL was converted with: my_method.py.",
)  # fmt: skip
@click.option("--sign", metavar="KEY", help="Sign with a private Ed25519 key (PEM); softq[sign].")
@options.INPUT_SHAPES
@options.JSON
def build(model: str, out_dir: str, target: str, as_json: bool, **given: Any) -> None:
    """Build MODEL for a target and write the artifact OUT_DIR.

    Kernels are compiled by TVM; softq targets lists what can be built for.
    """
    with keeping_garbage():
        from softq.building import build as build_model
        from softq.formatting import artifact_to_text

        with progress() as step:
            built = build_model(model, out_dir, target=target, progress=step, **given)
    print_notes([f"warning: {note}" for note in built.notes])
    if as_json:
        print_json(built.manifest)
    else:
        print_text(artifact_to_text(out_dir, built.manifest))
