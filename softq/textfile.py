"""Writing small text files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from softq.errors import InputError


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file; on an error the file that was there is as it was.

    Raises:
        InputError: the folder is absent or cannot be written, or the disk is full.
    """
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".softq-tmp", dir=target.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise InputError(f"cannot write '{target}': {error.strerror or error}") from error


def _umask() -> int:
    # There is no way to read it but to set it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
