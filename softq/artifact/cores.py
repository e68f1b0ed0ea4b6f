"""Writing cores for FPGAs so that their folder appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from softq.artifact import manifest
from softq.artifact.folder import NewFolder, check_folder
from softq.artifact.signing import Signer
from softq.artifact.writing import hash_files, write_manifest
from softq.errors import InputError
from softq.files import write_new


def write_cores(
    files: Mapping[str, bytes],
    facts: Mapping[str, object],
    folder: str | os.PathLike[str],
    *,
    target: str = "",
    model: Mapping[str, str] | None = None,
    sign: Signer | None = None,
) -> Path:
    """Write cores and a manifest, and return the folder.

    Args:
        files: Their files by name.
        facts: What they are, as plain values.
        folder: Where they go; its parent must exist. An artifact that is there is replaced.
        target: The target with its options, for the manifest.
        model: Hashes of the model that they are of, for the manifest.
        sign: Signs the manifest, if that is wanted.

    Raises:
        UsageError: the folder is something else than an artifact.
        InputError: the folder cannot be written, or the disk is full.
    """
    goal = check_folder(folder)
    try:
        with NewFolder(goal) as new:
            for name, content in files.items():
                write_new(new.path / name, [content])
            described = {
                **manifest.describe_build(manifest.CORES, None, target, model or {}),
                **facts,
                "files": manifest.describe_files(hash_files(new.path)),
            }
            write_manifest(new.path, described, sign)
            new.commit()
    except OSError as error:
        raise InputError(f"cannot write '{goal}': {error.strerror or error}") from error
    return goal
