"""Small files: what JSON can hold, and writing whole or not at all."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from softq.errors import InputError


def to_plain(value: object) -> Any:
    """Return a dataclass, dict, list, number or text as `json` can write it: NaN and the infinities are texts."""
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain(asdict(value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file; on an error the file that was there is as it was.

    Raises:
        InputError: the folder is absent or cannot be written, or the disk is full.
    """
    write_files({Path(path): text.encode("utf-8")})


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write files, all or none: on an error those that were there are as they were.

    Raises:
        InputError: a folder is absent or cannot be written, or the disk is full.
    """
    staged: list[tuple[str, Path]] = []
    kept: list[tuple[str, Path]] = []
    written: list[Path] = []
    target = Path()
    try:
        try:
            for target, data in contents.items():
                staged.append((_stage(target, data), target))
            for name, target in staged:
                # The last one needs no way back.
                if len(written) + 1 < len(staged) and target.exists():
                    kept.append((_copied(target), target))
                os.replace(name, target)
                written.append(target)
        except BaseException:
            _restore(kept, written)
            raise
        finally:
            for name, _ in (*staged, *kept):
                with contextlib.suppress(OSError):
                    os.unlink(name)
    except OSError as error:
        raise InputError(f"cannot write '{target}': {error.strerror or error}") from error


def _stage(target: Path, data: bytes) -> str:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".softq-tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
    except BaseException:
        os.unlink(name)
        raise
    return name


def _copied(target: Path) -> str:
    """Return the name of a copy of a file: not every system has links."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".softq-tmp", dir=target.parent)
    os.close(handle)
    try:
        shutil.copy2(target, name)
    except BaseException:
        os.unlink(name)
        raise
    return name


def _restore(kept: list[tuple[str, Path]], written: list[Path]) -> None:
    old = {target: name for name, target in kept}
    for target in written:
        with contextlib.suppress(OSError):
            if target in old:
                os.replace(old[target], target)
            else:
                os.unlink(target)


def _umask() -> int:
    # There is no way to read it but to set it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
