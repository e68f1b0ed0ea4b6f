"""Writing a model in C so that its folder appears whole or not at all."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from softq.artifact import manifest
from softq.artifact.firmware.compiling import measure
from softq.artifact.firmware.program import Firmware
from softq.artifact.firmware.sizes import compiled_facts
from softq.artifact.firmware.text import FirmwareText
from softq.artifact.folder import NewFolder, check_folder
from softq.artifact.machine import Cpu
from softq.artifact.signing import Signer
from softq.artifact.writing import hash_files, write_manifest
from softq.errors import InputError, SoftqError, UsageError
from softq.files import write_new
from softq.packages import Contents, Package, PackageOptions

_HEADERS = ("float.h", "math.h", "stdbool.h", "stddef.h", "stdint.h", "string.h")
"""What the texts include, and what these include."""


def write_firmware(
    firmware: Firmware,
    machine: Cpu,
    folder: str | os.PathLike[str],
    *,
    name: str = "",
    target: str = "",
    model: Mapping[str, str] | None = None,
    package: tuple[Package, PackageOptions] | None = None,
    sign: Signer | None = None,
) -> Path:
    """Write a model in C and a manifest, and return the folder.

    Args:
        firmware: The model.
        machine: What it is for.
        folder: Where the files go; its parent must exist. An artifact that is there is replaced.
        name: What files and symbols begin with; by default the folder's name.
        target: The target with its options, for the manifest.
        model: Hashes of the model that it was made from, for the manifest.
        package: The form of a package that the files get, with its options, if that is wanted.
        sign: Signs the manifest, if that is wanted.

    Raises:
        UsageError: the folder is something else than an artifact, or the name is no name in C.
        InputError: the folder cannot be written, or the disk is full.
    """
    goal = check_folder(folder)
    chosen = name or re.sub(r"\W", "_", goal.name.lower(), flags=re.ASCII)
    if not manifest.FIRMWARE_NAME.fullmatch(chosen):
        raise UsageError(
            f"name is {chosen!r}; symbols begin with it: at most 31 small letters, digits and _, a letter first"
        )
    if f"{chosen}.h" in _HEADERS:
        raise UsageError(f"name is {chosen!r}; {chosen}.h is a header of C's, and would be taken for it")
    text = FirmwareText(firmware, chosen)
    try:
        with NewFolder(goal) as new:
            files = dict(text.files())
            where, around = _package(firmware, text, machine, files, package)
            for file, content in {**{f"{where}/{file}".lstrip("/"): files[file] for file in files}, **around}.items():
                (new.path / file).parent.mkdir(parents=True, exist_ok=True)
                write_new(new.path / file, [content])
            described = {
                **manifest.describe(
                    firmware.program,
                    machine,
                    target=target,
                    model=model or {},
                    files=hash_files(new.path),
                    kind=manifest.FIRMWARE,
                ),
                "name": chosen,
                "kernels": "c" if firmware.host is None else "object",
                **({} if firmware.host is None else {"host_arena": firmware.host.arena}),
                "compiler_flags": list(machine.compiler_flags),
                **({} if package is None else {"package": package[0].name, "sources": where}),
            }
            exact = {"arena": firmware.arena, "arena_least": firmware.least, "weights": text.weight_bytes}
            machine_facts = cast("Mapping[str, object]", described["machine"])
            try:
                compiled = measure(new.path / where, chosen, machine_facts, machine.compiler_flags)
            except SoftqError:
                compiled = None  # The model is whole without; `softq size --compile` says why.
            facts = {
                **described,
                "memory": {**exact, **compiled_facts(compiled, text.weight_bytes)},
                "multiply_adds": sum(layer.multiply_adds for layer in firmware.layers),
                "layers": list(map(dataclasses.asdict, firmware.layers)),
            }
            write_manifest(new.path, facts, sign)
            new.commit()
    except OSError as error:
        raise InputError(f"cannot write '{goal}': {error.strerror or error}") from error
    return goal


def _package(
    firmware: Firmware,
    text: FirmwareText,
    machine: Cpu,
    files: Mapping[str, bytes],
    package: tuple[Package, PackageOptions] | None,
) -> tuple[str, Mapping[str, bytes]]:
    """Return the folder of the C files, and what the package has besides."""
    if package is None:
        return "", {}
    if firmware.host is not None:
        raise UsageError("packages have kernels in C alone; add kernels=c to the target")
    chosen, options = package
    contents = Contents(
        name=text.name, files=files, inputs=text.inputs, outputs=text.outputs, has_floats=machine.float_abi == "hard",
        options=options,
    )  # fmt: skip
    return chosen.sources, chosen.around(contents)
