"""What `softq build` writes, and how it is run: a folder with kernels, their C driver, weights and a manifest.

`softq.h` in the folder is the interface for C; `load` runs an artifact from Python, with neither TVM nor a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from softq.artifact.artifact import Artifact
from softq.artifact.loading import load

if TYPE_CHECKING:
    from softq.artifact.folder import check_folder
    from softq.artifact.writing import write

__all__ = ["Artifact", "check_folder", "load", "write"]


# Running an artifact needs nothing of what writes one.
_WRITING = {"check_folder": "folder", "write": "writing"}


def __getattr__(name: str) -> object:
    if name in _WRITING:
        return getattr(import_module(f"softq.artifact.{_WRITING[name]}"), name)
    raise AttributeError(f"module 'softq.artifact' has no attribute {name!r}")
