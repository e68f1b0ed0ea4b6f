"""The files of a core."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from softq.artifact.folder import NewFolder
from softq.errors import InputError, UsageError
from softq.files import make_folder, read_json, write_files, write_new
from softq.rtl.constraints import SPEED, check_clock, constraints
from softq.rtl.making import MadeCore
from softq.rtl.weighted import MadeWeightedCore


def write_rtl(
    made: MadeCore | MadeWeightedCore, folder: str | os.PathLike[str], *, clock: float = SPEED
) -> tuple[Path, ...]:
    """Write the files of a core, all or none, and return their names.

    NAME.v is the core; NAME_tb.v its testbench, which reads NAME_scores.hex, NAME_results.hex, NAME_numbers.hex,
    NAME_registers.hex and NAME_values.hex, as far as the core has what they are for;
    NAME.sdc, .xdc and .lpf say how fast the clock is; NAME_ecp5.ys is a script for Yosys; NAME.json describes the core.

    Args:
        made: The core.
        folder: Where they go; it is made if it is not there, and holds nothing but files of this kind.
        clock: Megahertz that constraints ask for.

    Raises:
        UsageError: there is a file of that name or a folder with other things, or no core has such a clock.
        InputError: the folder cannot be made or written, or the disk is full.
    """
    check_clock(clock)
    return write_into(kernel_folder(folder), core_files(made, clock))


def kernel_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder that a core or a function goes into: nothing is there, or what such a thing brings with it.

    Beside a core lies what a simulation or a synthesis of it has made, which stays.

    Raises:
        UsageError: there is a file of that name, or a folder with other things and no core.
        InputError: the folder cannot be made or read.
    """
    path = make_folder(folder)
    try:
        files = sorted(os.listdir(path))
        ours = not files or any(_describes_kernel(path / file) for file in files)
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror or error}") from error
    if not ours:
        raise UsageError(f"output '{path}' is a folder with other things ({files[0]!r}); give a new or an empty one")
    return path


def _describes_kernel(file: Path) -> bool:
    if file.suffix != ".json":
        return False
    try:
        facts = read_json(file)
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and {"softq", "method", "program"} <= cast("dict[str, object]", facts).keys()


def write_into(folder: Path, contents: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Write files, all or none, into a folder that keeps its other files, and return their paths.

    A new folder takes its place in one step. A folder that has to stay, a mount or the working folder, may lack some
    of the files after a kill.

    Raises:
        InputError: the folder cannot be written, or the disk is full.
    """
    goal = folder.resolve()
    files = {folder / file: content for file, content in contents.items()}
    if goal.is_mount() or Path.cwd().is_relative_to(goal) or not os.access(goal.parent, os.W_OK):
        write_files(dict(reversed(files.items())))  # by its description, the first, the folder is known again
        return tuple(files)
    try:
        with NewFolder(goal, kernel_folder) as new:
            shutil.copytree(goal, new.path, symlinks=True, copy_function=_link, dirs_exist_ok=True)
            for name, content in contents.items():
                (new.path / name).unlink(missing_ok=True)
                write_new(new.path / name, [content])
            new.commit()
    except (OSError, shutil.Error) as error:
        raise InputError(f"cannot write '{folder}': {error.strerror or error}") from error
    return tuple(files)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target)


def core_files(made: MadeCore | MadeWeightedCore, clock: float) -> dict[str, bytes]:
    """Return the files of a core by name."""
    found, name = made.beats, made.core.name
    contents = {
        f"{name}.v": made.core.text,
        f"{name}_tb.v": made.testbench,
        **{f"{name}_{stream}.hex": _to_hex(words) for stream, words in found.words.items() if words},
        **constraints(name, clock),
        f"{name}.json": json.dumps(dict(made.facts), indent=1, allow_nan=False) + "\n",
    }
    return {file: text.encode() for file, text in contents.items()}


def _to_hex(words: Sequence[int]) -> str:
    return "".join(f"{word:x}\n" for word in words)
