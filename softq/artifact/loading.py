"""Opening an artifact in Python.

Needs neither TVM nor a compiler. Everything that the manifest says of the files is checked before any code is loaded;
that protects against damage, not against malice: an artifact is a program, load only those that you trust.
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

MOST_THREADS = 1024


def load(path: str | os.PathLike[str], threads: int = 1) -> Artifact:
    """Return the artifact of a folder, ready to run.

    Args:
        path: The folder that `softq build` wrote.
        threads: Threads that work on one call.

    Raises:
        InputError: the folder is no artifact, is damaged, or was built for another processor.
        UsageError: `threads` is out of range.
        SoftqError: there is no memory, or no thread.
    """
    if isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"threads is {threads}; allowed is 1 to {MOST_THREADS}")
    name, folder = os.fspath(path), Path(path)
    facts = manifest.read(folder)
    try:
        code = _check_files(folder, facts)
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


def _check_files(folder: Path, facts: Mapping[str, object]) -> bytes:
    """Return the library's bytes, if there is one, after comparing every file with the manifest; hashes last."""
    files = cast("Mapping[str, Mapping[str, object]]", facts["files"])
    for name in files:
        path, wanted = folder / name, files[name]["bytes"]
        if not path.is_file():
            raise InputError(f"{folder}: {name} is missing")
        size = path.stat().st_size
        if size != wanted:
            raise InputError(f"{path}: has {size} bytes; the manifest says {wanted}: it is truncated or was changed")
    # That of a device may be for another computer: Python does without it.
    if "libmodel.so" in files and manifest.LAUNCHES not in files:
        machine = cast("Mapping[str, object]", facts["machine"])
        elf.check(folder / "libmodel.so", f"machine {machine['name']} ({machine['triple']})")
    code = b""
    for name in files:
        with open(folder / name, "rb") as file:
            if name == "libmodel.so":
                code = file.read()
                digest = hashlib.sha256(code)
            else:
                digest = hashlib.file_digest(file, "sha256")
        if digest.hexdigest() != files[name]["sha256"]:
            raise InputError(f"{folder / name}: was changed: its SHA-256 is not the one in the manifest")
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
