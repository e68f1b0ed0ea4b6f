"""Running an artifact on a GPU from Python: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from softq.artifact import manifest
from softq.artifact.artifact import Artifact
from softq.artifact.device.cuda import Driver, Gpu
from softq.artifact.device.executor import Executor
from softq.artifact.device.steps import from_json
from softq.data import Array
from softq.errors import InputError, SoftqError, UsageError
from softq.files import read_text

_FORMS = ("cubin", "ptx")


class DeviceArtifact(Artifact):
    """A built model on a GPU; calls from several threads take turns."""

    def __init__(self, name: str, folder: Path, facts: Mapping[str, object], threads: int) -> None:
        """Load an artifact whose files were checked.

        Raises:
            UsageError: there is no GPU.
            InputError: the GPU is of another architecture.
            SoftqError: the artifact was built without a compiler, and there is none here.
        """
        self.describe(name, facts, threads)
        steps = from_json(read_text(folder / manifest.LAUNCHES))
        try:
            driver = Driver()
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
        with ExitStack() as kept:
            kept.callback(driver.close)
            modules = {one.module for one in steps.launches.values()}
            code = {module: _code(folder, module, driver.arch) for module in sorted(modules)}
            with driver.current(), ExitStack() as opened:
                try:
                    gpu = Gpu(driver, code)
                except SoftqError as error:
                    text = f"{name}: was built for {facts['target']}; this GPU is {driver.name}: {error}"
                    raise InputError(text) from error
                opened.callback(gpu.close)
                weights = np.memmap(folder / "weights.bin", np.uint8, "r")
                executor = Executor(steps, weights, gpu)
                opened.pop_all()
            kept.pop_all()
        self._driver, self._executor, self._turn = driver, executor, threading.Lock()
        self._finalizer = weakref.finalize(self, _close, executor, gpu, driver)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._finalizer.alive

    def __call__(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Return the named outputs, or all; as `Artifact` does."""
        wanted, arrays = self.wanted(outputs), self.arrays(inputs)
        with self._turn:
            if self.closed:
                raise SoftqError(f"{self.name}: the artifact is closed")
            with self._driver.current():
                try:
                    found = self._executor({spec.name: x for spec, x in zip(self.inputs, arrays, strict=True)})
                except InputError as error:
                    raise InputError(f"{self.name}: {error}") from error
        return {name: found[name] for name in wanted}


def _close(executor: Executor, gpu: Gpu, driver: Driver) -> None:
    with driver.current():
        executor.close()
        gpu.close()
    driver.close()


def _code(folder: Path, module: str, arch: str) -> bytes:
    """Return a module's code, compiled now if it was built without a compiler."""
    for form in _FORMS:
        path = folder / f"{module}.{form}"
        if path.is_file():
            # PTX is text that ends with a zero.
            return path.read_bytes() + b"\0"
    from softq.artifact.device.compiling import machine_code

    return machine_code((folder / f"{module}.cu").read_text(encoding="utf-8"), arch)
