"""Writing files whole or not at all, and locking them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from softq.errors import InputError, UsageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

TEXT_BYTES = 1 << 28
"""Size of the longest text file that is read: outcomes of a study of 100,000 measurements."""

TOML_BYTES = 1 << 20
"""Size of the longest TOML file that is read."""

_LONG_KEY = re.compile(r"""(?<![^\s[{,])(?:(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*){32}""")
"""A key of more than 32 parts: the parser stores each of its prefixes, which takes the square of its length."""

ON_ITS_WAY = 1 << 28
"""Bytes of a large file after which they are brought to the disk, and forgotten."""

SUFFIX = ".softq-tmp"
"""End of the names of files that are being written."""


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> BinaryIO:
    """Return a regular file, open for reading; errors are those of `open_descriptor`."""
    return os.fdopen(open_descriptor(path, os.O_RDONLY, follow=follow), "rb")


def open_descriptor(path: str | os.PathLike[str], flags: int, *, follow: bool = False) -> int:
    """Return the descriptor of a regular file: a pipe would wait for ever, a device has no end.

    Args:
        path: The file.
        flags: As for `os.open`.
        follow: Whether it may be a symbolic link; in a folder that is written it may not: others may have put it there.

    Raises:
        OSError: it cannot be opened, or is no regular file (`errno.EINVAL`), or a link (`errno.ELOOP`).
    """
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except ValueError as error:  # a name with a zero in it
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from error
    except OSError as error:
        if error.errno == errno.ELOOP and os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed here", os.fspath(path)) from error
        raise
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        return descriptor
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: str | os.PathLike[str], most: int = TEXT_BYTES, *, follow: bool = True) -> str:
    """Return the text of a regular file in UTF-8.

    Raises:
        OSError: it cannot be read, or has more than `most` bytes; or it is a link, and `follow` is false.
        ValueError: it is not UTF-8.
    """
    with open_regular(path, follow=follow) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"has more than {most} bytes", os.fspath(path))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from error


def read_json(path: str | os.PathLike[str], *, follow: bool = True) -> Any:
    """Return what the JSON in a regular file stands for.

    Raises:
        OSError: as in `read_text`.
        ValueError: it is no JSON, or lists in it are too deep inside one another.
    """
    return parse_json(read_text(path, follow=follow))


def parse_json(text: str | bytes) -> Any:
    """Return what a text of JSON stands for.

    Raises:
        ValueError: it is no JSON, or lists in it are too deep inside one another.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("lists or objects in it are too deep inside one another") from error


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the top table of a regular TOML file.

    Raises:
        OSError: it cannot be read, or has more than `TOML_BYTES` bytes.
        ValueError: it is no TOML, or tables in it are too deep inside one another.
    """
    import tomllib  # All commands import this file, and few read TOML.

    text = read_text(path, TOML_BYTES)
    if _LONG_KEY.search(text):
        raise ValueError("a key has more than 32 parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("lists or tables in it are too deep inside one another") from error


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """Return a folder, which is made if it is not there.

    Raises:
        UsageError: there is a file of that name.
        InputError: the folder cannot be made.
    """
    path = Path(folder)
    try:
        if path.exists() and not path.is_dir():
            raise UsageError(f"output '{path}' is a file; the files go into a folder")
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror or error}") from error
    return path


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file; on an error the file that was there is as it was.

    Raises:
        InputError: the folder is absent or cannot be written, or the disk is full.
    """
    write_files({Path(path): text.encode("utf-8")})


def write_files(contents: Mapping[Path, bytes], commit: Callable[[], object] | None = None) -> None:
    """Write files, all or none: on an error those that were there are as they were.

    A kill may leave some of them absent, but never a new file together with an old one.

    Args:
        contents: The content of each file.
        commit: Puts another file in its place. It is called when all these are on the disk, and before their renaming.

    Raises:
        InputError: a folder is absent or cannot be written, or the disk is full.
        OSError: `commit` raises it.
    """
    staged: list[tuple[str, Path]] = []
    kept: list[tuple[str, Path]] = []
    touched: list[Path] = []
    target: Path | None = None
    first = 0 if commit is not None else 1
    try:
        with contextlib.ExitStack() as locks:
            try:
                for target, data in contents.items():
                    staged.append((_stage(target, data, locks), target))
                for target in filter(Path.is_file, contents if len(staged) > first else ()):
                    kept.append((_stage(target, target.read_bytes(), locks), target))
                    shutil.copystat(target, kept[-1][0])
                for _, target in reversed(staged[first:]):
                    touched.append(target)
                    target.unlink(missing_ok=True)
                if commit is not None:
                    target = None
                    commit()
                for name, target in staged:
                    touched.append(target)
                    os.replace(name, target)
            except BaseException:
                _restore(kept, touched)
                raise
            finally:
                for name, _ in (*staged, *kept):
                    remove(name)
    except OSError as error:
        if target is None:
            raise
        raise InputError(f"cannot write '{target}': {error.strerror or error}") from error


def _stage(target: Path, data: bytes, locks: contextlib.ExitStack) -> str:
    """Write a file beside its place and return its name; it is locked, and those of killed writers are removed."""
    remove_orphans(target.parent, f".{target.name}")
    file = locks.enter_context(open_locked_file(target.parent, f".{target.name}"))
    try:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    except BaseException:
        remove(file.name)
        raise
    return file.name


def _restore(kept: list[tuple[str, Path]], touched: list[Path]) -> None:
    old = {target: name for name, target in kept}
    for target in dict.fromkeys(touched):
        with contextlib.suppress(OSError):
            if target in old:
                os.replace(old[target], target)
            else:
                os.unlink(target)


def write_new(path: str | os.PathLike[str], pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file that must not exist, and flush it to the disk; on an error nothing is left of it."""
    file = open(path, "xb")  # noqa: SIM115
    try:
        with file:
            waiting = 0
            for piece in pieces:
                file.write(piece)
                waiting += len(piece)
                if waiting >= ON_ITS_WAY:
                    file.flush()
                    os.fsync(file.fileno())
                    let_go(file)
                    waiting = 0
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        remove(path)
        raise


def let_go(file: BinaryIO) -> None:
    """Let the system forget what of a file is on the disk: finding room for gigabytes takes longer than copying."""
    if sys.platform == "linux":
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, if that can be done."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def lock(descriptor: int) -> bool:
    """Lock an open file for this process, and return whether no other has it; where there are no locks none has."""
    return _lock(descriptor) is not False


def _lock(descriptor: int) -> bool | None:
    """Return whether the lock was got; None where there are no locks: on Windows, in some network file systems."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


@contextlib.contextmanager
def unless_locked(path: str) -> Generator[bool]:
    """Yield whether no living writer holds a file or folder: it is locked now, or it is gone.

    Where there are no locks that is unknown, and an orphan stays.
    """
    try:
        descriptor = -1 if fcntl is None else os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        yield isinstance(error, FileNotFoundError)
        return
    try:
        yield descriptor >= 0 and _lock(descriptor) is True
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _temporary(stem: str) -> str:
    return f"{stem}.{secrets.token_hex(4)}{SUFFIX}"


def open_locked_file(parent: str | os.PathLike[str], stem: str) -> BinaryIO:
    """Return the new file `STEM.TOKEN.softq-tmp`, by whose lock it is no orphan while it is open.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        file = open(Path(parent) / _temporary(stem), "xb")  # noqa: SIM115
        # Another process may have taken it for an orphan before the lock was on it.
        if lock(file.fileno()) and os.path.exists(file.name):
            return file
        file.close()


def make_locked_folder(parent: str | os.PathLike[str], stem: str, mode: int) -> tuple[Path, int]:
    """Make the folder `STEM.TOKEN.softq-tmp`; return it with the descriptor by whose lock it is no orphan.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        path, descriptor = Path(parent) / _temporary(stem), -1
        os.mkdir(path, mode)
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            # Another process may have taken it for an orphan before the lock was on it.
            if lock(descriptor) and path.exists():
                return path, descriptor
        if descriptor >= 0:
            os.close(descriptor)


def remove_orphans(folder: str | os.PathLike[str], stem: str) -> None:
    """Remove the files and folders `STEM.TOKEN.softq-tmp` whose writers live no more: nobody holds a lock on them."""
    names = re.compile(rf"{re.escape(stem)}\.[0-9a-f]{{8}}{re.escape(SUFFIX)}")
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if names.fullmatch(entry.name) and not entry.is_symlink()]
    for entry in found:
        with unless_locked(entry.path) as free:
            if free and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif free:
                remove(entry.path)


def flush_folder(folder: str | os.PathLike[str]) -> None:
    """Let the names in a folder reach the disk, where the system opens and flushes folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
