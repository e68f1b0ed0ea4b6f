"""A built model in Python: NumPy arrays in, NumPy arrays out, no copies where none is needed."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from softq.artifact.abi import DTYPES, numpy_dtype
from softq.artifact.library import Contexts, CTensor
from softq.data import Array, TensorSpec
from softq.errors import InputError, UsageError
from softq.wording import kind_of


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
        self.describe(name, facts, threads)
        self._contexts = contexts
        self._library = contexts.library
        self._finalizer = weakref.finalize(self, contexts.close)

    def describe(self, name: str, facts: Mapping[str, object], threads: int) -> None:
        """Take over what the manifest says."""
        self.name = name
        self.manifest = facts
        self.inputs = tensor_specs(facts, "inputs")
        self.outputs = tensor_specs(facts, "outputs")
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
        wanted, arrays = self.wanted(outputs), self.arrays(inputs)
        names = [spec.name for spec in self.outputs]
        given = (CTensor * len(arrays))(*map(c_tensor, arrays))
        taken = (CTensor * len(names))()
        results: dict[str, Array] = {}
        with self._contexts.one() as context:
            self._library.shape(context, given, taken)
            for tensor, spec in zip(taken, self.outputs, strict=True):
                shape = tuple(tensor.shape[: tensor.rank])
                # Where data decide a size, the context has the memory.
                if spec.name in wanted and spec.name not in results and -1 not in shape:
                    results[spec.name] = np.empty(shape, spec.dtype)
                    tensor.data = results[spec.name].ctypes.data
                    tensor.bytes = results[spec.name].nbytes
            self._library.run(context, given, taken)
            for tensor, spec in zip(taken, self.outputs, strict=True):
                if spec.name in wanted and spec.name not in results:
                    results[spec.name] = np_array(tensor, spec.dtype)
        return {name: results[name] for name in wanted}

    def wanted(self, outputs: Sequence[str] | None) -> list[str]:
        """Return the names of the outputs that are wanted, all by default."""
        names = [spec.name for spec in self.outputs]
        wanted = names if outputs is None else list(outputs)
        for name in wanted:
            if name not in names:
                raise UsageError(f"{self.name}: has no output {name!r}; there are: {', '.join(names)}")
        return wanted

    def arrays(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the inputs in their order, checked."""
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
            raise InputError(f"{self.name}: input {spec.name!r} is {kind_of(array)}; expected an array, {spec}")
        array = cast("Array", array)
        # A foreign byte order has another str, not another name.
        if array.dtype != numpy_dtype(spec.dtype):
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

    def __exit__(self, *args: object) -> None:
        self.close()

    def __repr__(self) -> str:
        given, results = (", ".join(f"{s.name} {s}" for s in specs) for specs in (self.inputs, self.outputs))
        machine = cast("Mapping[str, object]", self.manifest["machine"])["name"]
        state = ", closed" if self.closed else ""
        return f"<softq.Artifact {self.name!r} for {machine}: {given} -> {results}; threads {self.threads}{state}>"


def tensor_specs(facts: Mapping[str, object], key: str) -> tuple[TensorSpec, ...]:
    """Return the inputs or the outputs of a manifest."""
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


def np_array(tensor: CTensor, dtype: str) -> Array:
    """Return a copy of an array that the interface of C gave."""
    shape = tuple(tensor.shape[: tensor.rank])
    element = numpy_dtype(dtype)
    count = math.prod(shape) * element.itemsize
    return np.frombuffer(ctypes.string_at(tensor.data, count) if count else b"", element).reshape(shape).copy()
