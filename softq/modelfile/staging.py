"""Files under temporary names in the folder of their destination, renamed together or removed together."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from softq.files import ON_ITS_WAY, SUFFIX, flush_folder, let_go, lock, remove, unless_locked, write_new

_CHUNK = 1 << 20


class Staging:
    """The files of one output on their way: nothing has its final name before `commit`.

    Use it as a context manager; leaving it removes what was not committed. Entering it removes what a crashed run left
    for the same output: `.NAME.TOKEN.softq-tmp`, which its writer keeps locked, and `.NAME.TOKEN.1.softq-tmp` for data.
    """

    def __init__(self, folder: str, name: str) -> None:
        self.folder = folder
        self.name = name
        self._token = ""
        self._model: BinaryIO
        self._data: list[tuple[str, str]] = []
        self._taken = {name.casefold()}

    def __enter__(self) -> Staging:
        self._remove_orphans()
        while True:
            self._token = secrets.token_hex(4)
            self._model = open(self._temporary(), "xb")
            # Another run may have taken the file for an orphan before the lock was on it.
            if lock(self._model.fileno()) and os.path.exists(self._temporary()):
                return self
            self._model.close()

    def __exit__(self, *args: object) -> None:
        for temporary, _ in self._data:
            remove(temporary)
        remove(self._temporary())
        with contextlib.suppress(OSError):  # what a full disk did not take is not for this file any more
            self._model.close()

    def write_model(self, data: bytes) -> None:
        """Stage the model file itself."""
        self._model.write(data)
        self._model.flush()
        os.fsync(self._model.fileno())

    def write_data(self, pieces: Iterable[bytes]) -> str:
        """Stage a data file and return the name that it will have."""
        temporary = self._write(pieces)
        with open(temporary, "rb", buffering=0) as file:
            name, exists = self._choose(file, ())
        if exists:
            remove(temporary)
        else:
            self._data.append((temporary, name))
        return name

    def copy_data(self, source: str, preferred: str) -> str:
        """Stage a copy of a data file and return the name that it will have: `preferred` unless that is taken.

        A file with the same contents is used as it is.
        """
        with open(source, "rb", buffering=0) as file:
            name, exists = self._choose(file, (preferred,))
            if not exists:
                file.seek(0)
                # Reads and writes, not a mapping: mapped pages would count as memory of this process.
                self._data.append((self._write(_chunks(file)), name))
        return name

    def commit(self) -> None:
        """Give every file its final name: data first, the model last."""
        renamed: list[str] = []
        try:
            for temporary, name in self._data:
                path = os.path.join(self.folder, name)
                if os.path.lexists(path):
                    raise FileExistsError(errno.EEXIST, f"{name!r} appeared in the folder meanwhile")
                os.rename(temporary, path)
                renamed.append(path)
            os.replace(self._temporary(), os.path.join(self.folder, self.name))
        except BaseException:
            # Data without its model is an orphan that no later run would recognise.
            for path in renamed:
                remove(path)
            raise
        flush_folder(self.folder)

    def _temporary(self, number: str = "") -> str:
        return os.path.join(self.folder, f".{self.name}.{self._token}{number}{SUFFIX}")

    def _write(self, pieces: Iterable[bytes]) -> str:
        temporary = self._temporary(f".{len(self._data) + 1}")
        write_new(temporary, pieces)
        return temporary

    def _choose(self, contents: BinaryIO, preferred: Iterable[str]) -> tuple[str, bool]:
        """Return a name that is free, or that of a file with these contents, and whether it is the latter."""
        for name in (*preferred, f"{self.name}.data", *(f"{self.name}.{number}.data" for number in range(1, 10_000))):
            path = os.path.join(self.folder, name)
            exists = os.path.lexists(path)
            if name.casefold() in self._taken or (exists and not _same_contents(contents, path)):
                continue
            self._taken.add(name.casefold())
            return name, exists
        raise FileExistsError(errno.EEXIST, f"no free name for the data of {self.name!r}")

    def _remove_orphans(self) -> None:
        pattern = re.compile(rf"(\.{re.escape(self.name)}\.[0-9a-f]{{8}})(\.[0-9]+)?{re.escape(SUFFIX)}")
        for match in map(pattern.fullmatch, sorted(os.listdir(self.folder))):
            if match is None:
                continue
            path = os.path.join(self.folder, match[0])
            with unless_locked(os.path.join(self.folder, match[1] + SUFFIX)) as free:
                if free:
                    remove(path)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    kept = 0
    while chunk := file.read(_CHUNK):
        yield chunk
        kept += len(chunk)
        if kept >= ON_ITS_WAY:
            let_go(file)
            kept = 0


def _same_contents(contents: BinaryIO, path: str) -> bool:
    status = os.lstat(path)
    size = os.fstat(contents.fileno()).st_size
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size != size:
        return False
    contents.seek(0)
    with open(path, "rb", buffering=0) as other:
        return all(chunk == other.read(len(chunk)) for chunk in _chunks(contents))
