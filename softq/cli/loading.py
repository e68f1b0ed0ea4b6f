"""What a short command spares: looking for garbage, and what its libraries import and do not use."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

UNUSED = ("sympy", "onnx_ir._symbolic_shapes")
"""Sympy is for sums and products of named dimensions, and onnx-ir imports it at once: a quarter of a second."""


@contextmanager
def loading_late() -> Generator[None]:
    """Load `UNUSED` when they are first used, not when they are imported."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def keeping_garbage() -> Generator[None]:
    """Look for no garbage in circles meanwhile."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Finder:
    """Finds modules that load themselves when something of them is used."""

    def __init__(self) -> None:
        self._names = set(UNUSED)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        self._names.remove(name)  # The others find it.
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec
