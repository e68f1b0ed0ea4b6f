"""Writing a library of custom operators so that its folder appears whole or not at all."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from softq.artifact import manifest
from softq.artifact.folder import NewFolder, check_folder
from softq.artifact.machine import Cpu
from softq.artifact.operators.library import OperatorLibrary
from softq.artifact.operators.source import library_source
from softq.artifact.signing import Signer
from softq.artifact.toolchain import Linking, compiler, link_library
from softq.artifact.writing import hash_files, write_manifest
from softq.errors import InputError
from softq.files import write_new

_FOR_READERS = [name for name in manifest.OPERATOR_FILES if name != manifest.OPERATOR_LIBRARY]
_LINKING = Linking(manifest.OPERATOR_SOURCE, manifest.OPERATOR_LIBRARY, ("RegisterCustomOps",))


def write_operators(
    library: OperatorLibrary,
    machine: Cpu,
    folder: str | os.PathLike[str],
    *,
    target: str = "",
    model: Mapping[str, str] | None = None,
    cc: str | None = None,
    sign: Signer | None = None,
    slim: bool = False,
) -> Path:
    """Write a library of operators, its source, its kernels and a manifest, and return the folder.

    Args:
        library: The operators.
        machine: What their kernels were made for.
        folder: Where they go; its parent must exist. An artifact that is there is replaced.
        target: The target with its options, for the manifest.
        model: Hashes of the model whose functions they are, for the manifest.
        cc: The C compiler with its arguments; by default zig's, or `cc`.
        sign: Signs the manifest, if that is wanted.
        slim: Leave source and kernels out, which nothing needs that loads the library.

    Raises:
        UsageError: the folder is something else than an artifact, or there is no compiler.
        InputError: the folder cannot be written, or the disk is full.
        SoftqError: the compiler fails.
    """
    goal = check_folder(folder)
    compiler(machine, cc)  # says before the work that there is none
    try:
        with NewFolder(goal) as new:
            write_new(new.path / manifest.OPERATOR_SOURCE, [library_source(library, machine).encode()])
            link_library(new.path, machine, cc, linking=_LINKING, objects=library.objects, libraries=("-lm",))
            for name in _FOR_READERS if slim else ():
                (new.path / name).unlink()
            facts = {
                **manifest.describe_build(manifest.OPERATORS, machine, target, model or {}),
                "levels": [{"cpu": level.machine.cpu, "features": level.machine.features} for level in library.levels],
                "operators": [
                    *(dataclasses.asdict(operator) for operator in library.operators),
                    *(operator.to_json() for operator in library.attentions),
                ],
                "files": manifest.describe_files(hash_files(new.path)),
            }
            write_manifest(new.path, facts, sign)
            new.commit()
    except OSError as error:
        raise InputError(f"cannot write '{goal}': {error.strerror or error}") from error
    return goal
