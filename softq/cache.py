"""Results of compilers, kept in a folder between runs: small files named by the hash of all that they depend on.

Where the folder is: `$SOFTQ_CACHE_DIR`, else `softq/kernels` in `$XDG_CACHE_HOME` or `~/.cache`. How much it may hold:
`$SOFTQ_CACHE_SIZE` in megabytes, 256 if that is not set; with 0 nothing is kept or looked for. Files that have not been
read for the longest time make room for new ones. An entry that is damaged, a folder that cannot be written and a full
disk cost time and nothing else, and any number of processes may share the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from softq.errors import UsageError
from softq.files import open_locked_file, remove, remove_orphans

MEGABYTES = 256
"""How much the folder may hold where the environment does not say."""

_STEM = "kernel"
"""Beginning of the names of entries that are being written."""

_written: dict[Path, int] = {}
"""Bytes that a folder held when this process last looked, and what the process has written since."""


def base_folder() -> Path:
    """Return the folder below which softq keeps what it can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")) / "softq"


def cached(parts: Iterable[str], make: Callable[[], bytes]) -> bytes:
    """Return what `make` returns: from the folder, if that was called before for the same parts.

    Args:
        parts: All that the result depends on.
        make: Gives the result.

    Raises:
        UsageError: `$SOFTQ_CACHE_SIZE` is no number of megabytes.
    """
    most = _most_bytes()
    if not most:
        return make()
    key = hashlib.sha256()
    for part in parts:
        data = part.encode()
        key.update(b"%d:" % len(data) + data)
    folder = Path(os.environ.get("SOFTQ_CACHE_DIR") or base_folder() / "kernels")
    path = folder / key.hexdigest()
    result = _read(path)
    if result is None:
        result = make()
        _write(path, result, most)
    return result


def _most_bytes() -> int:
    text = os.environ.get("SOFTQ_CACHE_SIZE") or str(MEGABYTES)
    if not text.isdecimal():
        raise UsageError(f"SOFTQ_CACHE_SIZE is {text!r}; expected a number of megabytes, 0 for no cache")
    return int(text) << 20


def _digest(path: Path, result: bytes) -> bytes:
    # With the name, so that an entry is not taken for another one either.
    return hashlib.sha256(path.name.encode() + result).digest()


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
        digest, result = data[:32], data[32:]
        if digest != _digest(path, result):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
    except OSError:
        return None
    return result


def _write(path: Path, result: bytes, most: int) -> None:
    """Write an entry so that readers see all of it or nothing."""
    folder = path.parent
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder not in _written:
            remove_orphans(folder, _STEM)
            _written[folder] = sum(size for _, size, _ in _entries(folder))
        with open_locked_file(folder, _STEM) as file:
            try:
                file.write(_digest(path, result) + result)
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                remove(file.name)
                raise
        _written[folder] += len(result) + 32
        if _written[folder] > most:
            _written[folder] = _make_room(folder, most)


def _make_room(folder: Path, most: int) -> int:
    """Remove what was not read for the longest time, down to three quarters of what is allowed; return what stays."""
    entries = sorted(_entries(folder))
    held = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if held <= most * 3 // 4:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        held -= size
    return held


def _entries(folder: Path) -> list[tuple[int, int, str]]:
    """Return the time of the last reading, the size and the path of each file, also of those left by a crash."""
    found: list[tuple[int, int, str]] = []
    with os.scandir(folder) as files:
        for file in files:
            with contextlib.suppress(OSError):
                facts = file.stat()
                found.append((facts.st_mtime_ns, facts.st_size, file.path))
    return found
