"""Converted models in onnxruntime with compiled operators in the place of their functions' bodies.

`softq build MODEL OUT --target onnxruntime` writes the operators; here they are registered with a session.
onnxruntime is imported by who makes the session.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from softq.artifact import manifest
from softq.artifact.loading import read_library
from softq.errors import InputError
from softq.scratch import scratch_folder


class SessionOptions(Protocol):
    """What `register` needs of `onnxruntime.SessionOptions`."""

    def register_custom_ops_library(self, path: str, /) -> None:
        """Load a library and let it register its operators."""


def register(
    session_options: SessionOptions, path: str | os.PathLike[str], *, signature: str | os.PathLike[str] | None = None
) -> None:
    """Let sessions with these options run softq's functions by the operators of a folder.

    The files are compared with the manifest before anything is loaded, and a private copy of the library is loaded: a
    folder that is built anew does not change code that runs, and the next call takes the new one.

    Args:
        session_options: An `onnxruntime.SessionOptions`, before its session is made.
        path: The folder that `softq build --target onnxruntime` wrote.
        signature: PEM file of the public Ed25519 key by which the folder must be signed; none by default.

    Raises:
        InputError: the folder holds no operators, is damaged, was built for another processor, or is not signed by the
            key; or onnxruntime cannot load the library: it is too old, or the processor lacks a feature.
        UsageError: a signature is asked for and cryptography is not installed.
    """
    if signature is None:
        return _register(session_options, os.fspath(path), Path(path))
    from softq.artifact.signing import signed_copy

    with signed_copy(Path(path), signature) as copy:
        return _register(session_options, os.fspath(path), copy)


def _register(session_options: SessionOptions, name: str, folder: Path) -> None:
    facts = manifest.read(folder, manifest.OPERATORS)
    try:
        code = read_library(name, folder, facts, manifest.OPERATOR_LIBRARY)
    except OSError as error:
        raise InputError(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from error
    with scratch_folder() as place:
        # The system takes a library of the same path for the one that is loaded already.
        library = place / manifest.OPERATOR_LIBRARY
        library.write_bytes(code)
        try:
            session_options.register_custom_ops_library(str(library))
        except Exception as error:  # onnxruntime's own kinds share no base
            raise InputError(f"{name}: onnxruntime cannot load the operators: {error}") from error
