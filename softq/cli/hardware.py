"""What the commands about kernels outside models share: the options of one method in hardware, and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import click

from softq.cli import completing
from softq.cli.arguments import parse_settings
from softq.cli.options import JSON, METHOD_BITS, METHOD_SETTINGS
from softq.cli.printing import print_notes
from softq.cli.spelling import renamed
from softq.errors import UsageError

FITTED = click.option(
    "--fitted", multiple=True, metavar="KEY=X", help="A number for an option that calibration fits, one for each such."
)
_OF_HARDWARE = (
    click.argument("method", metavar="NAME", shell_complete=completing.METHODS),
    METHOD_BITS,
    METHOD_SETTINGS,
    FITTED,
    renamed(
        "--scores",
        "--dtype",
        "scores",
        default="int8",
        show_default=True,
        metavar="TYPE",
        help="Type of the scores: int8 or uint8.",
    ),
    click.option("--masked", is_flag=True, help="A bit beside each score says that it takes part."),
    click.option("--outputs", metavar="NAMES", default="", help="What it gives: codes,normalizer for example."),
    click.option(
        "--no-constants", "constants", flag_value=False, default=True, help="Leave out numbers that no row changes."
    ),
    click.option(
        "--length", type=int, default=1024, show_default=True, metavar="N", help="Elements of the longest row."
    ),
    click.option("--name", default="", metavar="NAME", help="Its name in the files; by default the method's."),
    click.option("--rows", type=int, default=10, show_default=True, metavar="R", help="Random rows of each length."),
    click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Seed of the random rows."),
    click.option("--out", required=True, metavar="DIR", help="The folder that the files go into."),
    JSON,
)


def hardware_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of one method in hardware."""
    for option in reversed(_OF_HARDWARE):
        command = option(command)
    return command


def parse_arguments(
    bits: int | None, settings: tuple[str, ...], fitted: tuple[str, ...], outputs: str = ""
) -> tuple[Mapping[str, object], Mapping[str, float], tuple[str, ...]]:
    """Return a method's options, the numbers that are fitted, and the names of outputs."""
    numbers = {key: parse_number(key, value) for key, value in parse_settings(fitted, None, "--fitted").items()}
    return parse_settings(settings, bits), numbers, tuple(part for part in outputs.split(",") if part)


def print_doubts(
    method: str,
    settings: Iterable[Mapping[str, object]],
    fitted: Mapping[str, float],
    scores: str,
) -> None:
    """Warn of options that are allowed and that hardly anyone wants; each entry of `settings` is those of a head."""
    from softq.methods import METHODS
    from softq.vectors.making import SCORES, configured, scores_type

    chosen, kind = METHODS.open(method), scores_type(scores, SCORES)
    doubts = (chosen.doubt(configured(chosen, given, fitted, kind)[0]) for given in settings)
    print_notes([f"warning: {doubt}" for doubt in dict.fromkeys(doubts) if doubt])


def parse_number(key: str, value: object) -> float:
    """Return the number that `--fitted` gives.

    Raises:
        UsageError: it is none.
    """
    try:
        return float(str(value))
    except ValueError:
        raise UsageError(f"--fitted {key}={value}; expected a number") from None
