"""What all parts of a comparison share: what is observed is collected, and which methods are looked at."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.unchanged import corpus

Array = NDArray[np.generic]
Settings = Mapping[str, int]

REFUSED, CRASHED = "refused ", "crashed "
"""How the value of what was refused begins, and of what ended in an error that is none of softq's."""


class Observer:
    """Collects what is observed.

    Attributes:
        quick: Whether a few methods are enough.
        models: The models to look at.
        names: Public names that have to be there; None to find them.
        kinds: What was observed: hashes by key by kind.
    """

    def __init__(self, models: list[corpus.Kept], texts: Path, built: Path | None, quick: bool) -> None:
        self.quick, self.models = quick, models
        self.names: list[str] | None = None
        self.kinds: dict[str, dict[str, str]] = {}
        self._texts, self._built = texts, built

    def see(self, kind: str, key: str, value: str | bytes) -> None:
        """Take down what was observed; of a text more than its hash is kept."""
        data = value.encode() if isinstance(value, str) else value
        seen = hashlib.sha256(data).hexdigest()
        if isinstance(value, str):
            (self._texts / f"{seen[:20]}.txt").write_bytes(data)
        self._put(kind, key, seen)

    def attempt(self, kind: str, key: str, work: Callable[[], str | bytes]) -> bool:
        """Take down what some work gives, or the error in which it ends; say whether it gave something."""
        from softq import SoftqError

        try:
            self.see(kind, key, work())
        except SoftqError as error:
            self._fail(kind, key, REFUSED, f"{type(error).__name__}: {error}")
        except Exception as error:
            print(f"{kind}: {key}: {type(error).__name__}: {error}", file=sys.stderr)
            self._fail(kind, key, CRASHED, f"{type(error).__name__}: {error}")
        else:
            return True
        return False

    def place(self, name: str) -> Path:
        """Return where to build something: a folder that stays where built folders are kept."""
        return Path("built") if self._built is None else self._built / name.replace("/", "_").replace(" ", "_")

    def _fail(self, kind: str, key: str, how: str, text: str) -> None:
        self.see(kind, key, text)
        self.kinds[kind][key] = how + self.kinds[kind][key]

    def _put(self, kind: str, key: str, value: str) -> None:
        there = self.kinds.setdefault(kind, {})
        assert key not in there, f"{kind}: {key} is seen twice"
        there[key] = value


def bits_of(arrays: Mapping[str, Array]) -> bytes:
    """Return arrays as bytes, with their names, types and shapes."""
    whole = hashlib.sha256()
    for name, array in arrays.items():
        whole.update(f"{name} {array.dtype.str} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return whole.digest()


def method_names() -> list[str]:
    """Return the methods of this checkout."""
    from softq import METHODS

    return list(METHODS.entries())


FEW: tuple[tuple[str, Settings], ...] = (
    ("exact", {}), ("deferred-log", {}), ("deferred-log", {"bits": 3}), ("deferred-log", {"bits": 2}),
    ("tflite-int8", {}),
)  # fmt: skip


def methods_of(extent: str, *, quick: bool) -> list[tuple[str, Settings]]:
    """Return the methods, with settings, with which a model is converted."""
    few = {corpus.NONE: FEW[:0], corpus.PLAIN: FEW[:0], corpus.DEFAULT: FEW[:2]}.get(extent, FEW)
    if extent == corpus.ALL and quick:
        return [*few, ("i-exp", {})]
    if extent == corpus.ALL:
        return [*few, *((name, {}) for name in method_names() if (name, {}) not in FEW)]
    return [*few]


def label(method: str | None, settings: Settings) -> str:
    """Return a method with its settings as a key has it."""
    return " ".join([method or "as it is", *(f"{name}={value}" for name, value in settings.items())])
