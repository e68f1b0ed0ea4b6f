"""Code of the user's own that is named by its file, and which names of code are trusted."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from softq.errors import UsageError

_doubted: list[tuple[str, frozenset[str], Callable[[], bool]]] = []
"""Files of options in use, the names in them, and whether the user trusts them."""


def import_file(file: str | os.PathLike[str]) -> ModuleType:
    """Return the module that a file is; run once, however often it is asked for."""
    path = os.path.realpath(file)
    # Not by its own name, which another module may have.
    name = f"_softq_file_{Path(path).stem}"
    there = sys.modules.get(name)
    if there is not None and there.__file__ == path:
        return there
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def distrust(file: str, texts: Iterable[str], is_trusted: Callable[[], bool]) -> Callable[[], object]:
    """Let `check_trusted` refuse code that texts out of a file of options name; return the function that ends this."""
    items = [item for text in texts for item in (text, *text.split(","))]
    values = [item.partition("=")[2] for item in items]
    # A text may have more after the code: TARGET:NAME.
    names = (name for item in (*items, *values) for name in (item, item.partition(":")[0]))
    # Blanks around a name belong to a list, or to the name of a file.
    spellings = (text for name in names for text in (name, name.strip()) if text)
    _doubted.append((file, frozenset(map(os.path.abspath, spellings)), is_trusted))
    return _doubted.pop


def check_trusted(name: str | os.PathLike[str]) -> None:
    """Refuse a file, a function, a program or an address that a file of options names; call it before code of it runs.

    Raises:
        UsageError: one does, and is not trusted.
    """
    for file, names, is_trusted in _doubted:
        if os.path.abspath(name) in names and not is_trusted():
            raise UsageError(
                f"{file} names {os.fspath(name)!r}, which is code; give it on the command line, or --trust if you "
                "trust the file"
            )
