"""The options that several commands have, in one wording."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from softq.cli import completing
from softq.errors import UsageError

if TYPE_CHECKING:
    from softq.input_shapes import InputShapes


def _input_shapes(context: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> InputShapes | None:
    if not texts:
        return None
    from softq.input_shapes import parse_input_shapes

    return parse_input_shapes(texts)


JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")

# A method and its options

METHOD_BITS = click.option("--bits", type=int, metavar="N", help="Short for --set bits=N.")
METHOD_SETTINGS = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="An option of the method.")

# The model

INPUT_SHAPES = click.option(
    "--input-shape", "input_shapes", multiple=True, metavar="NAME:LENGTHS", callback=_input_shapes,
    help="Fix an input's axes: NAME:1,3,48,320 (? for one that stays open) or NAME:batch=1; for several, repeat it.",
)  # fmt: skip

# A device

PROFILE = click.option(
    "--for", "profile", metavar="PROFILE", shell_complete=completing.profiles,
    help="A device family, judged by its documents: softq profiles lists them; or a .toml file of your own.",
)  # fmt: skip


def alone_with_profile(given: Mapping[str, Any], *allowed: str) -> Mapping[str, Any]:
    """Return what a command was given beside `--for`.

    Raises:
        UsageError: it was given what is not allowed beside it.
    """
    others = [name for name, value in given.items() if name not in allowed and value not in (None, False, (), "")]
    if others:
        names = ", ".join(name.replace("_", "-") for name in others)
        raise UsageError(f"--for goes by the rules of a profile alone: leave out {names}")
    return given


# Which softmaxes

SITES = click.option(
    "--sites",
    multiple=True,
    metavar="GLOB",
    shell_complete=completing.sites,
    help="Exactly the sites whose id matches, whatever their role.",
)
ALL_SITES = click.option(
    "--all", "all_sites", is_flag=True, help="Every site that can be converted, not only attention."
)
MASKS = click.option(
    "--mask", "masks", multiple=True, metavar="NAME",
    help="A tensor that you say is a mask: of floats, 0 where a position takes part and at most -1e4 elsewhere;"
    " of integers, 1 and 0.",
)  # fmt: skip
ALLOW_FLOAT32 = click.option("--allow-float32", is_flag=True, help="Compute the softmax of double scores in float32.")

# What is measured, on what

DATA = click.option(
    "--data", required=True, metavar="DATA", help="A .npz file, a folder of them, file.py:function or module:function."
)
METRICS = click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    shell_complete=completing.METRICS,
    help="A metric, file.py:function or module:function; several are allowed.",
)
LABELS = click.option("--labels", metavar="NAME", help="The label array to use (label.NAME), or a model input.")
OUTPUT = click.option("--output", metavar="NAME", help="The model output to compare.")
BATCH = click.option("--batch", type=int, metavar="N", help="Samples per run.")
THREADS = click.option("--threads", type=int, metavar="N", help="Threads of the runtime; all cores by default.")
TIME = click.option(
    "--time", is_flag=True, help="Time it beside the float model, the two by turns, on the first batch."
)
TIME_ON = click.option(
    "--time-on",
    multiple=True,
    metavar="TARGET[,KEY=VALUE...]",
    help="Build it for a target and time that beside the float model, too; several are allowed.",
)
COST = click.option(
    "--cost",
    metavar="TARGET[,KEY=VALUE...]",
    help="Tell what each setting takes on a target, before it is built; softq targets lists.",
)
MAX_DROP = click.option(
    "--max-drop", metavar="X|X%", help="Gate: worse than the reference by at most X (X% of its value)."
)
MARKDOWN = click.option("--markdown", metavar="FILE", help="Write the report as Markdown too.")

# A cluster

_TLS = (
    click.option("--tls-ca-file", metavar="PEM", help="Certificates by which a cluster's processes know one another."),
    click.option("--tls-cert", metavar="PEM", help="This side's certificate."),
    click.option("--tls-key", metavar="PEM", help="Its private key."),
)


def tls(command: Callable[..., None]) -> Callable[..., None]:
    """Add what a cluster's processes know one another by; the command takes it as `tls`."""

    @wraps(command)
    def known(*args: Any, **given: Any) -> None:
        from softq.errors import UsageError
        from softq.sweeps.task import Tls

        files = [given.pop(f"tls_{name}") for name in ("ca_file", "cert", "key")]
        if any(files) and not all(files):
            raise UsageError("TLS needs --tls-ca-file, --tls-cert and --tls-key")
        command(*args, **given, tls=Tls(*files) if any(files) else None)

    for option in reversed(_TLS):
        known = option(known)
    return known


# What is read at most


def _parse_limit(context: click.Context, parameter: click.Parameter, text: str | None) -> None:
    if text is None:
        return
    from softq.limits import limited, parse_limit

    assert parameter.name is not None, "it has one"
    context.with_resource(limited(**{parameter.name.removeprefix("limit_"): parse_limit(text)}))


def limits(command: click.Command) -> click.Command:
    """Add what changes `softq.limits` to a command that reads files."""
    from softq.limits import describe

    names = [name for name, _, _ in describe()]
    about = f"Another limit, as --limit-{', -'.join(names[1:-1])} and -{names[-1]}; see softq limits."
    for name in names:
        command.params.append(
            click.Option(
                [f"--limit-{name}"], metavar="N", callback=_parse_limit, expose_value=False, is_eager=True,
                help=about, hidden=name != "nodes",
            )
        )  # fmt: skip
    return command


# Calibration

_SAMPLING = (
    click.option("--calibration-rows", type=int, metavar="N", help="Rows of each attention map; 8 by default."),
    click.option("--calibration-maps", type=int, metavar="N", help="Attention maps of each head; 4 by default."),
    click.option(
        "--calibration-draws", type=int, metavar="N",
        help="Draw so often, fit on all draws together, and record the spread over them.",
    ),
    click.option("--calibration-seed", type=int, metavar="N", help="Draw other rows; 0 by default."),
)  # fmt: skip


def sampling(command: Callable[..., None]) -> Callable[..., None]:
    """Add what says how rows of the calibration data are drawn; the command takes it as `sampling`."""

    @wraps(command)
    def sampled(*args: Any, **given: Any) -> None:
        from softq.calibration import Sampling

        names = {name: given.pop(f"calibration_{name}") for name in ("rows", "maps", "draws", "seed")}
        chosen = {name: number for name, number in names.items() if number is not None}
        if chosen and given.get("calibration") is None:
            raise UsageError(
                f"--calibration-{next(iter(chosen))} says how --calibration is drawn from, which is missing"
            )
        command(*args, **given, sampling=Sampling(**chosen))

    for option in reversed(_SAMPLING):
        sampled = option(sampled)
    return sampled
