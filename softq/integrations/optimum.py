"""The command `optimum-cli softq`: the ONNX models of a folder that Optimum wrote, converted.

Optimum looks for commands in the files of its namespace `optimum/commands/register`; `register` puts one there.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING

from optimum.commands.base import BaseOptimumCLICommand, CommandInfo

from softq.errors import InputError, ProofError, RefusalError, SoftqError, UsageError
from softq.visible import lines
from softq.wording import softmaxes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from softq.conversion import Conversion
    from softq.methods import OptionValue

FILE = "register_softq.py"
"""Name of the file in Optimum's namespace."""


class SoftqCommand(BaseOptimumCLICommand):
    """Converts the models of a folder as `softq.convert` does, and copies the other files."""

    COMMAND = CommandInfo("softq", "Replace the softmaxes of exported ONNX models.")

    @staticmethod
    def parse_args(parser: ArgumentParser) -> None:
        """Add the arguments to the parser of the command."""
        parser.add_argument("--onnx_model", required=True, metavar="FOLDER", help="Folder with exported models.")
        parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="Folder to write; a new one.")
        parser.add_argument("--method", metavar="NAME", help="The softmax method; softq methods lists them.")
        parser.add_argument("--bits", type=int, help="Short for --set bits=N.")
        parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="An option of the method.")

    def run(self) -> None:
        """Convert the models of the folder.

        Raises:
            SystemExit: softq refuses; the exit code is 2.
        """
        args = self.args
        try:
            settings = dict(_parse_setting(text) for text in args.set)
            made = convert_folder(Path(args.onnx_model), Path(args.output), args.method, args.bits, settings)
        except SoftqError as error:
            sys.stderr.write(lines([f"error: {error}"]))
            raise SystemExit(2) from None
        for name, conversion in made.items():
            plan = conversion.plan
            said = f"{name}: {len(plan.sites)} of {softmaxes(len(conversion.sites))} replaced"
            said += f", {len(plan.rewrites)} superfluous" * bool(plan.rewrites)
            sys.stdout.write(lines([said, *(f"warning: {warning}" for warning in conversion.warnings)]))


def convert_folder(
    source: Path,
    out: Path,
    method: str | None = None,
    bits: int | None = None,
    settings: Mapping[str, OptionValue] | None = None,
) -> dict[str, Conversion]:
    """Write a folder like another with its ONNX models converted; return what was done to each file.

    Args:
        source: A folder with .onnx files, in folders of it too, and others that are copied: configurations, tokenizers.
        out: A folder that is not there yet; it appears whole or not at all.
        method: As in `softq.convert`.
        bits: As in `softq.convert`.
        settings: As in `softq.convert`.

    Returns:
        For the path of each model, from the folder on, what `softq.convert` returned.

    Raises:
        InputError: there is no model in the folder, or one that cannot be used; or `out` cannot be written.
        UsageError: the folder to write is there; or as in `softq.convert`.
        RefusalError: no softmax of any model is to be converted; or as in `softq.convert`.
    """
    if not source.is_dir():
        raise InputError(f"{source}: no such folder")
    models = sorted(path for path in source.rglob("*.onnx") if path.is_file())
    if not models:
        raise InputError(f"{source}: there is no .onnx file")
    if out.exists():
        raise UsageError(f"{out} is there; name a new folder")
    # Optimum reads this file at the start of every command.
    from softq.conversion import convert
    from softq.modelfile import data_files, save

    made: dict[str, Conversion] = {}
    for model in models:
        name = model.relative_to(source).as_posix()
        try:
            made[name] = convert(model, method=method, bits=bits, settings=settings)
        except (ProofError, RefusalError) as error:
            raise type(error)(f"{name}: {error}") from error
    if not any(conversion.plan.sites or conversion.plan.rewrites for conversion in made.values()):
        raise RefusalError("; ".join(f"{name}: {conversion.warnings[0]}" for name, conversion in made.items()))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder:
            # save brings the models and their weights; the temporary folder may lie in the source.
            left = {Path(path).resolve() for model in models for path in (model, folder, *data_files(model))}
            whole = Path(folder) / out.name
            shutil.copytree(
                source, whole, ignore=lambda here, names: {n for n in names if Path(here, n).resolve() in left}
            )
            for name, conversion in made.items():
                save(conversion.model, whole / name, source=source / name)
            whole.rename(out)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}") from error
    return made


def register() -> Path:
    """Make the command known to `optimum-cli` of this environment; return the file that does.

    Raises:
        UsageError: Optimum has no folder for commands.
        InputError: the folder cannot be written.
    """
    spec = importlib.util.find_spec("optimum.commands.register")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        raise UsageError("this Optimum has no optimum/commands/register: install optimum-onnx")
    file = Path(folders[0]) / FILE
    try:
        file.write_text(f"from {__name__} import SoftqCommand\n\nREGISTER_COMMANDS = [SoftqCommand]\n", "utf-8")
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror or error}") from error
    return file


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text}: expected KEY=VALUE")
    return name, value
