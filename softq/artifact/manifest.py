"""The manifest: what an artifact is, in JSON; `read` checks its form, whoever loads the artifact its truth."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, cast

from softq.artifact.program import Program, Size, Tensor
from softq.artifact.sizes import dimensions, to_text
from softq.errors import InputError
from softq.files import open_regular, parse_json

if TYPE_CHECKING:
    from softq.artifact.machine import Machine

SCHEMA = 1
KIND = "softq artifact"
OPERATORS = "softq operators"
"""The kind of a library of custom operators."""

FIRMWARE = "softq firmware"
"""The kind of a model in C."""

CORES = "softq cores"
"""The kind of cores for FPGAs."""

OWN_FILES = frozenset((FIRMWARE, CORES))
"""Kinds whose files have names of their own, which reading the manifest checks."""

_COMPILER_FLAG = re.compile(r"-m[a-z0-9-]+(=[\w.+-]+)?|-fno-[a-z-]+", re.ASCII)
FIRMWARE_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}", re.ASCII)
"""What files and symbols of a model in C begin with."""

NAME = "manifest.json"

SIGNATURE = "manifest.sig"
"""The file with the signature of the manifest, where there is one."""

FILES = ("weights.bin", "kernels.o", "driver.c", "softq.h", "libmodel.so")
"""The files beside the manifest of an artifact for a processor."""

LOADED = (NAME, "weights.bin", "libmodel.so")
"""Those without which it does not run; the others are for readers, and for who links the kernels into a program."""

OPERATOR_SOURCE, OPERATOR_LIBRARY = "operators.c", "libsoftq_operators.so"
OPERATOR_FILES = ("kernels.o", OPERATOR_SOURCE, OPERATOR_LIBRARY)
"""The files beside the manifest of a library of custom operators."""

LAUNCHES = "launches.json"
"""The file that an artifact for a device has, and one for a processor has not."""

_OF_DEVICES = ("weights.bin", LAUNCHES)
_OF_SOME_DEVICES = (
    *("driver.c", "softq.h", "libmodel.so"),
    *(f"{module}.{form}" for module in ("kernels", "graph") for form in ("cu", "cubin", "ptx")),
)

KNOWN = frozenset((NAME, SIGNATURE, *FILES, *OPERATOR_FILES, *_OF_DEVICES, *_OF_SOME_DEVICES))
"""Every file that an artifact may have."""

MOST_BYTES = 64 << 20
"""A manifest has no more."""


@dataclasses.dataclass(frozen=True)
class DeviceLibrary:
    """What became of the library of an artifact for a device.

    Attributes:
        processor: What it is for, as zig names it; None if nothing is known of that.
        missing: Why there is none, or None.
    """

    processor: str | None
    missing: str | None


_MACHINE: Mapping[str, object] = {
    "name": "", "triple": "", "cpu": "", "features": (), "zig": "", "vector_bytes": 0, "vectors": 16, "requires": (),
    "float_abi": "", "abi": "", "fused": False, "single_items": False,
}  # fmt: skip
"""What a manifest says of a machine, in this order, and what it says of a GPU where that has no such thing."""


def describe(
    program: Program,
    machine: Machine,
    *,
    target: str,
    model: Mapping[str, str],
    files: Mapping[str, tuple[int, str]],
    library: DeviceLibrary | None = None,
    kind: str = KIND,
) -> dict[str, object]:
    """Return the manifest of a program.

    Args:
        program: The model.
        machine: What it was built for.
        target: The target with its options, as the user gave it.
        model: Hashes of the model that it was made from, by name.
        files: Size and SHA-256 of each file.
        library: Of an artifact for a device, what became of its library.
        kind: What the artifact is.
    """
    sites: dict[str, list[str]] = {}
    for step in program.steps:
        if step.site is not None and step.kernel not in sites.setdefault(step.site, []):
            sites[step.site].append(step.kernel)
    return {
        **describe_build(kind, machine, target, model),
        "inputs": [_tensor(program.tensors[position]) for position in program.inputs],
        "outputs": [_tensor(program.tensors[position]) for position in program.outputs],
        "dims": list(dimensions(program)),
        "limits": [
            {"size": to_text(limit.size), "low": limit.low, "high": limit.high, "because": limit.because}
            for limit in program.limits
        ],
        "sites": sites,
        "arena": [_size(size) for size in program.slots],
        "scratch": _size(program.scratch),
        "steps": [
            {
                "kernel": step.kernel,
                "tensors": [_place(program.tensors[position]) for position in step.tensors],
                "scalars": [_size(size) for size in step.scalars],
                "items": _size(step.items),
                "cost": _size(step.cost),
                "site": step.site,
            }
            for step in program.steps
        ],
        **({} if library is None else {"library": dataclasses.asdict(library)}),
        "files": describe_files(files),
    }


def describe_build(kind: str, machine: Machine | None, target: str, model: Mapping[str, str]) -> dict[str, object]:
    """Return how a manifest of any kind begins: what was built, by what, for what machine if any, of which model."""
    described = {key: getattr(machine, key, absent) for key, absent in _MACHINE.items()}
    return {
        "schema": SCHEMA,
        "kind": kind,
        "versions": {"softq": _version("softq"), "tvm": _version("apache-tvm")},
        "target": target,
        **({} if machine is None else {"machine": described}),
        "model": dict(model),
    }


def describe_files(files: Mapping[str, tuple[int, str]]) -> dict[str, object]:
    """Return how a manifest of any kind ends: size and SHA-256 of each file."""
    return {name: {"bytes": size, "sha256": digest} for name, (size, digest) in files.items()}


def _tensor(tensor: Tensor) -> dict[str, object]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": [_size(size) for size in tensor.shape]}


def _size(size: Size) -> int | str:
    return size if isinstance(size, int) else to_text(size)


def _place(tensor: Tensor) -> str:
    shape = ", ".join(str(_size(size)) for size in tensor.shape)
    return f"{tensor.place} {tensor.at}: {tensor.dtype}[{shape}]"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def read(folder: Path, kind: str | Sequence[str] | None = KIND) -> dict[str, object]:
    """Return the manifest of an artifact folder.

    Args:
        folder: The folder.
        kind: What it has to be, or one of these; None for anything that `build` writes.

    Raises:
        InputError: the folder has none, or one of another form; the message says where.
    """
    path = folder / NAME
    try:
        if not folder.is_dir():
            what = "not a folder" if folder.exists() else "no such folder"
            raise InputError(f"{folder}: {what}; expected an artifact")
        with open_regular(path) as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{folder}: has no {NAME}; expected the folder of an artifact") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(text) > MOST_BYTES:
        raise InputError(f"{path}: has more than {MOST_BYTES} bytes; that is no manifest")
    try:
        value: object = parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    try:
        return _checked(value, tuple(_CHECKS) if kind is None else (kind,) if isinstance(kind, str) else kind)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def _checked(value: object, kinds: Sequence[str]) -> dict[str, object]:
    manifest = _object(value, "the manifest")
    kind = manifest.get("kind")
    if kind not in kinds:
        instead = "; softq.onnxruntime.register loads it" if kind == OPERATORS else ""
        raise ValueError(f"kind is {kind!r}; expected {' or '.join(map(repr, kinds))}{instead}")
    if manifest.get("schema") != SCHEMA:
        raise ValueError(f"schema is {manifest.get('schema')!r}; this softq reads {SCHEMA}")
    machine = _object(manifest.get("machine", {}), "machine")
    if kind != CORES and not all(isinstance(machine.get(key), str) for key in ("name", "triple", "cpu")):
        raise ValueError("machine has no name, triple and cpu")
    files = _object(manifest.get("files"), "files")
    _CHECKS[str(kind)](manifest, files)
    for name, entry in files.items():
        facts = _object(entry, f"files[{name!r}]")
        if not isinstance(facts.get("bytes"), int) or not isinstance(facts.get("sha256"), str):
            raise ValueError(f"files[{name!r}] has no bytes and sha256")
    return manifest


def _check_operators(manifest: Mapping[str, object], files: Mapping[str, object]) -> None:
    for item in _list(manifest.get("operators"), "operators"):
        operator = _object(item, "an entry of operators")
        if not isinstance(operator.get("name"), str) or not isinstance(operator.get("kernel"), str):
            raise ValueError(f"an entry of operators is {operator}; expected name and kernel")
    if set(files) not in (set(OPERATOR_FILES), {OPERATOR_LIBRARY}):
        raise ValueError(f"files are {', '.join(files) or 'none'}; expected {', '.join(OPERATOR_FILES)}")


def _check_model(manifest: Mapping[str, object], files: Mapping[str, object]) -> None:
    for key in ("inputs", "outputs"):
        for item in _list(manifest.get(key), key):
            tensor = _object(item, f"an entry of {key}")
            good = isinstance(tensor.get("name"), str) and isinstance(tensor.get("dtype"), str)
            shape = _list(tensor.get("shape"), f"the shape in {key}")
            if not good or not all(isinstance(size, (int, str)) and not isinstance(size, bool) for size in shape):
                raise ValueError(f"an entry of {key} is {tensor}; expected name, dtype and shape")
    if not all(isinstance(dim, str) for dim in _list(manifest.get("dims"), "dims")):
        raise ValueError("dims is no list of names")
    for site, kernels in _object(manifest.get("sites"), "sites").items():
        if not all(isinstance(kernel, str) for kernel in _list(kernels, f"sites[{site!r}]")):
            raise ValueError(f"sites[{site!r}] is no list of kernels")
    if manifest.get("kind") == FIRMWARE:
        _check_firmware(manifest, files)
        return
    wanted = _OF_DEVICES if LAUNCHES in files else FILES
    if not set(wanted) <= set(files) <= {*wanted, *(_OF_SOME_DEVICES if LAUNCHES in files else ())}:
        raise ValueError(f"files are {', '.join(files) or 'none'}; expected {', '.join(wanted)}")


def _check_firmware(manifest: Mapping[str, object], files: Mapping[str, object]) -> None:
    name = manifest.get("name")
    if not isinstance(name, str) or not FIRMWARE_NAME.fullmatch(name):
        raise ValueError(f"name is {name!r}; expected a C identifier of small letters")
    where, package = manifest.get("sources", ""), manifest.get("package")
    if not isinstance(where, str):
        raise ValueError(f"sources is {where!r}; expected a folder")
    form = manifest.get("kernels")
    if form not in ("c", "object"):
        raise ValueError(f"kernels are {form!r}; expected c or object")
    wanted = {f"{where}/{file}".removeprefix("/") for file in firmware_files(name, str(form))}
    if not wanted <= set(files) or (package is None and wanted != set(files)):
        raise ValueError(f"files are {', '.join(files) or 'none'}; expected {', '.join(sorted(wanted))}")
    for flag in _list(manifest.get("compiler_flags", []), "compiler_flags"):
        # Others load plug-ins into the compiler.
        if not isinstance(flag, str) or not _COMPILER_FLAG.fullmatch(flag):
            raise ValueError(f"compiler_flags has {flag!r}; expected -mNAME[=VALUE] or -fno-NAME")
    _check_inside(files)


def _check_cores(manifest: Mapping[str, object], files: Mapping[str, object]) -> None:
    for item in _list(manifest.get("cores"), "cores"):
        name = _object(item, "an entry of cores").get("module")
        if not isinstance(name, str) or not {f"{name}.v", f"{name}.json"} <= set(files):
            raise ValueError(f"an entry of cores is named {name!r}; expected one with its files")
    _check_inside(files)


def _check_inside(files: Mapping[str, object]) -> None:
    for file in files:
        if "\\" in file or not all(part.strip(".") for part in file.split("/")):
            raise ValueError(f"files has {file!r}; expected a path inside the folder")


_CHECKS = {KIND: _check_model, OPERATORS: _check_operators, FIRMWARE: _check_model, CORES: _check_cores}


def source_folder(folder: Path, manifest: Mapping[str, object]) -> Path:
    """Return the folder of the C files of a model in C.

    Args:
        folder: The folder that `build` wrote.
        manifest: Its manifest, which was read.
    """
    return folder / str(manifest.get("sources", ""))


def firmware_files(name: str, kernels: str) -> tuple[str, ...]:
    """Return the files beside the manifest of a model in C.

    Args:
        name: What its symbols begin with.
        kernels: The form of its kernels, `c` or `object`.
    """
    form = ("_kernels.c",) if kernels == "c" else ("_kernels.o", "_host.c")
    return tuple(name + ending for ending in (".h", ".c", "_kernels.h", "_weights.c", *form))


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no JSON object")
    return cast("dict[str, object]", value)


def _list(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is no list")
    return cast("list[object]", value)
