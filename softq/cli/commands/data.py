"""The command `softq data`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from softq.cli import options
from softq.cli.arguments import check_outputs
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import print_line
from softq.cli.spelling import place
from softq.errors import UsageError

if TYPE_CHECKING:
    from softq.input_shapes import InputShapes


def _numbers(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not numbers with commas") from None


@takes_config
@options.limits
@command(Section.LOOK)
@click.argument("model")
@place("out", "Where the data go.", "OUT.npz")
@click.option("--random", is_flag=True, help="Make samples up: they show that all works, and nothing about the task.")
@click.option("--images", metavar="FOLDER", help="Images; those in folders of FOLDER get label.class; softq[data].")
@click.option("--text", metavar="FILE", help="A text in UTF-8, with --tokenizer; softq[data].")
@click.option("--tokenizer", metavar="FILE", help="The model's tokenizer.json.")
@click.option("--cast", metavar="FILE.npz", help="Arrays of your own, in other types than the model's.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="N samples: 16 at random, else at most N.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Seed of random samples.")
@click.option("--length", type=click.IntRange(min=1), metavar="N", help="Length of open axes: tokens of a text.")
@click.option("--mean", metavar="X,...", callback=_numbers, help="Of images: taken off each channel in [0, 1].")
@click.option("--std", metavar="X,...", callback=_numbers, help="Of images: what each channel is divided by then.")
@click.option(
    "--fit", type=click.Choice(["crop", "stretch"]), default="crop", show_default=True,
    help="Of images: cut the middle out, or keep all of it.",
)  # fmt: skip
@options.INPUT_SHAPES
def data(
    model: str,
    out: str,
    random: bool,
    images: str | None,
    text: str | None,
    tokenizer: str | None,
    cast: str | None,
    count: int | None,
    seed: int,
    length: int | None,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    fit: str,
    input_shapes: InputShapes | None,
) -> None:
    """Make data for MODEL and write them into OUT.npz.

    Give one of --random, --images, --text and --cast. Names, types and shapes are those of the model's inputs; for
    anything else write a function: softq quickstart makes a file to fill in.
    """
    from softq.samples import ImageOptions, cast_arrays, find_inputs, make_up, read_images, read_texts, write_arrays
    from softq.samples.inputs import OPEN_LENGTH, check_count

    if sum(bool(given) for given in (random, images, text, cast)) != 1:
        raise UsageError("data are made of one of --random, --images FOLDER, --text FILE and --cast FILE.npz")
    if (text is None) != (tokenizer is None):
        raise UsageError("--text and --tokenizer belong together")
    if images is None and (mean or std):
        raise UsageError("--mean and --std are for --images")
    check_outputs([out], [model, text, tokenizer, cast])
    inputs = find_inputs(model, input_shapes)
    if images is not None:
        plain = ImageOptions()
        made = read_images(inputs, images, ImageOptions(mean or plain.mean, std or plain.std, fit), count=count)
    elif text is not None and tokenizer is not None:
        made = read_texts(inputs, text, tokenizer, length=length, count=count)
    elif cast is not None:
        made = cast_arrays(cast, inputs)
    else:
        made = make_up(inputs, check_count(inputs, count), open_length=length or OPEN_LENGTH, seed=seed)
    write_arrays(out, made)
    for name, array in made.items():
        print_line(f"{name}  {array.dtype.name}[{', '.join(map(str, array.shape))}]")
    print_line(f"wrote {out}")
