"""Writing an artifact so that it appears whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from softq.artifact import driver, manifest
from softq.artifact.ctext import part
from softq.artifact.device import driver as device_driver
from softq.artifact.device.steps import DeviceProgram, to_json
from softq.artifact.folder import NewFolder, check_folder
from softq.artifact.machine import Cpu, Machine
from softq.artifact.program import Program
from softq.artifact.signing import Signer
from softq.artifact.toolchain import DEVICE, compiler, link_library
from softq.artifact.weights import WeightsStream
from softq.errors import InputError, UsageError
from softq.files import flush_folder, write_new


def write(
    program: Program,
    machine: Machine,
    folder: str | os.PathLike[str],
    *,
    target: str = "",
    model: Mapping[str, str] | None = None,
    cc: str | None = None,
    device: DeviceProgram | None = None,
    sign: Signer | None = None,
) -> Path:
    """Write the artifact of a program and return its folder.

    The files are made in a folder beside it, which then takes its place; an artifact that was there is replaced, and
    stays as it was if anything fails.

    Args:
        program: The model.
        machine: What its kernels were made for.
        folder: Where it goes; its parent must exist.
        target: The target with its options, for the manifest.
        model: Hashes of the model that the program was made from, for the manifest.
        cc: The C compiler with its arguments; by default zig's, or `cc`. A program for a device is written without its
            library if there is none.
        device: The launches and kernels, if the machine is a device.
        sign: Signs the manifest, if that is wanted.

    Raises:
        UsageError: the folder is something else than an artifact, or there is no compiler.
        InputError: the folder cannot be written, or the disk is full.
        SoftqError: the program contradicts itself, or the compiler fails.
    """
    goal = check_folder(folder)
    processor = machine if device is None else device.host
    if isinstance(processor, Cpu) and (device is None or cc is not None):
        compiler(processor, cc)  # says before the work that there is none
    stream = WeightsStream(program)
    try:
        with NewFolder(goal) as new:
            write_new(new.path / "weights.bin", stream)
            write_new(new.path / "softq.h", [part("softq.h").encode()])
            if device is None:
                assert isinstance(machine, Cpu)
                source = driver.driver_source(program, machine, weights_bytes=stream.bytes, seal=stream.seal)
                write_new(new.path / "driver.c", [source.encode()])
                link_library(new.path, machine, cc, objects=program.objects)
                library = None
            else:
                source = device_driver.driver_source(device, machine, weights_bytes=stream.bytes, seal=stream.seal)
                write_new(new.path / "driver.c", [source.encode()])
                _write_device(new.path, device)
                library = _device_library(new.path, device, cc)
            files = hash_files(new.path)
            facts = manifest.describe(program, machine, target=target, model=model or {}, files=files, library=library)
            write_manifest(new.path, facts, sign)
            new.commit()
    except OSError as error:
        raise InputError(f"cannot write '{goal}': {error.strerror or error}") from error
    return goal


def hash_files(folder: Path) -> dict[str, tuple[int, str]]:
    """Return size and SHA-256 of each file of a folder and those in it, after they have reached the disk."""
    paths = sorted(folder.rglob("*"))
    for path in paths:
        if path.is_dir():
            flush_folder(path)
    return {path.relative_to(folder).as_posix(): _facts(path) for path in paths if path.is_file()}


def write_manifest(folder: Path, facts: Mapping[str, object], sign: Signer | None) -> None:
    """Write a manifest into a folder, and its signature if there is who signs."""
    text = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    described = text.encode("utf-8", "replace")
    write_new(folder / manifest.NAME, [described])
    if sign is not None:
        write_new(folder / manifest.SIGNATURE, [sign(described)])


def _write_device(folder: Path, device: DeviceProgram) -> None:
    write_new(folder / manifest.LAUNCHES, [to_json(device).encode()])
    for module, text in device.sources.items():
        write_new(folder / f"{module}.cu", [text.encode()])
    for module, code in device.code.items():
        write_new(folder / f"{module}.{device.form}", [code])


def _device_library(folder: Path, device: DeviceProgram, cc: str | None) -> manifest.DeviceLibrary:
    """Compile the library if that is possible; say for what it is, or why there is none."""
    if device.host is None:
        return manifest.DeviceLibrary(None, "softq has no C library for this computer's processor")
    try:
        compiler(device.host, cc)
    except UsageError as error:
        return manifest.DeviceLibrary(device.host.zig, str(error))
    link_library(folder, device.host, cc, libraries=DEVICE)
    return manifest.DeviceLibrary(device.host.zig, None)


def _facts(path: Path) -> tuple[int, str]:
    """Return a file's size and SHA-256, after it has reached the disk."""
    with open(path, "rb", buffering=0) as file:
        os.fsync(file.fileno())
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()
