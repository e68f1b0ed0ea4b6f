"""What a model in C takes of flash, memory and time, from its folder."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from softq.artifact import manifest
from softq.artifact.firmware.compiling import CompiledSizes, measure, measure_with
from softq.errors import InputError, UsageError
from softq.own_files import check_trusted

_LAYER = ("kernel", "site", "shape", "multiply_adds", "weights", "arena")
_EXACT = ("arena", "arena_least", "weights")


def compiled_facts(found: CompiledSizes | None, weights: int) -> dict[str, object]:
    """Return what a manifest says of what was compiled: None of all that is not known.

    Args:
        found: The sizes, if there was a compiler.
        weights: Bytes of the weights.
    """
    if found is None:
        return dict.fromkeys(("flash", "code", "tables", "stack", "calls", "library", "compiler"), cast("object", None))
    return {
        "flash": weights + found.code + found.tables,
        "code": found.code,
        "tables": found.tables,
        "stack": found.stack,
        "calls": None if found.stack is None else list(found.calls),
        "library": list(found.library),
        "compiler": found.compiler,
    }


def read_sizes(folder: str | os.PathLike[str], *, compile: bool = False, cc: str | None = None) -> dict[str, object]:
    """Return what a model in C takes, as its manifest says it.

    Args:
        folder: What `build` wrote.
        compile: Whether flash and stack are found by compiling the files that are there.
        cc: The compiler for that, with its options; by default one for the processor, if it is here.

    Returns:
        `target`, `memory` with bytes (`flash`, `code`, `tables`, `stack` and what belongs to them are None where no
        compiler told them), `multiply_adds`, and `layers`, what each step takes.

    Raises:
        InputError: the folder is no model in C.
        UsageError: there is no compiler.
        SoftqError: the compiler fails; the message has its first error.
    """
    path = Path(folder)
    facts = manifest.read(path, kind=None)
    if facts["kind"] != manifest.FIRMWARE:
        raise InputError(f"{path}: is a {facts['kind']} for {facts['target']}; only of a model in C the size is known")
    memory = _checked(path, facts)
    if compile or cc is not None:
        found = _compile(manifest.source_folder(path, facts), facts, cc)
        memory = {**memory, **compiled_facts(found, cast("int", memory["weights"]))}
    return {"target": facts["target"], "memory": memory, "multiply_adds": facts["multiply_adds"],
            "layers": facts["layers"]}  # fmt: skip


def _checked(path: Path, facts: Mapping[str, object]) -> dict[str, object]:
    """Return what the manifest says of memory, after a look at what is read of it."""
    memory, layers = facts.get("memory"), facts.get("layers")
    good = isinstance(memory, dict) and isinstance(layers, list) and isinstance(facts.get("multiply_adds"), int)
    good = good and all(isinstance(memory.get(key), int) for key in _EXACT)  # pyright: ignore
    good = good and all(isinstance(layer, dict) and set(_LAYER) <= set(layer) for layer in cast("list[object]", layers))  # pyright: ignore
    if not good:
        raise InputError(f"{path / manifest.NAME}: has no memory, multiply_adds and layers; build the model again")
    return cast("dict[str, object]", memory)


def _compile(path: Path, facts: Mapping[str, object], cc: str | None) -> CompiledSizes:
    name = str(facts["name"])
    if cc is not None:
        check_trusted(cc)
        command = shlex.split(cc)
        if not command or shutil.which(command[0]) is None:
            raise UsageError(f"cc is {cc!r}; there is no such program")
        return measure_with(path, name, command)
    flags = [str(flag) for flag in cast("list[object]", facts["compiler_flags"])]
    found = measure(path, name, cast("Mapping[str, object]", facts["machine"]), flags)
    if found is None:
        raise UsageError(f"there is no compiler here for {facts['target']}; name one by --cc")
    return found
