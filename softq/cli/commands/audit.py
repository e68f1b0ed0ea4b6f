"""The command `softq audit`."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.options import JSON
from softq.cli.printing import exit_unless, print_json, print_text, progress

if TYPE_CHECKING:
    from softq.audit import Encoding


@takes_config
@command(Section.KERNELS)
@click.option(
    "--runtime", "text", metavar="NAME[,KEY=VALUE]",
    help="onnxruntime, litert, torch, ... with its options, or your own file.py:function or module:function.",
)  # fmt: skip
@click.option(
    "--recorded", metavar="NPZ", help="Instead of a runtime, scores and results that were recorded on a device."
)
@click.option("--out", required=True, metavar="DIR", help="Where the report goes; the same command goes on in it.")
@click.option(
    "--dtype", default="float32", show_default=True, metavar="TYPE", help="Type of the scores, as NumPy names it."
)
@click.option("--scores", metavar="scale=X,zero=N", help="What integer scores stand for; scale=0.05 by default.")
@click.option("--result", metavar="scale=X,zero=N[,dtype=TYPE]", help="What integer results stand for.")
@click.option(
    "--length", type=int, default=197, show_default=True, metavar="N", help="Length of most of the rows that are tried."
)
@click.option(
    "--longest",
    type=int,
    default=65_536,
    show_default=True,
    metavar="N",
    help="Length of the longest row that is tried.",
)
@click.option(
    "--axis",
    type=int,
    default=-1,
    show_default=True,
    metavar="A",
    help="Axis of the rows, counted from the last: -1, -2.",
)
@click.option(
    "--tolerance", type=float, metavar="U", help="Units by which a result may be wrong without being a fault."
)
@click.option("--budget", type=float, metavar="S", help="Seconds after which no further step is begun.")
@click.option(
    "--timeout", type=float, default=60.0, show_default=True, metavar="S", help="Seconds that one call may take."
)
@click.option("--python", metavar="FILE", help="The Python of another environment that has the runtime and NumPy.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Seed of the random rows.")
@click.option("--only", multiple=True, metavar="STEP", help="Do this step alone; may be repeated for several.")
@click.option("--force", is_flag=True, help="Start anew whatever the folder holds.")
@JSON
def audit(
    text: str | None,
    recorded: str | None,
    scores: str | None,
    result: str | None,
    dtype: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Find out which softmax a runtime computes.

    It says what is wrong with it, too: exit code 1 if there is a fault.
    """
    from softq.audit import audit as run
    from softq.audit import audit_recorded
    from softq.audit.writing import to_text
    from softq.errors import UsageError

    if (text is None) == (recorded is None):
        raise UsageError("one of --runtime and --recorded says what is looked at")
    encodings = {name: _parse_encoding(f"--{name}", value, dtype) for name, value in
                 (("scores", scores), ("result", result))}  # fmt: skip
    if recorded is not None:
        made = audit_recorded(recorded, given["out"], tolerance=given["tolerance"], **encodings)
    else:
        name, options = _parse_runtime(text or "")
        with progress() as show:
            made = run(name, options=options, dtype=dtype, progress=show, **encodings, **given)
    if as_json:
        print_json(made.to_json())
    else:
        print_text(to_text(made))
    exit_unless(not made.faults)


def _parse_runtime(text: str) -> tuple[str, dict[str, str]]:
    """Return the runtime and its options.

    Raises:
        UsageError: an option is no KEY=VALUE.
    """
    from softq.errors import UsageError

    name, *pairs = text.split(",")
    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"--runtime {text!r}: {pair!r} is no KEY=VALUE")
        options[key] = value
    return ("function", {"of": name} | options) if ":" in name else (name, options)


def _parse_encoding(option: str, text: str | None, dtype: str) -> Encoding | None:
    """Return what integers stand for.

    Raises:
        UsageError: the text is none of it.
    """
    from softq.audit import Encoding
    from softq.audit.task import INTEGERS
    from softq.errors import UsageError

    if text is None:
        return None
    found = {"dtype": dtype, "scale": "", "zero": "0"}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if key not in found or not equals:
            raise UsageError(f"{option} {text!r}; expected scale=X,zero=N")
        found[key] = value
    try:
        scale, zero = float(Fraction(found["scale"])), int(found["zero"])
    except (ValueError, ZeroDivisionError):
        raise UsageError(
            f"{option} {text!r}; expected a number for scale (0.05, 1/256) and a whole one for zero"
        ) from None
    if scale <= 0 or ("dtype=" in text and found["dtype"] not in INTEGERS):
        raise UsageError(f"{option} {text!r}; scale is above 0, and dtype one of {', '.join(INTEGERS)}")
    return Encoding(found["dtype"], scale, zero)
