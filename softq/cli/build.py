"""The commands around an artifact: `softq build` writes it, `softq run` runs it, `softq size` tells what it takes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from softq.cli import options
from softq.cli.arguments import check_outputs
from softq.cli.loading import sparing
from softq.cli.printing import print_json, print_notes, print_report, print_text, progress
from softq.errors import UsageError


@click.command()
@click.argument("model")
@click.argument("out_dir")
@click.option("--target", required=True, metavar="NAME[,KEY=VALUE...]", help="What to build for; softq targets lists.")
@click.option(
    "--package",
    metavar="NAME[,KEY=VALUE...]",
    help="Of a model in C: lay the files out for another tool; softq packages lists.",
)
@click.option("--sign", metavar="KEY", help="Sign with a private Ed25519 key (PEM); softq[sign].")
@options.INPUT_SHAPES
@options.JSON
def build(model: str, out_dir: str, target: str, as_json: bool, **given: Any) -> None:
    """Build MODEL for a target through TVM and write the artifact OUT_DIR."""
    with sparing():
        from softq.building import build as build_model
        from softq.formatting import artifact_to_text

        with progress() as step:
            built = build_model(model, out_dir, target=target, progress=step, **given)
    print_notes([f"warning: {note}" for note in built.notes])
    if as_json:
        print_json(built.manifest)
    else:
        print_text(artifact_to_text(out_dir, built.manifest))


@click.command()
@click.argument("out_dir")
@options.DATA
@click.option("--reference", metavar="MODEL", help="An ONNX model or an artifact to compare with.")
@options.METRICS
@options.LABELS
@options.OUTPUT
@options.BATCH
@options.MAX_DROP
@click.option("--limit", type=float, metavar="X", help="Gate: the artifact's value is at least (at most) X.")
@click.option("--threads", type=int, default=1, metavar="N", help="Threads of the artifact; 1 by default.")
@click.option(
    "--require-signature", metavar="PUB", help="Refuse what is not signed by this key (PEM, public); softq[sign]."
)
@options.MARKDOWN
@options.JSON
def run(
    out_dir: str,
    data: str,
    reference: str | None,
    max_drop: str | None,
    threads: int,
    require_signature: str | None,
    markdown: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run the artifact OUT_DIR on data and compare it with a model, or with the labels alone; exit 1 on the gate."""
    from softq.artifact import load
    from softq.compare import check as check_models
    from softq.compare import score

    check_outputs([markdown], [out_dir, reference, data, *map(str, Path(out_dir).glob("*"))])
    if reference is None and max_drop is not None:
        raise UsageError(f"--max-drop {max_drop} needs --reference; --limit bounds the value itself")
    with load(out_dir, threads, signature=require_signature) as artifact, progress() as step:
        given["progress"] = partial(step, "run")
        if reference is None:
            report = score(artifact, data, **given)
        else:
            folder = Path(reference).is_dir()
            against = load(reference, threads, signature=require_signature) if folder else reference
            report = check_models(against, artifact, data, max_drop=max_drop, **given)
    print_report(report, markdown, as_json)


@click.command()
@click.argument("out_dir")
@click.option("--compile", is_flag=True, help="Compile the files again, for flash and stack.")
@click.option("--cc", metavar="COMMAND", help="The same by this compiler with its options.")
@options.JSON
def size(out_dir: str, compile: bool, cc: str | None, as_json: bool) -> None:
    """Print what the model in C in OUT_DIR takes: flash, arena, stack and multiply-adds, whole and for each step."""
    from softq.artifact.firmware.sizes import read_sizes
    from softq.formatting import sizes_to_text

    sizes = read_sizes(out_dir, compile=compile, cc=cc)
    if as_json:
        print_json(sizes)
    else:
        print_text(sizes_to_text(sizes))
