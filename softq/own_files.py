"""Modules of the user's own that are named by their file."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType


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
