"""Finding the entries of an extension folder: modules that expose one named object each, or a tuple of them.

`softq/methods`, `softq/passes` and `softq/targets` are lists by virtue of being folders. Nothing else keeps a list.
Packages outside softq add entries through the entry-point groups named in `Folder.group`. A caller who names a file
adds its entry with `Folder.open`, which has its own name from then on, in this process.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Generic, Protocol, TypeVar, cast

from softq.errors import SoftqError, UsageError
from softq.nearest import unknown
from softq.own_files import check_trusted, import_file
from softq.wording import kind_of


class Named(Protocol):
    """An entry: anything with a `name`."""

    @property
    def name(self) -> str:
        """The name that users type."""
        ...


T = TypeVar("T", bound=Named)


@dataclass(frozen=True)
class Folder(Generic[T]):
    """An extension folder.

    Attributes:
        package: Dotted name of the package whose modules are the entries, such as `softq.methods`.
        attribute: Name that each module exposes, such as `METHOD`; with an S behind it for a tuple of entries that are
            alike. Folders, and names that begin with an underscore, hold what entries share.
        kind: The class of the entries.
        group: Entry-point group through which other packages add entries.
        noun: What one entry is called in messages.
        listed_by: The command that lists the entries, if there is one.
    """

    package: str
    attribute: str
    kind: type[T]
    group: str
    noun: str
    listed_by: str = ""

    def entries(self) -> Mapping[str, T]:
        """Return every entry by name, sorted by name.

        Raises:
            SoftqError: an entry is broken, has no `attribute` of the right kind, does not carry its file's name, or
                has the name of another; the message names the owners.
        """
        own = _OWN.get(self.group)
        if not own:
            return _discover(self)
        files = {name: cast("T", entry) for name, (entry, _) in own.items()}
        return dict(sorted({**_discover(self), **files}.items()))

    def get(self, name: str) -> T:
        """Return the entry called `name`, which may come out of a file: no code is loaded for it.

        Raises:
            UsageError: there is none; the message names those nearest to it.
        """
        entries = self.entries()
        if name not in entries:
            raise UsageError(unknown(self.noun, name, entries, self.listed_by))
        return entries[name]

    def open(self, name: str) -> T:
        """Return the entry called `name`, or that of the file `name`, which is run.

        Call it for names from the command line or from a Python caller, and never for a name out of a file.

        Raises:
            UsageError: there is none, or the file holds none; or a file of options names it, which is not trusted.
        """
        if not name.endswith(".py"):
            return self.get(name)
        check_trusted(name)
        return self._open_file(name)

    def file_of(self, name: str) -> Path | None:
        """Return the file of the user's own that an entry comes from; None of any other."""
        own = _OWN.get(self.group, {}).get(name)
        return None if own is None else own[1]

    def _open_file(self, file: str) -> T:
        path = Path(os.path.realpath(file))
        if not path.is_file():
            raise UsageError(f"{self.noun} {file!r}: no such file")
        try:
            module = import_file(path)
        except Exception as error:
            told = str(error) if isinstance(error, SoftqError) else f"{type(error).__name__}: {error}"
            raise UsageError(f"{self.noun} {file!r} cannot be imported: {told}") from error
        try:
            entry = _entries(self, module, path.stem.replace("_", "-"))[0]
        except SoftqError as error:
            raise UsageError(str(error)) from error
        there = self.file_of(entry.name)
        if there not in (None, path) or entry.name in _discover(self):
            whose = there or f"softq or an installed package, which have {entry.name!r}"
            raise UsageError(f"{self.noun} {file!r} has the name of that of {whose}; call the file otherwise")
        _OWN.setdefault(self.group, {})[entry.name] = (entry, path)
        return entry


_OWN: dict[str, dict[str, tuple[object, Path]]] = {}
"""Entries of the user's own files by group and name, with their files."""


@cache
def _discover(folder: Folder[T]) -> Mapping[str, T]:
    owners: dict[str, str] = {}
    found: dict[str, T] = {}

    def add(entry: T, owner: str) -> None:
        if entry.name in found:
            raise SoftqError(f"{folder.noun} {entry.name!r} is defined twice: by {owners[entry.name]} and by {owner}")
        found[entry.name], owners[entry.name] = entry, owner

    package = importlib.import_module(folder.package)
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg or info.name.startswith("_"):
            continue
        module = _import(f"{folder.package}.{info.name}", folder.noun)
        for entry in _entries(folder, module, info.name.replace("_", "-")):
            add(entry, str(module.__file__))
    for point in entry_points(group=folder.group):
        owner = f"{point.value} (entry point {point.name!r})"
        try:
            loaded = point.load()
        except Exception as error:
            raise SoftqError(f"{folder.noun} {owner} cannot be loaded: {error}") from error
        if not isinstance(loaded, folder.kind):
            raise SoftqError(f"{folder.noun} {owner} is {kind_of(loaded)}, not a {folder.kind.__name__}")
        add(loaded, owner)
    return dict(sorted(found.items()))


def _import(name: str, noun: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise SoftqError(f"{noun} module {name} cannot be imported: {error}") from error


def _entries(folder: Folder[T], module: ModuleType, name: str) -> Sequence[T]:
    """Return the entry of a module, which has the file's name, or those of one that exposes several."""
    several = cast("object", getattr(module, f"{folder.attribute}S", None))
    entry = cast("object", getattr(module, folder.attribute, None))
    if isinstance(several, tuple) and entry is None:
        found = [entry for entry in cast("tuple[object, ...]", several) if isinstance(entry, folder.kind)]
        if found and len(found) == len(cast("tuple[object, ...]", several)):
            return found
    if not isinstance(entry, folder.kind):
        raise SoftqError(f"{module.__file__}: exposes no {folder.attribute} of type {folder.kind.__name__}")
    if entry.name != name:
        raise SoftqError(f"{module.__file__}: {folder.noun} is named {entry.name!r}; the file's name asks for {name!r}")
    return [entry]
