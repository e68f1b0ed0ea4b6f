"""A folder that appears whole or not at all: made beside its place, then exchanged with what is there."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

from softq.artifact import manifest
from softq.errors import InputError, UsageError
from softq.files import flush_folder, make_locked_folder, remove_orphans

# Of Linux's <fcntl.h> and <linux/fs.h>.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def check_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder that an artifact goes into, if it may: nothing, an empty folder or an artifact is there.

    Raises:
        UsageError: something else is there; the message says what.
        InputError: its parent does not exist or cannot be written.
    """
    given = os.fspath(path)
    if not os.path.basename(os.path.normpath(given)) or os.path.basename(given) in (".", ".."):
        raise UsageError(f"output {given!r} is no name for a folder")
    goal = Path(os.path.abspath(given))
    try:
        if goal.is_symlink():
            raise UsageError(f"output '{goal}' is a link; give the folder that it names")
        if goal.exists():
            _check_replaceable(goal)
    except OSError as error:
        raise InputError(f"cannot write '{goal}': {error.strerror or error}") from error
    if not goal.parent.is_dir():
        raise InputError(f"cannot write '{goal}': the folder '{goal.parent}' does not exist")
    if not os.access(goal.parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write '{goal}': the folder '{goal.parent}' is not writable")
    return goal


def _check_replaceable(goal: Path) -> None:
    if not goal.is_dir():
        raise UsageError(f"output '{goal}' is a file; an artifact is a folder")
    if not any(goal.iterdir()):
        return
    try:
        facts = manifest.read(goal, kind=None)
    except InputError as error:
        raise UsageError(f"output '{goal}' is a folder with other things; only an artifact is replaced") from error
    # Reading it has checked names of its own; only a model in C has folders.
    own = cast("Mapping[str, object]", facts["files"]).keys() if facts["kind"] in manifest.OWN_FILES else ()
    strange = sorted(set(_ends(goal)) - manifest.KNOWN - set(own))
    if strange:
        raise UsageError(f"output '{goal}' is an artifact, but {strange[0]!r} in it is not of softq; move that first")


def _ends(folder: Path) -> Iterator[str]:
    """Yield the paths of all files below a folder, and of empty folders."""
    for place, folders, files in os.walk(folder):
        inside = Path(place).relative_to(folder)
        # A link to a folder is not entered.
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        yield from ((inside / name).as_posix() for name in (*files, *links))
        if not (files or folders):
            yield inside.as_posix()


class NewFolder:
    """A folder on its way, `.NAME.TOKEN.softq-tmp` beside its place; leaving it removes what was not committed.

    Entering it removes what crashed runs left for the same place; a living writer holds a lock on its folder. `check`
    refuses to replace a folder that has other things.

    Attributes:
        path: Where the files go meanwhile.
    """

    def __init__(self, goal: Path, check: Callable[[Path], object] = _check_replaceable) -> None:
        self._goal, self._check = goal, check
        self._lock = -1
        self.path = goal

    def __enter__(self) -> NewFolder:
        parent, stem = self._goal.parent, f".{self._goal.name}"
        remove_orphans(parent, stem)
        self.path, self._lock = make_locked_folder(parent, stem, 0o777)
        return self

    def __exit__(self, *args: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def commit(self) -> None:
        """Put the folder into its place; what was there goes.

        Raises:
            OSError: that fails; what was there is there again.
        """
        os.fsync(self._lock)
        try:
            os.rename(self.path, self._goal)  # Takes the place of nothing, and of an empty folder.
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            self._check(self._goal)  # once more: compiling takes a while
            _exchange(self.path, self._goal)
        flush_folder(self._goal.parent)


def _exchange(new: Path, old: Path) -> None:
    """Let two folders change places; where the system cannot do that at once, one after the other."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        paths = (ctypes.c_char_p(os.fsencode(path)) for path in (new, old))
        if rename(_AT_FDCWD, next(paths), _AT_FDCWD, next(paths), ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
            return
        if ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    aside = old.with_name(f".{old.name}.{secrets.token_hex(4)}.old")
    os.rename(old, aside)
    try:
        os.rename(new, old)
    except BaseException:
        os.rename(aside, old)
        raise
    shutil.rmtree(aside, ignore_errors=True)
