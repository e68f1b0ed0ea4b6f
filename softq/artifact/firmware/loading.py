"""Running a model in C on this computer: the same files, compiled for it."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from softq.artifact import manifest
from softq.artifact.artifact import Artifact
from softq.artifact.firmware.numbers import CODES
from softq.artifact.toolchain import host_compiler, run
from softq.data import Array, TensorSpec
from softq.errors import InputError, SoftqError
from softq.scratch import scratch_folder

_ALIGNMENT = 16


class FirmwareArtifact(Artifact):
    """A model in C on this computer; calls from several threads take turns."""

    def __init__(self, name: str, folder: Path, facts: Mapping[str, object]) -> None:
        """Compile an artifact whose files were checked, and load it.

        Raises:
            UsageError: there is no compiler for this computer.
            SoftqError: the compiler fails.
        """
        self.describe(name, facts, 1)
        symbol = str(facts["name"])
        where = manifest.source_folder(folder, facts).resolve()
        files = [f"{symbol}_host.c"] if facts["kernels"] == "object" else manifest.firmware_files(symbol, "c")
        sources = [f"-D{symbol.upper()}_HOST", *(str(where / file) for file in files if file.endswith(".c"))]
        with scratch_folder() as scratch:
            library = scratch / "model.so"
            run([*host_compiler(), "-std=c99", "-O2", "-fPIC", "-shared", *sources, "-lm", "-o", str(library)], scratch)
            self._code = ctypes.CDLL(str(library))
        self._run = getattr(self._code, f"{symbol}_run_in")
        arena = int(cast("int", facts.get("host_arena", cast("Mapping[str, int]", facts["memory"])["arena"])))
        self._memory = np.zeros(arena + _ALIGNMENT, np.uint8)
        self._turn = threading.Lock()
        self._finalizer = weakref.finalize(self, _nothing)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._finalizer.alive

    def __call__(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Return the named outputs, or all; as `Artifact` does."""
        wanted, arrays = self.wanted(outputs), self.arrays(inputs)
        for spec, array in zip(self.inputs, arrays, strict=True):
            if array.shape != spec.shape:
                raise InputError(f"{self.name}: input {spec.name!r} has shape {list(array.shape)}; expected {spec}")
        results = {spec.name: np.empty(_shape(spec), spec.dtype) for spec in self.outputs}
        with self._turn:
            if self.closed:
                raise SoftqError(f"{self.name}: the artifact is closed")
            start = self._memory.ctypes.data
            start += -start % _ALIGNMENT
            pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, *results.values())]
            code = self._run(*pointers, ctypes.c_void_p(start), ctypes.c_uint32(len(self._memory) - _ALIGNMENT))
        if code:
            raise InputError(f"{self.name}: the run ends with {CODES[code]}")
        return {name: results[name] for name in wanted}


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    assert spec.shape is not None
    assert all(isinstance(size, int) for size in spec.shape)
    return cast("tuple[int, ...]", spec.shape)


def _nothing() -> None:
    """Do nothing: what is closed is only marked so."""
