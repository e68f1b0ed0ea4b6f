"""What a model in C takes of flash and stack on its processor, by compiling it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softq.artifact import manifest
from softq.artifact.firmware.compilers import compilers, describe, write_headers
from softq.artifact.firmware.objects import ObjectFile, read_object
from softq.artifact.firmware.thumb_stack import FunctionStack, read_stacks
from softq.artifact.toolchain import run
from softq.errors import SoftqError
from softq.scratch import scratch_folder

LEVEL = "-O2"
"""How the compiler optimizes."""

_FUNCTION = re.compile(r"^(?:\w+ )+(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class CompiledSizes:
    """What a compiler makes of a model.

    Attributes:
        compiler: Its name, its version and how it optimizes.
        code: Bytes of instructions.
        tables: Bytes of constants that are no weights.
        stack: Bytes of the deepest calls, without those of library functions; None if the compiler does not tell.
        calls: These calls, from the one that runs the model.
        library: Functions that it needs of the compiler's or the C library, which take flash and stack besides.
    """

    compiler: str
    code: int
    tables: int
    stack: int | None
    calls: tuple[str, ...]
    library: tuple[str, ...]


def measure(folder: Path, name: str, machine: Mapping[str, object], flags: Sequence[str]) -> CompiledSizes | None:
    """Return what a model takes, by the first compiler that takes it; None if there is none for its processor.

    Args:
        folder: Its files.
        name: What symbols and files begin with.
        machine: What it is for, as manifests have it.
        flags: What gcc and clang are told of that.

    Raises:
        SoftqError: there are compilers, and none takes it; the message is of the first.
    """
    first: SoftqError | None = None
    for command in compilers(machine, tuple(flags)):
        try:
            return measure_with(folder, name, command)
        except SoftqError as error:
            first = first or error  # It may be too old for the processor.
    if first is not None:
        raise first
    return None


def measure_with(folder: Path, name: str, command: list[str]) -> CompiledSizes:
    """Return what a model takes by a compiler.

    Args:
        folder: Its files.
        name: What symbols and files begin with.
        command: The compiler with its options.

    Raises:
        SoftqError: it fails; the message has its first error.
        InputError: what it makes is no object file.
    """
    files = manifest.firmware_files(name, "object" if (folder / f"{name}_kernels.o").exists() else "c")
    sources = [file for file in files if file.endswith(".c") and not file.endswith(("_weights.c", "_host.c"))]
    made_already = [file for file in files if file.endswith(".o")]
    with scratch_folder() as scratch:
        options = [
            *write_headers(command, scratch / "include"),
            "-std=c99",
            LEVEL,
            "-ffunction-sections",
            "-fdata-sections",
        ]
        held = {file: (folder / file).read_bytes() for file in made_already}
        objects: list[ObjectFile] = [read_object(data, file) for file, data in held.items()]
        stacks = {name: stack for data in held.values() for name, stack in read_stacks(data).items()}
        told = ""
        for source in sources:
            made = scratch / f"{source}.o"
            run([*command, *options, "-fstack-usage", "-c", str(folder.resolve() / source), "-o", str(made)], scratch)
            objects.append(read_object(made.read_bytes(), source))
            usage = made.with_suffix(".su")
            told += usage.read_text(encoding="utf-8") if usage.exists() else ""
    texts = [(folder / file).read_text(encoding="utf-8") for file in (*sources, f"{name}_kernels.h")]
    stack, calls = _deepest(f"{name}_run", told, texts, stacks)
    defined = frozenset[str]().union(*(file.defined for file in objects))
    needed = frozenset[str]().union(*(file.needed for file in objects)) - defined
    return CompiledSizes(
        f"{describe(command)} {LEVEL}",
        sum(file.code for file in objects),
        sum(file.data for file in objects),
        stack,
        calls,
        tuple(sorted(symbol for symbol in needed if not symbol.startswith(f"{name}_weight_"))),
    )


_BOUNDED = ("static", "dynamic,bounded")
"""Where gcc's number is all that a function takes, or a bound of it; of one that is `dynamic` alone it is a part."""


def _deepest(
    first: str, told: str, texts: Sequence[str], stacks: Mapping[str, FunctionStack]
) -> tuple[int | None, tuple[str, ...]]:
    """Return the bytes of the deepest calls from a function, and these calls.

    Args:
        first: The function.
        told: What the compiler says of each function that is left: `file:line:column:name`, bytes, and how it knows.
        texts: The functions in C; one that is not left is part of who calls it.
        stacks: The functions that an object file has.
    """
    own = {name: stack.bytes for name, stack in stacks.items() if stack.bytes is not None}
    if len(own) < len(stacks):
        return None, ()
    for line in told.splitlines():
        place, size, how = line.split("\t")
        if how not in _BOUNDED:
            return None, ()
        function = place.rpartition(":")[2].partition(".")[0]
        own[function] = max(own.get(function, 0), int(size))
    if first not in own:
        return None, ()
    bodies = {found[1]: found[2] for text in texts for found in _FUNCTION.finditer(text)}

    def called(function: str) -> set[str]:
        if function in stacks:
            return {*stacks[function].calls}
        words = re.findall(r"\b(\w+)\(", bodies[function])
        return {word for word in words if (word in bodies or word in stacks) and word != function}

    def deepest(function: str) -> tuple[int, tuple[str, ...]]:
        size, path = max(map(deepest, sorted(called(function))), default=(0, ()), key=lambda found: found[0])
        return size + own.get(function, 0), (function, *path) if function in own else path

    return deepest(first)
