"""Converted models in onnxruntime with compiled operators in the place of their functions' bodies.

`library` is the one that comes with softq, for every model that was converted with default options but for the width;
`softq build MODEL OUT --target onnxruntime` writes one for a model, whatever its options. Here they are registered with
a session. onnxruntime is imported by who makes the session.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from softq.artifact import manifest
from softq.artifact.loading import read_library
from softq.errors import InputError
from softq.scratch import scratch_folder

if TYPE_CHECKING:
    from softq.modelfile import ModelLike

_OURS = Path(__file__).parent / "prebuilt" / "operators"
_INSTEAD = "softq build MODEL OUT --target onnxruntime"


class SessionOptions(Protocol):
    """What `register` needs of `onnxruntime.SessionOptions`."""

    def register_custom_ops_library(self, path: str, /) -> None:
        """Load a library and let it register its operators."""


@dataclass(frozen=True)
class Coverage:
    """Which of a model's functions have an operator in a library.

    Attributes:
        covered: Names of those that have one.
        missing: The others' names, and why each has none; they run by their bodies, unless that says something else.
    """

    covered: Sequence[str]
    missing: Mapping[str, str]


def library() -> str:
    """Return the path of the library that comes with softq, for `register_custom_ops_library` of session options.

    It has an operator for each function that `convert` writes of a drop-in method whose options are the defaults but
    for the width, and refuses to be registered where the processor lacks what its oldest kernels need.

    Raises:
        InputError: this installation has none: it is of a wheel for any platform, or of the source; or the one that it
            has is damaged, or for another processor.
    """
    folder = _ours()
    _read(str(folder), folder)
    return str(folder / manifest.OPERATOR_LIBRARY)


def register(
    session_options: SessionOptions,
    path: str | os.PathLike[str] | None = None,
    *,
    signature: str | os.PathLike[str] | None = None,
) -> None:
    """Let sessions with these options run softq's functions by the operators of a folder.

    The files are compared with the manifest before anything is loaded, and a private copy of the library is loaded: a
    folder that is built anew does not change code that runs, and the next call takes the new one.

    Args:
        session_options: An `onnxruntime.SessionOptions`, before its session is made.
        path: The folder that `softq build --target onnxruntime` wrote; by default the one that comes with softq.
        signature: PEM file of the public Ed25519 key by which the folder must be signed; none by default.

    Raises:
        InputError: the folder holds no operators, is damaged, was built for another processor, or is not signed by the
            key; no folder is named and none comes with this softq; or onnxruntime cannot load the library: it is too
            old, or the processor lacks a feature.
        UsageError: a signature is asked for and cryptography is not installed.
    """
    path = _ours() if path is None else path
    if signature is None:
        return _register(session_options, os.fspath(path), Path(path))
    from softq.artifact.signing import signed_copy

    with signed_copy(Path(path), signature) as copy:
        return _register(session_options, os.fspath(path), copy)


def coverage(model: ModelLike, path: str | os.PathLike[str] | None = None) -> Coverage:
    """Return which of the functions that a converted model calls have an operator in a folder.

    Args:
        model: A path, an `onnx.ModelProto` or an `onnx_ir.Model` that `convert` made.
        path: The folder that `softq build --target onnxruntime` wrote; by default the one that comes with softq.

    Raises:
        InputError: the model cannot be used, or the folder holds no operators; or no folder is named and none comes
            with this softq.
    """
    from softq.modelfile import as_model
    from softq.provenance import function_lengths

    facts = manifest.read(Path(_ours() if path is None else path), manifest.OPERATORS)
    operators = {str(o["name"]): o for o in cast("Sequence[Mapping[str, object]]", facts["operators"])}
    covered: list[str] = []
    missing: dict[str, str] = {}
    for name, length in function_lengths(as_model(model)).items():
        most = operators[name].get("max_length") if name in operators else None
        if name not in operators:
            missing[name] = f"the library has no operator for it; compile one: {_INSTEAD}"
        elif isinstance(most, int) and length > most:
            missing[name] = f"rows may have {length:,} elements, and its operator refuses more than {most:,}"
        else:
            covered.append(name)
    return Coverage(covered, missing)


def own_folder() -> Path | None:
    """Return the folder of the operators that come with softq; None where this installation has none."""
    return _OURS if _OURS.is_dir() else None


def _ours() -> Path:
    folder = own_folder()
    if folder is None:
        raise InputError(
            "this installation of softq has no library of operators: wheels for Linux on x86-64 and on 64-bit Arm have "
            f"one; or compile the operators of a model: {_INSTEAD}"
        )
    return folder


def quantize_overrides(model: ModelLike) -> dict[str, Any]:
    """Return arguments of `onnxruntime.quantization.quantize_static` for a converted model.

    See `softq.static_quantization.quantize_overrides`, which this is.
    """
    from softq.static_quantization import quantize_overrides as find

    return find(model)


def _read(name: str, folder: Path) -> bytes:
    """Return the library of a folder that users call so, after comparing its files with the manifest."""
    facts = manifest.read(folder, manifest.OPERATORS)
    try:
        return read_library(name, folder, facts, manifest.OPERATOR_LIBRARY)
    except OSError as error:
        raise InputError(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from error


def _register(session_options: SessionOptions, name: str, folder: Path) -> None:
    code = _read(name, folder)
    with scratch_folder() as place:
        # The system takes a library of the same path for the one that is loaded already.
        library = place / manifest.OPERATOR_LIBRARY
        library.write_bytes(code)
        try:
            session_options.register_custom_ops_library(str(library))
        except Exception as error:  # onnxruntime's own kinds share no base
            raise InputError(f"{name}: onnxruntime cannot load the operators: {error}") from error
