"""Opening an artifact in Python.

Needs neither TVM nor a compiler. Everything that the manifest says of the files is checked before any code is loaded;
that protects against damage, not against malice: an artifact is a program, load only those that you trust, or that are
signed by whom you trust.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from softq.artifact import elf, manifest
from softq.artifact.artifact import Artifact, tensor_specs
from softq.artifact.library import Contexts, Library
from softq.errors import InputError, UsageError
from softq.own_files import check_trusted

MOST_THREADS = 1024

_TRIES = 5
"""How often an artifact may be replaced by a newer one while it is being opened."""


def load(
    path: str | os.PathLike[str], threads: int = 1, *, signature: str | os.PathLike[str] | None = None
) -> Artifact:
    """Return the artifact of a folder, ready to run.

    Args:
        path: The folder that `softq build` wrote.
        threads: Threads that work on one call.
        signature: PEM file of the public Ed25519 key by which the artifact must be signed; none by default. A copy of
            the artifact is made meanwhile, in the folder for temporary files, and that is what is opened.

    Raises:
        InputError: the folder is no artifact, is damaged, or was built for another processor; or it is not signed by
            the key, or the key cannot be used. No library was opened then.
        UsageError: `threads` is out of range, or a signature is asked for and cryptography is not installed.
        SoftqError: there is no memory, or no thread.
    """
    if isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"threads is {threads}; allowed is 1 to {MOST_THREADS}")
    check_trusted(path)
    for left in reversed(range(_TRIES)):
        there = _identity(path)
        try:
            return _open(path, threads, signature)
        except InputError:
            if not left or _identity(path) == there:
                raise
    raise AssertionError("the last try returns or raises")


def _identity(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    """Return what tells a folder from the one that takes its place."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _open(path: str | os.PathLike[str], threads: int, signature: str | os.PathLike[str] | None) -> Artifact:
    if signature is None:
        return _load(os.fspath(path), Path(path), threads)
    from softq.artifact.signing import signed_copy

    with signed_copy(Path(path), signature) as copy:
        return _load(os.fspath(path), copy, threads)


def _load(name: str, folder: Path, threads: int) -> Artifact:
    """Open what lies in a folder under another name."""
    facts = manifest.read(folder, kind=(manifest.KIND, manifest.FIRMWARE))
    try:
        code = read_library(name, folder, facts, "libmodel.so")
        if facts["kind"] == manifest.FIRMWARE:
            from softq.artifact.firmware.loading import FirmwareArtifact

            if threads > 1:
                raise UsageError(f"{name}: threads is {threads}; a model in C runs on one")
            return FirmwareArtifact(name, folder, facts)
        if manifest.LAUNCHES in cast("Mapping[str, object]", facts["files"]):
            from softq.artifact.device.loading import DeviceArtifact

            return DeviceArtifact(name, folder, facts, threads)
    except OSError as error:
        raise InputError(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from error
    library = Library(code, name)
    try:
        _check_interface(name, facts, library)
        contexts = Contexts(library, os.fspath(folder), threads)
    except BaseException:
        library.close()
        raise
    return Artifact(name, facts, contexts, threads)


def read_library(name: str, folder: Path, facts: Mapping[str, object], library: str) -> bytes:
    """Return the library's bytes, if there is one, after comparing every file with the manifest; hashes last.

    Args:
        name: What the user calls the folder.
        folder: The folder.
        facts: Its manifest.
        library: The library's name.

    Raises:
        InputError: a file is missing or was changed, or the library is for another processor.
        OSError: a file cannot be read.
    """
    shown = Path(name)
    files = cast("Mapping[str, Mapping[str, object]]", facts["files"])
    for file in files:
        path, wanted = folder / file, files[file]["bytes"]
        if not path.is_file():
            raise InputError(f"{shown}: {file} is missing")
        size, wrong = path.stat().st_size, "it is truncated or was changed"
        if size != wanted:
            raise InputError(f"{shown / file}: has {size} bytes; the manifest says {wanted}: {wrong}")
    # That of a device may be for another computer: Python does without it.
    if library in files and manifest.LAUNCHES not in files:
        machine = cast("Mapping[str, object]", facts["machine"])
        elf.check(folder / library, name, f"machine {machine['name']} ({machine['triple']})")
    code = b""
    for file in files:
        with open(folder / file, "rb") as opened:
            if file == library:
                code = opened.read()
                digest = hashlib.sha256(code)
            else:
                digest = hashlib.file_digest(opened, "sha256")
        if digest.hexdigest() != files[file]["sha256"]:
            raise InputError(f"{shown / file}: was changed: its SHA-256 is not the one in the manifest")
    return code


def _check_interface(name: str, facts: Mapping[str, object], library: Library) -> None:
    """Check that the manifest describes the library: whoever edits one does not edit the other."""
    for key, found in (("inputs", library.inputs), ("outputs", library.outputs)):
        expected = [
            (s.name, s.dtype, tuple(d if isinstance(d, int) else -1 for d in s.shape or ()))
            for s in tensor_specs(facts, key)
        ]
        if expected != found:
            raise InputError(f"{name}: the manifest's {key} are not those of libmodel.so: one of them was changed")
