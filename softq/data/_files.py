"""Data from .npz files: headers first, arrays one file at a time."""

from __future__ import annotations

import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from softq.data._arrays import Array, Header, line
from softq.data._dataset import Dataset, Part
from softq.errors import InputError
from softq.files import open_regular
from softq.limits import current

_MOST_TIMES = 100
"""How many times its own size a .npz file may unpack to, where that is more than `softq.limits` allows anyway."""


def npz_files(path: Path) -> list[Path]:
    """Return the files that DATA names, in the order of their names."""
    if os.path.isdir(path):  # False, where Path's own raises: of a name that is too long
        files = sorted((f for f in path.glob("*.npz") if not f.name.startswith(".")), key=lambda f: f.name)
        if not files:
            raise InputError(f"{path}: the folder has no .npz files")
        return files
    if not os.path.exists(path):
        raise InputError(
            f"{path}: no such file or folder; DATA is .npz, a folder of .npz, file.py:function, "
            "or package.module:function"
        )
    return [path]


def open_files(files: Sequence[Path], begin: Callable[[str, Mapping[str, Header]], Dataset]) -> Dataset:
    """Return the data of .npz files, whose headers are all checked now; `begin` takes those of the first."""
    data = begin(str(files[0]), read_headers(files[0]))
    counts = [data.check(str(path), read_headers(path)).samples for path in files]

    def parts() -> Iterator[Part]:
        for path, count in zip(files, counts, strict=True):
            yield Part(str(path), lambda path=path: data.read(str(path), _read_arrays(path)), count)

    return data.of_parts(parts, sum(counts))


def read_headers(path: Path) -> dict[str, Header]:
    """Type and shape of every array, from the first bytes of each: gigabytes stay on the disk."""
    headers: dict[str, Header] = {}
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            _check_unpacked(path, archive, os.fstat(file.fileno()).st_size)
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name == member.filename:
                    raise InputError(f"{path}: contains {member.filename!r}, which is not an array")
                if name in headers:
                    raise InputError(f"{path}: contains array {name!r} twice")
                with archive.open(member) as stream:
                    headers[name] = _read_header(f"{path}: array {name!r}", stream, member.file_size)
    except zipfile.BadZipFile as error:
        if path.suffix == ".py":
            raise InputError(
                f"{path}: a Python file; DATA names a function in it as well, as in {path}:samples"
            ) from error
        raise InputError(f"{path}: not a .npz file, or a damaged one: {line(error)}") from error
    except (OSError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {line(error)}") from error
    return headers


def _check_unpacked(path: Path, archive: zipfile.ZipFile, size: int) -> None:
    """Refuse what is packed so well that it is there to fill memory."""
    unpacked = sum(member.file_size for member in archive.infolist())
    most = max(_MOST_TIMES * size, current().memory)
    if unpacked > most:
        raise InputError(
            f"{path}: its {size} bytes unpack to {unpacked}; at most {most} are read (--limit-memory changes it)"
        )


def _read_header(what: str, stream: IO[bytes], size: int) -> Header:
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise InputError(f"{what} is in .npy version {version[0]}.{version[1]}; 1.0 and 2.0 can be read")
    except InputError:
        raise
    except Exception as error:  # Headers are Python, and numpy lets out what its tokenizer and parser raise.
        raise InputError(f"{what} is damaged: {line(error)}") from error
    if dtype.hasobject:
        raise InputError(f"{what} contains pickled objects, which are never loaded")
    # A header may promise more than the file holds; numpy would allocate it before it notices.
    if any(length < 0 for length in shape):
        raise InputError(f"{what} is damaged: its header says {Header(dtype, shape)}")
    if stream.tell() + dtype.itemsize * math.prod(shape) != size:
        raise InputError(f"{what} is damaged: its header says {Header(dtype, shape)}, its size says otherwise")
    return Header(dtype, shape)


def read_npz(path: Path) -> dict[str, Array]:
    """Return all arrays of one .npz file, whatever their names are.

    Raises:
        InputError: it cannot be read, is none, or unpacks to more than the limits allow.
    """
    read_headers(path)
    return _read_arrays(path)


def _read_arrays(path: Path) -> dict[str, Array]:
    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, MemoryError) as error:
        raise InputError(f"{path}: cannot be read: {line(error)}") from error
