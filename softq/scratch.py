"""Folders for temporary files that do not outlive their processes for long, also where these are killed."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from softq.errors import InputError
from softq.files import make_locked_folder, remove_orphans

_STEM = "softq"

_OF_THE_DISK = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextlib.contextmanager
def telling_of_disk(folder: Path) -> Generator[None]:
    """Say that a disk is full, broken or read-only, where files are written into a folder in many places.

    Raises:
        InputError: it is.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise
        raise InputError(f"cannot write '{error.filename or folder}': {error.strerror}") from error


@contextlib.contextmanager
def scratch_folder() -> Generator[Path]:
    """Give an empty folder of this process alone, where the system keeps temporary files; it is removed in the end.

    It is locked meanwhile, and those of processes that were killed are removed.

    Raises:
        InputError: it cannot be made, or a disk is full or read-only while it is there.
    """
    where = "the folder for temporary files"
    try:
        where = tempfile.gettempdir()
        _tidy(where, os.getpid())
        path, descriptor = make_locked_folder(where, _STEM, 0o700)
    except OSError as error:
        raise InputError(f"cannot write '{where}': {error.strerror or error}") from error
    try:
        with telling_of_disk(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


@functools.cache
def _tidy(base: str, process: int) -> None:
    """Remove what killed processes left, once per process."""
    remove_orphans(base, _STEM)
