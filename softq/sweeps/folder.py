"""A sweep's folder: one writer at a time, gone on with under the same conditions only, and repaired after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from softq.errors import InputError, UsageError
from softq.files import lock, open_descriptor, remove, write_text
from softq.json_values import to_plain
from softq.scratch import telling_of_disk
from softq.sweeps.records import OUTCOMES, REPORTS, STUDY, Estimate, Outcome, Study, read

_LOCK = ".softq-lock"
_SCRATCH = ".softq-reference-"

_COMPARED = {
    "graph": "the model's graph",
    "weights": "the model's weights",
    "data_hash": "the data",
    "samples": "the number of samples",
    "metric": "the metric",
    "softq": "softq's version",
    "reference": "the float model's value",
}
"""Fields of a study that must be equal for a sweep to go on, and what a message calls them."""

_TITLES = {
    "calibration": "the calibration data",
    "files": "the file of a method",
    "limit": "--samples",
    "trace": "what was traced of the model",
    "state": "the model's state",
}
"""Conditions that are no options, or have another name there, and what a message calls them."""

AGAIN = "--force starts anew, another --out keeps both"


@contextlib.contextmanager
def open_folder(folder: str | os.PathLike[str], force: bool) -> Generator[Path]:
    """Give a folder for a sweep, made if it is not there, with this process as its only writer.

    What an interrupted sweep left half done is put right; with `force` it may be anything, since `cleared` comes.

    Raises:
        UsageError: another process is at work in it, or it cannot be a folder.
        InputError: it cannot be written.
    """
    path = Path(folder)
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {str(path)!r}: the folder '{path.parent}' does not exist")
    made = not path.exists()
    try:
        path.mkdir(exist_ok=True)
        descriptor = _open_lock(path / _LOCK)
    except FileExistsError as error:
        raise UsageError(f"{path} is no folder") from error
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}") from error
    if descriptor is None:
        raise UsageError(f"{path}: another softq is measuring into this folder")
    try:
        try:
            _tidy(path, force)
        except OSError as error:
            raise InputError(f"cannot write '{path}': {error.strerror}") from error
        with telling_of_disk(path):
            yield path
    finally:
        # While it is locked: whoever has opened it by now finds that it is gone, and makes another.
        remove(path / _LOCK)
        os.close(descriptor)
        if made:
            with contextlib.suppress(OSError):
                path.rmdir()  # Where nothing came of it, it is empty.


def _open_lock(path: Path) -> int | None:
    """Return the descriptor of a locked file, made if it is not there; None if another process has it.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT)
        if not lock(descriptor):
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)  # Its owner removed it between our opening and our lock.


def _tidy(path: Path, force: bool) -> None:
    for scratch in path.glob(f"{_SCRATCH}*"):
        shutil.rmtree(scratch, ignore_errors=True)
    if force or not (path / OUTCOMES).exists():
        return
    if not (path / STUDY).exists():
        raise InputError(f"{path} has {OUTCOMES} without {STUDY}; {AGAIN}")
    with os.fdopen(open_descriptor(path / OUTCOMES, os.O_RDWR), "r+b") as file:
        text = file.read()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            file.truncate(whole)
            file.flush()
            os.fsync(file.fileno())


def clear_folder(path: Path) -> None:
    """Remove what was measured; call it when there is something to put in its place.

    Raises:
        InputError: it cannot be removed.
    """
    try:
        # The outcomes before the study: a kill between the two leaves a study without outcomes, which is a whole one.
        for name in (*REPORTS, OUTCOMES, STUDY):
            (path / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}") from error


@contextlib.contextmanager
def make_scratch(path: Path) -> Generator[Path]:
    """Give an empty folder on the same disk that goes with the sweep; what a kill leaves, the next sweep removes."""
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=path) as name:
        yield Path(name)


def read_existing(path: Path) -> tuple[Study, tuple[Outcome, ...]] | None:
    """Return what an earlier sweep left, or None."""
    return read(path) if (path / STUDY).exists() else None


def write_study(path: Path, study: Study) -> None:
    """Write the study; whoever reads sees the whole or nothing."""
    write_text(path / STUDY, json.dumps(to_plain(study), indent=2, allow_nan=False) + "\n")


def check_same(path: Path, before: Study, now: Mapping[str, Any]) -> None:
    """Compare a study with the conditions at hand: fields of `Study` by name, as far as they are known yet.

    Raises:
        UsageError: one is another; the message names it.
    """
    # What the user chose comes first: with other --samples the data are others too.
    for name in ("conditions", "versions"):
        then, given = getattr(before, name), now.get(name, {})
        for key in given:
            title = f"the version of {key}" if name == "versions" else _option(key)
            # Before softq could time, nothing was timed.
            _same(path, title, then.get(key, False if key == "time" else None), given[key])
    for name, title in _COMPARED.items():
        if name in now:
            _same(path, title, _value(getattr(before, name)), _value(now[name]))


def _value(value: object) -> object:
    # The interval follows from the same data; an earlier version may have had another.
    return repr(value.value) if isinstance(value, Estimate) else value


def _option(key: str) -> str:
    return _TITLES.get(key) or "--" + key.replace("_", "-")


def _same(path: Path, title: str, then: object, now: object) -> None:
    if then != now:
        shown = [str(value)[:16] + "..." if len(str(value)) > 60 else str(value) for value in (then, now)]
        raise UsageError(f"{path} holds a sweep for which {title} was {shown[0]}; now it is {shown[1]}; {AGAIN}")
