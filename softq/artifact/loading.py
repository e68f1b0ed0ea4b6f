"""Running an artifact from Python: NumPy arrays in, NumPy arrays out, no copies where none is needed.

Needs neither TVM nor a compiler. Everything that the manifest says of the files is checked before any code is loaded;
that protects against damage, not against malice: an artifact is a program, load only those that you trust.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import cast

import numpy as np

from softq.artifact import elf, manifest
from softq.artifact.abi import DTYPES
from softq.artifact.library import Contexts, CTensor, Library
from softq.data import Array, TensorSpec
from softq.errors import InputError, UsageError

MOST_THREADS = 1024


class Artifact:
    """A built model that is ready to run; made by `load`. It may be called from several threads at once.

    Attributes:
        name: The folder as the caller gave it.
        inputs: What it takes.
        outputs: What it gives.
        manifest: What `manifest.json` says.
        sites: The kernels that compute each softmax, by the id of the site.
        threads: Threads that work on one call.
    """

    def __init__(self, name: str, facts: Mapping[str, object], contexts: Contexts, threads: int) -> None:
        self._describe(name, facts, threads)
        self._contexts = contexts
        self._library = contexts.library
        self._finalizer = weakref.finalize(self, contexts.close)

    def _describe(self, name: str, facts: Mapping[str, object], threads: int) -> None:
        self.name = name
        self.manifest = facts
        self.inputs = _specs(facts, "inputs")
        self.outputs = _specs(facts, "outputs")
        kernels = cast("Mapping[str, Sequence[str]]", facts["sites"])
        self.sites: Mapping[str, tuple[str, ...]] = {site: tuple(symbols) for site, symbols in kernels.items()}
        self.threads = threads

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._contexts.closed

    def __call__(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Return the named outputs, or all.

        Contiguous arrays of the right type are read where they lie; others are copied, but never cast.

        Args:
            inputs: An array for each input, by name.
            outputs: Names of the outputs that are wanted; all by default.

        Raises:
            InputError: an array is missing, unknown, or of a wrong type or shape; or a value makes no sense.
            UsageError: there is no such output.
            SoftqError: the artifact is closed, or memory is short.
        """
        wanted, arrays = self._wanted(outputs), self._arrays(inputs)
        names = [spec.name for spec in self.outputs]
        given = (CTensor * len(arrays))(*map(c_tensor, arrays))
        taken = (CTensor * len(names))()
        results: dict[str, Array] = {}
        with self._contexts.one() as context:
            self._library.shape(context, given, taken)
            for tensor, spec in zip(taken, self.outputs, strict=True):
                if spec.name in wanted and spec.name not in results:
                    results[spec.name] = np.empty(tuple(tensor.shape[: tensor.rank]), spec.dtype)
                    tensor.data = results[spec.name].ctypes.data
                    tensor.bytes = results[spec.name].nbytes
            self._library.run(context, given, taken)
        return {name: results[name] for name in wanted}

    def _wanted(self, outputs: Sequence[str] | None) -> list[str]:
        names = [spec.name for spec in self.outputs]
        wanted = names if outputs is None else list(outputs)
        for name in wanted:
            if name not in names:
                raise UsageError(f"{self.name}: has no output {name!r}; there are: {', '.join(names)}")
        return wanted

    def _arrays(self, inputs: Mapping[str, Array]) -> list[Array]:
        arrays = [self._array(spec, inputs) for spec in self.inputs]
        if len(inputs) > len(arrays):
            unknown = next(name for name in inputs if name not in {spec.name for spec in self.inputs})
            there = ", ".join(repr(spec.name) for spec in self.inputs) or "none"
            raise InputError(f"{self.name}: has no input {unknown!r}; there are: {there}")
        return arrays

    def _array(self, spec: TensorSpec, inputs: Mapping[str, Array]) -> Array:
        if spec.name not in inputs:
            raise InputError(f"{self.name}: input {spec.name!r} is missing; expected {spec}")
        array = cast("object", inputs[spec.name])
        if not isinstance(array, np.ndarray):
            raise InputError(f"{self.name}: input {spec.name!r} is a {type(array).__name__}; expected an array, {spec}")
        array = cast("Array", array)
        # A foreign byte order has another str, not another name.
        if array.dtype != np.dtype(spec.dtype):
            found = array.dtype.name if array.dtype.isnative else array.dtype.str
            raise InputError(f"{self.name}: input {spec.name!r} is {found}; expected {spec}, and nothing is cast")
        if array.ndim != len(spec.shape or ()):
            raise InputError(f"{self.name}: input {spec.name!r} has shape {list(array.shape)}; expected {spec}")
        return np.require(array, requirements=["C", "A"])

    def close(self) -> None:
        """Release memory and threads once running calls are done; later calls fail. Closing twice is allowed."""
        self._finalizer()

    def __enter__(self) -> Artifact:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        arrow = f"{', '.join(map(_text, self.inputs))} -> {', '.join(map(_text, self.outputs))}"
        machine = cast("Mapping[str, object]", self.manifest["machine"])["name"]
        state = ", closed" if self.closed else ""
        return f"<softq.Artifact {self.name!r} for {machine}: {arrow}; threads {self.threads}{state}>"


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
            return _on_device(name, folder, facts, threads)
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


def _on_device(name: str, folder: Path, facts: Mapping[str, object], threads: int) -> Artifact:
    from softq.artifact.device.loading import DeviceArtifact

    return DeviceArtifact(name, folder, facts, threads)


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
        elf.check(folder / "libmodel.so", _machine(facts))
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


def _machine(facts: Mapping[str, object]) -> str:
    machine = cast("Mapping[str, object]", facts["machine"])
    return f"machine {machine['name']} ({machine['triple']})"


def _check_interface(name: str, facts: Mapping[str, object], library: Library) -> None:
    """Check that the manifest describes the library: whoever edits one does not edit the other."""
    for key, found in (("inputs", library.inputs), ("outputs", library.outputs)):
        expected = [
            (s.name, s.dtype, tuple(d if isinstance(d, int) else -1 for d in s.shape or ())) for s in _specs(facts, key)
        ]
        if expected != found:
            raise InputError(f"{name}: the manifest's {key} are not those of libmodel.so: one of them was changed")


def _specs(facts: Mapping[str, object], key: str) -> tuple[TensorSpec, ...]:
    dims = cast("list[str]", facts["dims"])
    entries = cast("list[Mapping[str, object]]", facts[key])
    # An expression over dimensions has no name that another model could share.
    return tuple(
        TensorSpec(
            str(entry["name"]),
            str(entry["dtype"]),
            tuple(d if isinstance(d, int) or d in dims else None for d in cast("list[int | str]", entry["shape"])),
        )
        for entry in entries
    )


def c_tensor(array: Array) -> CTensor:
    """Return an array as the interface of C has it; the caller keeps the array."""
    dtype = DTYPES.index(array.dtype.name) + 1
    return CTensor(None, dtype, array.ndim, (*array.shape,), array.ctypes.data, array.nbytes)


def _text(spec: TensorSpec) -> str:
    return f"{spec.name} {spec}"
